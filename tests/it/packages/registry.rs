//! A real registry: that of Debian (`docker-registry`), on loopback.

use std::io::Read as _;
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
