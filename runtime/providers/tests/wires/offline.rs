//! The stand-in without a model, with tools such as the ones that ship.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};
use toolcell_providers::offline::{MARK, Offline};

use crate::conversation::{play, request, result, tool};

fn optional(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}

fn shipped() -> Vec<ToolSpec> {
    let string = |description: &str| json!({"type": "string", "description": description});
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    vec![
        tool(
            "clock_add",
            "Add a duration to a date or time. Negative amounts go back.",
            object(
                json!({
                    "start": string("Date or time to start from (RFC 3339)."),
                    "days": optional("integer", "Days to add."),
                    "weeks": optional("integer", "Weeks to add."),
                    "hours": optional("integer", "Hours to add."),
                }),
                &["start"],
            ),
        ),
        tool(
            "clock_diff",
            "How much time lies between two dates or times.",
            object(
                json!({"start": string("The earlier date or time."), "end": string("The later date or time.")}),
                &["start", "end"],
            ),
        ),
        tool(
            "clock_now",
            "The current date and time in a time zone.",
            object(
                json!({"zone": optional("string", "Time zone of the IANA database, such as `Europe/Vienna`. Default: UTC.")}),
                &[],
            ),
        ),
        tool(
            "fetch",
            "Fetch a web page over HTTP and return its readable text as Markdown.",
            object(
                json!({"url": {"type": "string", "format": "uri", "description": "Address of the page."}}),
                &["url"],
            ),
        ),
        tool(
            "files_edit",
            "Replace one passage of a file by another. The passage must stand in the file exactly once.",
            object(
                json!({"path": string("Path of the file."), "old": string("The passage as it is."), "new": string("What takes its place.")}),
                &["path", "old", "new"],
            ),
        ),
        tool(
            "files_list",
            "List the files and directories in a directory.",
            object(
                json!({"path": optional("string", "The directory."), "recursive": optional("boolean", "Also what is inside its directories.")}),
                &[],
            ),
        ),
        tool(
            "files_read",
            "Read a text file, or some of its lines.",
            object(
                json!({
                    "path": string("Path of the file."),
                    "first_line": optional("integer", "First line to read, counted from 1."),
                    "last_line": optional("integer", "Last line to read."),
                }),
                &["path"],
            ),
        ),
        tool(
            "files_search",
            "Search files for lines that match a regular expression.",
            object(
                json!({"pattern": string("The regular expression."), "path": optional("string", "File or directory to search in.")}),
                &["pattern"],
            ),
        ),
        tool(
            "files_write",
            "Write a text file; what was in it is lost.",
            object(
                json!({"path": string("Path of the file."), "content": string("The new content.")}),
                &["path", "content"],
            ),
        ),
        tool(
            "json_query",
            "Query a JSON document with a jq expression.",
            object(
                json!({"query": string("The jq expression."), "path": optional("string", "Path of a JSON file."), "json": optional("string", "The document.")}),
                &["query"],
            ),
        ),
        tool(
            "text_count",
            "Count the lines, words, characters and bytes of a text or of a text file of any size.\n\nUse it instead of counting yourself.",
            object(
                json!({"text": optional("string", "The text. Give this or `path`."), "path": optional("string", "Path of a text file. Give this or `text`.")}),
                &[],
            ),
        ),
        tool(
            "text_diff",
            "Compare two texts or text files line by line; the answer is a unified diff.",
            object(
                json!({
                    "old_text": optional("string", "The old text."),
                    "old_path": optional("string", "Path of a file with the old text."),
                    "new_text": optional("string", "The new text."),
                    "new_path": optional("string", "Path of a file with the new text."),
                    "context": {"type": "integer", "minimum": 0, "description": "Unchanged lines shown around each change.", "default": 3},
                }),
                &[],
            ),
        ),
        tool(
            "text_hash",
            "Compute the hash (checksum) of a text or of a file of any size and kind, in hexadecimal.",
            json!({
                "type": "object",
                "$defs": {"Algorithm": {"type": "string", "enum": ["sha256", "sha512", "blake3", "md5"]}},
                "properties": {
                    "text": optional("string", "The text. Give this or `path`."),
                    "path": optional("string", "Path of a file. Give this or `text`."),
                    "algorithm": {"$ref": "#/$defs/Algorithm", "description": "The hash function.", "default": "sha256"},
                },
            }),
        ),
    ]
}

fn asks(messages: Vec<Message>) -> Request {
    Request {
        tools: shipped().into(),
        ..request(messages)
    }
}

/// What the stand-in asks for first: `name arguments`, or its text.
async fn first(text: &str) -> String {
    next(asks(vec![Message::user(text)])).await
}

async fn next(request: Request) -> String {
    let end = play(&Offline::new(), request).await.1.unwrap();
    match &end.parts[..] {
        [Part::Call(call)] => format!("{} {}", call.name, call.arguments),
        [Part::Text { text }] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_in_plain_words_finds_its_tool_and_arguments() {
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
            "How many characters has \"grüß gott\"?",
            r#"text_count {"text":"grüß gott"}"#,
        ),
        ("What time is it in Tokyo?", r#"clock_now {"zone":"Asia/Tokyo"}"#),
        ("what time is it", "clock_now {}"),
        (
            "What is the time in New York right now?",
            r#"clock_now {"zone":"America/New_York"}"#,
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
        (
            "Show me the first 20 lines of Cargo.toml",
            r#"files_read {"last_line":20,"path":"Cargo.toml"}"#,
        ),
        (
            "Show lines 10 to 20 of Cargo.toml",
            r#"files_read {"first_line":10,"last_line":20,"path":"Cargo.toml"}"#,
        ),
        ("Read LICENSE", r#"files_read {"path":"LICENSE"}"#),
        ("cat notes.txt", r#"files_read {"path":"notes.txt"}"#),
        (
            "sha256 of Cargo.lock",
            r#"text_hash {"algorithm":"sha256","path":"Cargo.lock"}"#,
        ),
        (
            "What is the MD5 checksum of a.bin?",
            r#"text_hash {"algorithm":"md5","path":"a.bin"}"#,
        ),
        (
            "fetch https://example.com",
            r#"fetch {"url":"https://example.com"}"#,
        ),
        (
            "Download https://example.com/a.html please",
            r#"fetch {"url":"https://example.com/a.html"}"#,
        ),
        ("List the files in docs", r#"files_list {"path":"docs"}"#),
        ("List all files here", "files_list {}"),
        (
            "List the files in src, recursive",
            r#"files_list {"path":"src","recursive":true}"#,
        ),
        (
            "Replace \"old name\" with \"new name\" in a.txt",
            r#"files_edit {"new":"new name","old":"old name","path":"a.txt"}"#,
        ),
        (
            "Write \"hello\" to out.txt",
            r#"files_write {"content":"hello","path":"out.txt"}"#,
        ),
        (
            "Compare a.txt with b.txt",
            r#"text_diff {"new_path":"b.txt","old_path":"a.txt"}"#,
        ),
        (
            "How many days are between 2026-01-01 and 2026-03-01?",
            r#"clock_diff {"end":"2026-03-01","start":"2026-01-01"}"#,
        ),
        (
            "Which date is 30 days after 2026-01-01?",
            r#"clock_add {"days":30,"start":"2026-01-01"}"#,
        ),
        (
            "Query `.version` in package.json",
            r#"json_query {"path":"package.json","query":".version"}"#,
        ),
    ] {
        assert_eq!(first(asked).await, called, "{asked}");
    }
}

#[tokio::test]
async fn an_answer_is_the_tools_own_and_says_that_there_is_no_model() {
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
    assert_eq!(
        next(after("Error: README.md does not exist", true)).await,
        "offline stand-in, no model: `text_count` failed: Error: README.md does not exist"
    );
}

#[tokio::test]
async fn two_requests_in_one_sentence_are_two_calls() {
    let asked = "List the files in docs and then count the words of docs/a.md";
    let start = next(asks(vec![Message::user(asked)])).await;
    assert_eq!(start, r#"files_list {"path":"docs"}"#);
    let listed = vec![
        Message::user(asked),
        Message::Assistant {
            parts: vec![crate::conversation::call(
                "call_1",
                "files_list",
                r#"{"path":"docs"}"#,
            )],
        },
        result("call_1", "files_list", vec![Content::text("a.md")], false),
    ];
    assert_eq!(next(asks(listed)).await, r#"text_count {"path":"docs/a.md"}"#);
}

#[tokio::test]
async fn a_result_goes_on_to_a_second_tool_where_the_first_only_brings_the_text() {
    let asked = "How many words are on https://example.com?";
    assert_eq!(first(asked).await, r#"fetch {"url":"https://example.com"}"#);
    let fetched = vec![
        Message::user(asked),
        Message::Assistant {
            parts: vec![crate::conversation::call("call_1", "fetch", "{}")],
        },
        result("call_1", "fetch", vec![Content::text("Example Domain")], false),
    ];
    assert_eq!(
        next(asks(fetched)).await,
        r#"text_count {"text":"Example Domain"}"#
    );
}

#[tokio::test]
async fn a_request_that_fits_nothing_is_told_what_would() {
    let said = first("Sing me a song about autumn").await;
    assert!(said.starts_with(MARK), "{said}");
    for spec in shipped() {
        assert!(said.contains(&format!("`{}`", spec.name)), "{said}");
    }
    let said = first("Please search").await;
    assert!(
        said.starts_with(MARK) && said.contains("`files_search`") && !said.contains("`clock_now`"),
        "{said}"
    );
}

#[tokio::test]
async fn nothing_is_called_where_nothing_may_be_called() {
    let mut request = asks(vec![Message::user("List the files in docs")]);
    request.tool_choice = ToolChoice::None;
    assert_eq!(
        next(request).await,
        "offline stand-in, no model: there is no tool to call, and it can do nothing else."
    );
}

#[tokio::test]
async fn a_new_question_is_not_answered_with_an_old_result() {
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
async fn the_order_of_the_tools_changes_nothing() {
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
async fn no_text_makes_it_fail() {
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
    ] {
        let said = first(text).await;
        assert!(!said.is_empty(), "{text:?}");
    }
}
