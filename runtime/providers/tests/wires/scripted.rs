//! Tests of the scripted provider.

use toolcell_core::Message;
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason};
use toolcell_providers::scripted::{Script, Scripted};

use crate::conversation::*;

fn scripted(text: &str) -> Scripted {
    Scripted::new(Script::parse(text).unwrap())
}

#[tokio::test]
async fn step_is_played_in_deltas() {
    let provider = scripted(
        r#"{"steps":[{"reasoning":"hm","text":"abc","chunk":2,
            "calls":[{"name":"weather","arguments":{"a":1}},{"id":"mine","name":"x","arguments":"{broken"}],
            "usage":{"input":1,"output":2}}]}"#,
    );
    let (deltas, end) = play(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas[0], Delta::Reasoning("hm".into()));
    assert_eq!(deltas[1..3], [Delta::Text("ab".into()), Delta::Text("c".into())]);
    assert_eq!(
        end.parts[1..],
        [
            text("abc"),
            call("call_1_1", "weather", r#"{"a":1}"#),
            call("mine", "x", "{broken")
        ]
    );
    assert_eq!(end.usage.map(|u| u.output), Some(2));
    provider.assert_complete();
}

#[tokio::test]
async fn invalid_request_is_answered_with_the_violation() {
    let provider = scripted(r#"{"steps":[{"text":"a"}]}"#);
    let broken = request(vec![
        Message::user("x"),
        Message::Assistant {
            parts: vec![call("c", "f", "{}")],
        },
    ]);
    let error = play(&provider, broken).await.1.unwrap_err();
    assert_eq!(error.message, "request 1: the call `c` (f) has no result");
    assert_eq!(provider.complete().unwrap_err(), error.message);
}

#[tokio::test]
async fn unexpected_request_is_answered_with_the_difference() {
    for (expect, message) in [
        (
            r#"{"user":"Bye"}"#,
            r#"the last user message does not contain "Bye": "Hello""#,
        ),
        (r#"{"tools":["a"]}"#, r#"the tools: expected ["a"], got []"#),
        (r#"{"messages":2}"#, "the number of messages: expected 2, got 1"),
        (r#"{"results":["x"]}"#, "the number of results: expected 1, got 0"),
        (r#"{"absent":["Hell"]}"#, "`Hell` occurs in the request"),
    ] {
        let provider = scripted(&format!(r#"{{"steps":[{{"expect":{expect},"text":"a"}}]}}"#));
        let error = play(&provider, hello()).await.1.unwrap_err();
        assert_eq!(error.message, format!("request 1: step 1: {message}"));
    }
}

#[tokio::test]
async fn incomplete_and_exhausted_scripts_are_reported() {
    let provider = scripted(r#"{"steps":[{"text":"a"},{"text":"b"}]}"#);
    play(&provider, hello()).await.1.unwrap();
    assert_eq!(provider.complete().unwrap_err(), "step 2 of 2 was not requested");
    play(&provider, hello()).await.1.unwrap();
    provider.assert_complete();
    let error = play(&provider, hello()).await.1.unwrap_err();
    assert_eq!(
        error.message,
        "request 3: the script has 2 steps, but step 3 was requested"
    );
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test]
async fn step_is_selected_by_the_number_of_answers() {
    let script = r#"{"position":"conversation","steps":[{"text":"one"},{"text":"two"}]}"#;
    let provider = scripted(script);
    let later = request(vec![
        Message::user("x"),
        Message::assistant("one"),
        Message::user("y"),
    ]);
    for _ in 0..2 {
        assert_eq!(
            play(&provider, later.clone()).await.1.unwrap().parts,
            [text("two")]
        );
        assert_eq!(play(&provider, hello()).await.1.unwrap().parts, [text("one")]);
    }
    provider.assert_complete();
}

#[tokio::test]
async fn errors_retries_and_stop_reasons_are_played() {
    let provider = scripted(
        r#"{"steps":[
            {"text":"half","error":{"kind":"rate_limited","message":"slow","status":429,"retry_after_ms":9}},
            {"retries_ms":[1,2],"text":"cut","stop":"max_tokens","calls":[{"name":"f","arguments":"{\"a"}]},
            {"stop":"odd"}]}"#,
    );
    let (deltas, end) = play(&provider, hello()).await;
    assert_eq!(shown(&deltas), "half");
    let error = end.unwrap_err();
    assert_eq!(
        (error.kind, error.status, error.retry_after_ms),
        (ProviderErrorKind::RateLimited, Some(429), Some(9))
    );
    let (deltas, end) = play(&provider, hello()).await;
    assert_eq!(retries(&deltas), 2);
    assert_eq!(end.unwrap().parts, [text("cut")]);
    assert_eq!(
        play(&provider, hello()).await.1.unwrap().stop,
        StopReason::Other("odd".into())
    );
}

#[test]
fn invalid_script_is_refused_with_its_position() {
    for (script, is) in [
        ("{", "EOF"),
        (r#"{"steps":[]}"#, "it has no steps"),
        (r#"{"steps":[{"txt":"a"}]}"#, "unknown field `txt`"),
        (r#"{"steps":[{"error":{"kind":"odd"}}]}"#, "unknown variant `odd`"),
    ] {
        let error = Script::parse(script).unwrap_err().to_string();
        assert!(error.contains(is), "{error}");
    }
    let error = Scripted::from_file("/no/such.json".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "invalid script `/no/such.json`");
    let deepest = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source()).last();
    assert!(
        deepest.is_some_and(|cause| cause.is::<std::io::Error>()),
        "{error:?}"
    );
}

#[tokio::test]
async fn conversation_ends_with_an_answer_only_after_a_pause() {
    for (stop, is_right) in [("paused", true), ("complete", false)] {
        let provider = scripted(&format!(
            r#"{{"steps":[{{"text":"half","stop":"{stop}"}},{{"text":"more"}}]}}"#
        ));
        play(&provider, hello()).await.1.unwrap();
        let again = request(vec![Message::user("Hello"), Message::assistant("half")]);
        assert_eq!(play(&provider, again).await.1.is_ok(), is_right);
        assert_eq!(provider.complete().is_ok(), is_right);
    }
}
