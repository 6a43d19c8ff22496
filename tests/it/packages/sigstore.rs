//! Publishers with an identity: packages that must have a bundle of Sigstore.

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};

use super::hostile::{Reply, Server, manifest, ok};
use super::private_sigstore::{COSIGN, MEDIA_TYPE, Signer, Sigstore};
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
        .ended(7);
    assert!(
        seen.stderr.contains("no identity of Sigstore is pinned"),
        "{}",
        seen.stderr
    );

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

/// A registry with one artefact, and what refers to it: the answer for each path.
fn registry(component: &[u8], bundles: &[(String, &str)], has_referrers: bool) -> (Server, String) {
    let artefact = manifest("application/wasm", &hex(component), component.len());
    let mut paths: Vec<(String, Reply)> = vec![
        ("/v2/tool/manifests/1".into(), ok(&artefact)),
        (format!("/v2/tool/blobs/sha256:{}", hex(component)), ok(component)),
    ];
    let mut listed = Vec::new();
    for (bundle, artifact_type) in bundles {
        let of_bundle = manifest(MEDIA_TYPE, &hex(bundle.as_bytes()), bundle.len());
        let digest = hex(of_bundle.as_bytes());
        paths.push((format!("/v2/tool/manifests/sha256:{digest}"), ok(&of_bundle)));
        paths.push((
            format!("/v2/tool/blobs/sha256:{}", hex(bundle.as_bytes())),
            ok(bundle),
        ));
        listed.push(json!({ "digest": format!("sha256:{digest}"), "size": of_bundle.len(), "artifactType": artifact_type }));
    }
    let list = ok(json!({ "schemaVersion": 2, "manifests": listed }).to_string());
    let digest = hex(artefact.as_bytes());
    paths.push(match has_referrers {
        true => (
            format!("/v2/tool/referrers/sha256:{digest}?artifactType=application%2Fvnd.dev.sigstore.bundle.v0.3%2Bjson"),
            list,
        ),
        false => (format!("/v2/tool/manifests/sha256-{digest}"), list),
    });
    let server = Server::start(move |path| {
        let found = paths.iter().find(|(at, _)| at == path);
        found.map_or((404, Vec::new(), Vec::new()), |(_, reply)| reply.clone())
    });
    (server, artefact)
}

#[test]
fn bundle_of_an_artefact_is_a_referrer_and_signs_its_manifest() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let (_, artefact) = registry(&bytes, &[], true);
    let signed = |what: &[u8], signer: Signer, statement: Option<&str>| {
        let statement = statement.map(Into::into);
        (
            sigstore.sign(what, &Signer { statement, ..signer }).to_string(),
            MEDIA_TYPE,
        )
    };
    let them = || Signer::mail(MAIL);
    let other = || Signer::mail("other@example.com");
    let artefact = artefact.as_bytes();
    let add = |bundles: &[(String, &str)], has_referrers: bool| {
        let (server, _) = registry(&bytes, bundles, has_referrers);
        let reference = format!("{}/tool:1", server.address);
        user.run(&["tool", "add", &reference, "--publisher", "them", "--dry-run"])
    };
    let good = || signed(artefact, them(), Some(COSIGN));
    for has_referrers in [true, false] {
        refused(&user, add(&[], has_referrers), "it has no bundle of Sigstore");
        add(&[good()], has_referrers).ended(0);
        add(&[signed(artefact, them(), None)], has_referrers).ended(0);
        // One of them is enough.
        let scan = signed(
            artefact,
            them(),
            Some("https://cosign.sigstore.dev/attestation/vuln/v1"),
        );
        let foreign = signed(artefact, other(), Some(COSIGN));
        let large = ("x".repeat(MAX_BUNDLE + 1), MEDIA_TYPE);
        add(
            &[scan.clone(), foreign.clone(), large.clone(), good()],
            has_referrers,
        )
        .ended(0);
        let seen = add(&[scan, foreign, large], has_referrers);
        for said in [
            "none of its 3 bundles is valid",
            "a statement about it",
            "it is signed by the e-mail address `other@example.com`",
            "its bundle has 1048577 bytes, and the limit is 1048576",
        ] {
            assert!(seen.stderr.contains(said), "{said}: {}", seen.stderr);
        }
        refused(&user, seen, "none of its 3 bundles");
        // A signature of the component is not one of the artefact.
        refused(
            &user,
            add(&[signed(&bytes, them(), Some(COSIGN))], has_referrers),
            "not of this component",
        );
        let other_type = (good().0, "application/vnd.example.sbom");
        refused(
            &user,
            add(&[other_type], has_referrers),
            "it has no bundle of Sigstore",
        );
    }
    // Of more than sixteen, the others are not read.
    let many = |before: usize| {
        let mut bundles: Vec<_> = (0..before)
            .map(|at| (format!("{{\"x\": {at}}}"), MEDIA_TYPE))
            .collect();
        bundles.push(good());
        add(&bundles, true)
    };
    many(15).ended(0);
    refused(&user, many(16), "none of its 16 bundles");
}

#[test]
fn hostile_list_of_referrers_is_an_error() {
    let (sigstore, user) = sigstore_and_user();
    let bytes = component("First.");
    let (_, artefact) = registry(&bytes, &[], true);
    let bundle = sigstore
        .sign(artefact.as_bytes(), &Signer::mail(MAIL))
        .to_string();
    let of_bundle = manifest(MEDIA_TYPE, &hex(bundle.as_bytes()), bundle.len());
    let listed = |digest: &str| {
        ok(json!({ "manifests": [{ "digest": digest, "artifactType": MEDIA_TYPE }] }).to_string())
    };
    let right = listed(&format!("sha256:{}", hex(of_bundle.as_bytes())));
    let twice = of_bundle.replace(
        "[{",
        &format!("[{{\"mediaType\": \"{MEDIA_TYPE}\", \"digest\": \"x\", \"size\": 1}}, {{"),
    );
    let tampered = bundle
        .replace("2025", "2026")
        .replace("log.example - 1", "log.example - 2");
    assert_ne!(tampered, bundle);
    let private = |host: &str| -> Reply { (302, vec![format!("location: https://{host}/")], Vec::new()) };
    for (list, of, blob, said) in [
        (
            private("[::ffff:10.0.0.1]"),
            ok(&of_bundle),
            ok(&bundle),
            "is not a public address",
        ),
        (
            right.clone(),
            ok(&of_bundle),
            private("169.254.169.254"),
            "is not a public address",
        ),
        (
            ok("<html>"),
            ok(&of_bundle),
            ok(&bundle),
            "its bundles are not listed",
        ),
        (
            (500, Vec::new(), Vec::new()),
            ok(&of_bundle),
            ok(&bundle),
            "answered with 500",
        ),
        (
            (200, vec!["x-endless: yes".into()], Vec::new()),
            ok(&of_bundle),
            ok(&bundle),
            "the answer is larger than",
        ),
        (listed("sha256:12"), ok(&of_bundle), ok(&bundle), "invalid digest"),
        (
            listed(&format!("sha256:{}/../x", "0".repeat(59))),
            ok(&of_bundle),
            ok(&bundle),
            "invalid digest",
        ),
        (right.clone(), ok(&twice), ok(&bundle), "its manifest was changed"),
        (
            listed(&format!("sha256:{}", hex(twice.as_bytes()))),
            ok(&twice),
            ok(&bundle),
            "several bundles",
        ),
        (
            listed(&format!("sha256:{}", hex(b"{}"))),
            ok("{}"),
            ok(&bundle),
            "no layer of the type",
        ),
        (
            right.clone(),
            ok(&of_bundle),
            ok(&tampered),
            "the bundle was changed",
        ),
        (
            right.clone(),
            ok(&of_bundle),
            (404, Vec::new(), Vec::new()),
            "answered with 404",
        ),
        (right, ok(&of_bundle), ok(&bundle), ""),
    ] {
        let (artefact, component) = (artefact.clone(), bytes.clone());
        let server = Server::start(move |path| match path {
            "/v2/tool/manifests/1" => ok(&artefact),
            path if path.contains("/referrers/") => list.clone(),
            path if path.contains("/manifests/") => of.clone(),
            path if path.ends_with(&hex(&component)) => ok(&component),
            _ => blob.clone(),
        });
        let reference = format!("{}/tool:1", server.address);
        let seen = user.run(&["tool", "add", &reference, "--publisher", "them"]);
        if said.is_empty() {
            seen.ended(0);
        } else {
            let seen = seen.ended(7);
            assert!(seen.stderr.contains(said), "{said}: {}", seen.stderr);
        }
    }
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
