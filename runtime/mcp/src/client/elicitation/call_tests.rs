//! Servers that ask the user during a call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolcell_core::{BoxFuture, Content};

use super::{Elicitation, ElicitationAnswer, Elicitor, MAX_ELICITATIONS};
use crate::client::server::Options;
use crate::client::testing::{Does, Scripted, call, fail, polite, result, text};

/// A user who answers after some time.
#[derive(Debug)]
struct Answers {
    after: Duration,
    questions: Mutex<Vec<Elicitation>>,
    is_withdrawn: AtomicBool,
}

impl Answers {
    fn after(seconds: u64) -> Arc<Self> {
        Arc::new(Self {
            after: Duration::from_secs(seconds),
            questions: Mutex::default(),
            is_withdrawn: AtomicBool::new(true),
        })
    }

    fn options(self: &Arc<Self>) -> Options {
        Options {
            elicitor: Some(self.clone()),
            ..Options::new("srv")
        }
    }

    fn count(&self) -> usize {
        self.questions.lock().unwrap().len()
    }
}

impl Elicitor for Answers {
    fn elicit(&self, elicitation: Elicitation) -> BoxFuture<'_, ElicitationAnswer> {
        self.questions.lock().unwrap().push(elicitation);
        Box::pin(async move {
            tokio::time::sleep(self.after).await;
            self.is_withdrawn.store(false, Ordering::SeqCst);
            ElicitationAnswer::Accept(Map::from_iter([("name".to_owned(), json!("Ada"))]))
        })
    }
}

fn form() -> Value {
    let name = json!({"type": "string"});
    json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": name}}})
}

fn asks(id: &str) -> Does {
    Does::Say(json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": form()}))
}

/// A server that asks `count` times during each call, and returns the last answer.
fn scripted(count: usize) -> Scripted {
    let answered = AtomicUsize::new(0);
    Scripted::new(move |_, message| match message["method"].as_str() {
        Some("tools/call") => {
            answered.store(0, Ordering::SeqCst);
            vec![asks("q1")]
        }
        None => match answered.fetch_add(1, Ordering::SeqCst) + 1 {
            done if done < count => vec![asks(&format!("q{}", done + 1))],
            _ => {
                let told = message.get("result").or(message.get("error")).unwrap();
                vec![text(&json!({"id": 4}), &told.to_string())]
            }
        },
        _ => polite(message, &[("t", "")]),
    })
}

fn said(result: &toolcell_core::CallResult) -> &str {
    match result.content.as_slice() {
        [Content::Text { text }] => text,
        other => panic!("{other:?}: {:?}", result.error),
    }
}

#[tokio::test(start_paused = true)]
async fn user_answers_a_server_without_loss_of_time() {
    let (scripted, user) = (scripted(1), Answers::after(600));
    let server = scripted.start_with(user.options()).await.unwrap();
    let answer = said(&call(&server).await).to_owned();
    assert_eq!(answer, r#"{"action":"accept","content":{"name":"Ada"}}"#);
    let capabilities = &scripted.received("initialize")[0]["params"]["capabilities"];
    assert_eq!(capabilities, &json!({"elicitation": {}}));
    let questions = user.questions.lock().unwrap();
    assert_eq!((&*questions[0].server, &*questions[0].message), ("srv", "Who?"));
    assert_eq!(questions[0].fields.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn questions_of_one_call_are_limited() {
    let most = MAX_ELICITATIONS as usize;
    for (count, is_asked) in [(most, true), (most + 1, false)] {
        let (scripted, user) = (scripted(count), Answers::after(1));
        let server = scripted.start_with(user.options()).await.unwrap();
        let answer = said(&call(&server).await).to_owned();
        assert_eq!(answer.contains("accept"), is_asked, "{answer}");
        assert_eq!(user.count(), most);
    }
}

#[tokio::test(start_paused = true)]
async fn server_asks_only_during_a_call() {
    let scripted = Scripted::new(|_, message| match message["method"].as_str() {
        Some("tools/list") => [vec![asks("q")], polite(message, &[("t", "")])].concat(),
        _ => polite(message, &[]),
    });
    let user = Answers::after(1);
    let _server = scripted.start_with(user.options()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let received = scripted.received.lock().unwrap();
    let refused = received.iter().find(|message| message["id"] == "q").unwrap();
    assert_eq!((&refused["error"]["code"], user.count()), (&json!(-32601), 0));
}

#[tokio::test(start_paused = true)]
async fn question_ends_with_its_call() {
    let (scripted, user) = (scripted(1), Answers::after(600));
    let server = scripted.start_with(user.options()).await.unwrap();
    let dropped = tokio::time::timeout(Duration::from_secs(5), call(&server)).await;
    assert!(dropped.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(user.is_withdrawn.load(Ordering::SeqCst));
    let received = scripted.received.lock().unwrap();
    let answer = received.iter().find(|message| message["id"] == "q1").unwrap();
    assert_eq!(answer["result"], json!({"action": "cancel"}));
}

#[tokio::test(start_paused = true)]
async fn call_is_repeated_with_the_input_of_the_user() {
    let ask = json!({"method": "elicitation/create", "params": form()});
    for (requests, why) in [
        (json!({"who": ask}), None),
        (
            json!({"x": {"method": "sampling/createMessage"}}),
            Some("asks for `sampling/createMessage`, which this client refuses"),
        ),
        (
            json!([]),
            Some("requires input, and its `inputRequests` are not an object"),
        ),
    ] {
        let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
            Some("server/discover") => vec![result(message, json!({"supportedVersions": ["2026-07-28"]}))],
            Some("tools/call") => match message["params"]["inputResponses"]["who"].get("content") {
                Some(who) if message["params"]["requestState"] == "s" => {
                    vec![text(message, who["name"].as_str().unwrap())]
                }
                _ => vec![result(
                    message,
                    json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"}),
                )],
            },
            _ => polite(message, &[("t", "")]),
        });
        let user = Answers::after(600);
        let server = scripted.start_with(user.options()).await.unwrap();
        match why {
            None => assert_eq!(said(&call(&server).await), "Ada"),
            Some(why) => {
                let error = fail(&server).await.to_string();
                assert!(error.contains(why), "{error}");
            }
        }
    }
}

/// A server of version 2026-07-28 that answers calls by `calls`.
fn stateless(calls: impl Fn(&Value) -> Vec<Does> + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |_, message| match message["method"].as_str() {
        Some("server/discover") => vec![result(message, json!({"supportedVersions": ["2026-07-28"]}))],
        Some("tools/call") => calls(message),
        _ => polite(message, &[("t", "")]),
    })
}

/// The result that requires input: answers to so many questions, and the state, if there is one.
fn requires(message: &Value, questions: usize, state: Option<&str>) -> Does {
    let question = json!({"method": "elicitation/create", "params": form()});
    let questions: Map<String, Value> = (0..questions)
        .map(|i| (format!("q{i}"), question.clone()))
        .collect();
    let mut required = json!({"resultType": "input_required"});
    if !questions.is_empty() {
        required["inputRequests"] = Value::Object(questions);
    }
    if let Some(state) = state {
        required["requestState"] = json!(state);
    }
    result(message, required)
}

#[tokio::test(start_paused = true)]
async fn server_that_wants_input_for_ever_fails_its_call() {
    let (again, too_many) = ("requires input again and again", "too many questions");
    for (questions, state, (calls, asked, why)) in [
        (1, None, (9, 8, again)),
        (4, None, (3, 8, too_many)),
        (9, None, (1, 0, too_many)),
        (0, Some("s"), (9, 0, again)),
        (0, None, (1, 0, "are missing")),
    ] {
        let scripted = stateless(move |message| vec![requires(message, questions, state)]);
        let user = Answers::after(1);
        let server = scripted.start_with(user.options()).await.unwrap();
        let error = fail(&server).await.to_string();
        assert!(error.contains(why), "{error}");
        let seen = (scripted.received("tools/call").len(), user.count());
        assert_eq!(seen, (calls, asked), "{questions} {state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_call_has_what_its_last_round_wants() {
    let rounds = AtomicUsize::new(0);
    let scripted = stateless(move |message| match rounds.fetch_add(1, Ordering::SeqCst) {
        0 => vec![requires(message, 0, Some("first"))],
        1 => vec![requires(message, 1, None)],
        2 => vec![requires(message, 0, Some("last"))],
        _ => vec![text(message, "done")],
    });
    let server = scripted.start_with(Answers::after(1).options()).await.unwrap();
    assert_eq!(said(&call(&server).await), "done");
    let rounds: Vec<(Value, bool)> = (scripted.received("tools/call").iter())
        .map(|call| {
            let params = &call["params"];
            (
                params["requestState"].clone(),
                params["inputResponses"].is_object(),
            )
        })
        .collect();
    let none = Value::Null;
    let expected = [
        (none.clone(), false),
        (json!("first"), false),
        (none, true),
        (json!("last"), false),
    ];
    assert_eq!(rounds, expected);
    // A server that only wants the request again needs no user.
    let again = AtomicUsize::new(0);
    let scripted = stateless(move |message| match again.fetch_add(1, Ordering::SeqCst) {
        0 => vec![requires(message, 0, Some("later"))],
        _ => vec![text(message, "done")],
    });
    assert_eq!(said(&call(&scripted.start().await).await), "done");
}

#[tokio::test(start_paused = true)]
async fn question_takes_no_time_of_any_call() {
    // The first call has a question, the third makes the server answer the second one meanwhile.
    let calls: Mutex<Vec<Value>> = Mutex::default();
    let scripted = stateless(move |message| {
        if message["params"]["inputResponses"].is_object() {
            return vec![text(message, "done")];
        }
        let mut calls = calls.lock().unwrap();
        calls.push(message.clone());
        match calls.len() {
            1 => vec![requires(message, 1, None)],
            2 => vec![],
            _ => vec![requires(&calls[1], 1, None), text(message, "third")],
        }
    });
    let user = Answers::after(600);
    let server = scripted.start_with(user.options()).await.unwrap();
    let seconds = |count| tokio::time::sleep(Duration::from_secs(count));
    let later = async |count| {
        seconds(count).await;
        call(&server).await
    };
    let (first, second, third) = tokio::join!(call(&server), later(10), later(200));
    assert_eq!(
        (said(&first), said(&second), said(&third)),
        ("done", "done", "third")
    );
    for result in [first, second, third] {
        let time = result.receipt.unwrap().wall_us;
        assert!(time < 15_000_000, "{time}");
    }
}

#[tokio::test(start_paused = true)]
async fn questions_at_one_time_wait_up_to_their_number() {
    let most = MAX_ELICITATIONS as usize;
    let answered = AtomicUsize::new(0);
    let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
        Some("tools/call") => (0..most + 4).map(|i| asks(&format!("q{i}"))).collect(),
        None if answered.fetch_add(1, Ordering::SeqCst) + 1 == most + 4 => {
            vec![text(&json!({"id": 4}), "done")]
        }
        None => vec![],
        _ => polite(message, &[("t", "")]),
    });
    let user = Answers::after(600);
    let server = scripted.start_with(user.options()).await.unwrap();
    let called = call(&server).await;
    let id = &scripted.received("tools/call")[0]["id"];
    assert_eq!((said(&called), id), ("done", &json!(4)));
    assert_eq!(user.count(), most);
    let received = scripted.received.lock().unwrap();
    let refused = received
        .iter()
        .filter(|message| message["error"]["code"] == -32602);
    let accepted = received
        .iter()
        .filter(|message| message["result"]["action"] == "accept");
    assert_eq!((refused.count(), accepted.count()), (4, most));
}

#[tokio::test(start_paused = true)]
async fn question_that_waits_is_not_shown_after_its_call() {
    let scripted = Scripted::new(|_, message| match message["method"].as_str() {
        Some("tools/call") => vec![asks("q1"), asks("q2")],
        _ => polite(message, &[("t", "")]),
    });
    let user = Answers::after(600);
    let server = scripted.start_with(user.options()).await.unwrap();
    // Another call begins at once.
    for _ in 0..2 {
        let dropped = tokio::time::timeout(Duration::from_secs(5), call(&server)).await;
        assert!(dropped.is_err());
    }
    assert_eq!(user.count(), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(user.is_withdrawn.load(Ordering::SeqCst));
    let received = scripted.received.lock().unwrap();
    let cancelled = received
        .iter()
        .filter(|message| message["result"]["action"] == "cancel");
    assert_eq!(cancelled.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn question_ends_with_the_connection() {
    let scripted = stateless(|message| vec![requires(message, 1, None), Does::End]);
    let user = Answers::after(600);
    let server = scripted.start_with(user.options()).await.unwrap();
    let error = fail(&server).await.to_string();
    assert!(error.contains("ended during the call"), "{error}");
    assert!(user.is_withdrawn.load(Ordering::SeqCst));
}
