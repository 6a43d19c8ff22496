//! `toolcell mcp login`: servers over HTTP that want an access token, and hostile ones of both kinds.

mod accepted;
mod hostile;
mod site;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdout};

#[cfg(target_os = "linux")]
use rustix::process::Signal;
use serde_json::{Value, json};
use url::Url;

use self::site::{Asked, Site, access};
use crate::mcp_client::{NO_FLOW, result};
use crate::support::cli_user::{Seen, User};
#[cfg(target_os = "linux")]
use crate::support::pty::Terminal;

/// Configuration with a server that keeps its tokens in a file.
fn configure(user: &User, site: &Site, more: &str) {
    user.configure(&format!(
        "{NO_FLOW}[mcp.srv]\nurl = \"{}/mcp\"\n[mcp.srv.oauth]\nfile = \"tokens.json\"\n{more}",
        site.origin
    ));
}

/// A login that waits for the browser.
struct Login {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Address that the user opens.
    url: Url,
    query: BTreeMap<String, String>,
}

impl Login {
    fn begin(user: &User, site: &Site) -> Self {
        let mut child = user
            .command(&["mcp", "login", "srv", "--no-browser"])
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let seen: Seen = child.wait_with_output().unwrap().into();
            panic!("{}", seen.stderr);
        }
        let url = Url::parse(line.trim()).unwrap();
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        site.state.lock().unwrap().challenge = query["code_challenge"].clone();
        Self {
            child,
            stdout,
            url,
            query,
        }
    }

    /// Sends an answer as a browser does, and returns its status.
    fn answer(&self, parameters: &[(&str, &str)]) -> u16 {
        let redirect = Url::parse(&self.query["redirect_uri"]).unwrap();
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters)
            .finish();
        let host = format!("127.0.0.1:{}", redirect.port().unwrap());
        let mut stream = TcpStream::connect(&host).unwrap();
        let head = format!("GET {}?{query} HTTP/1.1\r\nhost: {host}\r\n\r\n", redirect.path());
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Sends the right answer.
    fn accept(self, site: &Site) -> Seen {
        let state = self.query["state"].clone();
        let answer = [("code", "code-1"), ("state", &state), ("iss", &site.origin)];
        assert_eq!(self.answer(&answer), 200);
        self.ended()
    }

    fn ended(mut self) -> Seen {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "only the address is printed");
        self.child.wait_with_output().unwrap().into()
    }
}

/// Calls the tool of the server in a turn.
fn turn(user: &User) -> (Value, Seen) {
    let script =
        json!({ "steps": [{ "calls": [{ "name": "srv_who", "arguments": {} }] }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    let seen = user.run_script(&["--json", "--tool", "srv"]);
    (result(&seen, "srv_who"), seen)
}

#[test]
fn login_gives_its_tokens_to_the_server_alone() {
    let site = Site::start(|_, _| None);
    let user = User::new();
    configure(&user, &site, "");
    let refused = user.run(&["mcp", "test", "srv"]).ended(3);
    assert!(
        refused.stderr.contains("hint: log in: toolcell mcp login srv"),
        "{}",
        refused.stderr
    );
    let login = Login::begin(&user, &site);
    let redirect = login.query["redirect_uri"].clone();
    for (name, value) in [
        ("tenant", "1"),
        ("response_type", "code"),
        ("client_id", "client 1"),
        ("code_challenge_method", "S256"),
        ("resource", &format!("{}/mcp", site.origin)),
        ("scope", "read offline_access"),
    ] {
        assert_eq!(login.query[name], value, "{}", login.url);
    }
    // Pages and programs that guess get nothing, and end nothing.
    for forged in [
        &[("code", "evil")][..],
        &[("code", "evil"), ("state", "guessed"), ("iss", &site.origin)],
        &[("error", "access_denied"), ("state", "guessed")],
    ] {
        assert_eq!(login.answer(forged), 400);
    }
    let seen = login.accept(&site).ended(0);
    assert!(
        seen.stderr.contains("logged in; the tokens are in"),
        "{}",
        seen.stderr
    );
    let form = site.asked("/token")[0].form();
    assert_eq!(form["redirect_uri"], redirect);
    let file = user.home().join(".config/toolcell/tokens.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The server gets the token, and what it says of it does not reach the model.
    let (called, seen) = turn(&user);
    assert_eq!(called["error"], Value::Null, "{called}");
    let told = called["content"][0]["text"].as_str().unwrap();
    assert_eq!(told, "it is Some(\"Bearer [redacted:access token]\")");
    assert!(!seen.stdout.contains(&access(1)) && !seen.stderr.contains(&access(1)));
    // Its end is followed by a refresh, which is kept.
    site.end_token();
    user.run(&["mcp", "test", "srv"]).ended(0);
    let forms: Vec<_> = site.asked("/token").iter().map(Asked::form).collect();
    assert_eq!(forms.len(), 2);
    assert_eq!(forms[1]["refresh_token"], "refresh-token-1");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(
        kept.contains(&access(2)) && kept.contains("refresh-token-2"),
        "{kept}"
    );
    // Only the server was sent a token, and no token is a part of an address.
    for asked in site.state.lock().unwrap().asked.iter() {
        assert!(asked.token.is_none() || asked.path == "/mcp", "{asked:?}");
        assert!(!asked.path.contains("access-token"), "{asked:?}");
    }
    let removed = user.run(&["mcp", "logout", "srv"]).ended(0);
    for part in ["are removed", "revoked at the authorization server"] {
        assert!(removed.stderr.contains(part), "{}", removed.stderr);
    }
    assert!(!file.exists());
    let revoked: Vec<_> = site.asked("/revoke").iter().map(Asked::form).collect();
    let revoked: Vec<_> = revoked
        .iter()
        .map(|form| {
            (
                form["token"].as_str(),
                form["token_type_hint"].as_str(),
                form["client_id"].as_str(),
            )
        })
        .collect();
    let expected = [
        ("refresh-token-2", "refresh_token", "client 1"),
        (&access(2), "access_token", "client 1"),
    ];
    assert_eq!(revoked, expected);
    user.run(&["mcp", "logout", "srv"]).ended(0);
    user.run(&["mcp", "test", "srv"]).ended(3);
}

#[test]
fn tokens_are_for_the_address_they_were_issued_for() {
    let site = Site::start(|_, _| None);
    let user = User::new();
    configure(&user, &site, "");
    Login::begin(&user, &site).accept(&site).ended(0);
    let other = Site::start(|_, _| None);
    configure(&user, &other, "");
    user.run(&["mcp", "test", "srv"]).ended(3);
    assert!(!other.asked("/mcp").is_empty());
    assert!(
        other
            .state
            .lock()
            .unwrap()
            .asked
            .iter()
            .all(|asked| asked.token.is_none())
    );
    // So are they for the authorization server that the user names.
    configure(&user, &site, "issuer = \"https://login.example\"\n");
    user.run(&["mcp", "test", "srv"]).ended(3);
    configure(&user, &site, "");
    user.run(&["mcp", "test", "srv"]).ended(0);
}

/// Kinds of tokens, as a request to revoke one names them.
const REFRESH: &str = "refresh_token";
const ACCESS: &str = "access_token";

#[test]
fn logout_removes_tokens_whatever_the_authorization_server_says() {
    let error = |status: u16, code: &str| {
        let json = "content-type: application/json\r\n".to_owned();
        (status, json, json!({ "error": code }).to_string())
    };
    let (all, access_tokens) = (&[REFRESH, ACCESS][..], &[ACCESS][..]);
    for (answer, refused, code, told) in [
        (error(503, "slow_down"), all, 1, "slow_down"),
        (
            error(400, "unsupported_token_type"),
            all,
            1,
            "unsupported_token_type",
        ),
        (
            error(400, "unsupported_token_type"),
            access_tokens,
            0,
            "they are revoked",
        ),
        (error(400, "invalid_client"), access_tokens, 1, "invalid_client"),
        (
            (302, "location: /other\r\n".into(), String::new()),
            all,
            1,
            "is not followed",
        ),
    ] {
        let site = Site::start(move |asked, _| {
            let is_refused =
                asked.path == "/revoke" && refused.contains(&asked.form()["token_type_hint"].as_str());
            is_refused.then(|| answer.clone())
        });
        let user = User::new();
        configure(&user, &site, "");
        Login::begin(&user, &site).accept(&site).ended(0);
        let seen = user.run(&["mcp", "logout", "srv"]).ended(code);
        for part in [told, "are removed"] {
            assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
        }
        assert!(!seen.stderr.contains(&access(1)), "{}", seen.stderr);
        assert!(!user.home().join(".config/toolcell/tokens.json").exists());
    }
    // One that revokes no tokens.
    let site = Site::start(|asked, origin| {
        let is_metadata = asked.path == "/.well-known/oauth-authorization-server";
        is_metadata.then(|| {
            let mut metadata = site::metadata(origin);
            metadata["revocation_endpoint"] = Value::Null;
            site::ok(&metadata)
        })
    });
    let user = User::new();
    configure(&user, &site, "");
    Login::begin(&user, &site).accept(&site).ended(0);
    let seen = user.run(&["mcp", "logout", "srv"]).ended(0);
    assert!(seen.stderr.contains("was not told"), "{}", seen.stderr);
    assert!(site.asked("/revoke").is_empty());
    // Tokens for another address go to nobody.
    let other = Site::start(|_, _| None);
    configure(&user, &other, "");
    Login::begin(&user, &other).accept(&other).ended(0);
    configure(&user, &site, "");
    let seen = user.run(&["mcp", "logout", "srv"]).ended(0);
    assert!(seen.stderr.contains("was not told"), "{}", seen.stderr);
    assert!(other.asked("/revoke").is_empty() && site.asked("/revoke").is_empty());
    assert!(!user.home().join(".config/toolcell/tokens.json").exists());
}

#[test]
fn lacking_rights_are_told_to_the_user_and_not_to_the_model() {
    let site = Site::start(|asked, _| {
        let is_call = asked.message()["method"] == "tools/call" && asked.token.is_some();
        let header = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"write\"\r\n";
        is_call.then(|| (403, header.to_owned(), String::new()))
    });
    let user = User::new();
    configure(&user, &site, "");
    Login::begin(&user, &site).accept(&site).ended(0);
    let (called, _) = turn(&user);
    let error = called["error"].to_string();
    assert!(error.contains("(status 403); nothing was called"), "{called}");
    let seen = user.run_script(&["--tool", "srv"]).ended(0);
    assert!(seen.stderr.contains("toolcell mcp login srv"), "{}", seen.stderr);
    let to_model = called["content"].to_string();
    assert!(!to_model.contains("login"), "{to_model}");
    // The next login asks for them as well.
    let login = Login::begin(&user, &site);
    assert_eq!(login.query["scope"], "read offline_access write");
    login.accept(&site).ended(0);
}

#[test]
fn server_without_a_login_is_told_so() {
    let site = Site::start(|asked, _| match asked.path.as_str() {
        "/mcp" => Some(site::tools(asked)),
        _ => Some((404, String::new(), String::new())),
    });
    let user = User::new();
    configure(&user, &site, "");
    let seen = user.run(&["mcp", "login", "srv"]).ended(3);
    for part in ["it asks for no login", "[mcp.srv.oauth] issuer = \"URL\""] {
        assert!(seen.stderr.contains(part), "{}", seen.stderr);
    }
    user.configure(&format!(
        "[mcp.srv]\nurl = \"{}/mcp\"\nheaders = {{ Authorization = \"x\" }}\n[mcp.prog]\ncommand = \"x\"\n",
        site.origin
    ));
    let seen = user.run(&["mcp", "login", "srv"]).ended(3);
    assert!(
        seen.stderr.contains("sets the header `authorization`"),
        "{}",
        seen.stderr
    );
    let seen = user.run(&["mcp", "login", "prog"]).ended(2);
    assert!(seen.stderr.contains("not reached over HTTP"), "{}", seen.stderr);
    user.run(&["mcp", "login", "none"]).ended(2);
}

#[test]
fn tokens_need_a_keyring_or_a_file_and_no_tool_reads_it() {
    let site = Site::start(|_, _| None);
    let mut user = User::new();
    user.var("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    user.configure(&format!("[mcp.srv]\nurl = \"{}/mcp\"\n", site.origin));
    let seen = user.run(&["mcp", "login", "srv"]).ended(3);
    for part in ["no keyring service", "[mcp.srv.oauth] file = \"PATH\""] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    // The rest of Toolcell does not need it.
    user.run(&["call", "text_count", r#"{"text": "one two"}"#])
        .ended(0);
    let tokens = user.work().join("tokens.json");
    user.file("tokens.json", "{}");
    user.configure(&format!(
        "[mcp.srv]\nurl = \"{}/mcp\"\n[mcp.srv.oauth]\nfile = \"{}\"\n",
        site.origin,
        tokens.display()
    ));
    let read = user.run(&[
        "call",
        "text_count",
        r#"{"path": "tokens.json"}"#,
        "--grant",
        "read=.",
    ]);
    assert_ne!(read.code, 0, "{read:?}");
    assert!(
        read.stderr.contains("the tokens for an MCP server"),
        "{}",
        read.stderr
    );
}

#[cfg(target_os = "linux")]
#[test]
fn browser_is_opened_at_a_terminal_unless_it_is_unwanted() {
    let site = Site::start(|_, _| None);
    let mut user = User::new();
    user.file(
        "bin/xdg-open",
        "#!/bin/sh\nprintf '%s' \"$1\" >\"$0.new\"\nmv \"$0.new\" \"$0.address\"\n",
    );
    let program = user.work().join("bin/xdg-open");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:/usr/bin:/bin", user.work().join("bin").display());
    user.var("PATH", &path);
    configure(&user, &site, "");
    let opened = program.with_extension("address");
    let begin = |flags: &[&str]| {
        let command = [&["mcp", "login", "srv"][..], flags].concat();
        let mut terminal = Terminal::start(&user, &command, "xterm", 200, 50);
        terminal.wait_for("&scope=read");
        terminal
    };
    // A signal ends the login, and nothing is kept.
    let mut terminal = begin(&["--no-browser"]);
    terminal.signal(Signal::INT);
    assert_eq!(terminal.end(), Some(130));
    assert!(!opened.exists());
    let mut terminal = begin(&[]);
    let begun = std::time::Instant::now();
    while !opened.exists() {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let address = std::fs::read_to_string(&opened).unwrap();
    assert!(
        address.starts_with(&format!("{}/authorize?", site.origin)),
        "{address}"
    );
    assert!(terminal.seen.contains("you log in at"), "{}", terminal.seen);
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end(), Some(130));
    assert!(!user.home().join(".config/toolcell/tokens.json").exists());
}
