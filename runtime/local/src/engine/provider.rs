//! Provider of a local model.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use jiff::civil::DateTime;
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore, mpsc};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{
    Completion, Delta, ProviderErrorKind, ProviderInfo, Request, StopReason, Usage,
};
use toolcell_core::{BoxFuture, BoxStream, Part, Provider, ProviderError};

use super::host::{Broken, Process};
use super::protocol::{Done, Fault, FromEngine, Generate, Load, Stop, ToEngine};
use crate::ChildCommand;
use crate::chat::{CallForm, ChatForm, ControlNames, Said, Splitter};
use crate::error::LocalError;
use crate::gguf::Gguf;
use crate::model::{Memory, Model};
use crate::sampling::Sampling;
use crate::template::Templates;

/// Name of the provider.
const NAME: &str = "local";

/// Maximum number of requests that wait for the model or are answered by it. They are answered one after the other.
pub const MAX_WAITING: usize = 64;

/// Length of the context if none is set, in tokens, unless the model was trained for less.
pub const USUAL_CONTEXT: u64 = 8_192;

/// Maximum size of an answer, in bytes. The longest answers of models have less than a megabyte.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Capacity of the queue between the task of a request and the reader of its stream.
const BUFFER: usize = 32;

/// Options of a local model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// File of the model.
    pub path: PathBuf,
    /// Length of the context, in tokens; `None` means 8,192, or what the model was trained for if it is less.
    pub context: Option<u64>,
    /// Number of threads that compute.
    pub threads: usize,
    /// Command that starts the engine, which calls [`super::engine_child_main`].
    pub command: ChildCommand,
    /// Command that starts a process for a chat template, which calls [`crate::template::template_child_main`].
    pub templates: ChildCommand,
    /// Sessions share keys and values of the same beginning, such as instructions and tools. The number of cached tokens then tells
    /// what other sessions begin with: false if they belong to several users.
    pub shares_beginnings: bool,
}

/// A model in a file, run by an engine in a child process that starts with the first request. All its requests share the
/// process, and so do those of its clones.
#[derive(Debug, Clone)]
pub struct LocalModel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    info: ProviderInfo,
    form: ChatForm,
    load: Load,
    command: ChildCommand,
    memory: Option<Memory>,
    process: Mutex<Option<Process>>,
    waiting: Semaphore,
}

impl LocalModel {
    /// Reads the header of a model and its chat template.
    ///
    /// # Errors
    /// [`LocalError`] if the file is not a valid model, has no usable chat template, or was trained for a shorter context.
    pub fn open(options: LocalOptions) -> Result<Self, LocalError> {
        let path = std::path::absolute(&options.path).unwrap_or(options.path);
        let gguf = Gguf::open(&path)?;
        let model = Model::of(&gguf)?;
        model.check()?;
        let template = model.chat_template.as_deref().ok_or(LocalError::NoTemplate)?;
        let special = |role: &str| -> Result<String, LocalError> {
            let Some(id) = model.special.get(role) else {
                return Ok(String::new());
            };
            let found = gguf.elements(&path, "tokenizer.ggml.tokens", &[*id])?;
            Ok(found.into_iter().next().map(|(_, text)| text).unwrap_or_default())
        };
        let form = ChatForm::new(
            Templates::new(options.templates),
            template,
            special("bos")?,
            special("eos")?,
        )?;
        let trained = model.context.unwrap_or(USUAL_CONTEXT);
        let context = options.context.unwrap_or(trained.min(USUAL_CONTEXT));
        if context > trained {
            return Err(LocalError::Context { context, trained });
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let context = u32::try_from(context).unwrap_or(u32::MAX);
        Ok(Self {
            shared: Arc::new(Shared {
                info: ProviderInfo {
                    provider: NAME.into(),
                    model: name.unwrap_or_default(),
                },
                form,
                memory: model.memory(u64::from(context), 1),
                load: Load {
                    path,
                    context,
                    threads: u32::try_from(options.threads).unwrap_or(1).max(1),
                    shares_beginnings: options.shares_beginnings,
                },
                command: options.command,
                process: Mutex::new(None),
                waiting: Semaphore::new(MAX_WAITING),
            }),
        })
    }

    /// Memory that the model will take.
    pub fn memory(&self) -> Option<Memory> {
        self.shared.memory
    }

    /// Length of the context, in tokens.
    pub fn context(&self) -> u64 {
        u64::from(self.shared.load.context)
    }
}

impl Provider for LocalModel {
    fn info(&self) -> &ProviderInfo {
        &self.shared.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        Box::pin(Answering::NotAsked(Some((Arc::clone(&self.shared), request))))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<toolcell_core::provider::ModelInfo>, ProviderError>> {
        let own = toolcell_core::provider::ModelInfo {
            name: self.shared.info.model.clone(),
            context_tokens: Some(self.context()),
        };
        Box::pin(std::future::ready(Ok(vec![own])))
    }
}

/// Stream of one request. Its task starts when it is first polled; dropping the stream cancels it.
enum Answering {
    NotAsked(Option<(Arc<Shared>, Request)>),
    Asked(mpsc::Receiver<Result<Delta, ProviderError>>),
}

impl Stream for Answering {
    type Item = Result<Delta, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Self::NotAsked(asked) = &mut *self {
            let Some((shared, request)) = asked.take() else {
                return Poll::Ready(None);
            };
            let (sender, receiver) = mpsc::channel(BUFFER);
            tokio::spawn(async move {
                let answered = shared.answer(&request, &sender).await;
                // A reader that is gone needs no end.
                let _ = sender.send(answered.map(Delta::Finished)).await;
            });
            *self = Self::Asked(receiver);
        }
        match &mut *self {
            Self::Asked(receiver) => receiver.poll_recv(context),
            Self::NotAsked(_) => Poll::Ready(None),
        }
    }
}

type Sender = mpsc::Sender<Result<Delta, ProviderError>>;

fn failed(kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
    ProviderError::new(NAME, kind, message)
}

fn of_fault(fault: &Fault) -> ProviderError {
    let kind = match fault {
        Fault::Context { .. } => ProviderErrorKind::ContextLength,
        Fault::Model(_) | Fault::Failed(_) => ProviderErrorKind::InvalidRequest,
    };
    failed(kind, fault.to_string())
}

fn of_broken(broken: &Broken) -> ProviderError {
    let kind = match broken {
        Broken::Message => ProviderErrorKind::Protocol,
        Broken::Start(_) | Broken::Ended(_) => ProviderErrorKind::Truncated,
    };
    failed(kind, broken.to_string())
}

/// Error for a reader that is gone.
fn cancelled() -> ProviderError {
    failed(ProviderErrorKind::Truncated, "the request was cancelled")
}

impl Shared {
    async fn answer(&self, request: &Request, sender: &Sender) -> Result<Completion, ProviderError> {
        let Ok(_place) = self.waiting.try_acquire() else {
            let message = format!("{MAX_WAITING} requests wait for the model already");
            return Err(failed(ProviderErrorKind::Unavailable, message));
        };
        let mut process = tokio::select! {
            process = self.process.lock() => process,
            () = sender.closed() => return Err(cancelled()),
        };
        // An engine that fails is not asked again: it is taken out, and dropped with an error.
        let mut engine = match process.take() {
            Some(engine) => engine,
            None => tokio::select! {
                engine = self.start(sender) => engine?,
                () = sender.closed() => return Err(cancelled()),
            },
        };
        let job = match self.job(request, &engine.names, sender).await {
            Ok(job) => job,
            Err(error) => {
                *process = Some(engine);
                return Err(error);
            }
        };
        let is_reasoning = job.1;
        let send = ToEngine::Generate(Box::new(job.0));
        engine.send(&send).await.map_err(|broken| of_broken(&broken))?;
        let mut answer = Answer::new(self.form.calls, is_reasoning);
        let done = follow(&mut engine, &mut answer, sender).await?;
        // Without an error, or with one of the request alone, the engine waits for the next.
        *process = Some(engine);
        let done = done.map_err(|fault| of_fault(&fault))?;
        answer.finish(done, sender).await
    }

    /// Starts the engine and waits until the model is loaded.
    async fn start(&self, sender: &Sender) -> Result<Process, ProviderError> {
        if let Some(memory) = self.memory {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let notice = format!(
                "the local model takes about {} MiB of memory with {} tokens of context: weights {} MiB, keys and values {} MiB, intermediate results {} MiB",
                mib(memory.total()),
                self.load.context,
                mib(memory.weights),
                mib(memory.cache),
                mib(memory.work)
            );
            let _ = sender.send(Ok(Delta::Notice(notice))).await;
        }
        let of_broken = |broken: Broken| of_broken(&broken);
        let mut process = Process::start(&self.command, &self.load)
            .await
            .map_err(of_broken)?;
        match process.next().await.map_err(of_broken)? {
            FromEngine::Loaded { control } => {
                process.names = ControlNames::new(control);
                Ok(process)
            }
            FromEngine::Failed(fault) => Err(of_fault(&fault)),
            _ => Err(of_broken(Broken::Message)),
        }
    }

    /// Makes the request to the engine, and returns true if the answer begins within reasoning.
    async fn job(
        &self,
        request: &Request,
        names: &ControlNames,
        sender: &Sender,
    ) -> Result<(Generate, bool), ProviderError> {
        let invalid =
            |error: &dyn std::error::Error| failed(ProviderErrorKind::InvalidRequest, error.to_string());
        // A prompt with a time in it would be another one with each request: templates write the day.
        let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        // It waits for the process of the template.
        let (form, request_of, names) = (self.form.clone(), request.clone(), names.clone());
        let prompt =
            tokio::task::spawn_blocking(move || form.prompt(&request_of, &names, DateTime::from(now)))
                .await
                .map_err(|error| invalid(&error))?
                .map_err(|error| invalid(&error))?;
        if prompt.left_out > 0 {
            let notice = format!(
                "{} pictures and files are not sent: the local model reads text only",
                prompt.left_out
            );
            let _ = sender.send(Ok(Delta::Notice(notice))).await;
        }
        let rules = self.form.calls.rules(request).map_err(|error| invalid(&error))?;
        let usual = Sampling::default();
        let job = Generate {
            session: request.session.as_deref().map(str::to_owned),
            prompt: prompt.segments,
            max_tokens: request.max_output_tokens,
            sampling: Sampling {
                temperature: request.temperature.unwrap_or(usual.temperature),
                top_p: request.top_p.unwrap_or(usual.top_p),
                seed: request.seed.unwrap_or_else(random),
                ..usual
            },
            stop: request.stop.to_vec(),
            rules,
        };
        Ok((job, prompt.is_reasoning))
    }
}

/// Reads an answer to its end. A reader that is gone cancels it.
async fn follow(
    engine: &mut Process,
    answer: &mut Answer,
    sender: &Sender,
) -> Result<Result<Done, Fault>, ProviderError> {
    let mut is_cancelled = false;
    loop {
        let message = tokio::select! {
            message = engine.next() => message.map_err(|broken| of_broken(&broken))?,
            () = sender.closed(), if !is_cancelled => {
                is_cancelled = true;
                engine.send(&ToEngine::Cancel).await.map_err(|broken| of_broken(&broken))?;
                continue;
            }
        };
        match message {
            FromEngine::Text(text) => answer.text(&text, sender).await?,
            FromEngine::Call(text) => answer.call(&text, sender).await?,
            FromEngine::Done(done) => return Ok(Ok(done)),
            FromEngine::Failed(fault) => return Ok(Err(fault)),
            FromEngine::Loaded { .. } => return Err(of_broken(&Broken::Message)),
        }
    }
}

/// Answer that is being read.
struct Answer {
    form: CallForm,
    splitter: Splitter,
    parts: Vec<Part>,
    calls: usize,
    bytes: usize,
}

impl Answer {
    fn new(form: CallForm, is_reasoning: bool) -> Self {
        Self {
            form,
            splitter: Splitter::new(is_reasoning),
            parts: Vec::new(),
            calls: 0,
            bytes: 0,
        }
    }

    async fn text(&mut self, text: &str, sender: &Sender) -> Result<(), ProviderError> {
        self.bytes += text.len();
        if self.bytes > MAX_ANSWER_BYTES {
            let message = format!("the answer exceeds {MAX_ANSWER_BYTES} bytes");
            return Err(failed(ProviderErrorKind::Protocol, message));
        }
        for said in self.splitter.push(text) {
            self.say(said, sender).await;
        }
        Ok(())
    }

    async fn say(&mut self, said: Said, sender: &Sender) {
        let delta = match said {
            Said::Text(more) => {
                match self.parts.last_mut() {
                    Some(Part::Text { text, .. }) => text.push_str(&more),
                    _ => self.parts.push(Part::text(more.clone())),
                }
                Delta::Text(more)
            }
            Said::Reasoning(more) => {
                match self.parts.last_mut() {
                    Some(Part::Reasoning { text, .. }) => text.push_str(&more),
                    _ => self.parts.push(Part::Reasoning {
                        text: more.clone(),
                        opaque: Value::Null,
                    }),
                }
                Delta::Reasoning(more)
            }
        };
        let _ = sender.send(Ok(delta)).await;
    }

    async fn call(&mut self, text: &str, sender: &Sender) -> Result<(), ProviderError> {
        let Some(calls) = self.form.read(text) else {
            return Err(of_broken(&Broken::Message));
        };
        for (name, arguments) in calls {
            let index = self.calls;
            self.calls += 1;
            let started = Delta::CallStarted {
                index,
                name: name.clone(),
            };
            let _ = sender.send(Ok(started)).await;
            let fragment = Delta::CallArguments {
                index,
                fragment: arguments.clone(),
            };
            let _ = sender.send(Ok(fragment)).await;
            self.parts.push(Part::Call(CallRequest {
                id: format!("call_{:016x}", random()),
                name,
                arguments,
                opaque: Value::Null,
            }));
        }
        Ok(())
    }

    async fn finish(mut self, done: Done, sender: &Sender) -> Result<Completion, ProviderError> {
        if let Some(said) = std::mem::take(&mut self.splitter).finish() {
            self.say(said, sender).await;
        }
        let stop = match done.stop {
            Stop::Complete => StopReason::Complete,
            Stop::MaxTokens => StopReason::MaxTokens,
            Stop::Cancelled => return Err(cancelled()),
        };
        Ok(Completion {
            parts: self.parts,
            stop,
            usage: Some(Usage {
                input: done.input,
                cache_read: done.cached,
                output: done.output,
                ..Usage::default()
            }),
        })
    }
}

/// Number that nobody can guess, from the keys of the hash maps of the standard library.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
