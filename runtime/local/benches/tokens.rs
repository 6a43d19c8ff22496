//! Compares an answer of a local model with the same engine alone, in the same run: tokens a second, on one file, with the same
//! number of threads.
//!
//! The answer is streamed by the provider `local`: from the engine's process, with the checks of each token, its text and the
//! sampling. The engine alone is llama.cpp in this process, which evaluates one token after the other and takes the most probable
//! one. The file has random weights, of the size of a small model. The ratio is the result.
//!
//! `cargo bench -p toolcell-local --features engine --bench tokens` prints the table, and fails if the ratio is below its goal.

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use toolcell_core::provider::{Completion, Delta, Request};
use toolcell_core::{Message, Provider as _};
use toolcell_local::ChildCommand;
use toolcell_local::engine::{LocalModel, LocalOptions, engine_child_main};
use toolcell_local::template::template_child_main;

#[path = "../src/testing.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod gguf_files;

use gguf_files::{Shape, Weights, model};

/// Goal: tokens a second, relative to the engine alone.
const GOAL: f64 = 0.9;

/// About 94 million weights, 100 MB: evaluating a token takes milliseconds, as with the models that users run.
const SHAPE: Shape = Shape {
    width: 1024,
    heads: 16,
    kv_heads: 8,
    hidden: 2816,
    layers: 8,
    context: 2048,
    weights: Weights::Q8_0,
};

/// Tokens of a measurement.
const TOKENS: u64 = 200;

/// Measurements of each side. They alternate.
const ROUNDS: u64 = 7;

const ENGINE: &str = "__engine";
const TEMPLATE: &str = "__template";

/// llama.cpp alone.
struct Alone<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
}

impl<'m> Alone<'m> {
    fn new(model: &'m LlamaModel, backend: &LlamaBackend, threads: usize) -> Self {
        let threads = i32::try_from(threads).unwrap();
        let parameters = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(SHAPE.context))
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        Self {
            context: model.new_context(backend, parameters).unwrap(),
            batch: LlamaBatch::new(1, 1),
        }
    }

    /// Evaluates a prompt and then `TOKENS` tokens, and returns the tokens a second of those.
    fn measure(&mut self, prompt: usize) -> f64 {
        self.context.clear_kv_cache();
        let mut token = LlamaToken::new(10);
        let mut position = 0;
        for _ in 0..prompt {
            token = self.next(token, &mut position);
        }
        let start = Instant::now();
        for _ in 0..TOKENS {
            token = self.next(token, &mut position);
        }
        rate(TOKENS, start.elapsed())
    }

    fn next(&mut self, token: LlamaToken, position: &mut i32) -> LlamaToken {
        self.batch.clear();
        self.batch.add(token, *position, &[0], true).unwrap();
        *position += 1;
        self.context.decode(&mut self.batch).unwrap();
        let logits = self.context.get_logits_ith(0).iter().enumerate();
        let best = logits.max_by(|(_, one), (_, other)| one.total_cmp(other));
        LlamaToken::new(i32::try_from(best.unwrap().0).unwrap())
    }
}

fn rate(tokens: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "there are few tokens")]
    let tokens = tokens as f64;
    tokens / time.as_secs_f64()
}

fn provider(path: &Path, threads: usize) -> LocalModel {
    let command = |argument: &str| ChildCommand {
        program: std::env::current_exe().unwrap(),
        args: vec![argument.into()],
    };
    LocalModel::open(LocalOptions {
        path: path.to_owned(),
        context: Some(SHAPE.context.into()),
        threads,
        command: command(ENGINE),
        templates: command(TEMPLATE),
        shares_beginnings: true,
    })
    .unwrap()
}

/// Streams answers until they have `TOKENS` tokens, and returns the tokens a second between the first text and the end of
/// each, with the length of the last prompt.
async fn measure(model: &LocalModel, seed: &mut u64) -> (f64, u64) {
    let (mut tokens, mut time) = (0, Duration::ZERO);
    loop {
        *seed += 1;
        let request = Request {
            messages: vec![Arc::new(Message::user("Count from one to a thousand, in words."))],
            max_output_tokens: Some(TOKENS),
            temperature: Some(1.0),
            seed: Some(*seed),
            session: Some("bench".into()),
            ..Request::default()
        };
        let (completion, taken) = answer(model, request).await;
        let usage = completion.usage.unwrap();
        tokens += usage.output.saturating_sub(1);
        time += taken;
        if tokens >= TOKENS {
            return (rate(tokens, time), usage.input);
        }
    }
}

/// Returns an answer, and the time from its first text to its end.
async fn answer(model: &LocalModel, request: Request) -> (Completion, Duration) {
    let mut stream = model.stream(request);
    let mut first = None;
    loop {
        let item = poll_fn(|context| stream.as_mut().poll_next(context)).await;
        match item.unwrap().unwrap() {
            Delta::Text(_) => {
                first.get_or_insert_with(Instant::now);
            }
            Delta::Finished(completion) => {
                return (completion, first.map_or(Duration::ZERO, |first| first.elapsed()));
            }
            _ => {}
        }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(ENGINE) => return engine_child_main(),
        Some(TEMPLATE) => return template_child_main(),
        _ => {}
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("random.gguf");
    std::fs::write(&path, model("llama", SHAPE, 1).bytes()).unwrap();
    let threads = std::thread::available_parallelism().unwrap().get();

    let mut backend = LlamaBackend::init().unwrap();
    backend.void_logs();
    let parameters = LlamaModelParams::default().with_n_gpu_layers(0);
    let raw = LlamaModel::load_from_file(&backend, &path, &parameters).unwrap();
    let mut alone = Alone::new(&raw, &backend, threads);
    let ours = provider(&path, threads);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();

    let (mut seed, mut of_ours, mut of_alone) = (0, Vec::new(), Vec::new());
    // The first answer starts the process and reads the file.
    let (_, prompt) = runtime.block_on(measure(&ours, &mut seed));
    for _ in 0..ROUNDS {
        of_alone.push(alone.measure(usize::try_from(prompt).unwrap()));
        of_ours.push(runtime.block_on(measure(&ours, &mut seed)).0);
    }
    let (of_ours, of_alone) = (median(of_ours), median(of_alone));
    let ratio = of_ours / of_alone;
    println!("{threads} threads, {prompt} tokens of prompt, then {TOKENS}; median of {ROUNDS}");
    println!("  llama.cpp alone   {of_alone:8.1} tokens/s");
    println!("  provider `local`  {of_ours:8.1} tokens/s");
    println!("  ratio             {ratio:8.2} (goal: at least {GOAL})");
    match ratio >= GOAL {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
