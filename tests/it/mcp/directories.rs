//! Directories that are offered as resources.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::Client;
use super::http::Host;
use crate::support::cli_user::User;

const RECEIPT: &str = "io.github.toolcell/receipt";

/// A user with notes, and something beside them.
fn user() -> User {
    let user = User::new();
    user.file("notes/a.md", "# A");
    user.file("notes/sub/b c.txt", "b");
    user.file("notes/.hidden", "h");
    user.file("notes/private/key", "k");
    user.file("secret.txt", "s");
    user
}

/// URI of a file of the user.
fn uri(user: &User, path: &str) -> String {
    let work = user.work().canonicalize().unwrap();
    format!("file://{}/{path}", work.display())
}

fn read(client: &mut Client<'_>, uri: &str) -> Value {
    client.ask(1, "resources/read", json!({ "uri": uri }))
}

fn uris(listed: &Value) -> Vec<&str> {
    let all = listed["result"]["resources"].as_array().unwrap();
    all.iter().map(|of| of["uri"].as_str().unwrap()).collect()
}

#[test]
fn files_of_a_directory_are_listed_and_read() {
    let user = user();
    let mut client = Client::start(&user, &["--tool", "text", "--resources", "notes"]);
    let begun = client.ask(0, "initialize", super::initialize("2025-11-25"));
    assert_eq!(
        begun["result"]["capabilities"]["resources"],
        json!({"listChanged": true, "subscribe": true})
    );
    let listed = client.ask(2, "resources/list", json!({}));
    let expected =
        ["notes/", "notes/a.md", "notes/private/key", "notes/sub/b%20c.txt"].map(|path| uri(&user, path));
    assert_eq!(uris(&listed), expected);
    assert_eq!(listed["result"]["resources"][1]["mimeType"], "text/markdown");
    let templates = client.ask(3, "resources/templates/list", json!({}));
    let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, &json!(uri(&user, "notes/{+path}")));
    let completed = client.ask(
        4,
        "completion/complete",
        json!({"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": "path", "value": "s"}}),
    );
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["sub/b%20c.txt"])
    );
    let text = read(&mut client, &uri(&user, "notes/sub/b%20c.txt"))["result"].take();
    assert_eq!(
        text["contents"],
        json!([{"uri": uri(&user, "notes/sub/b%20c.txt"), "mimeType": "text/plain", "text": "b"}])
    );
    let receipt = &text["_meta"][RECEIPT];
    assert!(receipt["fuel"].as_u64().unwrap() > 0, "{receipt}");
    // Not in the list, and in the directory.
    let hidden = read(&mut client, &uri(&user, "notes/.hidden"));
    assert_eq!(hidden["result"]["contents"][0]["text"], "h", "{hidden}");
    let list = read(&mut client, &uri(&user, "notes/"));
    let list: Value = serde_json::from_str(list["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(list["files"].as_array().unwrap().len(), 3, "{list}");
    // The tools of the component that reads them are not offered with it.
    let tools = client.ask(5, "tools/list", json!({})).to_string();
    assert!(!tools.contains("files_read"), "{tools}");
    client.finish();
}

#[test]
fn nothing_outside_of_the_directory_is_read() {
    let user = user();
    symlink(user.work().join("secret.txt"), user.work().join("notes/link")).unwrap();
    symlink(user.work(), user.work().join("notes/up")).unwrap();
    let mut client = Client::session(&user, &["--tool", "text", "--resources", "notes"]);
    let listed = client.ask(2, "resources/list", json!({})).to_string();
    assert!(!listed.contains("link") && !listed.contains("/up"), "{listed}");
    for path in [
        "secret.txt",
        "notes/../secret.txt",
        "notes/%2e%2e/secret.txt",
        "notes/..%2Fsecret.txt",
        "notes/link",
        "notes/up/secret.txt",
    ] {
        let refused = read(&mut client, &uri(&user, path));
        assert!(refused["error"]["code"].is_i64(), "{path}: {refused}");
        // No more than the name that the client wrote.
        assert!(refused["result"].is_null(), "{path}: {refused}");
    }
    for other in [
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "http://example.com/",
    ] {
        assert_eq!(read(&mut client, other)["error"]["code"], -32002, "{other}");
    }
    client.finish();
}

#[test]
fn denials_of_the_user_hold_for_directories() {
    let user = user();
    user.configure("deny = [\"notes/private\"]\n");
    let mut client = Client::session(
        &user,
        &[
            "--tool",
            "text",
            "--resources",
            "notes",
            "--grant",
            "deny=notes/sub",
        ],
    );
    let listed = client.ask(2, "resources/list", json!({}));
    assert_eq!(
        uris(&listed),
        ["notes/", "notes/a.md"].map(|path| uri(&user, path))
    );
    for path in ["notes/private/key", "notes/sub/b%20c.txt"] {
        let refused = read(&mut client, &uri(&user, path));
        assert!(
            refused["error"]["code"].is_i64() && refused["result"].is_null(),
            "{refused}"
        );
    }
    assert!(read(&mut client, &uri(&user, "notes/a.md"))["result"].is_object());
    client.finish();
}

#[test]
fn directory_that_needs_dangerous_is_refused() {
    let user = user();
    let home = user.run_with_input(&["mcp", "serve", "--tool", "text", "--resources", "/"], "");
    let told = home.ended(4).stderr;
    assert!(told.contains("--dangerous"), "{told}");
}

#[test]
fn path_that_leads_to_no_directory_is_refused_with_the_flag() {
    let user = user();
    for (path, why) in [
        ("none", "No such file or directory"),
        ("secret.txt", "it is not a directory"),
        ("", "the path is empty"),
    ] {
        let refused = user.run_with_input(&["mcp", "serve", "--tool", "text", "--resources", path], "");
        let told = refused.ended(2).stderr;
        assert!(
            told.contains(&format!("error: --resources `{path}` cannot be offered")),
            "{told}"
        );
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn directories_in_each_other_and_twice_are_listed_once() {
    let user = user();
    symlink(user.work().join("notes"), user.work().join("same")).unwrap();
    let flags = ["notes/sub", "notes", "same", "./notes/../notes"];
    let flags: Vec<&str> = flags.iter().flat_map(|path| ["--resources", path]).collect();
    let mut client = Client::session(&user, &[&["--tool", "text"], &flags[..]].concat());
    let listed = client.ask(2, "resources/list", json!({}));
    let expected = [
        "notes/",
        "notes/sub/",
        "notes/a.md",
        "notes/private/key",
        "notes/sub/b%20c.txt",
    ];
    let mut expected = expected.map(|path| uri(&user, path));
    expected.sort();
    assert_eq!(uris(&listed), expected);
    let templates = client.ask(3, "resources/templates/list", json!({}));
    assert_eq!(
        templates["result"]["resourceTemplates"].as_array().unwrap().len(),
        2
    );
    for path in ["notes/sub/b%20c.txt", "notes/a.md"] {
        assert!(
            read(&mut client, &uri(&user, path))["result"].is_object(),
            "{path}"
        );
    }
    client.finish();
}

#[test]
fn denied_file_is_answered_as_one_that_does_not_exist() {
    let user = user();
    user.configure("deny = [\"notes/private\"]\n");
    let mut client = Client::session(&user, &["--tool", "text", "--resources", "notes"]);
    let mut told = |method: &str, path: &str| {
        let answer = client.ask(1, method, json!({ "uri": uri(&user, path) }));
        let error = &answer["error"];
        let words = error["message"].as_str().unwrap_or_default();
        let fuel = error["data"][RECEIPT]["fuel"].clone();
        // The client has written the path itself.
        (error["code"].clone(), words.replace(path, "PATH"), fuel)
    };
    // Names of the same length, one of a file.
    for (denied, missing) in [
        ("notes/private/key", "notes/private/kez"),
        ("notes/private/key/", "notes/private/kez/"),
        ("notes/private/key/x", "notes/private/kez/x"),
        ("notes/private/%6Bey", "notes/private/%6Bez"),
        ("secret.txt", "secrez.txt"),
        ("notes/../secret.txt", "notes/../secrez.txt"),
    ] {
        for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
            let (of_denied, of_missing) = (told(method, denied), told(method, missing));
            let is_read = method == "resources/read";
            assert!(!is_read || of_denied.0.is_i64(), "{denied}");
            // The words have the path of an encoded URI decoded.
            if !denied.contains('%') {
                assert_eq!(of_denied, of_missing, "{method} {denied}");
            }
            assert_eq!(of_denied.2, of_missing.2, "{method} {denied}");
        }
    }
    let template = uri(&user, "notes/{+path}");
    let completed = client.ask(
        4,
        "completion/complete",
        json!({"ref": {"type": "ref/resource", "uri": template}, "argument": {"name": "path", "value": "private"}}),
    );
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!([]),
        "{completed}"
    );
    client.finish();
}

#[test]
fn number_of_directories_is_limited() {
    let user = user();
    let names: Vec<String> = (0..17).map(|n| format!("d{n}")).collect();
    for name in &names {
        user.file(&format!("{name}/file"), "");
    }
    let flags = |number: usize| {
        let flags = names[..number].iter().flat_map(|name| ["--resources", name]);
        ["mcp", "serve", "--tool", "text"]
            .into_iter()
            .chain(flags)
            .collect::<Vec<_>>()
    };
    user.run_with_input(&flags(16), "").ended(0);
    let told = user.run_with_input(&flags(17), "").ended(2).stderr;
    assert!(told.contains("17 times, more than 16"), "{told}");
}

#[test]
fn rules_for_paths_hold_for_files_of_a_directory() {
    let user = user();
    user.configure(
        "[approval]\nrules = [{ tool = \"*\", arguments = { \"/uri\" = \"notes/sub/*\" }, verdict = \"deny\" }]\n",
    );
    let mut client = Client::session(&user, &["--tool", "text", "--resources", "notes"]);
    for path in [
        "notes/sub/b%20c.txt",
        "notes/%73ub/b%20c.txt",
        "notes/./sub//b%20c.txt",
    ] {
        let refused = read(&mut client, &uri(&user, path));
        assert!(refused["error"]["code"].is_i64(), "{path}: {refused}");
    }
    assert!(read(&mut client, &uri(&user, "notes/a.md"))["result"].is_object());
    client.finish();
}

#[test]
fn reading_a_file_makes_the_data_flow_of_the_client_private() {
    let user = user();
    user.configure("[approval]\nflow = \"refuse\"\n");
    let flags = [
        "--tool",
        "fetch",
        "--resources",
        "notes",
        "--grant",
        "fetch:http=127.0.0.1:9",
    ];
    let refusal = "this call of `fetch` is not allowed";
    let fetch = |client: &mut Client<'_>| {
        let result = client.call(3, "fetch", json!({"url": "http://127.0.0.1:9/"}));
        result.to_string().contains(refusal)
    };
    let mut client = Client::session(&user, &flags);
    assert!(!fetch(&mut client));
    client.finish();
    let mut client = Client::session(&user, &flags);
    assert!(read(&mut client, &uri(&user, "notes/a.md"))["result"].is_object());
    assert!(fetch(&mut client));
    client.finish();
}

#[test]
fn hooks_and_budgets_hold_for_files_of_a_directory() {
    let user = user();
    let hook = crate::hooks::built().join("unruly_hook.wasm");
    user.configure(&format!(
        "[hooks.h]\ncomponent = {hook:?}\nguard = true\n[budget]\ncalls = 2\n"
    ));
    let mut client = Client::session(&user, &["--tool", "text", "--resources", "notes"]);
    assert!(read(&mut client, &uri(&user, "notes/a.md"))["result"].is_object());
    assert!(read(&mut client, &uri(&user, "notes/a.md"))["result"].is_object());
    let spent = read(&mut client, &uri(&user, "notes/a.md"));
    assert_eq!(spent["error"]["code"], -32603, "{spent}");
    let told = client.finish().stderr;
    let ran = "after read_resource_of_directory: asked ``, error none, has a receipt true";
    assert!(told.contains(ran), "{told}");
}

#[test]
fn client_is_told_of_files_that_change() {
    let user = user();
    let mut client = Client::session(&user, &["--tool", "text", "--resources", "notes"]);
    let followed = uri(&user, "notes/a.md");
    client.ask(1, "resources/subscribe", json!({ "uri": followed }));
    user.file("notes/a.md", "# Another text");
    let told = client.next();
    assert_eq!(told["method"], "notifications/resources/updated", "{told}");
    assert_eq!(told["params"]["uri"], json!(followed));
    // Others are told of by the list alone.
    user.file("notes/new.md", "n");
    let told = client.next();
    assert_eq!(told["method"], "notifications/resources/list_changed", "{told}");
    let listed = client.ask(2, "resources/list", json!({}));
    assert!(uris(&listed).contains(&&*uri(&user, "notes/new.md")), "{listed}");
    std::fs::remove_file(user.work().join("notes/a.md")).unwrap();
    let told = [client.next(), client.next()].map(|mut told| told["method"].take());
    assert_eq!(
        told,
        [
            "notifications/resources/list_changed",
            "notifications/resources/updated"
        ]
    );
    client.finish();
}

#[test]
fn files_of_a_directory_are_read_over_http() {
    let user = user();
    let host = Host::start(&user, &["--tool", "text", "--resources", "notes"]);
    let listed = host.ask("resources/list", json!({}));
    assert_eq!(uris(&listed).len(), 4);
    let text = host.ask("resources/read", json!({ "uri": uri(&user, "notes/a.md") }));
    assert_eq!(text["result"]["contents"][0]["text"], "# A");
    let refused = host.ask("resources/read", json!({"uri": uri(&user, "secret.txt")}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let found = host.ask("server/discover", json!({}));
    assert_eq!(
        found["result"]["capabilities"]["resources"]["subscribe"], true,
        "{found}"
    );
    host.stop();
}
