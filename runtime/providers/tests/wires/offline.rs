//! Tests of the stand-in without a model, with the shipped tools.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};
use toolcell_providers::offline::{MARK, Offline};

use crate::conversation::{play, request, result, tool};

/// Specifications of the shipped tools.
fn shipped() -> Vec<ToolSpec> {
    let defined: Vec<Value> = serde_json::from_str(include_str!("tools.json")).unwrap();
    defined
        .into_iter()
        .map(|d| ToolSpec {
            title: d["title"].as_str().map(str::to_owned),
            ..tool(
                d["name"].as_str().unwrap(),
                d["description"].as_str().unwrap(),
                d["input"].clone(),
            )
        })
        .collect()
}

fn asks(messages: Vec<Message>) -> Request {
    Request {
        tools: shipped().into(),
        ..request(messages)
    }
}

/// The first call of the stand-in as `name arguments`, or its text.
async fn first(text: &str) -> String {
    next(asks(vec![Message::user(text)])).await
}

async fn next(request: Request) -> String {
    let end = play(&Offline::new(), request).await.1.unwrap();
    match &end.parts[..] {
        [Part::Call(call)] => format!("{} {}", call.name, call.arguments),
        [Part::Text { text, .. }] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn attached_text_is_the_text_of_the_request() {
    let attached = Content::text("Attached file `standard input`, 14 bytes of text:\n\none two three\n");
    for (asked, tool) in [
        ("Count the words", "text_count"),
        ("How many lines are there?", "text_count"),
    ] {
        let message = Message::User {
            content: vec![Content::text(asked), attached.clone()],
        };
        assert_eq!(
            next(asks(vec![message])).await,
            format!(r#"{tool} {{"text":"one two three\n"}}"#),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn context_that_hooks_add_is_not_the_request() {
    let message = Message::User {
        content: vec![
            Content::text("<context>\nThe file notes.txt is old.\n</context>\n"),
            Content::text("How many words has \"a b c\"?"),
        ],
    };
    assert_eq!(next(asks(vec![message])).await, r#"text_count {"text":"a b c"}"#);
}

#[tokio::test]
async fn request_in_plain_words_finds_its_tool_and_arguments() {
    let mut wrong = String::new();
    for (asked, called) in [
        (
            "How many words are in README.md?",
            r#"text_count {"path":"README.md"}"#,
        ),
        (
            "Count the lines of src/main.rs",
            r#"text_count {"path":"src/main.rs"}"#,
        ),
        (
            "how many lines does Cargo.lock have",
            r#"text_count {"path":"Cargo.lock"}"#,
        ),
        (
            "How many characters has \"grüß gott\"?",
            r#"text_count {"text":"grüß gott"}"#,
        ),
        ("what time is it", "clock_now {}"),
        ("What's the date today?", "clock_now {}"),
        (
            "Which date is 30 days after 2026-01-01?",
            r#"clock_add {"duration":"30 days","start":"2026-01-01"}"#,
        ),
        (
            "Add 90 minutes to 2026-01-01T10:00:00Z",
            r#"clock_add {"duration":"90 minutes","start":"2026-01-01T10:00:00Z"}"#,
        ),
        (
            "How many days are between 2026-01-01 and 2026-03-01?",
            r#"clock_diff {"end":"2026-03-01","start":"2026-01-01"}"#,
        ),
        (
            "Find TODO in src",
            r#"files_search {"path":"src","pattern":"TODO"}"#,
        ),
        (
            "search for \"fn main\" in src/lib.rs",
            r#"files_search {"path":"src/lib.rs","pattern":"fn main"}"#,
        ),
        (
            "Where is parse_object used in runtime?",
            r#"files_search {"path":"runtime","pattern":"parse_object"}"#,
        ),
        ("grep unwrap", r#"files_search {"pattern":"unwrap"}"#),
        (
            "Show me the first 20 lines of Cargo.toml",
            r#"files_read {"limit":20,"path":"Cargo.toml"}"#,
        ),
        (
            "Show lines 10 to 20 of Cargo.toml",
            r#"files_read {"limit":11,"offset":10,"path":"Cargo.toml"}"#,
        ),
        (
            "Show the last 5 lines of a.log",
            r#"files_read {"offset":-5,"path":"a.log"}"#,
        ),
        ("Read LICENSE", r#"files_read {"path":"LICENSE"}"#),
        ("cat notes.txt", r#"files_read {"path":"notes.txt"}"#),
        ("What is in Cargo.toml?", r#"files_read {"path":"Cargo.toml"}"#),
        (
            "sha256 of Cargo.lock",
            r#"text_hash {"algorithm":"sha256","path":"Cargo.lock"}"#,
        ),
        (
            "What is the SHA-512 checksum of a.bin?",
            r#"text_hash {"algorithm":"sha512","path":"a.bin"}"#,
        ),
        (
            "fetch https://example.com",
            r#"fetch {"url":"https://example.com"}"#,
        ),
        (
            "Download https://example.com/a.html please",
            r#"fetch {"url":"https://example.com/a.html"}"#,
        ),
        (
            "What does https://example.com say?",
            r#"fetch {"url":"https://example.com"}"#,
        ),
        ("List the files in docs", r#"files_list {"path":"docs"}"#),
        ("Which files are in src?", r#"files_list {"path":"src"}"#),
        ("List all files here", "files_list {}"),
        ("ls src", r#"files_list {"path":"src"}"#),
        (
            "Replace \"old name\" with \"new name\" in a.txt",
            r#"files_edit {"new_string":"new name","old_string":"old name","path":"a.txt"}"#,
        ),
        (
            "Write \"hello\" to out.txt",
            r#"files_write {"content":"hello","path":"out.txt"}"#,
        ),
        (
            "Create out.txt with \"hello\"",
            r#"files_write {"content":"hello","mode":"create","path":"out.txt"}"#,
        ),
        (
            "Append \"bye\" to out.txt",
            r#"files_write {"content":"bye","mode":"append","path":"out.txt"}"#,
        ),
        (
            "Compare a.txt with b.txt",
            r#"text_diff {"new_path":"b.txt","old_path":"a.txt"}"#,
        ),
        (
            "diff a.txt b.txt",
            r#"text_diff {"new_path":"b.txt","old_path":"a.txt"}"#,
        ),
        (
            "Query `.version` in package.json",
            r#"json_query {"path":"package.json","program":".version"}"#,
        ),
        (
            "What is the version in package.json?",
            r#"json_query {"path":"package.json","program":".version"}"#,
        ),
    ] {
        let did = first(asked).await;
        if did != called {
            wrong.push_str(&format!("{asked}\n  {called}\n  {did}\n"));
        }
    }
    assert!(wrong.is_empty(), "asked, expected, called:\n{wrong}");
}

#[tokio::test]
async fn answer_quotes_the_tool_and_states_that_no_model_is_used() {
    let asked = "How many words are in README.md?";
    let call = |id: &str| crate::conversation::call(id, "text_count", r#"{"path":"README.md"}"#);
    let after = |content: &str, is_error: bool| {
        asks(vec![
            Message::user(asked),
            Message::Assistant {
                parts: vec![call("call_1")],
            },
            result("call_1", "text_count", vec![Content::text(content)], is_error),
        ])
    };
    assert_eq!(
        next(after(r#"{"lines":10,"words":1234,"bytes":9000}"#, false)).await,
        "offline stand-in, no model: `text_count` says: words: 1234, bytes: 9000, lines: 10"
    );
    assert_eq!(
        next(after("1234 words", false)).await,
        "offline stand-in, no model: `text_count` says: 1234 words"
    );
    // Lines stand in a block of their own, whatever they have of Markdown.
    assert_eq!(
        next(after("--- old\n+++ new\n```\n-red", false)).await,
        "offline stand-in, no model: `text_count` says:\n\n````\n--- old\n+++ new\n```\n-red\n````"
    );
    let long = next(after(&"a\n".repeat(10_000), false)).await;
    assert!(long.contains("…\n```\n[cut after "), "{long}");
    assert_eq!(
        next(after("Error: README.md does not exist", true)).await,
        "offline stand-in, no model: `text_count` failed: Error: README.md does not exist"
    );
}

#[tokio::test]
async fn request_without_a_matching_tool_lists_candidates() {
    let answer = first("Sing me a song about autumn").await;
    assert!(answer.starts_with(MARK), "{answer}");
    for spec in shipped() {
        assert!(answer.contains(&format!("`{}`", spec.name)), "{answer}");
    }
    let answer = first("Please search").await;
    assert!(
        answer.starts_with(MARK) && answer.contains("`files_search`") && !answer.contains("`clock_now`"),
        "{answer}"
    );
}

#[tokio::test]
async fn no_call_is_made_if_calls_are_not_allowed() {
    let mut request = asks(vec![Message::user("List the files in docs")]);
    request.tool_choice = ToolChoice::None;
    assert_eq!(
        next(request).await,
        "offline stand-in, no model: no tools are available, and it can only call tools."
    );
}

#[tokio::test]
async fn new_request_is_not_answered_with_an_old_result() {
    let messages = vec![
        Message::user("List the files in docs"),
        Message::Assistant {
            parts: vec![crate::conversation::call("call_1", "files_list", "{}")],
        },
        result("call_1", "files_list", vec![Content::text("a.md")], false),
        Message::assistant("…"),
        Message::user("Read docs/a.md"),
    ];
    assert_eq!(next(asks(messages)).await, r#"files_read {"path":"docs/a.md"}"#);
}

#[tokio::test]
async fn order_of_tools_does_not_matter() {
    let mut tools = shipped();
    tools.reverse();
    let request = Request {
        tools: tools.into(),
        messages: vec![Arc::new(Message::user("How many words are in README.md?"))],
        ..Request::default()
    };
    assert_eq!(next(request).await, r#"text_count {"path":"README.md"}"#);
}

#[tokio::test]
async fn no_text_makes_the_stand_in_fail() {
    for text in [
        "",
        " ",
        "\u{0}",
        "''''",
        "\"",
        "in in in of",
        "é́🦀 \u{202e}x",
        "- - ; ; and then ",
        &"a/".repeat(5000),
        "Show lines -9223372036854775808 to 9223372036854775807 of a.txt",
        "Show the last -9223372036854775808 lines of a.txt",
        "Which date is -9223372036854775808 days before 2026-01-01?",
    ] {
        let answer = first(text).await;
        assert!(!answer.is_empty(), "{text:?}");
    }
}
