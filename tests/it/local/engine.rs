//! Provider `local`: the engine in its process, with random models. Requires the feature `local`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind, Request, StopReason, ToolChoice, Usage};
use toolcell_core::tool::Hints;
use toolcell_core::{BoxStream, Message, Part, Provider as _, ProviderError, Schema, ToolName, ToolSpec};
use toolcell_local::ChildCommand;
use toolcell_local::engine::{LocalModel, LocalOptions, MAX_WAITING};

use super::models::gguf_files::{FileWriter, SMALL, Shape, model};
use crate::support::cli_user::User;

/// Random model whose context holds the prompts of `toolcell run`, each byte of which is a token.
fn spacious() -> FileWriter {
    let shape = Shape {
        context: 32_768,
        ..SMALL
    };
    model("llama", shape, 1)
}

const CONFIGURED: &str = "[provider]\nname = \"local\"\nmodel = \"small.gguf\"\nnum_ctx = \"32 k\"\nmax_output_tokens = 24\nseed = 1\n";

#[test]
fn turns_are_streamed_and_continued() {
    let user = User::new();
    user.configure(CONFIGURED).file("small.gguf", spacious().bytes());
    // An answer of random words ends at its maximum, or at a token of the template.
    let run = |arguments: &[&str]| user.run(&[&["run", "Hello", "--tool", "text"], arguments].concat());
    let seen = run(&[]);
    assert!([0, 1].contains(&seen.code), "{}", seen.stderr);
    assert!(seen.stderr.contains("of memory"), "{}", seen.stderr);
    assert!(!seen.stdout.trim().is_empty());
    assert_eq!(
        seen.stdout,
        run(&["--no-session"]).stdout,
        "the seed repeats the answer"
    );
}

/// Model with the engine of the built program, whose process writes its number to a file.
struct Engine {
    _dir: tempfile::TempDir,
    model: LocalModel,
    number: PathBuf,
}

impl Engine {
    fn of(file: &FileWriter, context: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small.gguf");
        std::fs::write(&path, file.bytes()).unwrap();
        let number = dir.path().join("number");
        let script = format!(
            "echo $$ > '{}'; exec '{}' __engine",
            number.display(),
            env!("CARGO_BIN_EXE_toolcell")
        );
        let options = LocalOptions {
            path,
            context: Some(context),
            threads: 1,
            shares_beginnings: true,
            command: ChildCommand {
                program: "/bin/sh".into(),
                args: vec!["-c".into(), script.into()],
            },
            templates: ChildCommand {
                program: env!("CARGO_BIN_EXE_toolcell").into(),
                args: vec!["__template".into()],
            },
        };
        Self {
            model: LocalModel::open(options).unwrap(),
            _dir: dir,
            number,
        }
    }

    fn process(&self) -> String {
        std::fs::read_to_string(&self.number).unwrap().trim().to_owned()
    }

    fn kill(&self) {
        let status = std::process::Command::new("kill")
            .args(["-9", &self.process()])
            .status();
        assert!(status.unwrap().success());
    }
}

fn ask(text: &str, tokens: u64) -> Request {
    Request {
        messages: vec![Arc::new(Message::user(text))],
        max_output_tokens: Some(tokens),
        temperature: Some(1.0),
        seed: Some(1),
        session: Some("s".into()),
        ..Request::default()
    }
}

type Item = Result<Delta, ProviderError>;

async fn next(stream: &mut BoxStream<'_, Item>) -> Option<Item> {
    futures_util::StreamExt::next(stream).await
}

/// Reads a stream to its end.
async fn whole(mut stream: BoxStream<'_, Item>) -> Result<Completion, ProviderError> {
    while let Some(item) = next(&mut stream).await {
        if let Delta::Finished(completion) = item? {
            return Ok(completion);
        }
    }
    panic!("the stream has no end");
}

fn usage(completion: &Completion) -> Usage {
    completion.usage.unwrap()
}

#[tokio::test]
async fn second_turn_reads_the_first_from_the_cache() {
    let engine = Engine::of(&spacious(), 2_000);
    let first = whole(engine.model.stream(ask("Hello there", 10))).await.unwrap();
    assert_eq!((usage(&first).cache_read, usage(&first).output), (0, 10));
    assert_eq!(first.stop, StopReason::MaxTokens);
    let mut request = ask("Hello there", 10);
    request.messages.push(Arc::new(Message::Assistant {
        parts: first.parts.clone(),
    }));
    request.messages.push(Arc::new(Message::user("More")));
    let second = whole(engine.model.stream(request)).await.unwrap();
    let (before, after) = (usage(&first), usage(&second));
    assert!(after.cache_read >= before.input, "{before:?} {after:?}");
    let listed = engine.model.models().await.unwrap();
    assert_eq!(listed[0].context_tokens, Some(2_000));
}

#[tokio::test]
async fn engine_that_ends_is_an_error_and_starts_again() {
    let engine = Engine::of(&spacious(), 30_000);
    let mut stream = engine.model.stream(ask("Hello", 20_000));
    loop {
        if let Delta::Text(_) = next(&mut stream).await.unwrap().unwrap() {
            break;
        }
    }
    let process = engine.process();
    engine.kill();
    let error = whole(stream).await.unwrap_err();
    assert!(
        error.message.contains("the engine ended unexpectedly (signal 9"),
        "{error}"
    );
    let answer = whole(engine.model.stream(ask("Hello", 5))).await.unwrap();
    assert_eq!(usage(&answer).output, 5);
    assert_ne!(process, engine.process());
}

#[tokio::test]
async fn dropped_stream_frees_the_model_for_the_next() {
    let engine = Engine::of(&spacious(), 30_000);
    let mut stream = engine.model.stream(ask("Hello", 25_000));
    loop {
        if let Delta::Text(_) = next(&mut stream).await.unwrap().unwrap() {
            break;
        }
    }
    let process = engine.process();
    let waiting = tokio::spawn({
        let model = engine.model.clone();
        async move { whole(model.stream(ask("Second", 5))).await }
    });
    drop(stream);
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(usage(&second).output, 5);
    // It was cancelled and not killed: the same process goes on, with what it has evaluated.
    assert_eq!(process, engine.process());
    assert!(usage(&second).cache_read > 0);
}

#[tokio::test]
async fn requests_wait_in_a_bounded_queue() {
    let engine = Engine::of(&spacious(), 2_000);
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..MAX_WAITING {
        let model = engine.model.clone();
        answers.spawn(async move { whole(model.stream(ask("Hello", 3))).await });
    }
    // Each has begun to wait before the next is polled.
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::ZERO).await;
    let refused = whole(engine.model.stream(ask("Hello", 3))).await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unavailable);
    assert!(error.message.contains("64 requests wait"), "{error}");
    while let Some(answer) = answers.join_next().await {
        assert_eq!(usage(&answer.unwrap().unwrap()).output, 3);
    }
}

#[tokio::test]
async fn calls_are_deltas_and_parts() {
    let engine = Engine::of(&spacious(), 4_000);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 10, "maximum": 99 } }, "required": ["n"], "additionalProperties": false });
    let mut request = ask("Call it", 200);
    request.tool_choice = ToolChoice::Required;
    request.parallel_calls = Some(false);
    request.tools = vec![ToolSpec {
        name: ToolName::new("count").unwrap(),
        title: None,
        description: "Counts.".into(),
        input: Arc::new(Schema::new(schema).unwrap()),
        output: None,
        hints: Hints::default(),
        annotations: Default::default(),
    }]
    .into();
    let mut stream = engine.model.stream(request.clone());
    let mut written = String::new();
    let completion = loop {
        match next(&mut stream).await.unwrap().unwrap() {
            Delta::CallStarted { name, .. } => assert_eq!(name, "count"),
            Delta::CallArguments { fragment, .. } => written.push_str(&fragment),
            Delta::Finished(completion) => break completion,
            _ => {}
        }
    };
    let [Part::Call(call)] = &completion.parts[..] else {
        panic!("{completion:?}");
    };
    assert_eq!(call.arguments, written);
    let arguments = serde_json::from_str(&call.arguments).unwrap();
    request.tools[0].input.check_arguments(&arguments).unwrap();
}

#[tokio::test]
async fn conversation_beyond_the_context_is_an_error() {
    let engine = Engine::of(&spacious(), 1_000);
    let error = whole(engine.model.stream(ask(&"x".repeat(1_100), 3)))
        .await
        .unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::ContextLength);
    assert!(error.message.contains("and the context has 1024"), "{error}");
    whole(engine.model.stream(ask("x", 3))).await.unwrap();
}
