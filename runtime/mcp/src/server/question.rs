//! Questions to the user of a client about a call: by a request in the versions with sessions (`elicitation/create`), by
//! a result and the repeated call in version 2026-07-28 (`input_required`).
//!
//! A call is approved only by the answer to the question about it: a request has an identifier that its answer repeats, and
//! a result has a state that cannot be guessed, belongs to one question, and is used once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use toolcell_core::{ApprovalRequest, Decision};

use crate::message::{RequestId, RpcError};

/// Maximum time until a question is answered; then the call is not approved.
pub const QUESTION_TIME: Duration = Duration::from_secs(10 * 60);

/// Maximum number of questions of a client whose calls are not repeated yet. The oldest is withdrawn for a further one.
pub const MAX_QUESTIONS: usize = 256;

/// Method of a question.
pub(crate) const METHOD: &str = "elicitation/create";

/// Name of the question in the result of a call, and of the field in its answer.
const APPROVAL: &str = "approval";
const FIELD: &str = "approve";

/// Digest of a question: of the tool, the arguments, the reason, where the arguments lead, and the catalog that the tool is of:
/// another one may have other code under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject(blake3::Hash);

impl Subject {
    pub(crate) fn of(request: &ApprovalRequest, generation: u64) -> Self {
        // The identifier of the call is another one when it is repeated.
        let parts = (
            &request.tool,
            &request.arguments,
            request.cause,
            &request.reason,
            &request.places,
            generation,
        );
        let bytes = serde_json::to_vec(&parts).expect("values with names of type string are serialized");
        Self(blake3::hash(&bytes))
    }
}

/// Parameters of a question. Its text is that of the host.
pub(crate) fn params(text: &str, with_mode: bool) -> Value {
    let mut params = json!({
        "message": text,
        "requestedSchema": {
            "type": "object",
            "properties": { FIELD: { "type": "boolean", "title": "Run this call", "default": false } },
            "required": [FIELD],
        },
    });
    if with_mode {
        params["mode"] = "form".into();
    }
    params
}

/// Result of a call that waits for an answer.
pub(crate) fn input_required(text: &str, state: &str, server: &Value) -> Value {
    json!({
        "resultType": "input_required",
        "inputRequests": { APPROVAL: { "method": METHOD, "params": params(text, true) } },
        "requestState": state,
        "_meta": { "io.modelcontextprotocol/serverInfo": server },
    })
}

/// Decision of an answer: only a form that was accepted with the field set approves.
pub(crate) fn decision(answer: &Value) -> Decision {
    let is_accepted = answer.get("action").and_then(Value::as_str) == Some("accept");
    let field = answer.get("content").and_then(|content| content.get(FIELD));
    if is_accepted && field == Some(&Value::Bool(true)) {
        Decision::Approve
    } else {
        Decision::Deny { reason: None }
    }
}

/// True if a client can ask its user with a form.
pub(crate) fn is_capable(capabilities: Option<&Value>) -> bool {
    match capabilities.and_then(|capabilities| capabilities.get("elicitation")) {
        // An empty object means forms, as before there was anything else.
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        _ => false,
    }
}

/// Questions of a client that are answered by repeating the call, by their states.
#[derive(Default)]
pub(crate) struct Questions(Mutex<HashMap<String, (Subject, Instant)>>);

impl Questions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Subject, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a question and returns its state.
    pub(crate) fn add(&self, subject: Subject) -> String {
        let mut questions = self.lock();
        questions.retain(|_, (_, asked)| asked.elapsed() < QUESTION_TIME);
        if questions.len() >= MAX_QUESTIONS {
            let oldest = questions.iter().min_by_key(|(_, (_, asked))| *asked);
            if let Some(oldest) = oldest.map(|(state, _)| state.clone()) {
                questions.remove(&oldest);
            }
        }
        let state = uuid::Uuid::new_v4().simple().to_string();
        questions.insert(state.clone(), (subject, Instant::now()));
        state
    }

    /// Returns the answer in a repeated call, and what it answers; `None` for a call that answers nothing. A state is used
    /// once.
    ///
    /// # Errors
    /// Fails if the state is not that of a question which waits.
    pub(crate) fn answered(
        &self,
        params: &Map<String, Value>,
    ) -> Result<Option<(Subject, Decision)>, RpcError> {
        let Some(state) = params.get("requestState") else {
            return Ok(None);
        };
        let found = state.as_str().and_then(|state| self.lock().remove(state));
        match found.filter(|(_, asked)| asked.elapsed() < QUESTION_TIME) {
            None => Err(RpcError::invalid_params(
                "`requestState` is not that of a question which waits; it is used once",
            )),
            Some((subject, _)) => {
                let answer = params
                    .get("inputResponses")
                    .and_then(|answers| answers.get(APPROVAL));
                Ok(answer.map(|answer| (subject, decision(answer))))
            }
        }
    }
}

/// Questions of a session that wait for their answers, by the identifiers of their requests.
#[derive(Default)]
pub(crate) struct Asked(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    waiting: HashMap<RequestId, oneshot::Sender<Value>>,
}

/// Question that waits. It is withdrawn when this is dropped.
pub(crate) struct Waiting<'a> {
    asked: &'a Asked,
    pub(crate) id: RequestId,
    answer: oneshot::Receiver<Value>,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) -> Waiting<'_> {
        let (sender, answer) = oneshot::channel();
        let mut open = self.lock();
        open.last += 1;
        let id = RequestId::Text(format!("question-{}", open.last));
        open.waiting.insert(id.clone(), sender);
        drop(open);
        Waiting {
            asked: self,
            id,
            answer,
        }
    }

    /// Passes an answer on. One to no question is ignored.
    pub(crate) fn answer(&self, id: &RequestId, answer: Value) {
        let waiting = self.lock().waiting.remove(id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }
}

impl Waiting<'_> {
    pub(crate) async fn decided(mut self) -> Decision {
        let unanswered = || Decision::Deny {
            reason: Some("the question was not answered".into()),
        };
        match tokio::time::timeout(QUESTION_TIME, &mut self.answer).await {
            Ok(Ok(answer)) => decision(&answer),
            _ => unanswered(),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.asked.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(arguments: Value, reason: &str) -> Subject {
        Subject::of(
            &ApprovalRequest {
                id: "1".into(),
                tool: "t".into(),
                arguments,
                cause: toolcell_core::ApprovalCause::Rule,
                reason: reason.into(),
                places: Vec::new(),
            },
            0,
        )
    }

    fn params_of(state: &str, answer: Option<Value>) -> Map<String, Value> {
        let mut params = Map::new();
        params.insert("requestState".into(), state.into());
        if let Some(answer) = answer {
            params.insert("inputResponses".into(), json!({ APPROVAL: answer }));
        }
        params
    }

    #[test]
    fn only_an_accepted_form_with_its_field_approves() {
        let answer = |action: &str, content: Value| json!({"action": action, "content": content});
        assert_eq!(
            decision(&answer("accept", json!({FIELD: true}))),
            Decision::Approve
        );
        for answer in [
            answer("accept", json!({FIELD: false})),
            answer("accept", json!({FIELD: "true"})),
            answer("accept", json!({})),
            answer("decline", json!({FIELD: true})),
            answer("cancel", json!({FIELD: true})),
            json!({FIELD: true}),
            json!({"action": "accept"}),
            Value::Null,
        ] {
            assert_ne!(decision(&answer), Decision::Approve, "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn state_is_used_once_and_for_a_time() {
        let questions = Questions::default();
        let about = subject(json!({"a": 1}), "r");
        let yes = || Some(json!({"action": "accept", "content": {FIELD: true}}));
        let state = questions.add(about);
        let answered = questions.answered(&params_of(&state, yes())).unwrap();
        assert_eq!(answered, Some((about, Decision::Approve)));
        assert!(questions.answered(&params_of(&state, yes())).is_err());
        assert!(questions.answered(&params_of("x", yes())).is_err());
        assert_eq!(questions.answered(&Map::new()), Ok(None));
        // Without an answer, the question is used up as well, and asked again.
        let state = questions.add(about);
        assert_eq!(questions.answered(&params_of(&state, None)), Ok(None));
        let (in_time, late) = (questions.add(about), questions.add(about));
        tokio::time::advance(QUESTION_TIME - Duration::from_millis(1)).await;
        assert!(questions.answered(&params_of(&in_time, yes())).is_ok());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(questions.answered(&params_of(&late, yes())).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_question_is_withdrawn_for_another() {
        let questions = Questions::default();
        let mut states = Vec::new();
        for _ in 0..=MAX_QUESTIONS {
            states.push(questions.add(subject(json!({}), "r")));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(questions.answered(&params_of(&states[0], None)).is_err());
        assert!(questions.answered(&params_of(&states[1], None)).is_ok());
    }

    #[test]
    fn subject_is_that_of_one_question() {
        let about = subject(json!({"a": 1}), "r");
        assert_eq!(about, subject(json!({"a": 1}), "r"));
        assert_ne!(about, subject(json!({"a": 2}), "r"));
        assert_ne!(about, subject(json!({"a": 1}), "s"));
    }

    #[test]
    fn only_clients_with_forms_can_ask() {
        for (capabilities, is_able) in [
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": true}), false),
            (json!({}), false),
        ] {
            assert_eq!(is_capable(Some(&capabilities)), is_able, "{capabilities}");
        }
        assert!(!is_capable(None));
    }
}
