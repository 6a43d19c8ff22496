//! Errors of the engine and of guests, turned into what the receiver can act on.
//!
//! The engine's errors are told apart by their types, and limits by what the memory account of the call remembers. Two of the
//! engine's errors have no public type (48.0.8): see [`untyped_limit`].

use toolcell_core::{Limit, Limits, Redactor, ToolError};
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::bindings::GuestError;
use crate::cell::memory::{MemoryAccount, Refusal};
use crate::engine::WASM_STACK;

/// Longest text that a guest gives for an error, in bytes. The loop cuts further for the model.
pub(crate) const MAX_ERROR_TEXT: usize = 16 << 10;

/// Longest cause of a crash in the engine's words, in bytes.
const MAX_CAUSE: usize = 500;

/// Most functions of a backtrace, and the longest name of one in bytes.
const MAX_FRAMES: usize = 16;
const MAX_FUNCTION_NAME: usize = 200;

/// Why a call ended in an error of the engine.
pub(crate) fn of_engine(error: &wasmtime::Error, account: &MemoryAccount, limits: &Limits) -> ToolError {
    let limit = |limit| ToolError::Limit { limit };
    // Such a call finds its table of resources closed, and that error says nothing.
    if let Some(refused) = account.overdrawn() {
        return refused.into_error();
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return match trap {
            Trap::OutOfFuel => limit(Limit::Fuel(limits.fuel)),
            Trap::StackOverflow => limit(Limit::Stack(WASM_STACK as u64)),
            // The standard libraries of most languages trap this way when memory.grow is refused.
            Trap::UnreachableCodeReached if let Some(refused) = account.refused() => refused.into_error(),
            trap => ToolError::Crashed {
                cause: trap.to_string(),
            },
        };
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return ToolError::Crashed {
            cause: format!("it ended itself with status {}", exit.0),
        };
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return busy();
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        return limit(Limit::Handles(u64::from(limits.handles)));
    }
    let untyped = untyped_limit(error, limits).map(Refusal::Limit);
    if let Some(refused) = untyped.or_else(|| account.refused()) {
        return refused.into_error();
    }
    ToolError::Crashed {
        cause: cut(one_line(&error.root_cause().to_string()), MAX_CAUSE),
    }
}

/// Where in the guest an error arose, innermost function first, as far as the engine knows. The names are the guest's
/// own and are cut.
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
    (!lines.is_empty()).then(|| format!("it ended in: {}", lines.join(" < ")))
}

/// No room for another cell at the moment.
pub(crate) fn busy() -> ToolError {
    ToolError::Unavailable {
        message: "too many calls run at once".into(),
    }
}

/// The two limits whose errors have no public type in the engine. Their words decide only which words the receiver
/// reads: the call is over and its store is dropped either way. Tests of both fail when the engine changes the words.
fn untyped_limit(error: &wasmtime::Error, limits: &Limits) -> Option<Limit> {
    let root = error.root_cause().to_string();
    if root.contains("fuel allocated for hostcalls has been exhausted") {
        Some(Limit::Output(limits.output))
    } else if root.contains("store handle limit exceeded") {
        Some(Limit::Handles(u64::from(limits.handles)))
    } else {
        None
    }
}

/// Why a guest says that it has no answer; `Err` holds a text that is for people only.
/// Secrets are taken out before a text is cut, for half a secret would not be found afterwards.
pub(crate) fn of_guest(error: GuestError, redactor: &Redactor) -> Result<ToolError, String> {
    let bounded = |mut text: String| {
        redactor.string(&mut text);
        cut(text, MAX_ERROR_TEXT)
    };
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

/// Cuts a text to `max` bytes, with a mark that says how much is missing.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let missing = text.len() - text.floor_char_boundary(max);
        // Anew, because a text that is cut in place keeps all of its memory.
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
    fn a_text_is_kept_up_to_the_limit_and_cut_with_a_mark_beyond() {
        assert_eq!(cut("é".into(), 2), "é");
        assert_eq!(cut("aé".into(), 2), "a [2 bytes cut]");
    }

    #[test]
    fn a_trap_after_refused_memory_is_a_memory_limit() {
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
    fn a_call_with_too_many_objects_ends_with_the_memory_limit() {
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
