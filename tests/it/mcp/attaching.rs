//! Resources and prompts of MCP servers in messages of the user.

use serde_json::json;

use crate::support::cli_user::{SCRIPTED, User};

/// A server with one resource, one prompt and no tools.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case "$line" in
  *'"method":"initialize"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"resources\":{},\"prompts\":{}}}}" ;;
  *'"method":"resources/read"'*'"uri":"note://one"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"contents\":[{\"uri\":\"note://one\",\"text\":\"the note says plum\"}]}}" ;;
  *'"method":"prompts/list"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"prompts\":[{\"name\":\"review\",\"description\":\"Reviews.\\nToolcell: ok\",\"arguments\":[{\"name\":\"file\",\"required\":true}]}]}}" ;;
  *'"method":"prompts/get"'*)
    name=${line#*\"file\":\"}; name=${name%%\"*}
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"messages\":[{\"role\":\"user\",\"content\":{\"type\":\"text\",\"text\":\"Review $name now.\"}}]}}" ;;
  *'"method":"tools/list"'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"tools\":[]}}" ;;
  *'"id":'*)
    say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32002,\"message\":\"no such resource\"}}" ;;
  esac
done
"#;

/// A user with the server `notes`, and a model that answers once.
fn user(rules: &str) -> User {
    let user = User::new();
    user.file("server.sh", SERVER);
    let script = user.work().join("server.sh");
    user.configure(&format!(
        "[mcp.notes]\ncommand = \"/bin/sh\"\nargs = [{}]\n{rules}",
        json!(script)
    ));
    user.file(
        "script.json",
        json!({ "steps": [{ "text": "Done." }] }).to_string(),
    );
    user
}

fn run<'a>(prompt: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec![
        "run",
        prompt,
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--json",
    ];
    all.extend(["--tool", "notes"]);
    all.extend(more);
    all
}

#[test]
fn resource_of_a_server_is_attached_to_a_prompt() {
    let user = user("");
    let seen = user.run(&run("What says @notes:note://one?", &[])).ended(0);
    assert!(
        seen.stderr.contains("attached `notes:note://one`, text, 18 B"),
        "{}",
        seen.stderr
    );
    let events = seen.json_lines();
    let started = events
        .iter()
        .find(|event| event["type"] == "turn_started")
        .unwrap();
    let attached = started["message"]["content"][1]["text"].as_str().unwrap();
    assert!(attached.ends_with("the note says plum"), "{attached}");
    // For the flow guard, it is what its server is.
    let flow = events
        .iter()
        .find(|event| event["type"] == "flow_changed")
        .unwrap();
    assert_eq!(
        flow["flow"],
        json!({"reads_private": true, "untrusted_content": true, "can_send_out": false, "reads_service": true})
    );
    let failed = user.run(&run("What says @notes:note://two ?", &[])).ended(1);
    for part in ["could not attach `notes:note://two`", "no such resource"] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
    }
    for (name, told) in [
        ("@other:x", "no MCP server `other` in use"),
        ("@10:30", "no MCP server `10` in use"),
    ] {
        let seen = user.run(&run(&format!("see {name}"), &[])).ended(0);
        assert!(seen.stderr.contains(told), "{}", seen.stderr);
    }
}

#[test]
fn rules_hold_for_resources_that_a_prompt_names() {
    for (rule, is_attached) in [("allow", true), ("ask", false), ("deny", false)] {
        let rules =
            format!("[approval]\nrules = [{{ tool = \"notes_read_resource\", verdict = \"{rule}\" }}]\n");
        let user = user(&rules);
        let seen = user.run(&run("What says @notes:note://one", &[])).ended(0);
        let attached = seen.stderr.contains("attached `notes:note://one`");
        assert_eq!(attached, is_attached, "{rule}: {}", seen.stderr);
        assert_eq!(
            seen.stdout.contains("plum"),
            is_attached,
            "{rule}: {}",
            seen.stdout
        );
    }
    // Neither is one of a server that offers none.
    let user = user("except = [\"read_resource\"]\n");
    let seen = user.run(&run("What says @notes:note://one", &[])).ended(0);
    assert!(seen.stderr.contains("offers no resources"), "{}", seen.stderr);
}

#[test]
fn prompt_of_a_server_is_sent_in_a_chat() {
    let user = user("[approval]\nrules = [{ tool = \"notes_read_*\", verdict = \"ask\" }]\n");
    let steps = json!({ "steps": [
        { "text": "Reviewed.", "expect": { "user": "Review a b.rs now." } }, { "text": "Seen." },
    ] });
    user.file("script.json", steps.to_string());
    let input = "/prompts\n/notes:review\n/notes:revue x\n/nots:review x\n/notes:review a b.rs\nAnd @notes:note://one\n";
    let mut command = vec!["chat"];
    command.extend(SCRIPTED.iter().skip_while(|word| **word != "--provider"));
    command.extend(["--tool", "notes"]);
    let seen = user.run_with_input(&command, input);
    for part in [
        "/notes:review file=…  │ Reviews.",
        "`file` is missing",
        "did you mean `/notes:review`?",
        "there is no MCP server `nots` in use",
        "sending the prompt `review` of the MCP server `notes`, 18 bytes",
        // What the user types is an approval.
        "attached `notes:note://one`",
    ] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    assert!(!seen.stderr.contains("Toolcell: ok"), "{}", seen.stderr);
    assert!(
        seen.stdout.contains("Reviewed.") && seen.stdout.contains("Seen."),
        "{}",
        seen.stdout
    );
}

#[test]
fn attachment_does_not_disable_the_flow_guard() {
    let user = user("trust_annotations = true\n");
    let call = |url: &str| json!({ "calls": [{ "name": "fetch", "arguments": { "url": url } }] });
    let steps = [
        call("http://127.0.0.1:9/one"),
        json!({ "text": "First." }),
        call("http://127.0.0.1:9/two"),
        json!({ "text": "Second." }),
    ];
    user.file("script.json", json!({ "steps": steps }).to_string());
    let more = [
        "--flow",
        "refuse",
        "--tool",
        "fetch",
        "--grant",
        "fetch:http-private=http://127.0.0.1:9",
    ];
    // Nothing private was read: the request is tried.
    let first = user.run(&run("Go.", &more)).ended(0);
    assert!(!first.stdout.contains("data-flow guard"), "{}", first.stdout);
    let id = first.json_lines()[0]["session"].as_str().unwrap().to_owned();
    let resume = [
        "session",
        "resume",
        &id,
        "And @notes:note://one please",
        "--json",
        "--tool",
        "notes",
    ];
    let second = user.run(&[&resume[..], &more].concat()).ended(0);
    assert!(second.stdout.contains("the note says plum"), "{}", second.stdout);
    assert!(second.stdout.contains("data-flow guard"), "{}", second.stdout);
}
