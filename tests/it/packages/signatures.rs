//! Signatures: keys of publishers, and packages that must be signed.

use super::{component, configuration, hex, stored};
use crate::support::cli_user::User;

/// A publisher with a signed component, and a user who has the publisher's key.
fn publisher_and_user() -> (User, User) {
    let (publisher, user) = (User::new(), User::new());
    let key = publisher.run(&["key", "generate", "me"]).ended(0).stdout;
    user.run(&["key", "add", "them", key.trim()]).ended(0);
    (publisher, user)
}

/// Signs bytes as the publisher, and gives the user both files.
fn give(publisher: &User, user: &User, bytes: &[u8]) {
    publisher.file("tool.wasm", bytes);
    publisher
        .run(&["key", "sign", "tool.wasm", "--key", "me"])
        .ended(0);
    let signature = std::fs::read(publisher.work().join("tool.wasm.sig")).unwrap();
    user.file("tool.wasm", bytes).file("tool.wasm.sig", signature);
}

#[test]
fn pinned_package_must_be_signed_now_and_at_updates() {
    let (publisher, user) = publisher_and_user();
    let (one, two) = (component("First."), component("Second."));
    let add = ["tool", "add", "tool.wasm", "--publisher", "them"];
    user.file("tool.wasm", &one);
    let seen = user.run(&add).ended(7);
    assert!(seen.stderr.contains("it is not signed"), "{}", seen.stderr);
    give(&publisher, &user, &one);
    user.file("tool.wasm", &two);
    let seen = user.run(&add).ended(7);
    assert!(
        seen.stderr.contains("not one of this component"),
        "{}",
        seen.stderr
    );
    assert_eq!((configuration(&user).as_str(), stored(&user).len()), ("", 0));
    give(&publisher, &user, &one);
    let seen = user.run(&add).ended(0);
    assert!(seen.stderr.contains("added, signed by `them`"), "{}", seen.stderr);
    let seen = user.run(&["tool", "inspect", "tool"]).ended(0);
    let key = publisher.run(&["key", "list"]).ended(0).stdout;
    let key = key
        .split_whitespace()
        .find(|word| word.starts_with("ed25519:"))
        .unwrap();
    for line in [
        "/work/tool.wasm\n",
        &format!("signed by {key}, as each update must be"),
    ] {
        assert!(seen.stdout.contains(line), "{line}: {}", seen.stdout);
    }

    // The key stays pinned, whatever becomes of the ring.
    user.run(&["key", "remove", "them"]).ended(0);
    let accept = ["tool", "update", "tool", "--accept", &hex(&two)];
    user.file("tool.wasm", &two);
    let seen = user.run(&accept).ended(7);
    assert!(
        seen.stderr.contains("not one of this component"),
        "{}",
        seen.stderr
    );
    std::fs::remove_file(user.work().join("tool.wasm.sig")).unwrap();
    let seen = user.run(&accept).ended(7);
    assert!(seen.stderr.contains("it is not signed"), "{}", seen.stderr);
    user.run(&["tool", "list", "--outdated"]).ended(7);
    give(&publisher, &user, &two);
    user.run(&accept).ended(0);
    // An older one is signed as well, and still needs to be accepted.
    give(&publisher, &user, &one);
    user.run(&["tool", "update", "tool"]).ended(4);
}

#[test]
fn publisher_with_another_key_is_accepted_by_the_user() {
    let (publisher, user) = publisher_and_user();
    let one = component("First.");
    give(&publisher, &user, &one);
    user.run(&["tool", "add", "tool.wasm", "--publisher", "them"])
        .ended(0);
    let (next, _) = publisher_and_user();
    give(&next, &user, &one);
    user.run(&["tool", "update", "tool"]).ended(7);
    let key = next.run(&["key", "list", "--json"]).ended(0).json()[0]["key"].clone();
    let key = key.as_str().unwrap();
    user.run(&["key", "add", "next", key]).ended(0);
    let update = ["tool", "update", "tool", "--publisher", "next"];
    // The same component, and yet not without the user.
    let seen = user.run(&update).ended(4);
    assert!(
        seen.stdout.contains(&format!("signed by {key}")),
        "{}",
        seen.stdout
    );
    let hint = format!("--publisher next --accept sha256:{}", hex(&one));
    assert!(seen.stderr.contains(&hint), "{}", seen.stderr);
    user.run(&[&update[..], &["--accept", &hex(&one)]].concat())
        .ended(0);
    user.run(&["tool", "update", "tool"]).ended(0);
    give(&publisher, &user, &one);
    user.run(&["tool", "update", "tool"]).ended(7);
}

#[test]
fn signature_of_another_key_is_refused() {
    let (publisher, user) = publisher_and_user();
    let other = User::new();
    other.run(&["key", "generate", "me"]).ended(0);
    give(&other, &user, &component("First."));
    let add = ["tool", "add", "tool.wasm", "--publisher", "them"];
    let seen = user.run(&add).ended(7);
    assert!(seen.stderr.contains("by the key ed25519:"), "{}", seen.stderr);
    user.file("tool.wasm.sig", "ed25519:AAAA");
    let seen = user.run(&add).ended(7);
    assert!(seen.stderr.contains("not as expected"), "{}", seen.stderr);
    user.file("tool.wasm.sig", vec![b'x'; 1025]);
    user.run(&add).ended(7);
    give(&publisher, &user, &component("First."));
    user.run(&add).ended(0);
}

#[test]
fn keys_are_listed_and_private_ones_kept() {
    let (publisher, user) = publisher_and_user();
    let listed = publisher.run(&["key", "list", "--json"]).ended(0).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["own"]),
        (&"me".into(), &true.into())
    );
    assert!(
        user.run(&["key", "list"])
            .ended(0)
            .stdout
            .starts_with("them  ed25519:")
    );
    let private = publisher.home().join(".local/share/toolcell/keys/me.private");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&private).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    for (arguments, said) in [
        (&["generate", "me"][..], "there is a private key"),
        (&["generate", "../me"], "is not the name of a key"),
        (&["add", "x", "ed25519:AAAA"], "expected `ed25519:` and 32 bytes"),
        (&["remove", "gone"], "there is no key `gone`"),
        (&["sign", "tool.wasm", "--key", "gone"], "there is no private key"),
    ] {
        publisher.file("tool.wasm", component("First."));
        let seen = publisher.run(&[&["key"][..], arguments].concat()).ended(2);
        assert!(seen.stderr.contains(said), "{arguments:?}: {}", seen.stderr);
    }
    let seen = user
        .run(&["tool", "add", "x.wasm", "--publisher", "gone"])
        .ended(2);
    assert!(seen.stderr.contains("there is no key `gone`"), "{}", seen.stderr);
}

#[test]
fn bundle_of_a_package_without_a_pinned_identity_is_a_wrong_command() {
    let (publisher, user) = publisher_and_user();
    give(&publisher, &user, &component("First."));
    user.file("b.json", "{}");
    let add = ["tool", "add", "tool.wasm", "--bundle", "b.json"];
    let seen = user.run(&[&add[..], &["--publisher", "them"]].concat()).ended(2);
    assert!(seen.stderr.contains("pinned by a key"), "{}", seen.stderr);
    assert_eq!((configuration(&user).as_str(), stored(&user).len()), ("", 0));
}

#[test]
fn lock_and_list_have_the_publisher() {
    let (publisher, user) = publisher_and_user();
    give(&publisher, &user, &component("First."));
    user.run(&["tool", "add", "tool.wasm", "--publisher", "them"])
        .ended(0);
    let key = publisher.run(&["key", "list", "--json"]).ended(0).json()[0]["key"].clone();
    for command in [
        &["tool", "list", "--json"][..],
        &["tool", "inspect", "tool", "--json"],
    ] {
        let seen = user.run(command).ended(0).json();
        let tool = match seen.as_array() {
            Some(all) => all.iter().find(|one| one["component"] == "tool").unwrap().clone(),
            None => seen,
        };
        assert_eq!(tool["package"]["publisher"], key, "{tool}");
        assert_eq!(tool["package"]["publisher_names"], serde_json::json!(["them"]));
    }
    user.run(&["lock", "--tool", "tool"]).ended(0);
    let path = user.work().join("toolcell.lock");
    let lock = std::fs::read_to_string(&path).unwrap();
    let line = format!("publisher = {key}\n");
    assert!(lock.contains(&line), "{lock}");
    let call = ["call", "tool", "{}", "--locked"];
    user.run(&call).ended(0);
    // A lock of an older version does not have it.
    std::fs::write(&path, lock.replace(&line, "")).unwrap();
    user.run(&call).ended(0);
    std::fs::write(&path, lock.replace(&line, "publisher = \"other\"\n")).unwrap();
    let seen = user.run(&call).ended(4);
    assert!(seen.stderr.contains("its publisher is"), "{}", seen.stderr);
}
