//! Structured output of a tool: JSON, which is parsed within the memory and the time of the call.

use serde_json::Value;
use toolcell_core::ToolError;
use toolcell_core::json::{inexact_number, memory_of_text};

use crate::cell::memory::{MemoryAccount, OutOfMemory};

/// Length of a text that is parsed on the thread of the call, in bytes: some milliseconds. A longer one is parsed on a thread
/// for blocking work, so that neither the deadline of the call nor other calls wait for it.
pub(crate) const AT_ONCE: usize = 64 << 10;

/// Parses a text, whose memory once parsed counts as memory of the call until the cell ends.
///
/// # Errors
/// Returns an error if the text is no JSON, has an inexact number, or takes more memory than the call has left.
pub(crate) async fn parse(text: String, account: &MemoryAccount) -> Result<Value, ToolError> {
    charge([text.as_str()], account)?;
    if text.len() <= AT_ONCE {
        return parsed(&text);
    }
    let parsed = tokio::task::spawn_blocking(move || parsed(&text)).await;
    parsed.unwrap_or_else(|_| Err(broken("could not be parsed")))
}

/// Charges a call for the memory that JSON texts take once they are parsed.
///
/// # Errors
/// Returns an error if the call has less left.
pub(crate) fn charge<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    account: &MemoryAccount,
) -> Result<(), ToolError> {
    let price = texts.into_iter().map(memory_of_text).sum();
    account.charge(price).map_err(OutOfMemory::into_error)
}

/// Returns the error of a tool whose structured output cannot be used.
pub(crate) fn broken(what: &str) -> ToolError {
    ToolError::crashed(format!("its structured output {what}"))
}

fn parsed(text: &str) -> Result<Value, ToolError> {
    let value = serde_json::from_str(text).map_err(|e| broken(&format!("is not valid JSON: {e}")))?;
    match inexact_number(text) {
        None => Ok(value),
        Some(_) => Err(broken("has a number that cannot be represented exactly")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::memory::MemoryPool;

    #[tokio::test]
    async fn text_is_parsed_with_memory_for_its_values() {
        for count in [10, 20_000] {
            let text = format!("[{}0]", r#"{"":0},"#.repeat(count));
            let price = memory_of_text(&text);
            assert!(price > 600 * count as u64);
            let account = |limit| MemoryAccount::new(limit, MemoryPool::new(u64::MAX));
            let (exact, less) = (account(price), account(price - 1));
            let value = parse(text.clone(), &exact).await.unwrap();
            assert_eq!(value.as_array().unwrap().len(), count + 1);
            assert_eq!(exact.left(), 0);
            let refused = parse(text, &less).await.unwrap_err();
            assert!(matches!(refused, ToolError::Limit { .. }), "{refused}");
        }
        let account = MemoryAccount::new(2 * memory_of_text("[0]") - 1, MemoryPool::new(u64::MAX));
        assert!(charge(["[0]"; 2], &account).is_err());
        let account = MemoryAccount::unlimited();
        for (text, reason) in [
            ("[", "is not valid JSON"),
            ("[-0]", "cannot be represented exactly"),
        ] {
            let refused = parse(text.into(), &account).await.unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        }
    }
}
