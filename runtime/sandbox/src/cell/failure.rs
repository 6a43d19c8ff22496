//! Conversion of errors of the engine and of guests into errors that the receiver can act on.
//!
//! Errors of the engine are distinguished by type, and limits by the refusals recorded in the memory account of the
//! call. Two of the engine's errors have no public type (48.0.8): see [`untyped_limit`].

use toolcell_core::{Limit, Limits, Redactor, ToolError, error_chain};
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::bindings::GuestError;
use crate::cell::memory::{MemoryAccount, OutOfMemory};
use crate::engine::WASM_STACK;
use crate::files::NotOpened;

/// Maximum length of an error message of a guest, in bytes. The loop truncates further for the model.
pub(crate) const MAX_ERROR_TEXT: usize = 16 << 10;

/// Maximum length of the cause of a crash as reported by the engine, in bytes.
const MAX_CAUSE: usize = 500;

/// Maximum number of functions in a backtrace, and the maximum length of a function name in bytes.
const MAX_FRAMES: usize = 16;
const MAX_FUNCTION_NAME: usize = 200;

/// Converts an error of the engine that ended a call.
pub(crate) fn of_engine(error: &wasmtime::Error, account: &MemoryAccount, limits: &Limits) -> ToolError {
    let limit = |limit| ToolError::Limit { limit };
    // Such a call finds its resource table closed, and the resulting error is meaningless.
    if let Some(refused) = account.overdrawn() {
        return refused.into_error();
    }
    if let Some(not_opened) = error.downcast_ref::<NotOpened>() {
        return ToolError::Unavailable {
            message: error_chain(not_opened),
        };
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return match trap {
            Trap::OutOfFuel => limit(Limit::Fuel(limits.fuel)),
            Trap::StackOverflow => limit(Limit::Stack(WASM_STACK as u64)),
            // The standard libraries of most languages trap this way if memory.grow fails.
            Trap::UnreachableCodeReached if let Some(refused) = account.refused() => refused.into_error(),
            trap => ToolError::crashed(trap.to_string()),
        };
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return ToolError::crashed(format!("exited with status {}", exit.0));
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return busy();
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        return limit(Limit::Handles(u64::from(limits.handles)));
    }
    let untyped = untyped_limit(error, limits).map(OutOfMemory::Limit);
    if let Some(refused) = untyped.or_else(|| account.refused()) {
        return refused.into_error();
    }
    ToolError::crashed(cut(one_line(&error.root_cause().to_string()), MAX_CAUSE))
}

/// Returns the guest's backtrace, innermost function first, as far as the engine knows it. The names come from the
/// guest and are truncated.
pub(crate) fn backtrace(error: &wasmtime::Error) -> Option<String> {
    let frames = error.downcast_ref::<WasmBacktrace>()?.frames();
    let lines: Vec<String> = frames
        .iter()
        .take(MAX_FRAMES)
        .map(|frame| match frame.func_name() {
            Some(name) => cut(one_line(name), MAX_FUNCTION_NAME),
            None => format!("function {}", frame.func_index()),
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join(" < "))
}

/// Returns the error of a call for which no cell is available at the moment.
pub(crate) fn busy() -> ToolError {
    ToolError::Unavailable {
        message: "too many calls are running".into(),
    }
}

/// Detects the two limits whose errors have no public type in the engine, by their messages. The messages only affect
/// the text of the error: the call has ended and its store is dropped either way. Tests of both fail when the engine
/// changes the messages.
fn untyped_limit(error: &wasmtime::Error, limits: &Limits) -> Option<Limit> {
    if is_too_much_at_once(error) {
        Some(Limit::Output(limits.output))
    } else if error
        .root_cause()
        .to_string()
        .contains("store handle limit exceeded")
    {
        Some(Limit::Handles(u64::from(limits.handles)))
    } else {
        None
    }
}

/// Returns `true` if more passed between host and guest at once than the store allows (`Store::set_hostcall_fuel`).
pub(crate) fn is_too_much_at_once(error: &wasmtime::Error) -> bool {
    let root = error.root_cause().to_string();
    root.contains("fuel allocated for hostcalls has been exhausted")
}

/// Returns a text of a guest, redacted and truncated to [`MAX_ERROR_TEXT`] with a marker.
pub(crate) fn bounded(text: &str, redactor: &Redactor) -> String {
    let missing = text.len().saturating_sub(MAX_ERROR_TEXT);
    let text = redactor.beginning(text, MAX_ERROR_TEXT);
    match missing {
        0 => text,
        missing => format!("{text} [{missing} bytes cut]"),
    }
}

/// Converts an error returned by a guest; `Err` holds a text that is for the user only. Half a secret at the end would not be
/// found afterwards, and is left out.
pub(crate) fn of_guest(error: GuestError, redactor: &Redactor) -> Result<ToolError, String> {
    let bounded = |text: String| bounded(&text, redactor);
    Ok(match error {
        GuestError::InvalidArguments(text) => ToolError::invalid(bounded(text)),
        GuestError::Denied(text) => ToolError::denied(bounded(text), None),
        GuestError::Unavailable(text) => ToolError::Unavailable {
            message: bounded(text),
        },
        GuestError::Failed(text) => ToolError::Failed {
            message: bounded(text),
        },
        GuestError::Other(text) => return Err(bounded(text)),
    })
}

/// Truncates a text to `max` bytes, with a marker that states how much is missing.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let missing = text.len() - text.floor_char_boundary(max);
        // A new allocation, because a text truncated in place keeps its capacity.
        text = format!("{} [{missing} bytes cut]", &text[..text.len() - missing]);
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_guest_is_cut_and_ends_with_no_part_of_a_secret() {
        let secret = "hunter2-hunter2-hunter2";
        let redactor = Redactor::new([("key", secret)]);
        let shown = |before: usize| {
            let text = format!("{}{secret}{}", "x".repeat(before), "y".repeat(100_000));
            match of_guest(GuestError::Failed(text), &redactor) {
                Ok(ToolError::Failed { message }) => message,
                other => panic!("{other:?}"),
            }
        };
        for before in [
            0,
            MAX_ERROR_TEXT - secret.len(),
            MAX_ERROR_TEXT - 10,
            MAX_ERROR_TEXT,
        ] {
            let message = shown(before);
            assert!(!message.contains("hunter"), "{before}: {message}");
            assert!(message.ends_with(" bytes cut]"));
            assert!(message.len() <= MAX_ERROR_TEXT + 40, "{}", message.len());
        }
        assert!(shown(0).starts_with("[redacted:key]y"));
    }

    #[test]
    fn text_beyond_limit_is_truncated_with_a_marker() {
        assert_eq!(cut("é".into(), 2), "é");
        assert_eq!(cut("aé".into(), 2), "a [2 bytes cut]");
    }

    #[test]
    fn trap_after_refused_memory_is_a_memory_limit() {
        use crate::cell::memory::MemoryPool;
        let limits = Limits::default();
        let account = MemoryAccount::new(10, MemoryPool::new(u64::MAX));
        let trap = || wasmtime::Error::from(Trap::UnreachableCodeReached);
        assert!(matches!(
            of_engine(&trap(), &account, &limits),
            ToolError::Crashed { .. }
        ));
        account.grow_guest(11).unwrap_err();
        let stopped = ToolError::Limit {
            limit: Limit::Memory(10),
        };
        assert_eq!(of_engine(&trap(), &account, &limits), stopped);
    }

    #[test]
    fn call_with_too_many_objects_ends_with_the_memory_limit() {
        use crate::cell::memory::MemoryPool;
        let account = MemoryAccount::new(10, MemoryPool::new(u64::MAX));
        account.set_objects(11);
        let closed = wasmtime::Error::from(ResourceTableError::Full);
        let stopped = ToolError::Limit {
            limit: Limit::Memory(10),
        };
        assert_eq!(of_engine(&closed, &account, &Limits::default()), stopped);
    }
}
