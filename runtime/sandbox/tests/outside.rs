//! The bundled tools with the network and the files that a policy grants: standard clients in a guest, and the guard of
//! the host below them.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

mod support;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::Observed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use toolcell_core::{BoxFuture, CallResult, Content, Limit, Limits, Policy, Secrets, Tool, ToolError};
use toolcell_sandbox::{Component, Network, Sandbox, SandboxOptions, overlay};

const SECRET: &str = "s3cret-value-of-the-user";

/// A network in which every name has a public address, and every address is one server.
struct OneServer {
    server: SocketAddr,
    connected: Mutex<Vec<SocketAddr>>,
}

impl Network for OneServer {
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let ip = match name {
            "inside.example" => [10, 0, 0, 1],
            _ => [93, 184, 215, 14],
        };
        Box::pin(async move { Ok(vec![SocketAddr::from((ip, port))]) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.connected.lock().unwrap().push(address);
        Box::pin(TcpStream::connect(self.server))
    }
}

/// Responds by the path of the request; a page shows the head and the body of the request, and `/silent` never responds. `hung_up`
/// is notified of each client that disconnects without a response.
async fn serve(hung_up: mpsc::UnboundedSender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let hung_up = hung_up.clone();
            tokio::spawn(async move {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    head.push(char::from(stream.read_u8().await.unwrap()));
                }
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                stream.read_exact(&mut body).await.unwrap();
                head.push_str(&String::from_utf8(body).unwrap());
                let path = head.split(' ').nth(1).unwrap();
                if path == "/silent" {
                    while stream.read_u8().await.is_ok() {}
                    return hung_up.send(()).unwrap();
                }
                let answer = match path.split_once("?to=") {
                    Some((_, to)) => {
                        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
                    }
                    None => format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{head}",
                        head.len()
                    ),
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

async fn shipped(name: &str, options: SandboxOptions) -> Component {
    let path = format!("{}/../../tools/prebuilt/{name}.wasm", env!("CARGO_MANIFEST_DIR"));
    let bytes = fs::read(path).unwrap();
    Sandbox::new(options).unwrap().load(name, &bytes).await.unwrap()
}

fn policy(grants: &[&str]) -> Policy {
    Policy::granting(grants.iter().copied()).unwrap()
}

async fn call(tool: &dyn Tool, arguments: Value) -> (Result<CallResult, ToolError>, Observed) {
    support::call_with(tool, arguments).await
}

fn text(output: &CallResult) -> String {
    let texts = output.content.iter().map(|content| match content {
        Content::Text { text } => text.as_str(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

fn named<'a>(tools: &'a [Arc<dyn Tool>], name: &str) -> &'a dyn Tool {
    &**tools.iter().find(|t| t.spec().name.as_str() == name).expect(name)
}

#[tokio::test]
async fn ordinary_http_client_in_a_guest_reaches_only_granted_hosts() {
    let (hung_up, mut hang_ups) = mpsc::unbounded_channel();
    let network = Arc::new(OneServer {
        server: serve(hung_up).await,
        connected: Mutex::default(),
    });
    let options = SandboxOptions {
        slots: 8,
        optimize: false,
        network: network.clone(),
        ..SandboxOptions::default()
    };
    let component = shipped("fetch", options).await;
    let connections = || network.connected.lock().unwrap().len();
    let fetch = |grants: &[&str]| component.tools(Arc::new(policy(grants))).remove(0);

    let tool = fetch(&["http=http://*.example.com"]);
    let (result, observed) = call(&*tool, json!({"url": "http://a.example.com/x/../page"})).await;
    let page = text(&result.unwrap());
    assert!(
        page.contains("GET /page HTTP/1.1") && page.contains("host: a.example.com"),
        "{page}"
    );
    assert_eq!(observed.receipt().hosts, ["a.example.com:80"]);
    assert!(observed.receipt().denials.is_empty());

    // A redirect to a host without a grant.
    let before = connections();
    for (to, proposed) in [
        ("http://127.0.0.1/", None),
        ("http://169.254.169.254/latest/", None),
        ("http://other.example/", Some("http=http://other.example")),
    ] {
        let (result, observed) = call(&*tool, json!({"url": format!("http://a.example.com/?to={to}")})).await;
        let error = result.unwrap_err();
        assert!(!error.for_model().contains("http="), "{error:?}");
        let denial = &observed.receipt().denials[0];
        let origin = to.trim_end_matches("latest/").trim_end_matches('/');
        assert!(denial.target.starts_with(&format!("GET {origin}")), "{denial:?}");
        assert_eq!(denial.allow_with.as_deref(), proposed);
    }
    assert_eq!(
        connections(),
        before + 3,
        "only the redirects themselves were asked for"
    );

    // A name with a private address.
    let tool = fetch(&["http=http://*"]);
    let (result, observed) = call(&*tool, json!({"url": "http://inside.example/"})).await;
    assert!(result.is_err());
    let hint = observed.receipt().denials[0].allow_with.clone().unwrap();
    assert_eq!(hint, "http-private=http://inside.example");
    let (result, _) = call(
        &*fetch(&["http=http://*", &hint]),
        json!({"url": "http://inside.example/"}),
    )
    .await;
    assert!(result.is_ok());

    // Without a grant no connection is opened, and with a limit of one request a redirect is not followed.
    let before = connections();
    let (result, observed) = call(&*fetch(&[]), json!({"url": "http://a.example.com/"})).await;
    assert!(result.is_err());
    assert_eq!(
        observed.receipt().denials[0].allow_with.as_deref(),
        Some("http=http://a.example.com")
    );
    assert_eq!(connections(), before);
    let mut limited = policy(&["http=http://*"]);
    limited.limits.http_requests = 1;
    let tool = component.tools(Arc::new(limited)).remove(0);
    assert!(
        call(&*tool, json!({"url": "http://a.example.com/"}))
            .await
            .0
            .is_ok()
    );
    let (result, _) = call(&*tool, json!({"url": "http://a.example.com/?to=/next"})).await;
    assert!(result.is_err());
    assert_eq!(connections(), before + 2);

    secrets(&component).await;

    // Another method needs a grant that names it.
    let sender = |grants: &[&str]| {
        let tools = component.tools(Arc::new(policy(grants)));
        tools
            .into_iter()
            .find(|tool| tool.spec().name.as_str() == "fetch_send")
            .unwrap()
    };
    let post = json!({"url": "http://a.example.com/items", "method": "POST", "headers": {"x-a": "b"}, "body": {"n": 1}});
    let (result, observed) = call(&*sender(&["http=http://a.example.com"]), post.clone()).await;
    assert!(matches!(result, Err(ToolError::Denied { .. })), "{result:?}");
    let hint = observed.receipt().denials[0].allow_with.clone().unwrap();
    assert_eq!(hint, "http=POST http://a.example.com");
    let (result, _) = call(&*sender(&[&hint]), post).await;
    let said = text(&result.unwrap());
    for part in [
        "Status: 200",
        "POST /items HTTP/1.1",
        "x-a: b",
        "content-type: application/json",
        "content-length: 7",
        "{\"n\":1}",
    ] {
        assert!(said.contains(part), "{said}");
    }

    // A call that has ended, at its deadline or by cancellation, leaves no connection behind.
    let mut hurried = policy(&["http=http://*"]);
    hurried.limits.wall_ms = 2_000;
    let tool = component.tools(Arc::new(hurried)).remove(0);
    let (result, observed) = call(&*tool, json!({"url": "http://a.example.com/silent"})).await;
    assert!(
        matches!(
            result,
            Err(ToolError::Limit {
                limit: Limit::WallTimeMs(2_000)
            })
        ),
        "{result:?}"
    );
    assert_eq!(observed.receipt().hosts, ["a.example.com:80"]);
    hang_ups.recv().await.unwrap();
    let tool = fetch(&["http=http://*"]);
    let before = connections();
    let running =
        tokio::spawn(async move { call(&*tool, json!({"url": "http://a.example.com/silent"})).await });
    while connections() == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
    hang_ups.recv().await.unwrap();
}

/// The server echoes the request, and the guest returns the echo: only the server sees the secret.
async fn secrets(component: &Component) {
    let mut policy = policy(&["http=http://*"]);
    policy.grants.secrets = serde_json::from_value(json!([{
        "name": "token",
        "origins": ["http://api.example.com"],
        "header": "authorization",
        "template": "Bearer {}"
    }]))
    .unwrap();
    let mut values = Secrets::default();
    let policy = Arc::new(policy);
    assert!(component.tools_with_secrets(policy.clone(), &values).is_err());
    values.insert("token", SECRET).unwrap();
    let tool = component.tools_with_secrets(policy, &values).unwrap().remove(0);

    let (result, observed) = call(&*tool, json!({"url": "http://api.example.com/"})).await;
    let page = text(&result.unwrap());
    let mask = format!("authorization: Bearer {}", "*".repeat(SECRET.len()));
    assert!(page.contains(&mask) && !page.contains(SECRET), "{page}");
    assert!(!format!("{observed:?}").contains(SECRET));
    let (result, _) = call(&*tool, json!({"url": "http://b.example.com/"})).await;
    assert!(!text(&result.unwrap()).contains("authorization"));

    // A secret that enters in another way, here in the arguments, does not leave the cell either: responses of any
    // server are redacted before the guest reads them, and so is the output of the guest.
    let (result, observed) = call(&*tool, json!({"url": format!("http://b.example.com/{SECRET}")})).await;
    let page = text(&result.unwrap());
    let mask = format!("GET /{} HTTP/1.1", "*".repeat(SECRET.len()));
    assert!(
        page.contains(&mask) && page.contains("/[redacted:token]"),
        "{page}"
    );
    assert!(!format!("{observed:?}").contains(SECRET), "{observed:?}");
    let (result, observed) = call(&*tool, json!({"url": format!("https://denied.example/{SECRET}")})).await;
    assert!(!format!("{result:?} {observed:?}").contains(SECRET));
    assert_eq!(
        observed.receipt().denials[0].target,
        "GET https://denied.example/[redacted:token]"
    );
}

#[tokio::test]
async fn standard_library_of_a_guest_works_with_granted_rights() {
    let options = SandboxOptions {
        slots: 8,
        optimize: false,
        ..SandboxOptions::default()
    };
    let component = shipped("files", options).await;
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("old.txt"), "old\n").unwrap();
    fs::write(dir.path().join("secret.txt"), "secret\n").unwrap();
    std::os::unix::fs::symlink("../secret.txt", inside.join("link.txt")).unwrap();
    let tools = |rights: &str, limits: Limits| {
        let grant = format!("{rights}={}:/work", path_text(&inside));
        component.tools(Arc::new(Policy {
            limits,
            ..policy(&[&grant])
        }))
    };

    let read_only = tools("read", Limits::default());
    let (result, observed) = call(named(&read_only, "files_read"), json!({"path": "/work/old.txt"})).await;
    assert!(text(&result.unwrap()).contains("old"));
    assert!(
        observed
            .receipt()
            .files
            .iter()
            .any(|f| f.path == "/work/old.txt" && !f.write)
    );
    let (result, observed) = call(
        named(&read_only, "files_write"),
        json!({"path": "/work/new.txt", "content": "new\n"}),
    )
    .await;
    let error = format!("{result:?}");
    assert!(result.is_err() && !error.contains(&path_text(&inside)), "{error}");
    assert!(!inside.join("new.txt").exists());
    let hints: Vec<&str> = observed
        .receipt()
        .denials
        .iter()
        .filter_map(|d| d.allow_with.as_deref())
        .collect();
    assert_eq!(hints, [format!("read+create={}:/work", path_text(&inside))]);

    let all = tools("write", Limits::default());
    let write = named(&all, "files_write");
    let (result, observed) = call(
        write,
        json!({"path": "/work/sub/new.txt", "content": "new\n", "parents": true}),
    )
    .await;
    result.unwrap();
    assert_eq!(fs::read_to_string(inside.join("sub/new.txt")).unwrap(), "new\n");
    assert!(
        observed
            .receipt()
            .files
            .iter()
            .any(|f| f.path == "/work/sub/new.txt" && f.write)
    );

    for path in ["/work/link.txt", "/work/../secret.txt", "/secret.txt"] {
        let (result, observed) = call(named(&all, "files_read"), json!({ "path": path })).await;
        let shown = format!("{result:?} {observed:?}");
        assert!(result.is_err() && !shown.contains("secret\\n"), "{path}: {shown}");
    }

    let small = tools(
        "write",
        Limits {
            file_bytes: 10,
            ..Limits::default()
        },
    );
    let write = named(&small, "files_write");
    for (length, fits) in [(10, true), (11, false)] {
        let arguments = json!({"path": format!("/work/{length}.txt"), "content": "x".repeat(length)});
        let (result, observed) = call(write, arguments).await;
        assert_eq!(result.is_ok(), fits, "{length}: {result:?}");
        let says = |d: &toolcell_core::receipt::Denial| d.target == "more than 10 bytes written in one call";
        assert_eq!(observed.receipt().denials.iter().any(says), !fits);
    }
}

#[tokio::test]
async fn tool_works_on_an_overlay_as_on_the_directory_itself() {
    let options = SandboxOptions {
        slots: 8,
        optimize: false,
        ..SandboxOptions::default()
    };
    let component = shipped("files", options).await;
    let dir = tempfile::tempdir().unwrap();
    let (host, changes) = (dir.path().join("host"), dir.path().join("changes"));
    fs::create_dir(&host).unwrap();
    fs::write(host.join("notes.txt"), "one\ntwo\n").unwrap();
    let mut policy = policy(&[&format!("write={}:/work", path_text(&host))]);
    policy.grants.dirs[0].overlay = Some(changes.clone());
    let tools = component.tools(Arc::new(policy));
    let edit = json!({"path": "/work/notes.txt", "old_string": "two", "new_string": "three"});
    call(named(&tools, "files_edit"), edit).await.0.unwrap();
    let new = json!({"path": "/work/a/b.txt", "content": "b\n", "parents": true});
    call(named(&tools, "files_write"), new).await.0.unwrap();

    let (listed, _) = call(named(&tools, "files_list"), json!({"path": "/work", "depth": 3})).await;
    let listed = text(&listed.unwrap());
    assert!(
        listed.contains("notes.txt") && listed.contains("b.txt"),
        "{listed}"
    );
    let (found, _) = call(
        named(&tools, "files_search"),
        json!({"path": "/work", "pattern": "three|b"}),
    )
    .await;
    let found = text(&found.unwrap());
    assert!(found.contains("three") && found.contains("a/b.txt"), "{found}");

    assert_eq!(fs::read_to_string(host.join("notes.txt")).unwrap(), "one\ntwo\n");
    let paths = |list: Vec<overlay::Change>| list.into_iter().map(|c| c.path).collect::<Vec<_>>();
    let listed = paths(
        overlay::changes(&host, &changes, &overlay::CommitOptions::default())
            .unwrap()
            .found,
    );
    assert_eq!(
        listed,
        [Path::new("a"), Path::new("a/b.txt"), Path::new("notes.txt")]
    );
    assert_eq!(
        paths(
            overlay::commit(
                &host,
                &changes,
                overlay::OnConflict::Refuse,
                &overlay::CommitOptions::default()
            )
            .unwrap()
            .found
        ),
        listed
    );
    assert_eq!(
        fs::read_to_string(host.join("notes.txt")).unwrap(),
        "one\nthree\n"
    );
    assert_eq!(fs::read_to_string(host.join("a/b.txt")).unwrap(), "b\n");
}

fn path_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
