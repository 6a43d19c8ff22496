//! A real registry: that of Debian (`docker-registry`), on loopback.

use std::io::Read as _;
#[cfg(feature = "sigstore")]
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{component, hex, stored};
use crate::support::cli_user::User;

/// A registry with its own directory, ended on drop.
struct Registry {
    process: Child,
    host: String,
    _directory: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let host = format!("127.0.0.1:{port}");
        let configuration = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n",
            directory.path().join("data").display()
        );
        let file = directory.path().join("config.yml");
        std::fs::write(&file, configuration).unwrap();
        let mut process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("`docker-registry` is installed: apt-get install docker-registry");
        let start = Instant::now();
        while TcpStream::connect(&host).is_err() {
            if process.try_wait().unwrap().is_some() || start.elapsed() > Duration::from_secs(60) {
                let _ = process.kill();
                let mut said = String::new();
                process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the registry does not start: {said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            process,
            host,
            _directory: directory,
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a request, and returns the value of the header `location`.
#[cfg(feature = "sigstore")]
fn send(host: &str, method: &str, path: &str, media_type: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
    let location = answer
        .lines()
        .find_map(|line| line.strip_prefix("Location: "))
        .unwrap_or_default();
    location
        .trim_start_matches(&format!("http://{host}"))
        .trim()
        .to_owned()
}

#[cfg(feature = "sigstore")]
#[test]
#[ignore = "needs docker-registry; .ci/run installs it and runs this"]
fn bundle_in_a_registry_without_referrers_is_found_by_its_tag() {
    use super::sigstore::private::{COSIGN, MEDIA_TYPE, Signer, Sigstore};

    let registry = Registry::start();
    let host = registry.host.as_str();
    let (sigstore, user) = (Sigstore::new(), User::new());
    user.file("root.json", sigstore.trusted_root().to_string());
    let identity = [
        "--identity",
        "them@example.com",
        "--issuer",
        "https://accounts.example.com",
    ];
    user.run(
        &[
            &["key", "add", "them", "--trusted-root", "root.json"][..],
            &identity,
        ]
        .concat(),
    )
    .ended(0);
    user.file("one.wasm", component("First."));
    let tag = format!("{host}/tool:1");
    let pushed = user.run(&["tool", "push", "one.wasm", &tag]).ended(0).stdout;
    let digest = pushed.trim().rsplit_once("@sha256:").unwrap().1;
    let add = ["tool", "add", &tag, "--publisher", "them"];
    let seen = user.run(&add).ended(7);
    assert!(
        seen.stderr.contains("it has no bundle of Sigstore"),
        "{}",
        seen.stderr
    );

    // What `cosign sign` leaves in a registry that has no list of referrers.
    let get = |path: &str| {
        let mut stream = TcpStream::connect(host).unwrap();
        let accept = "application/vnd.oci.image.manifest.v1+json";
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let artefact = get("/v2/tool/manifests/1");
    assert_eq!(hex(artefact.as_bytes()), digest);
    let signer = Signer {
        statement: Some(COSIGN.into()),
        ..Signer::mail("them@example.com")
    };
    let bundle = sigstore.sign(artefact.as_bytes(), &signer).to_string();
    for blob in [bundle.as_str(), "{}"] {
        let place = send(host, "POST", "/v2/tool/blobs/uploads/", "text/plain", b"");
        let place = format!("{place}&digest=sha256:{}", hex(blob.as_bytes()));
        send(host, "PUT", &place, "application/octet-stream", blob.as_bytes());
    }
    let oci = |what: &str| format!("application/vnd.oci.{what}.v1+json");
    let described = |media_type: &str, content: &str| {
        let digest = format!("sha256:{}", hex(content.as_bytes()));
        serde_json::json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    };
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": oci("image.manifest"),
        "artifactType": MEDIA_TYPE,
        "config": described("application/vnd.oci.empty.v1+json", "{}"),
        "layers": [described(MEDIA_TYPE, &bundle)],
        "subject": described(&oci("image.manifest"), &artefact),
    })
    .to_string();
    let at = |tag: &str| format!("/v2/tool/manifests/{tag}");
    let place = at(&format!("sha256:{}", hex(manifest.as_bytes())));
    send(host, "PUT", &place, &oci("image.manifest"), manifest.as_bytes());
    let mut listed = described(&oci("image.manifest"), &manifest);
    listed["artifactType"] = MEDIA_TYPE.into();
    let index =
        serde_json::json!({ "schemaVersion": 2, "mediaType": oci("image.index"), "manifests": [listed] });
    let (place, index) = (at(&format!("sha256-{digest}")), index.to_string());
    send(host, "PUT", &place, &oci("image.index"), index.as_bytes());
    user.run(&add).ended(0);
    user.run(&["call", "tool", "{}"]).ended(0);
}

#[test]
#[ignore = "needs docker-registry; .ci/run installs it and runs this"]
fn pushed_component_is_added_by_tag_and_by_digest() {
    let registry = Registry::start();
    let user = User::new();
    let (one, two) = (component("First."), component("Second."));
    user.file("one.wasm", &one).file("two.wasm", &two);
    let tag = format!("{}/me/tool:1", registry.host);
    let push = |file: &str| {
        user.run(&["tool", "push", file, &tag])
            .ended(0)
            .stdout
            .trim()
            .to_owned()
    };
    let first = push("one.wasm");
    assert!(first.starts_with(&format!("{tag}@sha256:")), "{first}");
    // The same component is the same artefact.
    assert_eq!(push("one.wasm"), first);

    let pinned = User::new();
    user.run(&["tool", "add", &tag]).ended(0);
    pinned.run(&["tool", "add", &first]).ended(0);
    assert_eq!(user.run(&["tool", "list", "--outdated"]).ended(0).stdout, "");

    // The tag is moved.
    let second = push("two.wasm");
    assert_ne!(first, second);
    let outdated = ["tool", "list", "--outdated"];
    let listed = user.run(&outdated).ended(0).stdout;
    assert!(listed.contains(&hex(&two)), "{listed}");
    assert_eq!(pinned.run(&outdated).ended(0).stdout, "");
    pinned.run(&["tool", "update", "tool"]).ended(0);
    let seen = user.run(&["tool", "update", "tool"]).ended(4);
    assert!(seen.stdout.contains(&hex(&two)), "{}", seen.stdout);
    user.run(&["tool", "update", "tool", "--accept", &hex(&two)])
        .ended(0);
    user.run(&["call", "tool", "{}"]).ended(0);
    // Another reference, with its differences.
    let moved = ["tool", "update", "tool", "--from", &first, "--accept", &hex(&one)];
    user.run(&moved).ended(0);
    assert_eq!(user.run(&outdated).ended(0).stdout, "");

    // What was added is there without the registry.
    drop(registry);
    pinned.run(&["call", "tool", "{}"]).ended(0);
    pinned.run(&["tool", "update", "tool"]).ended(7);
    pinned.run(&["tool", "remove", "tool"]).ended(0);
    assert_eq!((stored(&user).len(), stored(&pinned).len()), (1, 0));
}

#[test]
#[ignore = "needs docker-registry; .ci/run installs it and runs this"]
fn what_is_no_tool_is_not_published() {
    let registry = Registry::start();
    let user = User::new();
    user.file("broken.wasm", b"\0asm\x0d\0\x01\0nonsense");
    user.file("one.wasm", component("First."));
    let tag = format!("{}/tool:1", registry.host);
    user.run(&["tool", "push", "broken.wasm", &tag]).ended(7);
    user.run(&["tool", "push", "one.wasm", "./one.wasm"]).ended(2);
    let other = format!("{tag}@sha256:{}", "0".repeat(64));
    let seen = user.run(&["tool", "push", "one.wasm", &other]).ended(7);
    assert!(
        seen.stderr.contains("the digest of another artefact"),
        "{}",
        seen.stderr
    );
    let seen = user.run(&["tool", "add", &tag]).ended(7);
    assert!(seen.stderr.contains("404"), "{}", seen.stderr);
}

#[test]
#[ignore = "needs docker-registry; .ci/run installs it and runs this"]
fn signature_travels_with_the_artefact() {
    let registry = Registry::start();
    let (publisher, user) = (User::new(), User::new());
    let key = publisher.run(&["key", "generate", "me"]).ended(0).stdout;
    user.run(&["key", "add", "them", key.trim()]).ended(0);
    publisher.file("one.wasm", component("First."));
    let tag = format!("{}/tool:1", registry.host);
    let add = ["tool", "add", &tag, "--publisher", "them"];
    publisher.run(&["tool", "push", "one.wasm", &tag]).ended(0);
    let seen = user.run(&add).ended(7);
    assert!(seen.stderr.contains("it is not signed"), "{}", seen.stderr);
    publisher
        .run(&["tool", "push", "one.wasm", &tag, "--key", "me"])
        .ended(0);
    user.run(&add).ended(0);
    user.run(&["call", "tool", "{}"]).ended(0);
}
