//! Identities of Sigstore in a build that cannot verify them: such a pin is never ignored.

use super::{component, configuration, stored};
use crate::support::cli_user::{Seen, User};

const IDENTITY: &str = r#"{"identity": "them@example.com", "issuer": "https://accounts.example.com"}"#;

#[track_caller]
fn refused(seen: Seen, code: i32) {
    let seen = seen.ended(code);
    for said in [
        "this build of Toolcell cannot verify identities of Sigstore",
        "hint: install a build that can, in a checkout: cargo install --path runtime/cli --features sigstore",
    ] {
        assert!(seen.stderr.contains(said), "{said}: {}", seen.stderr);
    }
}

#[test]
fn build_without_sigstore_refuses_what_is_pinned_to_an_identity() {
    let user = User::new();
    user.file("tool.wasm", component("First."));
    let identity = [
        "--identity",
        "them@example.com",
        "--issuer",
        "https://accounts.example.com",
    ];
    refused(user.run(&[&["key", "add", "them"], &identity[..]].concat()), 2);
    // As a build with the feature has written it.
    user.run(&["key", "generate", "mine"]).ended(0);
    let data = user.home().join(".local/share/toolcell");
    std::fs::write(
        data.join("keys/keys.json"),
        format!(r#"[{{"name": "them", "key": {IDENTITY}}}]"#),
    )
    .unwrap();
    let listed = user.run(&["key", "list"]).ended(0).stdout;
    assert!(
        listed.contains("them@example.com (issuer https://accounts.example.com)"),
        "{listed}"
    );
    for bundle in [None, Some("{}")] {
        if let Some(bundle) = bundle {
            user.file("tool.wasm.sigstore.json", bundle);
        }
        refused(user.run(&["tool", "add", "tool.wasm", "--publisher", "them"]), 7);
    }
    assert_eq!((configuration(&user).as_str(), stored(&user).len()), ("", 0));

    user.run(&["tool", "add", "tool.wasm"]).ended(0);
    let list = data.join("packages/packages.json");
    let packages = std::fs::read_to_string(&list).unwrap();
    let pinned = packages.replacen("\"name\"", &format!("\"publisher\": {IDENTITY}, \"name\""), 1);
    assert_ne!(packages, pinned);
    std::fs::write(&list, pinned).unwrap();
    refused(user.run(&["tool", "update", "tool"]), 7);
    refused(user.run(&["tool", "list", "--outdated"]), 7);
    let shown = user.run(&["tool", "inspect", "tool"]).ended(0).stdout;
    assert!(shown.contains("signed by them@example.com"), "{shown}");
    user.run(&["key", "remove", "them"]).ended(0);
    assert_eq!(user.run(&["key", "list"]).ended(0).stdout, "");
}
