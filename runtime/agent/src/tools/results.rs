//! Results that were cut for the model, kept whole, and the tool that reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::{
    BoxFuture, CallContext, RemainingBudget, SessionStore, Tool, ToolCall, ToolError, ToolOutput, ToolSpec,
};

use crate::tools::control;
use crate::tools::truncate::{ceil, floor};

/// Bytes that one session keeps in memory; older results are read from the store, or are gone where there is none.
pub(crate) const MAX_KEPT_BYTES: usize = 32 << 20;

/// Longest result that is kept, in bytes. More than any policy lets a cell return by default.
pub(crate) const MAX_RESULT_BYTES: usize = 8 << 20;

/// Bytes that one reading returns.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// The results of one session.
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

    /// Keeps a result, cut to [`MAX_RESULT_BYTES`].
    ///
    /// # Errors
    /// When the store fails; it is in memory then all the same.
    pub(crate) async fn keep(&self, call: &str, mut text: String) -> Result<(), toolcell_core::StoreError> {
        if text.len() > MAX_RESULT_BYTES {
            text.truncate(floor(&text, MAX_RESULT_BYTES));
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

    /// The whole of a result.
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

/// `read_result`, bound to a session.
pub(crate) struct ReadResult {
    spec: ToolSpec,
    shelf: Option<Arc<ResultStore>>,
}

impl ReadResult {
    /// As it is offered; it reads nothing.
    pub(crate) fn unbound() -> Self {
        Self {
            spec: control::read_result_spec(),
            shelf: None,
        }
    }

    pub(crate) fn of(shelf: Arc<ResultStore>) -> Self {
        Self {
            shelf: Some(shelf),
            ..Self::unbound()
        }
    }
}

impl Tool for ReadResult {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn max_use(&self) -> RemainingBudget {
        RemainingBudget::NOTHING
    }

    fn call(&self, call: ToolCall, _cx: CallContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let handle = call
                .arguments
                .get("call")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let missing = || ToolError::Failed {
                message: format!("no result is kept for the call `{}`", handle.escape_debug()),
            };
            let shelf = self.shelf.as_ref().ok_or_else(missing)?;
            let read = shelf.read(handle).await;
            let text = read
                .map_err(|error| ToolError::Unavailable {
                    message: error.to_string(),
                })?
                .ok_or_else(missing)?;
            let from = call.arguments.get("from").and_then(Value::as_u64).unwrap_or(0);
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            if let Some(find) = call.arguments.get("find").and_then(Value::as_str) {
                return Ok(ToolOutput::text(find_in(&text, find, from)));
            }
            Ok(ToolOutput::text(page_of(&text, from)))
        })
    }
}

/// One page, with its place in the whole.
fn page_of(text: &str, from: usize) -> String {
    let start = ceil(text, from);
    let end = floor(text, start.saturating_add(PAGE_BYTES)).max(start);
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

/// Places at which a text stands, each with its surroundings.
fn find_in(text: &str, find: &str, from: usize) -> String {
    /// Places shown at once.
    const PLACES: usize = 20;
    /// Bytes shown before and after each.
    const AROUND: usize = 200;
    if find.is_empty() {
        return page_of(text, from);
    }
    let start = ceil(text, from);
    let mut out = String::new();
    let mut shown = 0;
    for (at, found) in text[start..].match_indices(find) {
        let at = start + at;
        if shown == PLACES {
            out.push_str(&format!("[more places follow, from {at}]"));
            return out;
        }
        shown += 1;
        let begin = floor(text, at.saturating_sub(AROUND));
        let end = ceil(text, at + found.len() + AROUND);
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

    async fn read(shelf: &Arc<ResultStore>, arguments: Value) -> Result<String, ToolError> {
        let Value::Object(arguments) = arguments else {
            panic!("no object")
        };
        let call = ToolCall {
            id: "r".into(),
            name: ToolName::new("read_result").unwrap(),
            arguments,
        };
        let output = ReadResult::of(shelf.clone())
            .call(call, CallContext::unobserved())
            .await?;
        Ok(crate::testing::text_of(&output.content))
    }

    #[tokio::test]
    async fn a_long_result_is_read_page_by_page_to_its_last_byte() {
        let shelf = Arc::new(ResultStore::new("s", None));
        let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        shelf.keep("c1", text.clone()).await.unwrap();
        let mut all = String::new();
        loop {
            let page = read(&shelf, json!({"call": "c1", "from": all.len()}))
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
    async fn a_text_is_found_with_its_surroundings() {
        let shelf = Arc::new(ResultStore::new("s", None));
        let text = format!("{}needle{}", "ä".repeat(500), "x".repeat(500));
        shelf.keep("c1", text).await.unwrap();
        let found = read(&shelf, json!({"call": "c1", "find": "needle"}))
            .await
            .unwrap();
        assert!(
            found.starts_with("[at byte 1000]\n") && found.contains("needle"),
            "{found}"
        );
        assert!(found.len() < 600);
        let none = read(&shelf, json!({"call": "c1", "find": "hay"})).await.unwrap();
        assert_eq!(none, "[not found in 1506 bytes from 0]");
    }

    #[tokio::test]
    async fn a_call_without_a_kept_result_is_an_error() {
        let shelf = Arc::new(ResultStore::new("s", None));
        let error = read(&shelf, json!({"call": "zz"})).await.unwrap_err();
        assert_eq!(error.to_string(), "no result is kept for the call `zz`");
    }

    #[tokio::test]
    async fn memory_holds_results_up_to_its_limit_and_lets_the_oldest_go() {
        let shelf = Arc::new(ResultStore::new("s", None));
        let whole = MAX_KEPT_BYTES / MAX_RESULT_BYTES;
        for i in 0..whole {
            shelf
                .keep(&i.to_string(), "x".repeat(MAX_RESULT_BYTES + 1))
                .await
                .unwrap();
        }
        assert_eq!(shelf.read("0").await.unwrap().unwrap().len(), MAX_RESULT_BYTES);
        shelf.keep("more", "y".into()).await.unwrap();
        assert_eq!(shelf.read("0").await.unwrap(), None);
        assert!(shelf.read("1").await.unwrap().is_some());
        // What went is not counted any more, and what came is.
        for i in 0..whole {
            shelf
                .keep(&format!("new {i}"), "x".repeat(MAX_RESULT_BYTES))
                .await
                .unwrap();
        }
        assert_eq!(shelf.read("more").await.unwrap(), None);
        assert!(shelf.read("new 0").await.unwrap().is_some());
        assert_eq!(ReadResult::of(shelf).max_use(), RemainingBudget::NOTHING);
    }

    #[test]
    fn an_offset_beyond_the_end_shows_an_empty_last_page() {
        assert_eq!(page_of("abc", 99), "[bytes 3 to 3 of 3; the end]\n");
    }
}
