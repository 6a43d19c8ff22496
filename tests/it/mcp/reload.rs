//! Components that change while they are served.

use serde_json::{Value, json};

use super::http::Host;
use super::{Client, text};
use crate::probe::Probe;
use crate::support::cli_user::User;

const CHANGED: &str = "notifications/tools/list_changed";

/// A component whose tools return their arguments.
fn echo(names: &[&str]) -> Probe {
    Probe {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Probe::default()
    }
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn changed_component_is_served_without_a_restart() {
    let user = User::new();
    user.probe("tool.wasm", &echo(&["first"]));
    let mut client = Client::session(&user, &["--tool", "tool.wasm", "--tool", "text"]);
    assert_eq!(text(&client.call(1, "first", json!({}))), "{}");
    user.probe("tool.wasm", &echo(&["second"]));
    assert_eq!(client.next()["method"], CHANGED);
    let listed = client.ask(2, "tools/list", json!({}));
    assert_eq!(names(&listed), ["second", "text_count", "text_diff", "text_hash"]);
    assert_eq!(text(&client.call(3, "second", json!({}))), "{}");
    let gone = client.ask(4, "tools/call", json!({"name": "first"}));
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    let told = client.finish().stderr;
    assert!(
        told.contains("the component `tool` changed, and was loaded again"),
        "{told}"
    );
}

#[test]
fn call_in_progress_goes_on_when_its_component_changes() {
    let user = User::new();
    user.configure(&format!("[log]\ndir = {:?}\n", user.work().join("log")));
    user.probe("tool.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    // No limit ends the call before its cancellation.
    let limits = ["--limit", "wall=600s", "--limit", "fuel=1000T"];
    let mut client = Client::session(&user, &[&["--tool", "tool.wasm"][..], &limits].concat());
    client.request(1, "tools/call", json!({"name": "probe"}));
    user.probe("tool.wasm", &echo(&["probe", "second"]));
    assert_eq!(client.next()["method"], CHANGED);
    // The new one answers, and the old one runs until it is cancelled.
    assert_eq!(text(&client.call(2, "probe", json!({}))), "{}");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    client.send(&cancel);
    client.ask(3, "ping", json!({}));
    assert_eq!(client.finish().stdout, "");
    let ends = super::filed(&user);
    let is_cancelled = |end: &&Value| end.to_string().contains("\"kind\":\"cancelled\"");
    assert_eq!(
        (ends.len(), ends.iter().filter(is_cancelled).count()),
        (2, 1),
        "{ends:?}"
    );
}

#[test]
fn component_that_cannot_be_loaded_leaves_the_old_one() {
    let user = User::new();
    user.probe("tool.wasm", &echo(&["first"]));
    let mut host = Host::start(&user, &["--tool", "tool.wasm", "--tool", "text"]);
    user.file("tool.wasm", "no component");
    let told = host.wait_for("its tools stay as they were");
    assert!(told.contains("`tool`"), "{told}");
    assert_eq!(host.call("first", json!({}), None).1["result"]["isError"], false);
    // One with the name of another tool cannot be offered beside it.
    user.probe("tool.wasm", &echo(&["text_count"]));
    host.wait_for("its tools stay as they were");
    host.wait_for("two tools have the name `text_count`");
    assert_eq!(host.call("first", json!({}), None).1["result"]["isError"], false);
    user.probe("tool.wasm", &echo(&["second"]));
    host.wait_for("was loaded again");
    assert_eq!(host.call("second", json!({}), None).1["result"]["isError"], false);
    host.stop();
}

#[test]
fn change_that_does_not_fit_the_lock_is_refused() {
    let user = User::new();
    user.probe("tool.wasm", &echo(&["first"]));
    user.run(&["lock", "--tool", "tool.wasm"]).ended(0);
    let mut host = Host::start(&user, &["--tool", "tool.wasm", "--locked"]);
    user.probe("tool.wasm", &echo(&["first", "second"]));
    host.wait_for("its tools stay as they were");
    host.wait_for("the tool `second` is new");
    assert_eq!(host.call("first", json!({}), None).1["result"]["isError"], false);
    assert_eq!(host.call("second", json!({}), None).1["error"]["code"], -32602);
    // The user accepts it.
    user.run(&["lock", "--tool", "tool.wasm"]).ended(0);
    host.wait_for("was loaded again");
    assert_eq!(host.call("second", json!({}), None).1["result"]["isError"], false);
    host.stop();
}

#[test]
fn two_components_and_their_lock_change_together() {
    let user = User::new();
    let both = ["--tool", "a.wasm", "--tool", "b.wasm"];
    for name in ["a", "b"] {
        user.probe(&format!("{name}.wasm"), &echo(&[&format!("{name}_first")]));
    }
    user.run(&[&["lock"][..], &both].concat()).ended(0);
    let mut host = Host::start(&user, &[&both[..], &["--locked"]].concat());
    for name in ["a", "b"] {
        user.probe(&format!("{name}.wasm"), &echo(&[&format!("{name}_second")]));
        host.wait_for("its tools stay as they were");
    }
    user.run(&[&["lock"][..], &both].concat()).ended(0);
    for name in ["a", "b"] {
        host.wait_for(&format!("the component `{name}` changed, and was loaded again"));
    }
    for name in ["a_second", "b_second"] {
        assert_eq!(host.call(name, json!({}), None).1["result"]["isError"], false);
    }
    host.stop();
}

#[test]
fn tool_that_moves_to_another_component_stays() {
    let user = User::new();
    user.probe("a.wasm", &echo(&["one"]));
    user.probe("b.wasm", &echo(&["two", "moves"]));
    let mut host = Host::start(&user, &["--tool", "a.wasm", "--tool", "b.wasm"]);
    user.probe("a.wasm", &echo(&["one", "moves"]));
    host.wait_for("two tools have the name `moves`");
    user.probe("b.wasm", &echo(&["two"]));
    host.wait_for("the component `a` changed, and was loaded again");
    for name in ["one", "two", "moves"] {
        assert_eq!(
            host.call(name, json!({}), None).1["result"]["isError"],
            false,
            "{name}"
        );
    }
    host.stop();
}

#[test]
fn budget_of_a_client_goes_on_when_a_component_changes() {
    let user = User::new();
    user.configure("[budget]\ncalls = 2\n");
    user.probe("tool.wasm", &echo(&["first"]));
    let mut host = Host::start(&user, &["--tool", "tool.wasm"]);
    assert_eq!(host.call("first", json!({}), None).1["result"]["isError"], false);
    user.probe("tool.wasm", &echo(&["second"]));
    host.wait_for("was loaded again");
    assert_eq!(host.call("second", json!({}), None).1["result"]["isError"], false);
    let refused = host.call("second", json!({}), None).1["result"].clone();
    assert!(
        text(&refused).contains("the budget of calls is used up"),
        "{refused}"
    );
    host.stop();
}
