//! Texts of the shipped tools for the model: names of files, errors, and aliases of parameters.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value, json};

use super::{Client, text};
use crate::support::cli_user::User;

const ALL: [&str; 12] = [
    "--tool", "clock", "--tool", "fetch", "--tool", "files", "--tool", "json", "--tool", "memory", "--tool",
    "text",
];

/// Size of a value that no error may repeat, in bytes.
const LONG: usize = 20_000;

/// Maximum size of an answer with an error, in bytes of JSON.
const MAX_ERROR: usize = 10_000;

/// A value of this schema.
fn some_value(schema: &Value) -> Value {
    if let Some(Value::Array(options)) = schema.get("enum") {
        return options[0].clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("a"),
    }
}

/// Values of this schema that contain a long text; none if it takes no text.
fn long_values(schema: &Value, long: &str) -> Vec<Value> {
    match schema["type"].as_str() {
        Some("string") | None => vec![json!(long)],
        Some("array") => long_values(&schema["items"], long)
            .into_iter()
            .map(|value| json!([value]))
            .collect(),
        Some("object") => vec![json!({ long: "a" }), json!({ "a": long })],
        Some(_) => Vec::new(),
    }
}

#[test]
fn no_error_of_a_shipped_tool_repeats_a_long_value() {
    let user = User::new();
    user.file("a", "one");
    let grants = ["--grant", "write=.", "--grant", "memory:keyvalue=memory"];
    let mut client = Client::session(&user, &[&ALL[..], &grants].concat());
    let list = client.ask(1, "tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap().clone();
    let (mut id, mut errors) = (1, 0);
    for tool in &tools {
        let schema = &tool["inputSchema"];
        let properties = schema["properties"].as_object().unwrap();
        let required: Vec<&str> = (schema["required"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        let texts = [
            "x".repeat(LONG),
            format!("https://example.com/{}", "x".repeat(LONG)),
            "\u{1b}\n".repeat(LONG / 2),
        ];
        for (name, of) in properties {
            for value in texts.iter().flat_map(|text| long_values(of, text)) {
                let mut arguments: Map<String, Value> = (required.iter())
                    .map(|name| ((*name).to_owned(), some_value(&properties[*name])))
                    .collect();
                arguments.insert(name.clone(), value);
                id += 1;
                let call = json!({"name": tool["name"], "arguments": arguments});
                let answer = client.ask(id, "tools/call", call);
                if answer["result"]["isError"] != json!(false) {
                    errors += 1;
                    let shown = answer.to_string();
                    let start: String = shown.chars().take(2_000).collect();
                    assert!(
                        shown.len() < MAX_ERROR,
                        "{} bytes for `{name}` of {}: {start}",
                        shown.len(),
                        tool["name"]
                    );
                }
            }
        }
    }
    assert!(errors > 100, "{errors} errors of {} tools", tools.len());
    client.finish();
}

#[test]
fn odd_file_names_reach_the_model_escaped() {
    let user = User::new();
    for name in ["new\nline", "\u{1b}[2Jclear", "exe\u{202e}txt"] {
        user.file(name, "needle");
    }
    std::fs::write(user.work().join(OsStr::from_bytes(b"caf\xe9")), "needle").unwrap();
    let mut client = Client::session(&user, &["--tool", "files", "--grant", "read=."]);
    let listed = client.call(1, "files_list", json!({}));
    let listed = text(&listed);
    for line in [
        r#""new\nline"	6"#,
        r#""\u001b[2Jclear"	6"#,
        r#""exe\u202etxt"	6"#,
        r"caf\xe9	(name is not UTF-8, cannot be opened)",
    ] {
        assert!(listed.lines().any(|found| found == line), "{line}: {listed}");
    }
    let found = client.call(2, "files_search", json!({"pattern": "needle"}));
    let found = text(&found);
    assert!(found.contains("\"new\\nline\":1:needle\n"), "{found}");
    assert!(
        found.contains("1 entry has a name that is not UTF-8 and cannot be opened"),
        "{found}"
    );
    // The name in the list, read as JSON, is the name of the file.
    let read = client.call(3, "files_read", json!({"path": "new\nline"}));
    assert_eq!(text(&read), "needle");
    let refused = client.call(4, "files_read", json!({"path": "caf\\xe9"}));
    assert!(
        text(&refused).contains(r"`caf\xe9` cannot be opened: its name is not UTF-8"),
        "{refused}"
    );
    let missing = client.call(5, "files_read", json!({"path": "new\nlime"}));
    assert!(
        text(&missing).contains(r#"`"new\nlime"` does not exist; near names: "new\nline""#),
        "{missing}"
    );
    client.finish();
}

#[test]
fn names_that_models_guess_are_accepted() {
    let user = User::new();
    user.file("a.txt", "one\ntwo\n");
    let mut client = Client::session(&user, &[&ALL[..], &["--grant", "files:write=."]].concat());
    let mut id = 1;
    for (tool, arguments, expected) in [
        (
            "files_read",
            json!({"file_path": "a.txt", "start_line": 2}),
            "two",
        ),
        (
            "files_write",
            json!({"filename": "b.txt", "text": "three"}),
            "Created `b.txt`",
        ),
        (
            "files_edit",
            json!({"file_path": "b.txt", "old_str": "three", "new_str": "four"}),
            "Replaced once in `b.txt`",
        ),
        (
            "files_copy",
            json!({"from": "b.txt", "to": "c.txt"}),
            "Copied `b.txt`",
        ),
        (
            "files_move",
            json!({"src": "c.txt", "dst": "d.txt"}),
            "Moved `c.txt`",
        ),
        (
            "files_search",
            json!({"query": "four", "directory": "."}),
            "b.txt:1:four",
        ),
        ("files_delete", json!({"file_path": "d.txt"}), "Deleted `d.txt`"),
        ("json_query", json!({"query": ".a", "data": {"a": 7}}), "7"),
        ("json_query", json!({"program": ".", "json": null}), "null"),
        (
            "json_query",
            json!({"program": ".", "json": "hello"}),
            "\"hello\"",
        ),
        ("clock_now", json!({"timezone": "Europe/Berlin"}), "Europe/Berlin"),
    ] {
        id += 1;
        let answer = client.call(id, tool, arguments);
        assert_eq!(answer["isError"], json!(false), "{tool}: {answer}");
        assert!(text(&answer).contains(expected), "{tool}: {answer}");
    }
    // They are not part of the schema, and which of two was meant is not guessed.
    let both = client.call(
        id + 1,
        "files_read",
        json!({"path": "a.txt", "file_path": "b.txt"}),
    );
    assert!(
        text(&both).contains("`path` and `file_path` are names of the same parameter"),
        "{both}"
    );
    let list = client.ask(id + 2, "tools/list", json!({})).to_string();
    assert!(
        !list.contains("file_path") && !list.contains("old_str\""),
        "{list}"
    );
    client.finish();
}

#[test]
fn rules_judge_a_parameter_by_its_own_name() {
    let user = User::new();
    user.file("private/key", "the key");
    user.file("notes/a", "a note");
    user.configure(
        "[approval]\nrules = [{ tool = \"files_read\", arguments = { \"/path\" = \"private/*\" }, verdict = \"deny\" }]\n",
    );
    let mut client = Client::session(&user, &["--tool", "files", "--grant", "read=."]);
    for (id, name) in [(1, "path"), (2, "file_path"), (3, "filename"), (4, "file")] {
        let refused = client.call(id, "files_read", json!({ name: "private/key" }));
        assert_eq!(refused["isError"], json!(true), "{name}: {refused}");
        assert!(!refused.to_string().contains("the key"), "{name}: {refused}");
        assert!(text(&refused).contains("not allowed"), "{name}: {refused}");
    }
    assert_eq!(
        text(&client.call(9, "files_read", json!({"file_path": "notes/a"}))),
        "a note"
    );
    client.finish();

    // The loop takes the same way.
    let call = |name: &str| {
        let calls = json!([{ "name": "files_read", "arguments": { name: "private/key" } }]);
        json!({ "steps": [{ "calls": calls }, { "text": "Done." }] }).to_string()
    };
    for name in ["path", "file_path"] {
        user.file("script.json", call(name));
        let seen = user
            .run_script(&["--tool", "files", "--grant", "read=.", "--json"])
            .ended(0);
        assert!(!seen.stdout.contains("the key"), "{name}: {}", seen.stdout);
        assert!(seen.stdout.contains("not allowed"), "{name}: {}", seen.stdout);
    }
}
