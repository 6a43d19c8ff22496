//! Bundles in OCI registries, which refer to the manifest of an artefact.

use serde_json::json;

use super::private::{COSIGN, MEDIA_TYPE, Signer};
use super::{MAIL, MAX_BUNDLE, refused, sigstore_and_user};
use crate::packages::hostile::{Reply, Server, manifest, ok};
use crate::packages::{component, hex};

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
