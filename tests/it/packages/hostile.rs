//! Servers that serve something else than they should, on loopback.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::{component, configuration, hex, stored};
use crate::support::cli_user::User;

/// A server that answers each request by its path, and keeps the heads.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// An answer: status, headers, body.
pub(super) type Reply = (u16, Vec<String>, Vec<u8>);

impl Server {
    pub(super) fn start(answer: impl Fn(&str) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may go at any time.
                let _ = serve(stream, &answer, &seen);
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &impl Fn(&str) -> Reply,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone()?);
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(head);
    let (status, headers, body) = answer(&path);
    write!(stream, "HTTP/1.1 {status} X\r\nconnection: close\r\n")?;
    let is_endless = headers.iter().any(|header| header == "x-endless: yes");
    for header in &headers {
        write!(stream, "{header}\r\n")?;
    }
    if is_endless {
        write!(stream, "\r\n")?;
        loop {
            stream.write_all(&[0; 64 << 10])?;
        }
    }
    if !headers.iter().any(|header| header.starts_with("content-length")) {
        write!(stream, "content-length: {}\r\n", body.len())?;
    }
    write!(stream, "\r\n")?;
    stream.write_all(&body)
}

pub(super) fn ok(body: impl AsRef<[u8]>) -> Reply {
    (200, Vec::new(), body.as_ref().to_vec())
}

fn found(location: &str) -> Reply {
    // As servers have it for people, longer than a small component.
    (302, vec![format!("location: {location}")], vec![b' '; 1 << 20])
}

pub(super) fn manifest(media_type: &str, digest: &str, size: usize) -> String {
    format!(
        r#"{{"schemaVersion": 2, "config": {{"mediaType": "application/vnd.wasm.config.v0+json", "digest": "sha256:{digest}", "size": 2}},
        "layers": [{{"mediaType": "{media_type}", "digest": "sha256:{digest}", "size": {size}}}]}}"#
    )
}

/// Adds the artefact of a registry with this manifest and blob, and returns what was said.
fn add(manifest: String, blob: Reply) -> String {
    let user = User::new();
    let server = Server::start(move |path| match path.contains("/manifests/") {
        true => ok(&manifest),
        false => blob.clone(),
    });
    let reference = format!("{}/tool:1", server.address);
    let seen = user.run(&["tool", "add", &reference]);
    assert_eq!(configuration(&user).is_empty(), seen.code != 0);
    assert_eq!(stored(&user).len(), usize::from(seen.code == 0));
    format!("{} {}", seen.code, seen.stderr)
}

#[test]
fn artefact_that_differs_from_its_manifest_is_refused() {
    let good = component("Echoes.");
    let (digest, size) = (hex(&good), good.len());
    let wasm = "application/wasm";
    let right = || manifest(wasm, &digest, size);
    let mut tampered = good.clone();
    *tampered.last_mut().unwrap() ^= 1;
    assert!(add(right(), ok(&good)).starts_with("0 "));
    assert!(
        add(
            manifest("application/vnd.wasm.content.layer.v1+wasm", &digest, size),
            ok(&good)
        )
        .starts_with("0 ")
    );
    let endless = || (200, vec!["x-endless: yes".to_owned()], Vec::new());
    let long = |length: u64| (200, vec![format!("content-length: {length}")], Vec::new());
    for (manifest, blob, said) in [
        (right(), ok(&tampered), "the component was changed"),
        (right(), ok(&good[..size - 1]), "its manifest says"),
        (right(), endless(), "the answer is larger than"),
        (right(), long(10 << 30), "the answer is larger than"),
        (right(), (404, Vec::new(), Vec::new()), "answered with 404"),
        (
            right(),
            (404, Vec::new(), vec![b' '; 60 << 10]),
            "answered with 404",
        ),
        (
            manifest(wasm, &digest, 10 << 30),
            ok(&good),
            "the limit is 67108864",
        ),
        (
            manifest(wasm, &digest, (64 << 20) + 1),
            ok(&good),
            "the limit is 67108864",
        ),
        (
            manifest("application/vnd.oci.image.layer.v1.tar+gzip", &digest, size),
            ok(&good),
            "no layer of the type",
        ),
        (manifest(wasm, "12", size), ok(&good), "invalid digest"),
        (
            manifest(wasm, &format!("{}/../x", &digest[..59]), size),
            ok(&good),
            "invalid digest",
        ),
        ("<html>".into(), ok(&good), "the manifest is not as expected"),
    ] {
        let seen = add(manifest, blob);
        assert!(seen.starts_with("7 ") && seen.contains(said), "{said}: {seen}");
    }
}

#[test]
fn redirect_to_a_private_address_is_refused() {
    let user = User::new();
    let good = component("Echoes.");
    let body = good.clone();
    let inner = Server::start(move |_| ok(&body));
    let target = inner.address;
    for location in [
        format!("http://{target}/blob"),
        format!("https://{target}/blob"),
        format!("https://localhost:{}/blob", target.port()),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://[::ffff:10.0.0.1]/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let to = location.clone();
        let server = Server::start(move |_| found(&to));
        let reference = format!("http://{}/tool.wasm#sha256={}", server.address, hex(&good));
        let seen = user.run(&["tool", "add", &reference, "--private"]).ended(7);
        assert!(
            seen.stderr.contains("is not a public address")
                || seen.stderr.contains("is not reached over `https`"),
            "{location}: {}",
            seen.stderr
        );
    }
    assert_eq!(inner.heads().len(), 0);
    // On the same host they are followed, but not for ever.
    let server = Server::start(|path| found(&format!("{path}x")));
    let reference = format!("http://{}/tool.wasm#sha256={}", server.address, hex(&good));
    let seen = user.run(&["tool", "add", &reference]).ended(7);
    assert!(seen.stderr.contains("more than 5 redirects"), "{}", seen.stderr);
    assert_eq!(server.heads().len(), 6);
}

#[test]
fn address_serves_what_its_digest_says_or_nothing() {
    let user = User::new();
    let good = component("Echoes.");
    let body = good.clone();
    let server = Server::start(move |path| match path {
        "/tool.wasm" => ok(&body),
        "/moved.wasm" => found("/tool.wasm"),
        _ => ok(component("Else.")),
    });
    let at = |path: &str| format!("http://{}/{path}", server.address);
    let digest = hex(&good);
    let seen = user
        .run(&["tool", "add", &at("other.wasm"), "--digest", &digest])
        .ended(7);
    assert!(
        seen.stderr.contains("it is not what was meant"),
        "{}",
        seen.stderr
    );
    assert_eq!(stored(&user).len(), 0);
    user.run(&["tool", "add", &at("moved.wasm"), "--digest", &digest])
        .ended(0);
    user.run(&["call", "moved", "{}"]).ended(0);
}

#[test]
fn credentials_are_sent_to_their_registry_alone() {
    let mut user = User::new();
    // `me:s3cret-of-the-registry`
    user.var("PLANTED_TOKEN", "bWU6czNjcmV0LW9mLXRoZS1yZWdpc3RyeQ==");
    let other = Server::start(|path| match path.starts_with("/token") {
        true => ok(r#"{"token": "t0ken"}"#),
        false => ok("no component"),
    });
    let to = other.address;
    let good = component("Echoes.");
    let (digest, size) = (hex(&good), good.len());
    let server = Server::start(move |path| match path {
        "/v2/basic/manifests/latest" => (
            401,
            vec!["www-authenticate: Basic realm=\"x\"".into()],
            Vec::new(),
        ),
        "/v2/bearer/manifests/latest" => {
            let challenge = format!("www-authenticate: Bearer realm=\"http://{to}/token\",service=\"s\"");
            (401, vec![challenge], Vec::new())
        }
        path if path.contains("/manifests/") => ok(manifest("application/wasm", &digest, size)),
        _ => found(&format!("http://{to}/blob")),
    });
    let config = format!(
        r#"{{"auths": {{"{}": {{"auth": "bWU6czNjcmV0LW9mLXRoZS1yZWdpc3RyeQ=="}}}}}}"#,
        server.address
    );
    user.file("docker/config.json", config);
    let docker = user.work().join("docker");
    user.var("DOCKER_CONFIG", docker.to_str().unwrap());
    for repository in ["basic", "bearer", "moved"] {
        let reference = format!("{}/{repository}", server.address);
        user.run(&["tool", "add", &reference]).ended(7);
    }
    let with = |heads: &[String]| {
        heads
            .iter()
            .filter(|head| head.contains("authorization: Basic bWU6"))
            .count()
    };
    // Asked for, to the registry itself.
    assert_eq!(with(&server.heads()), 1, "{:?}", server.heads());
    // The other host is a private address that nobody named.
    assert_eq!(other.heads().len(), 0, "{:?}", other.heads());
}
