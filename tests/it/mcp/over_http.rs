//! Servers over HTTP in a turn: our own server, and one that wants a token.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::http::Host;
use crate::mcp_client::{NO_FLOW, calls, result};
use crate::support::cli_user::User;

const TOKEN: &str = "t0ken-of-the-server-over-http-1234567890";

/// Table of a server over HTTP.
fn server(host: &Host, more: &str) -> String {
    format!(
        "{NO_FLOW}[mcp.srv]\nurl = \"http://{}/mcp\"\n{more}\n",
        host.address
    )
}

#[test]
fn tools_of_a_server_over_http_are_called_in_a_turn() {
    let operator = User::new();
    let host = Host::start(&operator, &["--tool", "text"]);
    let user = User::new();
    user.configure(&server(&host, ""));
    let script = json!({ "steps": [
        { "calls": [{ "name": "srv_text_count", "arguments": { "text": "one two" } }] },
        { "text": "Done." },
    ] });
    user.file("script.json", script.to_string());
    let seen = user.run_script(&["--json", "--tool", "srv"]).ended(0);
    let counted = result(&seen, "srv_text_count");
    assert_eq!(counted["error"], Value::Null, "{counted}");
    assert_eq!(counted["structured"]["words"], 2, "{counted}");
    assert_eq!(counted["receipt"]["server"], "srv");
    let tested = user.run(&["mcp", "test", "srv", "--json"]).ended(0).json();
    assert_eq!(
        (&tested["version"], &tested["transport"]),
        (&json!("2026-07-28"), &json!("http"))
    );
    host.stop();
    let gone = user.run(&["mcp", "test", "srv"]).ended(3);
    for part in ["could not be reached", "check `url`"] {
        assert!(gone.stderr.contains(part), "{}", gone.stderr);
    }
    calls(&user, &["srv_text_count"]);
    let warned = user.run_script(&["--json"]).ended(0);
    assert!(
        warned
            .stderr
            .contains("warning: the MCP server `srv` cannot be used"),
        "{}",
        warned.stderr
    );
}

#[test]
fn token_of_a_server_over_http_is_a_secret() {
    let operator = User::new();
    operator.file("tokens", format!("{TOKEN}\n"));
    let tokens = operator.work().join("tokens");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let host = Host::start(&operator, &["--tool", "text", "--token-file", "tokens"]);
    let mut user = User::new();
    user.configure(&server(&host, ""));
    let refused = user.run(&["mcp", "test", "srv"]).ended(3);
    for part in [
        "(status 401)",
        "store a token as a secret",
        "template = \"Bearer {}\"",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    user.var("SRV_TOKEN", TOKEN);
    let secret = "[secrets.t]\nenv = \"SRV_TOKEN\"";
    let header = |value: &str| {
        server(
            &host,
            &format!("headers = {{ Authorization = {value} }}\n{secret}"),
        )
    };
    user.configure(&header("{ secret = \"t\" }"));
    let refused = user.run(&["mcp", "test", "srv"]).ended(3);
    assert!(refused.stderr.contains("after a word"), "{}", refused.stderr);
    user.configure(&header("{ secret = \"t\", template = \"Bearer {}\" }"));
    user.run(&["mcp", "test", "srv"]).ended(0);
    // Each output is searched for the token.
    for command in [&["mcp", "list"][..], &["config", "show"]] {
        user.run(command).ended(0);
    }
}

#[test]
fn plain_endpoints_of_both_sides_fit_in_a_turn() {
    let operator = User::new();
    operator.file("notes.md", "one two three");
    let host = Host::start(&operator, &["--tool", "text", "--grant", "read=.", "--plain"]);
    let user = User::new();
    let plain = format!(
        "{NO_FLOW}[mcp.srv]\nurl = \"http://{}\"\nplain = true\n",
        host.address
    );
    user.configure(&plain);
    let script = json!({ "steps": [
        { "calls": [{ "name": "srv_text_count", "arguments": { "path": "notes.md" } }] },
        { "text": "Done." },
    ] });
    user.file("script.json", script.to_string());
    let seen = user.run_script(&["--json", "--tool", "srv"]).ended(0);
    let counted = result(&seen, "srv_text_count");
    assert_eq!(counted["structured"]["words"], 3, "{counted}");
    assert_eq!(counted["receipt"]["server"], "srv");
    let tested = user.run(&["mcp", "test", "srv", "--json"]).ended(0).json();
    assert_eq!(
        (&tested["version"], &tested["transport"]),
        (&json!("plain"), &json!("plain"))
    );
    let shown = user.run(&["mcp", "test", "srv"]).ended(0);
    assert!(
        shown.stdout.contains("plain endpoints, ready in"),
        "{}",
        shown.stdout
    );
    // The protocol has another path, and only the user opens the plain ones.
    host.stop();
    let host = Host::start(&operator, &["--tool", "text"]);
    user.configure(&plain.replace(&plain_port(&plain), &plain_port(&host.address)));
    let refused = user.run(&["mcp", "test", "srv"]).ended(3);
    assert!(
        refused.stderr.contains("`tools/list` and `tools/call` below it"),
        "{}",
        refused.stderr
    );
}

/// The port of the first address of this machine in a text.
fn plain_port(text: &str) -> String {
    let behind = text.split_once("127.0.0.1:").unwrap().1;
    behind.chars().take_while(char::is_ascii_digit).collect()
}
