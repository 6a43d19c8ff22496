//! Bundles beside components: each proof in them, their size, what they state, and where they are.

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};

use super::private::{COSIGN, Signer};
use super::{ADD, MAIL, MAX_BUNDLE, give, refused, sigstore_and_user};
use crate::packages::hostile::{Server, ok};
use crate::packages::{component, hex};

#[test]
fn bundle_without_a_proof_of_each_kind_is_refused() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let bundle = |signer: Signer| sigstore.sign(&bytes, &signer);
    let good = || bundle(Signer::mail(MAIL));
    /// The bundle with another value in one place, or without it.
    fn with(mut bundle: Value, at: &str, value: Option<Value>) -> Value {
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent = bundle.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(key.into(), value),
            None => Some(parent.remove(key).unwrap()),
        };
        bundle
    }
    /// The bundle with one bit of base64 in one place changed.
    fn bent(bundle: Value, at: &str) -> Value {
        let text = bundle.pointer(at).unwrap().as_str().unwrap();
        let middle = text.len() / 2;
        let letter = if text.as_bytes()[middle] == b'A' { "B" } else { "A" };
        let text = format!("{}{letter}{}", &text[..middle], &text[middle + 1..]);
        with(bundle, at, Some(text.into()))
    }
    let entry = "/verificationMaterial/tlogEntries/0";
    let at = |key: &str| format!("{entry}/{key}");
    let proof = at("inclusionProof");
    let other = sigstore.sign(b"other", &Signer::mail(MAIL));
    let of_other = |at: &str| Some(other.pointer(at).unwrap().clone());
    let old = with(
        good(),
        "/mediaType",
        Some("application/vnd.dev.sigstore.bundle+json;version=0.1".into()),
    );
    let time = |time| Signer {
        time,
        ..Signer::mail(MAIL)
    };
    for (bundle, said) in [
        (bundle(time(601)), "was not valid when it was signed"),
        (bundle(time(-1)), "was not valid when it was signed"),
        // Beyond the present, as the clock of this machine says.
        (bundle(time(10_000_000_000)), "not in a transparency log"),
        (
            bundle(Signer {
                usage: ExtendedKeyUsagePurpose::ServerAuth,
                ..Signer::mail(MAIL)
            }),
            "is not of the trusted root",
        ),
        (
            bundle(Signer {
                has_sct: false,
                ..Signer::mail(MAIL)
            }),
            "is not in a certificate log",
        ),
        (
            with(good(), &proof, None),
            "no proof that it is in the transparency log",
        ),
        (
            with(old, &proof, None),
            "no proof that it is in the transparency log",
        ),
        (
            with(good(), &format!("{proof}/checkpoint"), None),
            "no checkpoint",
        ),
        (
            with(good(), &format!("{proof}/treeSize"), Some("3".into())),
            "for another size",
        ),
        (
            with(good(), &format!("{proof}/hashes"), Some(json!([]))),
            "not in a transparency log",
        ),
        (
            with(good(), &format!("{proof}/logIndex"), Some("0".into())),
            "not in a transparency log",
        ),
        (
            with(good(), &format!("{proof}/logIndex"), Some("2".into())),
            "not as expected",
        ),
        (
            with(good(), &at("inclusionPromise"), None),
            "no trusted time of signing",
        ),
        (
            bent(good(), &at("inclusionPromise/signedEntryTimestamp")),
            "not in a transparency log",
        ),
        (
            with(good(), &at("integratedTime"), Some("1736467261".into())),
            "not in a transparency log",
        ),
        (
            with(good(), "/verificationMaterial/tlogEntries", Some(json!([]))),
            "no entry of a transparency log",
        ),
        (
            with(
                good(),
                "/verificationMaterial/tlogEntries",
                Some(vec![good().pointer(entry).unwrap().clone(); 9].into()),
            ),
            "more than 8 entries",
        ),
        // The whole entry of another signature.
        (
            with(
                good(),
                "/verificationMaterial/tlogEntries",
                of_other("/verificationMaterial/tlogEntries"),
            ),
            "not of this component",
        ),
        (
            with(good(), "/messageSignature", of_other("/messageSignature")),
            "not of this component",
        ),
        (
            with(
                good(),
                "/messageSignature/signature",
                of_other("/messageSignature/signature"),
            ),
            "not of this component",
        ),
        (
            with(
                good(),
                "/verificationMaterial/certificate",
                of_other("/verificationMaterial/certificate"),
            ),
            "not of this component",
        ),
        (
            bent(good(), "/verificationMaterial/certificate/rawBytes"),
            "its bundle",
        ),
        (
            with(
                good(),
                "/verificationMaterial",
                Some(json!({ "publicKey": { "hint": "x" }, "tlogEntries": [] })),
            ),
            "no entry",
        ),
        (
            with(good(), "/mediaType", Some("\u{1b}[2Jtext/plain".into())),
            "not as expected",
        ),
        (json!([]), "not as expected"),
        (json!(null), "not as expected"),
    ] {
        give(&user, &bytes, &bundle);
        let seen = user.run(&ADD);
        assert!(!seen.stderr.contains('\u{1b}'), "{:?}", seen.stderr);
        refused(&user, seen, said);
    }
    for (text, said) in [
        ("", "not as expected"),
        ("{", "not as expected"),
        (&"[".repeat(100_000), "not as expected"),
    ] {
        user.file("tool.wasm.sigstore.json", text);
        refused(&user, user.run(&ADD), said);
    }
    // Within the same limits.
    for signer in [
        time(0),
        time(600),
        Signer {
            tree_size: 1,
            ..Signer::mail(MAIL)
        },
    ] {
        give(&user, &bytes, &bundle(signer));
        user.run(&[&ADD[..], &["--dry-run"]].concat()).ended(0);
    }
}

#[test]
fn bundle_has_a_maximum_size() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    give(&user, &bytes, &json!({}));
    let bundle = sigstore.sign(&bytes, &Signer::mail(MAIL)).to_string();
    let padded = |size: usize| format!("{bundle}{}", " ".repeat(size - bundle.len()));
    user.file("tool.wasm.sigstore.json", padded(MAX_BUNDLE + 1));
    let seen = user.run(&ADD).ended(7);
    assert!(seen.stderr.contains("larger than"), "{}", seen.stderr);
    user.file("tool.wasm.sigstore.json", padded(MAX_BUNDLE));
    user.run(&ADD).ended(0);
}

#[test]
fn statement_must_be_a_signature() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let stated = |statement: &str| {
        let signer = Signer {
            statement: Some(statement.into()),
            ..Signer::mail(MAIL)
        };
        give(&user, &bytes, &sigstore.sign(&bytes, &signer));
        user.run(&[&ADD[..], &["--dry-run"]].concat())
    };
    refused(
        &user,
        stated("https://cosign.sigstore.dev/attestation/vuln/v1"),
        "its bundle is not a signature but a statement about it",
    );
    refused(&user, stated("\u{1b}[2J"), r"of the type `\u{1b}[2J`");
    for good in [COSIGN, "https://slsa.dev/provenance/v1"] {
        stated(good).ended(0);
    }
}

#[test]
fn bundle_can_be_named_and_is_beside_an_address() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let bundle = sigstore.sign(&bytes, &Signer::mail(MAIL)).to_string();
    user.file("tool.wasm", &bytes).file("bundle.json", &bundle);
    let named = [&ADD[..], &["--bundle", "bundle.json"]].concat();
    user.run(&[&named[..], &["--dry-run"]].concat()).ended(0);
    // It is used in place of the one that would be found.
    user.file("tool.wasm.sigstore.json", &bundle)
        .file("bundle.json", "{}");
    refused(&user, user.run(&named), "not as expected");
    user.run(&["tool", "add", "tool.wasm", "--bundle", "bundle.json"])
        .ended(2);
    user.run(&["key", "generate", "mine"]).ended(0);
    let seen = user
        .run(&[
            "tool",
            "add",
            "tool.wasm",
            "--publisher",
            "mine",
            "--bundle",
            "bundle.json",
        ])
        .ended(2);
    assert!(seen.stderr.contains("an identity of Sigstore"), "{}", seen.stderr);

    let at = |beside: Option<String>| {
        let component = bytes.clone();
        Server::start(move |path| match (path, &beside) {
            ("/tool.wasm", _) => ok(&component),
            ("/tool.wasm.sigstore.json", Some(bundle)) => ok(bundle),
            _ => (404, Vec::new(), Vec::new()),
        })
    };
    let add = |server: &Server| {
        let reference = format!("http://{}/tool.wasm#sha256={}", server.address, hex(&bytes));
        user.run(&["tool", "add", &reference, "--publisher", "them"])
    };
    refused(&user, add(&at(None)), "it has no bundle of Sigstore");
    let seen = add(&at(Some(" ".repeat(MAX_BUNDLE + 1)))).ended(7);
    assert!(
        seen.stderr.contains("the answer is larger than"),
        "{}",
        seen.stderr
    );
    add(&at(Some(bundle))).ended(0);
}
