//! Publishers with an identity: packages that must have a bundle of Sigstore.

mod bundles;
pub(super) mod private;
mod referrers;
mod statements;

use private::{Signer, Sigstore};
use serde_json::{Value, json};

use super::{component, configuration, hex, stored};
use crate::support::cli_user::{Seen, User};

/// Size limit of a bundle, in bytes.
const MAX_BUNDLE: usize = 1 << 20;

const MAIL: &str = "them@example.com";
const ISSUER: &str = "https://accounts.example.com";
const WORKFLOW: &str = "https://example.com/them/tool/.ci/release.yml@refs/tags/v1";

/// Pins an identity of a private Sigstore under a name.
fn pin(user: &User, sigstore: &Sigstore, name: &str, identity: &str, issuer: &str) {
    user.file("trusted_root.json", sigstore.trusted_root().to_string());
    let who = ["key", "add", name, "--identity", identity, "--issuer", issuer];
    user.run(&[&who[..], &["--trusted-root", "trusted_root.json"]].concat())
        .ended(0);
}

/// A private Sigstore, and a user who trusts it and has pinned a publisher.
fn sigstore_and_user() -> (Sigstore, User) {
    let (sigstore, user) = (Sigstore::new(), User::new());
    pin(&user, &sigstore, "them", MAIL, ISSUER);
    (sigstore, user)
}

fn give(user: &User, bytes: &[u8], bundle: &Value) {
    user.file("tool.wasm", bytes);
    user.file("tool.wasm.sigstore.json", bundle.to_string());
}

const ADD: [&str; 5] = ["tool", "add", "tool.wasm", "--publisher", "them"];

/// A package that must not be added.
#[track_caller]
fn refused(user: &User, seen: Seen, said: &str) {
    let seen = seen.ended(7);
    assert!(seen.stderr.contains(said), "{said}: {}", seen.stderr);
    assert!(seen.stderr.contains("hint: "), "{}", seen.stderr);
    assert_eq!((configuration(user).as_str(), stored(user).len()), ("", 0));
}

#[test]
fn identity_is_verified_now_and_at_updates() {
    let (sigstore, user) = sigstore_and_user();
    let (one, two) = (component("First."), component("Second."));
    user.file("tool.wasm", &one);
    refused(&user, user.run(&ADD), "it has no bundle of Sigstore");
    let signer = Signer::mail(MAIL);
    give(&user, &two, &sigstore.sign(&one, &signer));
    refused(&user, user.run(&ADD), "its bundle is not of this component");
    give(&user, &one, &sigstore.sign(&one, &signer));
    user.run(&ADD).ended(0);
    user.run(&["call", "tool", "{}"]).ended(0);
    let seen = user.run(&["tool", "inspect", "tool"]).ended(0).stdout;
    assert!(
        seen.contains(&format!(
            "signed by {MAIL} (issuer {ISSUER}, trusted root sha256:"
        )),
        "{seen}"
    );
    let seen = user.run(&["tool", "inspect", "tool", "--json"]).ended(0).json();
    assert_eq!(seen["package"]["publisher"]["identity"], MAIL, "{seen}");

    // It stays pinned, with its trusted root, whatever becomes of the ring.
    user.run(&["key", "remove", "them"]).ended(0);
    user.run(&["tool", "update", "tool"]).ended(0);
    let accept = ["tool", "update", "tool", "--accept", &hex(&two)];
    user.file("tool.wasm", &two);
    let seen = user.run(&accept).ended(7);
    assert!(seen.stderr.contains("not of this component"), "{}", seen.stderr);
    std::fs::remove_file(user.work().join("tool.wasm.sigstore.json")).unwrap();
    let seen = user.run(&accept).ended(7);
    assert!(seen.stderr.contains("it has no bundle"), "{}", seen.stderr);
    user.run(&["tool", "list", "--outdated"]).ended(7);
    give(
        &user,
        &two,
        &sigstore.sign(&two, &Signer::mail("other@example.com")),
    );
    user.run(&accept).ended(7);
    give(&user, &two, &sigstore.sign(&two, &signer));
    let seen = user.run(&["tool", "list", "--outdated"]).ended(0).stdout;
    assert!(seen.contains(&hex(&two)), "{seen}");
    user.run(&["tool", "update", "tool"]).ended(4);
    user.run(&accept).ended(0);
}

#[test]
fn identity_and_issuer_must_be_those_that_were_pinned() {
    let (sigstore, user) = sigstore_and_user();
    pin(&user, &sigstore, "workflow", WORKFLOW, ISSUER);
    let bytes = component("First.");
    let other_issuer = Signer {
        issuer: "https://evil.example".into(),
        ..Signer::mail(MAIL)
    };
    for (publisher, signer, said) in [
        (
            "them",
            Signer::mail("them@example.com.evil.example"),
            "it is signed by the e-mail address `them@example.com.evil",
        ),
        (
            "them",
            Signer::mail("Them@example.com"),
            "it is signed by the e-mail address `Them@example.com`",
        ),
        // The same text as a URI is another identity.
        (
            "them",
            Signer::uri(MAIL),
            "it is signed by the URI `them@example.com`, and its publisher is pinned to the e-mail address `them@",
        ),
        (
            "them",
            other_issuer,
            "vouched for by `https://evil.example`, and its publisher is pinned to the issuer `https://accounts",
        ),
        (
            "workflow",
            Signer::uri(&format!("{WORKFLOW}0")),
            "release.yml@refs/tags/v10`",
        ),
        (
            "workflow",
            Signer::mail(MAIL),
            "it is signed by the e-mail address `them@example.com`, and its publisher is pinned to the URI `https",
        ),
    ] {
        give(&user, &bytes, &sigstore.sign(&bytes, &signer));
        let seen = user.run(&["tool", "add", "tool.wasm", "--publisher", publisher]);
        refused(&user, seen, said);
    }
    give(&user, &bytes, &sigstore.sign(&bytes, &Signer::uri(WORKFLOW)));
    user.run(&["tool", "add", "tool.wasm", "--publisher", "workflow"])
        .ended(0);
}

#[test]
fn trusted_root_is_the_one_that_was_pinned() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    give(&user, &bytes, &Sigstore::new().sign(&bytes, &Signer::mail(MAIL)));
    refused(
        &user,
        user.run(&ADD),
        "not in a transparency log of the trusted root",
    );
    // The certificate of one, in the log of the other.
    let mut mixed = sigstore.trusted_root();
    mixed["certificateAuthorities"] = Sigstore::new().trusted_root()["certificateAuthorities"].clone();
    let good = sigstore.sign(&bytes, &Signer::mail(MAIL));
    give(&user, &bytes, &good);
    let pinned = |name: &str, root: &Value| {
        user.file("root.json", root.to_string());
        let who = ["key", "add", name, "--identity", MAIL, "--issuer", ISSUER];
        user.run(&[&who[..], &["--trusted-root", "root.json"]].concat())
            .ended(0);
        user.run(&["tool", "add", "tool.wasm", "--publisher", name])
    };
    refused(&user, pinned("mixed", &mixed), "is not of the trusted root");
    let mut other_log = sigstore.trusted_root();
    other_log["ctlogs"] = Sigstore::new().trusted_root()["ctlogs"].clone();
    refused(
        &user,
        pinned("other-log", &other_log),
        "is not in a certificate log",
    );
    // Without a file it is the root of the public Sigstore, which this one is not.
    user.run(&["key", "add", "public", "--identity", MAIL, "--issuer", ISSUER])
        .ended(0);
    let seen = user.run(&["tool", "add", "tool.wasm", "--publisher", "public"]);
    refused(&user, seen, "of the trusted root");
    // One that was changed is not used.
    let roots = user.home().join(".local/share/toolcell/keys/roots");
    for kept in std::fs::read_dir(roots).unwrap() {
        std::fs::write(kept.unwrap().path(), sigstore.trusted_root().to_string() + " ").unwrap();
    }
    let seen = user.run(&ADD).ended(7);
    assert!(seen.stderr.contains("it was changed"), "{}", seen.stderr);
    // The same file puts it right.
    pin(&user, &sigstore, "again", MAIL, ISSUER);
    user.run(&[&ADD[..], &["--dry-run"]].concat()).ended(0);
    // A root without a certificate log needs no timestamp of one.
    let mut none = sigstore.trusted_root();
    none["ctlogs"] = json!([]);
    pinned("no-log", &none).ended(0);
}

#[test]
fn identities_are_in_the_ring() {
    let (_, user) = sigstore_and_user();
    let listed = user.run(&["key", "list"]).ended(0).stdout;
    let start = format!("them  `{MAIL} (issuer {ISSUER}, trusted root sha256:");
    assert!(listed.starts_with(&start), "{listed}");
    let listed = user.run(&["key", "list", "--json"]).ended(0).json();
    assert_eq!(
        (
            &listed[0]["key"],
            &listed[0]["identity"]["issuer"],
            &listed[0]["own"]
        ),
        (&Value::Null, &ISSUER.into(), &false.into())
    );
    let add = |name: &str, identity: &str, issuer: &str| {
        user.run(&["key", "add", name, "--identity", identity, "--issuer", issuer])
    };
    for (identity, issuer) in [
        (".*@example.com$", ISSUER),
        (MAIL, "*"),
        ("*", ISSUER),
        ("", ISSUER),
        (MAIL, ""),
        (MAIL, "accounts.example.com"),
        ("them@exa mple.com", ISSUER),
    ] {
        add("x", identity, issuer).ended(2);
    }
    user.file("tool.wasm", component("First."));
    for wrong in [
        &["key", "add", "x"][..],
        &["key", "add", "x", "--identity", MAIL],
        &["key", "add", "x", "--issuer", ISSUER],
        &[
            "key",
            "add",
            "x",
            "ed25519:AAAA",
            "--identity",
            MAIL,
            "--issuer",
            ISSUER,
        ],
        &["key", "sign", "tool.wasm", "--key", "them"],
    ] {
        user.run(wrong).ended(2);
    }
    let who = [
        "key",
        "add",
        "x",
        "--identity",
        MAIL,
        "--issuer",
        ISSUER,
        "--trusted-root",
        "root.json",
    ];
    let root = |size: usize| {
        let root = Sigstore::new().trusted_root().to_string();
        user.file("root.json", format!("{root}{}", " ".repeat(size - root.len())));
        user.run(&who)
    };
    assert_ne!(user.run(&who).code, 0);
    for wrong in ["", "{}", "\u{1b}[2J"] {
        user.file("root.json", wrong);
        let seen = user.run(&who).ended(2);
        assert!(
            seen.stderr.contains("the trusted root is not as expected"),
            "{}",
            seen.stderr
        );
    }
    assert_ne!(root((256 << 10) + 1).code, 0);
    root(256 << 10).ended(0);
    let seen = add("them", MAIL, ISSUER).ended(2);
    assert!(seen.stderr.contains("there is a key `them`"), "{}", seen.stderr);
    user.run(&["key", "remove", "them"]).ended(0);
    add("them", MAIL, ISSUER).ended(0);
}

#[test]
fn trusted_root_goes_with_its_last_identity() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    give(&user, &bytes, &sigstore.sign(&bytes, &Signer::mail(MAIL)));
    pin(&user, &sigstore, "again", MAIL, ISSUER);
    pin(&user, &Sigstore::new(), "other", MAIL, ISSUER);
    let roots = || {
        let roots = user.home().join(".local/share/toolcell/keys/roots");
        std::fs::read_dir(roots).unwrap().count()
    };
    assert_eq!(roots(), 2);
    user.run(&["key", "remove", "other"]).ended(0);
    assert_eq!(roots(), 1);
    user.run(&["key", "remove", "again"]).ended(0);
    assert_eq!(roots(), 1, "another identity has it");
    user.run(&ADD).ended(0);
    user.run(&["key", "remove", "them"]).ended(0);
    assert_eq!(roots(), 1, "a package has it");
    user.run(&["tool", "update", "tool"]).ended(0);
    // The package goes, and the next change of the ring finds that nothing needs the root.
    user.run(&["tool", "remove", "tool"]).ended(0);
    user.run(&["key", "generate", "me"]).ended(0);
    user.run(&["key", "remove", "me"]).ended(0);
    assert_eq!(roots(), 0);
}
