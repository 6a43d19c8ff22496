//! Questions about calls, and their answers.

use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use toolcell_core::store::SessionInfo;
use toolcell_http::BoxBody;

use crate::answer::{self, Failure};
use crate::clients::{AuditLine, Decision};
use crate::server::{Call, Server};

/// Maximum length of the words of a refusal, in characters: the model reads them.
pub(super) const MAX_WORDS: usize = 4_000;

pub(super) async fn all(server: &Server, call: &Call) -> Result<Response<BoxBody>, Failure> {
    let store = server.turns.host.store();
    let mut questions: Vec<Value> = Vec::new();
    for (id, live) in server.turns.all() {
        let open = live.questions();
        if !open.is_empty() && call.caller.owns(store.info(&id).await?.owner.as_deref()) {
            questions.extend(open);
        }
    }
    Ok(answer::ok(&json!({ "questions": questions })))
}

pub(super) fn of_session(server: &Server, info: &SessionInfo) -> Response<BoxBody> {
    let live = server.turns.find(&info.id);
    let questions = live.map(|live| live.questions()).unwrap_or_default();
    answer::ok(&json!({ "questions": questions }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    choice: String,
    words: Option<String>,
}

pub(super) fn answer(
    server: &Server,
    call: &Call,
    info: &SessionInfo,
    question: &str,
) -> Result<Response<BoxBody>, Failure> {
    let wanted: Answer = call.parse()?;
    let words = wanted.words.as_deref().filter(|words| !words.trim().is_empty());
    if words.is_some() && wanted.choice != "refuse" {
        return Err(Failure::invalid("only the choice `refuse` has `words`"));
    }
    if words.is_some_and(|words| words.chars().count() > MAX_WORDS) {
        return Err(Failure::invalid(format!(
            "`words` has at most {MAX_WORDS} characters"
        )));
    }
    let live = server.turns.find(&info.id);
    let answered = live.map_or(Err(()), |live| live.answer(question, &wanted.choice, words));
    let detail = match &answered {
        Ok(Some(tool)) => format!("{}: {tool}", wanted.choice),
        _ => format!("question {question}: not answered"),
    };
    let is_allowed = matches!(answered, Ok(Some(_)));
    let line = AuditLine::new(Some(&call.caller.owner), Decision::Answer, is_allowed, detail);
    server.turns.host.audit(&line.of(&info.id));
    match answered {
        Ok(Some(_)) => Ok(answer::ok(&json!({}))),
        Ok(None) => Err(Failure::invalid("the question does not have this choice")),
        Err(()) => Err(Failure::new(
            StatusCode::CONFLICT,
            "answered",
            "the question is not open any more",
        )),
    }
}
