//! Provider that plays a script of known answers, for tests and demonstrations.
//!
//! It answers each request with the next step of a [`Script`] and checks each request: the expectations of the step,
//! and the invariants of every request ([`check`]). A request that violates one is answered with an error that names
//! it, which [`Scripted::assert_complete`] repeats.
//!
//! # File format
//!
//! A JSON object; unknown names are errors. Everything except `steps` is optional.
//!
//! ```
//! # let text = r#"
//! {
//!   "model": "demo",
//!   "position": "order",
//!   "steps": [
//!     {
//!       "expect": {"user": "How many words", "tools": ["text_count"]},
//!       "reasoning": "I should count them.",
//!       "text": "Let me count. ",
//!       "calls": [{"name": "text_count", "arguments": {"path": "README.md"}}],
//!       "usage": {"input": 120, "output": 18},
//!       "delay_ms": 20
//!     },
//!     {
//!       "expect": {"results": ["1234"]},
//!       "text": "It has 1234 words.",
//!       "chunk": 4
//!     }
//!   ]
//! }
//! # "#;
//! # toolcell_providers::scripted::Script::parse(text).unwrap();
//! ```
//!
//! A step answers with `reasoning`, `text` and `calls` in this order, in deltas of `chunk` characters, then with
//! `error` or an end: `stop` is `complete` (default), `max_tokens`, `refused`, `paused` or another word of the
//! provider. `arguments` is an object, or a string that is sent unchanged. All names are documented at [`Script`],
//! [`Step`] and [`Expect`].

pub mod check;
mod script;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use toolcell_core::message::CallRequest;
use toolcell_core::provider::{Completion, Delta, ProviderErrorKind, ProviderInfo, Request, StopReason};
use toolcell_core::{BoxStream, Part, Provider, ProviderError};
use toolcell_fs::Rules;

pub use script::{Expect, Position, Script, ScriptedCall, ScriptedError, Step};

use crate::emit::{self, Emitter};
use crate::{SetupError, opaque};

/// Maximum size of a script file, in bytes: a thousand long turns.
const MAX_SCRIPT_BYTES: u64 = 64 << 20;

/// Provider that plays a script.
#[derive(Debug)]
pub struct Scripted {
    info: ProviderInfo,
    script: Script,
    /// True if requests are kept for tests of this workspace; a server would keep those of all its turns.
    keeps_requests: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    /// Number of requests so far.
    count: usize,
    failures: Vec<String>,
    played: Vec<bool>,
}

impl Scripted {
    /// Creates a provider for a script.
    pub fn new(script: Script) -> Self {
        let state = State {
            played: vec![false; script.steps.len()],
            ..State::default()
        };
        Self {
            info: ProviderInfo {
                provider: "scripted".into(),
                model: script.model.clone(),
            },
            script,
            keeps_requests: true,
            state: Mutex::new(state),
        }
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// [`SetupError::Script`] with the path, and with line and column of a syntax error.
    pub fn from_file(path: &Path) -> Result<Self, SetupError> {
        let read = || Script::parse(&toolcell_fs::read_text(path, &Rules::named(MAX_SCRIPT_BYTES))?);
        let script = read().map_err(|source| SetupError::Script {
            path: path.to_owned(),
            source,
        })?;
        let mut scripted = Self::new(script);
        scripted.keeps_requests = false;
        Ok(scripted)
    }

    /// All requests so far, in order; none of a script that was read from a file.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// Checks that every step was played and every request was valid.
    ///
    /// # Errors
    /// Description of the first missing step or violation.
    pub fn complete(&self) -> Result<(), String> {
        let state = self.state();
        if let Some(failure) = state.failures.first() {
            return Err(failure.clone());
        }
        match state.played.iter().position(|played| !played) {
            Some(step) => Err(format!(
                "step {} of {} was not requested",
                step + 1,
                state.played.len()
            )),
            None => Ok(()),
        }
    }

    /// [`Scripted::complete`] for tests.
    ///
    /// # Panics
    /// Panics if a step was not played or a request was invalid.
    #[track_caller]
    pub fn assert_complete(&self) {
        if let Err(why) = self.complete() {
            panic!("script of `{}` not complete: {why}", self.info.model);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after each change, so that it stays usable after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Selects the step for a request and checks the request.
    fn accept(&self, request: &Request) -> Result<&Step, String> {
        let mut state = self.state();
        let number = state.count;
        state.count += 1;
        if self.keeps_requests {
            state.requests.push(request.clone());
        }
        let index = match self.script.position {
            Position::Order => number,
            Position::Conversation => check::answers_in(request),
        };
        let total = self.script.steps.len();
        let was_paused = index > 0
            && self
                .script
                .steps
                .get(index - 1)
                .is_some_and(|step| step.stop == StopReason::Paused);
        let checked = check::request(request).and_then(|()| {
            if check::ends_with_answer(request) && !was_paused {
                return Err("the last message is an answer of the model".to_owned());
            }
            let step = self.script.steps.get(index).ok_or_else(|| {
                format!(
                    "the script has {total} steps, but step {} was requested",
                    index + 1
                )
            })?;
            step.expect
                .check(request)
                .map_err(|why| format!("step {}: {why}", index + 1))?;
            Ok(step)
        });
        match checked {
            Ok(step) => {
                state.played[index] = true;
                Ok(step)
            }
            Err(why) => {
                let why = format!("request {}: {why}", number + 1);
                if state.failures.is_empty() {
                    state.failures.push(why.clone());
                }
                Err(why)
            }
        }
    }

    async fn play(&self, request: Request, mut out: Emitter) -> Result<Completion, ProviderError> {
        let step = self
            .accept(&request)
            .map_err(|why| ProviderError::new("scripted", ProviderErrorKind::Protocol, why))?;
        for (attempt, pause) in (2..).zip(&step.retries_ms) {
            out.emit(Delta::Retry {
                attempt,
                delay_ms: *pause,
                reason: "the script says so".into(),
            })
            .await;
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
        let mut parts = Vec::new();
        if !step.reasoning.is_empty() {
            for piece in step.pieces(&step.reasoning) {
                step.pause().await;
                out.emit(Delta::Reasoning(piece)).await;
            }
            parts.push(Part::Reasoning {
                text: step.reasoning.clone(),
                opaque: opaque::of("scripted", check::answers_in(&request).into()),
            });
        }
        if !step.text.is_empty() {
            for piece in step.pieces(&step.text) {
                step.pause().await;
                out.emit(Delta::Text(piece)).await;
            }
            parts.push(Part::text(step.text.clone()));
        }
        for (index, call) in step.calls.iter().enumerate() {
            step.pause().await;
            out.emit(Delta::CallStarted {
                index,
                name: call.name.clone(),
            })
            .await;
            let arguments = call.arguments_text();
            for fragment in step.pieces(&arguments) {
                step.pause().await;
                out.emit(Delta::CallArguments { index, fragment }).await;
            }
            parts.push(Part::Call(CallRequest {
                id: call
                    .id
                    .clone()
                    .unwrap_or_else(|| format!("call_{}_{}", check::answers_in(&request) + 1, index + 1)),
                name: call.name.clone(),
                arguments,
                opaque: serde_json::Value::Null,
            }));
        }
        if step.text.is_empty() && step.calls.is_empty() {
            step.pause().await;
        }
        if let Some(failure) = &step.error {
            return Err(failure.error());
        }
        if step.hang {
            std::future::pending::<()>().await;
        }
        if step.stop == StopReason::MaxTokens
            && let Some(Part::Call(call)) = parts.last()
            && toolcell_core::json::parse_object(&call.arguments).is_err()
        {
            parts.pop();
        }
        Ok(Completion {
            parts,
            stop: step.stop.clone(),
            usage: step.usage,
        })
    }
}

impl Provider for Scripted {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        emit::stream(|out| self.play(request, out))
    }
}
