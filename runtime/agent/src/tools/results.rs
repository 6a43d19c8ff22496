//! Full text of results that were cut for the model, and the tool that reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::{
    BoxFuture, CallContext, CallResult, RemainingBudget, SessionStore, Tool, ToolCall, ToolError, ToolSpec,
};

/// Maximum bytes of results in memory per session; older results are read from the store, or lost without a store.
pub(crate) const MAX_KEPT_BYTES: usize = 32 << 20;

/// Maximum size of a stored result, in bytes. More than any policy lets a cell return by default.
pub(crate) const MAX_RESULT_BYTES: usize = 8 << 20;

/// Bytes per page.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// Full results of one session.
pub(crate) struct ResultStore {
    session: String,
    store: Option<Arc<dyn SessionStore>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    results: VecDeque<(String, Arc<str>)>,
}

impl ResultStore {
    pub(crate) fn new(session: &str, store: Option<Arc<dyn SessionStore>>) -> Self {
        Self {
            session: session.to_owned(),
            store,
            kept: Mutex::default(),
        }
    }

    /// Stores a result, cut to [`MAX_RESULT_BYTES`].
    ///
    /// # Errors
    /// Fails if the store fails; the result is then kept in memory only.
    pub(crate) async fn keep(&self, call: &str, mut text: String) -> Result<(), toolcell_core::StoreError> {
        if text.len() > MAX_RESULT_BYTES {
            text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
        }
        let text: Arc<str> = text.into();
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes += text.len();
            kept.results.push_back((call.to_owned(), text.clone()));
            while kept.bytes > MAX_KEPT_BYTES
                && let Some((_, old)) = kept.results.pop_front()
            {
                kept.bytes -= old.len();
            }
        }
        match &self.store {
            Some(store) => store.keep_result(&self.session, call, &text).await,
            None => Ok(()),
        }
    }

    /// Returns the full text of a result.
    pub(crate) async fn read(&self, call: &str) -> Result<Option<Arc<str>>, toolcell_core::StoreError> {
        {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, text)) = kept.results.iter().rfind(|(id, _)| id == call) {
                return Ok(Some(text.clone()));
            }
        }
        match &self.store {
            Some(store) => Ok(store.kept_result(&self.session, call).await?.map(Into::into)),
            None => Ok(None),
        }
    }
}

/// The tool `read_result`, bound to a session.
pub(crate) struct ReadResult {
    spec: ToolSpec,
    store: Option<Arc<ResultStore>>,
}

impl ReadResult {
    /// Creates the tool. Without a store it reads nothing, as in the list of offered tools.
    pub(crate) fn new(spec: ToolSpec, store: Option<Arc<ResultStore>>) -> Self {
        Self { spec, store }
    }
}

impl Tool for ReadResult {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn max_use(&self) -> RemainingBudget {
        RemainingBudget::NOTHING
    }

    fn call(&self, call: ToolCall, _cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move { self.read(&call).await.into() })
    }
}

impl ReadResult {
    async fn read(&self, call: &ToolCall) -> Result<CallResult, ToolError> {
        let handle = call
            .arguments
            .get("call")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let missing = || ToolError::Failed {
            message: format!("no stored result for call `{}`", handle.escape_debug()),
        };
        let store = self.store.as_ref().ok_or_else(missing)?;
        let read = store.read(handle).await;
        let text = read
            .map_err(|error| ToolError::Unavailable {
                message: error.to_string(),
            })?
            .ok_or_else(missing)?;
        let from = call.arguments.get("from").and_then(Value::as_u64).unwrap_or(0);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        if let Some(find) = call.arguments.get("find").and_then(Value::as_str) {
            return Ok(CallResult::text(find_in(&text, find, from)));
        }
        Ok(CallResult::text(page_of(&text, from)))
    }
}

/// One page, with its position in the full text.
fn page_of(text: &str, from: usize) -> String {
    let start = text.ceil_char_boundary(from);
    let end = text
        .floor_char_boundary(start.saturating_add(PAGE_BYTES))
        .max(start);
    let rest = text.len() - end;
    let next = match rest {
        0 => "the end".to_owned(),
        rest => format!("{rest} bytes follow, from {end}"),
    };
    format!(
        "[bytes {start} to {end} of {}; {next}]\n{}",
        text.len(),
        &text[start..end]
    )
}

/// Occurrences of a text, each with its context.
fn find_in(text: &str, find: &str, from: usize) -> String {
    /// Maximum occurrences per page.
    const PLACES: usize = 20;
    /// Bytes of context before and after each.
    const AROUND: usize = 200;
    if find.is_empty() {
        return page_of(text, from);
    }
    let start = text.ceil_char_boundary(from);
    let mut out = String::new();
    let mut shown = 0;
    for (at, found) in text[start..].match_indices(find) {
        let at = start + at;
        if shown == PLACES {
            out.push_str(&format!("[more places follow, from {at}]"));
            return out;
        }
        shown += 1;
        let begin = text.floor_char_boundary(at.saturating_sub(AROUND));
        let end = text.ceil_char_boundary(at + found.len() + AROUND);
        out.push_str(&format!("[at byte {at}]\n{}\n", &text[begin..end]));
    }
    if shown == 0 {
        return format!("[not found in {} bytes from {start}]", text.len() - start);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolcell_core::ToolName;

    async fn read(store: &Arc<ResultStore>, arguments: Value) -> Result<String, ToolError> {
        let Value::Object(arguments) = arguments else {
            panic!("no object")
        };
        let call = ToolCall {
            id: "r".into(),
            name: ToolName::new("read_result").unwrap(),
            arguments,
        };
        let output = crate::tools::control::read_result(Some(store.clone()))
            .call(call, CallContext::unobserved())
            .await
            .into_result()?;
        Ok(crate::testing::text_of(&output.content))
    }

    #[tokio::test]
    async fn long_result_is_read_in_pages_to_its_last_byte() {
        let store = Arc::new(ResultStore::new("s", None));
        let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        store.keep("c1", text.clone()).await.unwrap();
        let mut all = String::new();
        loop {
            let page = read(&store, json!({"call": "c1", "from": all.len()}))
                .await
                .unwrap();
            let (head, body) = page.split_once("]\n").unwrap();
            all.push_str(body);
            if head.ends_with("the end") {
                break;
            }
        }
        assert_eq!(all, text);
    }

    #[tokio::test]
    async fn text_is_found_with_its_context() {
        let store = Arc::new(ResultStore::new("s", None));
        let text = format!("{}needle{}", "ä".repeat(500), "x".repeat(500));
        store.keep("c1", text).await.unwrap();
        let found = read(&store, json!({"call": "c1", "find": "needle"}))
            .await
            .unwrap();
        assert!(
            found.starts_with("[at byte 1000]\n") && found.contains("needle"),
            "{found}"
        );
        assert!(found.len() < 600);
        let none = read(&store, json!({"call": "c1", "find": "hay"})).await.unwrap();
        assert_eq!(none, "[not found in 1506 bytes from 0]");
        let none = read(&store, json!({"call": "c1", "find": "needle", "from": 1_002}))
            .await
            .unwrap();
        assert_eq!(none, "[not found in 504 bytes from 1002]");
    }

    #[tokio::test]
    async fn call_without_a_stored_result_is_an_error() {
        let store = Arc::new(ResultStore::new("s", None));
        let error = read(&store, json!({"call": "zz"})).await.unwrap_err();
        assert_eq!(error.to_string(), "no stored result for call `zz`");
    }

    #[tokio::test]
    async fn memory_limit_evicts_the_oldest_results() {
        let store = Arc::new(ResultStore::new("s", None));
        let whole = MAX_KEPT_BYTES / MAX_RESULT_BYTES;
        for i in 0..whole {
            store
                .keep(&i.to_string(), "x".repeat(MAX_RESULT_BYTES + 1))
                .await
                .unwrap();
        }
        assert_eq!(store.read("0").await.unwrap().unwrap().len(), MAX_RESULT_BYTES);
        store.keep("more", "y".into()).await.unwrap();
        assert_eq!(store.read("0").await.unwrap(), None);
        assert!(store.read("1").await.unwrap().is_some());
        // Evicted results are not counted any more, and new ones are.
        for i in 0..whole {
            store
                .keep(&format!("new {i}"), "x".repeat(MAX_RESULT_BYTES))
                .await
                .unwrap();
        }
        assert_eq!(store.read("more").await.unwrap(), None);
        assert!(store.read("new 0").await.unwrap().is_some());
        let tool = crate::tools::control::read_result(Some(store));
        assert_eq!(tool.max_use(), RemainingBudget::NOTHING);
    }

    #[test]
    fn offset_beyond_the_end_shows_an_empty_page() {
        assert_eq!(page_of("abc", 99), "[bytes 3 to 3 of 3; the end]\n");
    }
}
