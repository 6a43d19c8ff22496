//! Changes in a scratch directory: shown, committed and discarded by file.

use serde_json::{Value, json};

use super::users::tokens;
use super::{Served, is_finished, user};

/// Path of a file of the user's directory, as the server shows it.
fn path(user: &crate::support::cli_user::User, name: &str) -> String {
    let directory = user.work().join("project").canonicalize().unwrap();
    directory.join(name).to_str().unwrap().to_owned()
}

#[test]
fn changes_of_tools_are_committed_and_discarded_by_file() {
    let write = |path: &str, content: &str| json!({"name": "files_write", "arguments": {"path": format!("project/{path}"), "content": content, "mode": "overwrite"}});
    let user = user(json!([
        {"calls": [
            write("old.txt", "new\n"), write("theirs.txt", "mine\n"), write("made/deep.txt", "made\n"), write("no.txt", "no\n"),
        ]},
        {"text": "Done."},
    ]));
    for (name, content) in [("old.txt", "old\n"), ("theirs.txt", "old\n"), (".gitignore", "")] {
        user.file(&format!("project/{name}"), content);
    }
    std::fs::create_dir_all(user.work().join("project/made")).unwrap();
    user.configure("[tools.files]\ngrants = [\"write=project\"]\nscratch = \"out/changes\"\n");
    tokens(&user, &[format!("{} name=ada", "t".repeat(40))]);
    let flags = [
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "files",
        "--token-file",
        "tokens",
    ];
    let served = Served::with(&user, &flags);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Go."}));
    served.stream(&session, 0, is_finished);

    let listed = served.get("/api/scratch").json();
    assert_eq!(
        (&listed["scratch"][0]["name"], &listed["scratch"][0]["files"]),
        (&json!("changes"), &json!(4)),
        "{listed}"
    );
    let shown = served.get("/api/scratch/changes").json();
    let file = |shown: &Value, name: &str| {
        let path = path(&user, name);
        let mut files = shown["files"].as_array().unwrap().iter();
        files.find(|file| file["path"] == path.as_str()).cloned()
    };
    let old = file(&shown, "old.txt").unwrap();
    assert_eq!(
        (&old["change"], &old["conflict"]),
        (&json!("changed"), &json!(false))
    );
    assert!(old["diff"].as_str().unwrap().contains("-old\n+new\n"), "{old}");
    assert_eq!(std::fs::read_to_string(path(&user, "old.txt")).unwrap(), "old\n");

    let decide = |what: &str, names: &[&str]| {
        let files: Vec<String> = names.iter().map(|name| path(&user, name)).collect();
        served.post(
            &format!("/api/scratch/changes/{what}"),
            &json!({ "files": files }),
        )
    };
    // Another program has written one of them.
    user.file("project/theirs.txt", "theirs\n");
    let refused = decide("commit", &["old.txt", "theirs.txt"]);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert_eq!(std::fs::read_to_string(path(&user, "old.txt")).unwrap(), "old\n");
    let done = decide("commit", &["old.txt", "made/deep.txt"]);
    assert_eq!(
        (done.status, done.json()),
        (200, json!({"files": 2, "skipped": []}))
    );
    assert_eq!(std::fs::read_to_string(path(&user, "old.txt")).unwrap(), "new\n");
    assert_eq!(
        std::fs::read_to_string(path(&user, "made/deep.txt")).unwrap(),
        "made\n"
    );
    assert_eq!(decide("commit", &["old.txt"]).status, 409);
    assert_eq!(decide("discard", &["no.txt"]).json()["files"], 1);
    let left = served.get("/api/scratch/changes").json();
    assert_eq!(left["files"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(file(&left, "theirs.txt").unwrap()["conflict"], true);
    let done = served.post("/api/scratch/changes/discard", &json!({}));
    assert_eq!(done.json()["files"], 1);
    assert_eq!(served.get("/api/scratch").json()["scratch"][0]["files"], 0);
    assert_eq!(
        std::fs::read_to_string(path(&user, "theirs.txt")).unwrap(),
        "theirs\n"
    );

    // They are no files of a client.
    let client = served.headers_of(&"t".repeat(40));
    for (method, rest) in [("GET", ""), ("GET", "/changes"), ("POST", "/changes/commit")] {
        let answer = served.send(method, &format!("/api/scratch{rest}"), &client, "{}");
        assert_eq!(answer.status, 403, "{method} {rest}");
    }
    let log = std::fs::read_to_string(user.home().join(".local/state/toolcell/serve-audit.jsonl")).unwrap();
    assert!(
        log.contains(r#""decision":"scratch","is_allowed":true,"detail":"commit changes: 2 files""#),
        "{log}"
    );
}
