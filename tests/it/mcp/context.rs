//! Resources and prompts of components.

use serde_json::{Value, json};

use super::Client;
use crate::hooks::built;
use crate::probe::Probe;
use crate::support::cli_user::User;

const RECEIPT: &str = "io.github.toolcell/receipt";

/// A user with a component that has tools, resources and prompts.
fn user() -> User {
    let user = User::new();
    user.file(
        "notes.wasm",
        std::fs::read(built().join("mcp_conformance.wasm")).unwrap(),
    );
    user
}

fn read(client: &mut Client<'_>, uri: &str) -> Value {
    client.ask(1, "resources/read", json!({"uri": uri}))
}

fn get(client: &mut Client<'_>, name: &str, arguments: Value) -> Value {
    client.ask(2, "prompts/get", json!({"name": name, "arguments": arguments}))
}

#[test]
fn resources_of_a_component_are_read_in_cells() {
    let user = user();
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    let listed = client.ask(3, "resources/list", json!({}))["result"].take();
    let uris: Vec<&Value> = listed["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| &of["uri"])
        .collect();
    assert_eq!(
        uris,
        [
            "test://static-binary",
            "test://static-text",
            "test://watched-resource"
        ]
    );
    let text = read(&mut client, "test://static-text");
    let contents = &text["result"]["contents"][0];
    assert_eq!(
        (&contents["uri"], &contents["mimeType"]),
        (&json!("test://static-text"), &json!("text/plain"))
    );
    assert!(
        contents["text"]
            .as_str()
            .unwrap()
            .contains("static text resource"),
        "{text}"
    );
    assert!(text["result"]["_meta"][RECEIPT]["fuel"].as_u64().unwrap() > 0);
    let binary = read(&mut client, "test://static-binary");
    assert!(
        binary["result"]["contents"][0]["blob"]
            .as_str()
            .unwrap()
            .starts_with("iVBORw0KGgo")
    );
    let family = read(&mut client, "test://template/7/data");
    assert!(family.to_string().contains("Data for ID: 7"), "{family}");
    // The component itself says that this one is missing.
    let missing = read(&mut client, "test://template/0/data");
    assert_eq!(
        (&missing["error"]["code"], &missing["error"]["message"]),
        (&json!(-32002), &json!("resource not found"))
    );
    assert!(missing["error"]["data"][RECEIPT]["fuel"].as_u64().unwrap() > 0);
    assert_eq!(read(&mut client, "test://other")["error"]["code"], -32002);
    client.finish();
}

#[test]
fn prompts_of_a_component_are_got_and_completed() {
    let user = user();
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    let got = get(&mut client, "test_prompt_with_values", json!({"style": "broad"}))["result"].take();
    let messages = json!([
        {"role": "user", "content": {"type": "text", "text": "Be broad."}},
        {"role": "assistant", "content": {"type": "text", "text": "I will."}},
    ]);
    assert_eq!(got["messages"], messages);
    assert!(got["_meta"][RECEIPT]["fuel"].as_u64().unwrap() > 0);
    let refused = get(&mut client, "test_prompt_with_values", json!({"style": "other"}));
    assert_eq!(refused["error"]["code"], -32602);
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_values"},
        "argument": {"name": "style", "value": "b"},
    });
    let completed = client.ask(3, "completion/complete", params);
    assert_eq!(
        completed["result"]["completion"]["values"],
        json!(["brief", "broad"])
    );
    client.finish();
}

#[test]
fn rules_budgets_and_limits_hold_for_resources_and_prompts() {
    let user = user();
    user.configure("[approval]\nrules = [{ tool = \"read_resource_of_notes\", verdict = \"deny\" }]\n");
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    let denied = read(&mut client, "test://static-text");
    assert_eq!(denied["error"]["code"], -32603, "{denied}");
    assert!(get(&mut client, "test_simple_prompt", json!({}))["result"].is_object());
    client.finish();

    let user = self::user();
    user.configure("[budget]\ncalls = 1\n");
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    assert!(get(&mut client, "test_simple_prompt", json!({}))["result"].is_object());
    let refused = read(&mut client, "test://static-text");
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    client.finish();

    let user = self::user();
    let mut client = Client::session(&user, &["--tool", "notes.wasm", "--limit", "fuel=100"]);
    let ended = read(&mut client, "test://static-text");
    let message = ended["error"]["message"].as_str().unwrap();
    assert!(message.contains("100 units of fuel"), "{ended}");
    client.finish();
}

#[test]
fn calls_for_resources_are_in_the_log() {
    let user = user();
    user.configure(&format!("[log]\ndir = {:?}\n", user.work().join("log")));
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    read(&mut client, "test://static-text");
    get(&mut client, "test_simple_prompt", json!({}));
    client.finish();
    let ends = super::filed(&user);
    let log: Vec<String> = ends.iter().map(Value::to_string).collect();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(
        log[0].contains("\"read_resource_of_notes\"") && log[1].contains("\"get_prompt_of_notes\""),
        "{log:?}"
    );
}

#[test]
fn same_resources_of_two_components_are_refused() {
    let user = user();
    user.file(
        "more.wasm",
        std::fs::read(built().join("mcp_conformance.wasm")).unwrap(),
    );
    // Their tools would collide as well; only one of each offers any.
    let only = |name: &str, tool: &str| {
        let path = user.work().join(format!("{name}.wasm"));
        format!("[tools.{name}]\ncomponent = {path:?}\nonly = [{tool:?}]\n")
    };
    user.configure(&(only("notes", "test_simple_text") + &only("more", "test_image_content")));
    let refused = user.run(&[
        "mcp",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--tool",
        "notes",
        "--tool",
        "more",
    ]);
    let told = refused.ended(3).stderr;
    assert!(
        told.contains("`notes` and `more` both offer `test://static-text`"),
        "{told}"
    );
}

#[test]
fn component_without_resources_has_no_such_capability() {
    let user = user();
    let mut client = Client::start(&user, &["--tool", "text"]);
    let result = client.ask(0, "initialize", super::initialize("2025-11-25"))["result"].take();
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "logging": {}})
    );
    assert_eq!(read(&mut client, "test://static-text")["error"]["code"], -32601);
    client.finish();
    let mut client = Client::start(&user, &["--tool", "notes.wasm"]);
    let result = client.ask(0, "initialize", super::initialize("2025-11-25"))["result"].take();
    let changes = json!({"listChanged": true});
    assert_eq!(
        result["capabilities"]["resources"],
        json!({"listChanged": true, "subscribe": true})
    );
    assert_eq!(result["capabilities"]["prompts"], changes);
    assert_eq!(result["capabilities"]["completions"], json!({}));
    client.finish();
}

#[test]
fn changed_component_changes_the_lists_of_its_clients() {
    let user = user();
    let probe = Probe {
        names: vec!["first".into()],
        ..Probe::default()
    };
    user.probe("tool.wasm", &probe);
    let mut client = Client::session(&user, &["--tool", "tool.wasm"]);
    user.file(
        "tool.wasm",
        std::fs::read(built().join("mcp_conformance.wasm")).unwrap(),
    );
    let told: Vec<Value> = (0..3).map(|_| client.next()["method"].take()).collect();
    let expected = ["tools", "resources", "prompts"].map(|list| format!("notifications/{list}/list_changed"));
    assert_eq!(told, expected);
    assert!(read(&mut client, "test://static-text")["result"].is_object());
    client.finish();
}

#[test]
fn client_is_told_when_the_component_of_a_resource_is_loaded_again() {
    let user = user();
    let mut client = Client::session(&user, &["--tool", "notes.wasm", "--tool", "text"]);
    let begun = client.ask(1, "resources/subscribe", json!({"uri": "test://template/7/data"}));
    assert_eq!(begun["result"], json!({}), "{begun}");
    // The same component, written again.
    let bytes = std::fs::read(built().join("mcp_conformance.wasm")).unwrap();
    std::fs::remove_file(user.work().join("notes.wasm")).unwrap();
    user.file("notes.wasm", bytes);
    let told = client.next();
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (
            &json!("notifications/resources/updated"),
            &json!("test://template/7/data")
        )
    );
    client.finish();
}

#[test]
fn hooks_run_around_the_read_of_a_resource() {
    let user = user();
    let hook = built().join("unruly_hook.wasm");
    user.configure(&format!("[hooks.h]\ncomponent = {hook:?}\n"));
    let mut client = Client::session(&user, &["--tool", "notes.wasm"]);
    assert!(read(&mut client, "test://static-text")["result"].is_object());
    assert!(get(&mut client, "test_simple_prompt", json!({}))["result"].is_object());
    let told = client.finish().stderr;
    for name in ["read_resource_of_notes", "get_prompt_of_notes"] {
        let ran = format!("after {name}: asked ``, error none, has a receipt true");
        assert!(told.contains(&ran), "{told}");
    }
}
