//! Dispatch of a call: finds the tool, parses and checks the arguments, and runs the tool. Every call has exactly one
//! outcome.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolcell_core::json::memory_of;
use toolcell_core::{CallContext, CallResult, Content, Limit, Tool, ToolCall, ToolError, json};

use crate::contained::{Contained, Panicked};
use crate::machine::RefusedCall;
use crate::policy::ToolRetry;
use crate::tools::registry::Registry;
use crate::tools::truncate::{MAX_STRUCTURED_BYTES, MAX_STRUCTURED_MEMORY};

/// Finds the tool and checks the arguments.
///
/// # Errors
/// A refusal for the model: unknown tool, invalid JSON, or arguments that do not fit the schema.
pub(crate) fn check(
    registry: &Registry,
    tool: &str,
    arguments: &str,
) -> Result<(Arc<dyn Tool>, Value), RefusedCall> {
    let refuse = |arguments: Value, error| RefusedCall { arguments, error };
    let parsed = json::parse_object(arguments);
    let shown = || match &parsed {
        Ok(map) => Value::Object(map.clone()),
        Err(_) => Value::String(arguments.to_owned()),
    };
    let found = registry.get(tool).map_err(|error| refuse(shown(), error))?;
    match parsed {
        Ok(mut map) => {
            // First of all, so that nothing judges an argument by another name than its own.
            let replaced = found.spec().replace_aliases(&mut map);
            let value = Value::Object(map);
            match replaced.and_then(|()| found.spec().input.check_arguments(&value)) {
                Ok(()) => Ok((found, value)),
                Err(error) => Err(refuse(value, error)),
            }
        }
        Err(error) => Err(refuse(arguments.into(), ToolError::invalid(error.to_string()))),
    }
}

/// Call that is about to run.
pub(crate) struct Invocation {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) call: ToolCall,
    pub(crate) context: CallContext,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: ToolRetry,
}

/// Runs a call, with retries if the policy and the tool allow them. Receipts of attempts before the last one are
/// reported to the observer.
pub(crate) async fn invoke_with_retry(
    invocation: Invocation,
    mut retried: impl FnMut(u32, u64, &ToolError),
) -> CallResult {
    let retry = invocation.retry;
    let again = invocation.tool.spec().hints.idempotent;
    let mut number = 1;
    loop {
        let result = invoke(&invocation).await;
        let Some(error) = &result.error else {
            return result;
        };
        let may_help = matches!(
            error,
            ToolError::Unavailable { .. } | ToolError::Failed { .. } | ToolError::Crashed { .. }
        );
        if !again || !may_help || number >= retry.attempts {
            return result;
        }
        let pause = retry.backoff_ms.saturating_mul(u64::from(number));
        number += 1;
        retried(number, pause, error);
        if let Some(receipt) = result.receipt {
            invocation.context.observer.receipt(receipt);
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Calls the tool once, within its timeout. A panic of the tool is an error of this call only.
async fn invoke(invocation: &Invocation) -> CallResult {
    let Invocation {
        tool, call, context, ..
    } = invocation;
    let running = Contained::new(|| tool.call(call.clone(), context.clone()));
    let ended = match invocation.timeout {
        None => running.await,
        Some(limit) => match tokio::time::timeout(limit, running).await {
            Ok(ended) => ended,
            Err(_) => {
                let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                return CallResult::failed(ToolError::Limit {
                    limit: Limit::WallTimeMs(ms),
                });
            }
        },
    };
    ended.unwrap_or_else(|Panicked { cause }| CallResult::failed(ToolError::crashed(cause)))
}

/// Makes the content of a result readable for the model: empty texts are removed, and the structured result stands in if
/// there is no content. Never empty, because providers refuse empty results.
pub(crate) fn make_readable(result: &mut CallResult) {
    let is_empty = |part: &Content| matches!(part, Content::Text { text } if text.is_empty());
    result.content.retain(|part| !is_empty(part));
    if result.content.is_empty() {
        let json = result.structured.as_ref().map(Value::to_string);
        let text = json.unwrap_or_else(|| "(no output)".into());
        result.content.push(Content::text(text));
    }
    let is_kept = |value: &Value| {
        memory_of(value) <= MAX_STRUCTURED_MEMORY && value.to_string().len() <= MAX_STRUCTURED_BYTES
    };
    result.structured = result.structured.take().filter(is_kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{tool, tool_with};
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};
    use toolcell_core::tool::Hints;

    fn registry() -> Registry {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        Registry::new([tool_with("count", schema, Hints::default(), |_| Ok("ok".into()))]).unwrap()
    }

    fn refused(tool: &str, arguments: &str) -> RefusedCall {
        check(&registry(), tool, arguments).map(|_| ()).unwrap_err()
    }

    #[test]
    fn valid_arguments_are_passed_unchanged() {
        let (tool, arguments) = check(&registry(), "count", r#"{"n": 3}"#).unwrap();
        assert_eq!(tool.spec().name.as_str(), "count");
        assert_eq!(arguments, json!({"n": 3}));
    }

    #[test]
    fn invalid_arguments_are_refused_with_path_and_reason() {
        let refusal = refused("count", r#"{"n":"x"}"#);
        assert_eq!(refusal.arguments, json!({"n": "x"}));
        let text = refusal.error.for_model();
        assert!(text.contains("at /n: \"x\" is not of type \"integer\""), "{text}");
        let text = refused("count", "").error.for_model();
        assert!(text.contains("`n` is a required property"), "{text}");
    }

    #[test]
    fn invalid_json_is_shown_as_written() {
        let refusal = refused("count", r#"{"n": "#);
        assert_eq!(refusal.arguments, json!(r#"{"n": "#));
        assert_eq!(refusal.error.kind(), "invalid_arguments");
        let twice = refused("count", r#"{"n":1,"n":2}"#).error.to_string();
        assert!(twice.contains("duplicate name"), "{twice}");
    }

    #[test]
    fn unknown_tool_is_refused_with_similar_names() {
        let refusal = refused("counts", r#"{"n":1}"#);
        assert_eq!(refusal.arguments, json!({"n": 1}));
        assert!(matches!(refusal.error, ToolError::UnknownTool { near, .. } if near == ["count"]));
    }

    fn invocation(tool: Arc<dyn Tool>, attempts: u32) -> Invocation {
        let call = ToolCall {
            id: "1".into(),
            name: tool.spec().name.clone(),
            arguments: serde_json::Map::new(),
        };
        Invocation {
            tool,
            call,
            context: CallContext::unobserved(),
            timeout: None,
            retry: ToolRetry {
                attempts,
                backoff_ms: 1_000,
            },
        }
    }

    async fn invoke_quietly(invocation: Invocation) -> Option<ToolError> {
        invoke_with_retry(invocation, |_, _, _| {}).await.error
    }

    #[tokio::test]
    async fn panic_in_a_tool_is_an_error_of_the_call() {
        let error = invoke_quietly(invocation(tool("t", |_| panic!("out of luck\nat line 3")), 1)).await;
        assert_eq!(error, Some(ToolError::crashed("out of luck")));
    }

    #[tokio::test(start_paused = true)]
    async fn only_idempotent_tools_are_retried_up_to_the_limit() {
        for (idempotent, attempts, calls) in [(true, 3, 3), (true, 1, 1), (false, 3, 1)] {
            let count = Arc::new(AtomicU32::new(0));
            let hints = Hints {
                idempotent,
                ..Hints::default()
            };
            let counter = count.clone();
            let failing = tool_with("t", r#"{"type":"object"}"#, hints, move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
                Err(ToolError::Unavailable {
                    message: "busy".into(),
                })
            });
            assert!(invoke_quietly(invocation(failing, attempts)).await.is_some());
            assert_eq!(count.load(Ordering::Relaxed), calls, "{idempotent} {attempts}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_permanent_errors_are_not_retried() {
        let hints = Hints {
            idempotent: true,
            ..Hints::default()
        };
        let failing =
            |error: ToolError| tool_with("t", r#"{"type":"object"}"#, hints, move |_| Err(error.clone()));
        let mut pauses = Vec::new();
        let unavailable = ToolError::Unavailable {
            message: String::new(),
        };
        let _ = invoke_with_retry(invocation(failing(unavailable), 4), |n, pause, _| {
            pauses.push((n, pause));
        })
        .await;
        assert_eq!(pauses, [(2, 1_000), (3, 2_000), (4, 3_000)]);
        let denied = ToolError::denied("no", None);
        let _ = invoke_with_retry(invocation(failing(denied), 4), |_, _, _| panic!("retried")).await;
    }

    #[test]
    fn result_without_content_is_shown_as_structured_or_empty() {
        let structured = |value: Option<Value>| {
            let mut result = CallResult {
                structured: value,
                ..CallResult::text("")
            };
            make_readable(&mut result);
            (result.content, result.structured)
        };
        assert_eq!(structured(None), (vec![Content::text("(no output)")], None));
        assert_eq!(
            structured(Some(json!({"a": 1}))),
            (vec![Content::text(r#"{"a":1}"#)], Some(json!({"a": 1})))
        );
    }

    #[test]
    fn structured_result_is_kept_up_to_its_limit() {
        let of_len = |n: usize| {
            let mut result = CallResult {
                structured: Some(Value::String("x".repeat(n - 2))),
                ..CallResult::text("x")
            };
            make_readable(&mut result);
            result.structured.is_some()
        };
        assert!(of_len(MAX_STRUCTURED_BYTES));
        assert!(!of_len(MAX_STRUCTURED_BYTES + 1));
    }

    #[test]
    fn structured_result_of_many_values_is_kept_as_text() {
        let of = |objects: usize| {
            let mut result = CallResult {
                structured: Some(vec![json!({"": 0}); objects].into()),
                ..CallResult::default()
            };
            make_readable(&mut result);
            let [Content::Text { text }] = &result.content[..] else {
                panic!("{:?}", result.content)
            };
            assert_eq!(text.matches('{').count(), objects);
            result.structured.is_some()
        };
        let object = memory_of(&json!([{"": 0}])) - memory_of(&json!([]));
        let fits = usize::try_from(MAX_STRUCTURED_MEMORY / object).unwrap() - 1;
        assert!(of(fits) && !of(fits + 2));
    }
}
