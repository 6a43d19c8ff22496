//! Certificates and statements in which one thing is not that of a signature of the component by its publisher.

use rcgen::KeyUsagePurpose;
use serde_json::{Value, json};

use super::private::{COSIGN, Signer};
use super::{ADD, ISSUER, MAIL, give, pin, refused, sigstore_and_user};
use crate::packages::component;
use crate::support::cli_user::User;

/// Digest of another component.
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn add(user: &User) -> crate::support::cli_user::Seen {
    user.run(&[&ADD[..], &["--dry-run"]].concat())
}

#[test]
fn issuer_and_identity_are_compared_byte_by_byte() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    for issuer in [
        format!("{ISSUER}/"),
        ISSUER.to_uppercase(),
        ISSUER.replacen("https", "http", 1),
        format!("{ISSUER}:443"),
        format!("{ISSUER}.evil.example"),
        ISSUER[..ISSUER.len() - 1].to_owned(),
        format!(" {ISSUER}"),
        format!("{ISSUER}\0"),
        String::new(),
    ] {
        // The old form of the extension is not believed either.
        for old_issuer in [None, Some(ISSUER.to_owned())] {
            let issuer = issuer.clone();
            let signer = Signer {
                issuer,
                old_issuer,
                ..Signer::mail(MAIL)
            };
            give(&user, &bytes, &sigstore.sign(&bytes, &signer));
            refused(&user, add(&user), "its signer is vouched for by");
        }
    }
    let workflow = "https://git.example/them/x/.ci/release.yml@refs/heads/main";
    pin(&user, &sigstore, "workflow", workflow, ISSUER);
    for (part, other) in [
        ("https", "HTTPS"),
        ("git.example", "GIT.example"),
        ("git.example", "git.example:443"),
        ("them/x", "them//x"),
        ("them/x", "them/%78"),
        ("them/x", "them/y/../x"),
        ("main", "main/"),
        ("main", "main?x"),
    ] {
        let uri = workflow.replacen(part, other, 1);
        give(&user, &bytes, &sigstore.sign(&bytes, &Signer::uri(&uri)));
        let seen = user.run(&["tool", "add", "tool.wasm", "--publisher", "workflow"]);
        refused(&user, seen, "it is signed by the URI");
    }
}

#[test]
fn key_of_a_certificate_is_for_signatures() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let signed_with = |key_usages: &[KeyUsagePurpose]| {
        let signer = Signer {
            key_usages: key_usages.to_vec(),
            ..Signer::mail(MAIL)
        };
        give(&user, &bytes, &sigstore.sign(&bytes, &signer));
        add(&user)
    };
    for usages in [
        &[][..],
        &[KeyUsagePurpose::KeyCertSign],
        &[
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::ContentCommitment,
        ],
    ] {
        refused(&user, signed_with(usages), "is not for signatures");
    }
    signed_with(&[
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ])
    .ended(0);
}

/// The statement with another value of a member.
fn with(statement: &str, member: &str, value: impl FnOnce(&Value) -> Value) -> String {
    let mut statement: Value = serde_json::from_str(statement).unwrap();
    statement[member] = value(&statement[member]);
    statement.to_string()
}

fn other() -> Value {
    json!({ "name": "other", "digest": { "sha256": OTHER } })
}

/// Change of a signed statement.
type Rewrite = fn(String) -> String;

#[test]
fn statement_is_about_the_component_and_of_one_meaning() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let states = |rewrite: Rewrite| {
        let signer = Signer {
            statement: Some(COSIGN.into()),
            rewrite,
            ..Signer::mail(MAIL)
        };
        give(&user, &bytes, &sigstore.sign(&bytes, &signer));
        add(&user)
    };
    let wrong: [(Rewrite, &str); 13] = [
        (|text| with(&text, "subject", |_| json!([])), "no subjects"),
        (|text| with(&text, "subject", |_| Value::Null), "not as expected"),
        (
            |text| with(&text, "subject", |_| json!([other()])),
            "not of this component",
        ),
        (
            |text| with(&text, "_type", |_| json!("https://example.com/\u{1b}[2J")),
            r"of an unknown type: `https://example.com/\u{1b}[2J`",
        ),
        (|text| with(&text, "_type", |_| json!("")), "of an unknown type"),
        (
            |text| text.replacen("{", r#"{"subject":[],"#, 1),
            "duplicate field",
        ),
        (
            |text| text.replacen("{", r#"{"predicateType":"x","#, 1),
            "duplicate field",
        ),
        (
            |text| text.replacen(r#""sha256":"#, &format!(r#""sha256":"{OTHER}","sha256":"#), 1),
            "duplicate field",
        ),
        (|text| text[..text.len() - 1].to_owned(), "not as expected"),
        (|text| format!("{text} {{}}"), "not as expected"),
        (|text| format!("[{text}]"), "not as expected"),
        (|_| String::new(), "not as expected"),
        (
            |text| {
                let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
                text.replacen(r#""predicate":{}"#, &format!(r#""predicate":{nested}"#), 1)
            },
            "recursion limit",
        ),
    ];
    for (rewrite, said) in wrong {
        refused(&user, states(rewrite), said);
    }
    // A statement can be about several things.
    let right: [Rewrite; 3] = [
        |text| with(&text, "subject", |right| json!([other(), right[0]])),
        |text| with(&text, "subject", |right| json!([right[0], other()])),
        |text| with(&text, "_type", |_| json!("https://in-toto.io/Statement/v0.1")),
    ];
    for rewrite in right {
        states(rewrite).ended(0);
    }
    for (media, signatures) in [("application/json", 1), ("", 1)]
        .into_iter()
        .chain([0, 2].map(|signatures| ("application/vnd.in-toto+json", signatures)))
    {
        let signer = Signer {
            statement: Some(COSIGN.into()),
            media: media.into(),
            signatures,
            ..Signer::mail(MAIL)
        };
        give(&user, &bytes, &sigstore.sign(&bytes, &signer));
        refused(&user, add(&user), "its bundle is not as expected");
    }
}
