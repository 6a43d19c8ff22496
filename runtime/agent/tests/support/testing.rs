//! Test support: tools made of closures, and a provider that plays a script and checks every request.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{
    Completion, Delta, ProviderError, ProviderErrorKind, ProviderInfo, Request, StopReason, Usage,
};
use toolcell_core::tool::Hints;
use toolcell_core::{
    BoxFuture, BoxStream, CallContext, CallResult, Content, Message, Part, Provider, Receipt, Schema, Tool,
    ToolCall, ToolError, ToolName, ToolSpec,
};

type Body = dyn Fn(&Map<String, Value>) -> Result<String, ToolError> + Send + Sync;

/// Tool made of a closure.
pub(crate) struct Closure {
    spec: ToolSpec,
    delay: Duration,
    receipt: bool,
    body: Box<Body>,
}

/// A tool that accepts any object.
pub(crate) fn tool(
    name: &str,
    body: impl Fn(&Map<String, Value>) -> Result<String, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    tool_with(name, r#"{"type":"object"}"#, Hints::default(), body)
}

pub(crate) fn tool_with(
    name: &str,
    schema: &str,
    hints: Hints,
    body: impl Fn(&Map<String, Value>) -> Result<String, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(Closure::new(name, schema, hints, body))
}

/// A tool that waits and files a receipt, also when it is dropped.
pub(crate) fn slow_tool(
    name: &str,
    delay: Duration,
    body: impl Fn(&Map<String, Value>) -> Result<String, ToolError> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    Arc::new(Closure {
        delay,
        receipt: true,
        ..Closure::new(name, r#"{"type":"object"}"#, Hints::default(), body)
    })
}

impl Closure {
    pub(crate) fn new(
        name: &str,
        schema: &str,
        hints: Hints,
        body: impl Fn(&Map<String, Value>) -> Result<String, ToolError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            spec: ToolSpec {
                name: ToolName::new(name).unwrap(),
                title: None,
                description: format!("The tool {name}"),
                input: Arc::new(Schema::for_arguments(schema).unwrap()),
                output: None,
                hints,
                annotations: std::collections::BTreeMap::new(),
            },
            delay: Duration::ZERO,
            receipt: false,
            body: Box::new(body),
        }
    }

    pub(crate) fn annotated(mut self, name: &str, value: Value) -> Self {
        self.spec.annotations.insert(name.into(), value);
        self
    }
}

/// Files a receipt when it is dropped, as a cell does.
struct ReceiptGuard(CallContext);

impl Drop for ReceiptGuard {
    fn drop(&mut self) {
        self.0.observer.receipt(Receipt {
            fuel: 7,
            ..Receipt::default()
        });
    }
}

impl Tool for Closure {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let _guard = self.receipt.then(|| ReceiptGuard(cx));
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            (self.body)(&call.arguments).map(CallResult::text).into()
        })
    }
}

/// Scripted answer.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    /// Text only.
    Text(&'static str),
    /// Text and calls: identifier, tool, arguments.
    Calls(&'static str, Vec<(&'static str, &'static str, String)>),
    /// Parts, stop reason and the names of all calls that began, for answers that the other variants cannot express.
    Raw(Vec<Part>, StopReason, Vec<&'static str>),
    /// Text of a provider that reports no token counts.
    Unmeasured(&'static str),
    /// Text, with the token counts of input and output.
    Measured(&'static str, u64, u64),
    /// Some text, then an error.
    Fail(&'static str, ProviderErrorKind),
    /// Some text, then the end of the stream.
    Truncate(&'static str),
    /// Some text, then no more data.
    Hang(&'static str),
}

/// A scripted call.
pub(crate) fn call(id: &'static str, tool: &'static str, arguments: &Value) -> Say {
    Say::Calls("", vec![(id, tool, arguments.to_string())])
}

/// Provider that plays a script, one answer per request; afterwards it answers "(end of script)".
pub(crate) struct Script {
    info: ProviderInfo,
    answers: Mutex<VecDeque<Say>>,
    requests: Mutex<Vec<Request>>,
    paused: AtomicBool,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Say>) -> Arc<Self> {
        Arc::new(Self {
            info: ProviderInfo {
                provider: "script".into(),
                model: "test".into(),
            },
            answers: Mutex::new(answers.into_iter().collect()),
            requests: Mutex::default(),
            paused: AtomicBool::new(false),
        })
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Panics unless there were this many requests.
    pub(crate) fn assert_asked(&self, times: usize) {
        assert_eq!(self.requests.lock().unwrap().len(), times);
    }

    /// Panics unless every answer was requested.
    pub(crate) fn assert_played(&self) {
        let left = self.answers.lock().unwrap();
        assert!(left.is_empty(), "not asked for: {left:?}");
    }
}

/// Invariant 1: each call has exactly one result, directly after its answer, in order.
pub(crate) fn assert_paired(messages: &[Arc<Message>]) {
    let mut awaited: VecDeque<String> = VecDeque::new();
    for message in messages {
        if let Message::Tool { call_id, .. } = message.as_ref() {
            assert_eq!(awaited.pop_front().as_ref(), Some(call_id), "in {messages:#?}");
        } else {
            assert!(awaited.is_empty(), "no result for {awaited:?} in {messages:#?}");
            awaited.extend(message.calls().map(|call| call.id.clone()));
        }
    }
    assert!(awaited.is_empty(), "no result for {awaited:?} in {messages:#?}");
}

pub(crate) fn parts(text: &str, calls: &[(&str, &str, String)]) -> Vec<Part> {
    let text = (!text.is_empty()).then(|| Part::text(text));
    let calls = calls.iter().map(|(id, name, arguments)| {
        Part::Call(CallRequest {
            id: (*id).into(),
            name: (*name).into(),
            arguments: arguments.clone(),
            opaque: Value::Null,
        })
    });
    text.into_iter().chain(calls).collect()
}

impl Provider for Script {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        assert_paired(&request.messages);
        let last = request.messages.last().expect("a request has a message");
        assert_eq!(
            matches!(last.as_ref(), Message::Assistant { .. }),
            self.paused.load(Ordering::Relaxed),
            "only a paused answer is sent back without a word: {last:?}"
        );
        self.requests.lock().unwrap().push(request);
        let say = self.answers.lock().unwrap().pop_front();
        let paused = matches!(&say, Some(Say::Raw(_, StopReason::Paused, _)));
        self.paused.store(paused, Ordering::Relaxed);
        let error = |kind| Err(ProviderError::new("script", kind, "as the script says"));
        let text = |text: &str| (!text.is_empty()).then(|| Ok(Delta::Text(text.to_owned())));
        let done = |parts, stop| {
            Ok(Delta::Finished(Completion {
                parts,
                stop,
                usage: Some(Usage {
                    input: 10,
                    output: 5,
                    ..Usage::default()
                }),
            }))
        };
        let begun = |names: Vec<&str>| -> Vec<_> {
            let calls = names.into_iter().enumerate();
            calls
                .map(|(index, name)| {
                    Ok(Delta::CallStarted {
                        index,
                        name: name.to_owned(),
                    })
                })
                .collect()
        };
        let mut hang = false;
        let items: Vec<Result<Delta, ProviderError>> = match say.unwrap_or(Say::Text("(end of script)")) {
            Say::Text(said) => text(said)
                .into_iter()
                .chain([done(parts(said, &[]), StopReason::Complete)])
                .collect(),
            Say::Calls(said, calls) => text(said)
                .into_iter()
                .chain(begun(calls.iter().map(|(_, name, _)| *name).collect()))
                .chain([done(parts(said, &calls), StopReason::Complete)])
                .collect(),
            Say::Unmeasured(said) => vec![Ok(Delta::Finished(Completion {
                parts: parts(said, &[]),
                stop: StopReason::Complete,
                usage: None,
            }))],
            Say::Measured(said, input, output) => vec![Ok(Delta::Finished(Completion {
                parts: parts(said, &[]),
                stop: StopReason::Complete,
                usage: Some(Usage {
                    input,
                    output,
                    ..Usage::default()
                }),
            }))],
            Say::Raw(parts, stop, names) => begun(names).into_iter().chain([done(parts, stop)]).collect(),
            Say::Fail(said, kind) => text(said).into_iter().chain([error(kind)]).collect(),
            Say::Truncate(said) => text(said).into_iter().collect(),
            Say::Hang(said) => {
                hang = true;
                text(said).into_iter().collect()
            }
        };
        let items = stream::iter(items);
        if hang {
            items.chain(stream::pending()).boxed()
        } else {
            items.boxed()
        }
    }
}

/// Text of a result as sent to a model.
pub(crate) fn text_of(content: &[Content]) -> String {
    content
        .iter()
        .map(|part| match part {
            Content::Text { text } => text.as_str(),
            _ => "[no text]",
        })
        .collect()
}
