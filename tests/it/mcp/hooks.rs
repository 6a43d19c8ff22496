//! Hooks around the calls of MCP clients.

use serde_json::{Value, json};

use super::Client;
use crate::support::cli_user::User;

/// Creates a user with the hook `unruly`, which follows the texts that `text_count` gets.
fn user(more: &str) -> User {
    let user = User::new();
    let hook = crate::hooks::built().join("unruly_hook.wasm");
    user.configure(&format!("[hooks.h]\ncomponent = {hook:?}\n{more}"));
    user
}

fn count(client: &mut Client<'_>, id: u32, text: &str) -> Value {
    client.call(id, "text_count", json!({ "text": text }))
}

#[test]
fn hooks_run_for_the_calls_of_clients() {
    let user = user("guard = true\n");
    let mut client = Client::session(&user, &["--tool", "text"]);
    let changed = count(&mut client, 1, "change one two three");
    assert_eq!(changed["structuredContent"]["words"], 3, "{changed}");
    for (id, order, answer) in [
        (2, "refuse this is private", "cancelled: this is private"),
        (3, "abort it ends here", "cancelled: it ends here"),
        (4, "panic", "a check that must pass could not be made"),
    ] {
        let refused = count(&mut client, id, order);
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(refused.to_string().contains(answer), "{refused}");
    }
    let told = count(&mut client, 5, "say warning: all is well");
    assert_eq!(told["isError"], false, "{told}");
    let seen = client.finish();
    // Its words begin on a line of their own, behind the gutter.
    assert!(seen.stderr.contains("│ warning: all is well"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("\nwarning: all is well"), "{}", seen.stderr);
}

#[test]
fn hooks_with_conflicting_orders_are_refused_at_the_start() {
    let user = User::new();
    let hook = crate::hooks::built().join("unruly_hook.wasm");
    user.configure(&format!(
        "[hooks.a]\ncomponent = {hook:?}\nbefore = [\"b\"]\n[hooks.b]\ncomponent = {hook:?}\nbefore = [\"a\"]\n"
    ));
    let seen = user
        .run_with_input(&["mcp", "serve", "--tool", "text"], "")
        .ended(3);
    assert!(
        seen.stderr.contains("the hooks have conflicting orders"),
        "{}",
        seen.stderr
    );
}

#[test]
fn hook_with_grants_gives_its_data_flow_to_the_calls_of_clients() {
    let user = user("grants = [\"read=.\"]\n[approval]\nflow = \"refuse\"\n");
    let mut client = Client::session(&user, &["--tool", "fetch", "--grant", "http=example.com"]);
    let refused = client.call(1, "fetch", json!({ "url": "https://example.com/" }));
    assert!(
        refused
            .to_string()
            .contains("this call of `fetch` is not allowed"),
        "{refused}"
    );
    client.finish();
}
