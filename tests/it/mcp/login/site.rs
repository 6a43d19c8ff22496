//! An MCP server that wants a login, and its authorization server, at one address of this machine.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) token: Option<String>,
    pub(super) body: String,
}

impl Asked {
    /// The message of the protocol in it.
    pub(super) fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The form in it.
    pub(super) fn form(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(self.body.as_bytes())
            .into_owned()
            .collect()
    }
}

/// Status, further header lines and body of an answer.
pub(super) type Answer = (u16, String, String);

/// Answers some requests otherwise. Gets the origin of the site.
type Otherwise = dyn Fn(&Asked, &str) -> Option<Answer> + Send + Sync;

/// State of both servers.
#[derive(Default)]
pub(super) struct State {
    pub(super) asked: Vec<Asked>,
    /// Number of tokens that were issued.
    issued: usize,
    /// True if the newest token does not count any more.
    is_ended: bool,
    /// Challenge of the code that was given out.
    pub(super) challenge: String,
}

#[derive(Clone)]
pub(super) struct Site {
    pub(super) origin: String,
    pub(super) state: Arc<Mutex<State>>,
}

/// The access token with this number, from 1.
pub(super) fn access(number: usize) -> String {
    format!("access-token-number-{number}-abcdef")
}

fn json_answer(status: u16, body: &Value) -> Answer {
    (
        status,
        "content-type: application/json\r\n".into(),
        body.to_string(),
    )
}

pub(super) fn ok(body: &Value) -> Answer {
    json_answer(200, body)
}

/// Metadata of the authorization server.
pub(super) fn metadata(origin: &str) -> Value {
    json!({
        "issuer": origin,
        "authorization_endpoint": format!("{origin}/authorize?tenant=1"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "revocation_endpoint": format!("{origin}/revoke"),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": true,
        "scopes_supported": ["read", "offline_access"],
    })
}

/// Metadata of the server.
pub(super) fn resource(origin: &str) -> Value {
    json!({ "resource": format!("{origin}/mcp"), "authorization_servers": [origin] })
}

impl Site {
    /// Starts both servers.
    pub(super) fn start(otherwise: impl Fn(&Asked, &str) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Self {
            origin: format!("http://{}", listener.local_addr().unwrap()),
            state: Arc::default(),
        };
        let (served, otherwise): (_, Arc<Otherwise>) = (site.clone(), Arc::new(otherwise));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (site, otherwise) = (served.clone(), otherwise.clone());
                std::thread::spawn(move || site.serve(stream, &*otherwise));
            }
        });
        site
    }

    /// Requests for a path.
    pub(super) fn asked(&self, path: &str) -> Vec<Asked> {
        let state = self.state.lock().unwrap();
        state
            .asked
            .iter()
            .filter(|asked| asked.path == path)
            .cloned()
            .collect()
    }

    fn serve(&self, stream: TcpStream, otherwise: &Otherwise) -> Option<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let asked = read(&mut stream)?;
            self.state.lock().unwrap().asked.push(asked.clone());
            let answer = otherwise(&asked, &self.origin).unwrap_or_else(|| self.answer(&asked));
            let (status, headers, body) = answer;
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n",
                body.len()
            );
            stream
                .get_mut()
                .write_all(format!("{head}{body}").as_bytes())
                .ok()?;
        }
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let origin = &self.origin;
        match asked.path.as_str() {
            "/mcp" => self.tools(asked),
            "/.well-known/oauth-protected-resource/mcp" => ok(&resource(origin)),
            "/.well-known/oauth-authorization-server" => ok(&metadata(origin)),
            "/register" => json_answer(201, &json!({ "client_id": "client 1" })),
            "/token" => self.token(asked),
            // An answer of success has no body (RFC 7009, section 2.2).
            "/revoke" => (200, String::new(), String::new()),
            _ => (404, String::new(), String::new()),
        }
    }

    /// The MCP server: it takes the newest token only, and its tool says which one it got.
    fn tools(&self, asked: &Asked) -> Answer {
        let (newest, is_ended) = {
            let state = self.state.lock().unwrap();
            (state.issued, state.is_ended)
        };
        let expected = format!("Bearer {}", access(newest));
        if newest == 0 || is_ended || asked.token.as_deref() != Some(&expected) {
            let challenge = format!(
                "www-authenticate: Bearer scope=\"read\", resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"\r\n",
                self.origin
            );
            return (401, challenge, String::new());
        }
        tools(asked)
    }

    fn token(&self, asked: &Asked) -> Answer {
        let form = asked.form();
        let mut state = self.state.lock().unwrap();
        let verifier = form.get("code_verifier").map(String::as_str).unwrap_or_default();
        let is_granted = match form["grant_type"].as_str() {
            "authorization_code" => {
                let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
                form["code"] == "code-1" && challenge == state.challenge
            }
            _ => form["refresh_token"] == format!("refresh-token-{}", state.issued),
        };
        if !is_granted
            || form["resource"] != format!("{}/mcp", self.origin)
            || form["client_id"] != "client 1"
        {
            return json_answer(400, &json!({ "error": "invalid_grant" }));
        }
        state.issued += 1;
        state.is_ended = false;
        ok(&json!({
            "access_token": access(state.issued), "token_type": "Bearer", "expires_in": 3600,
            "refresh_token": format!("refresh-token-{}", state.issued),
        }))
    }

    /// Ends the newest access token: only a refresh gives another one.
    pub(super) fn end_token(&self) {
        self.state.lock().unwrap().is_ended = true;
    }
}

/// Answers of an MCP server of version 2026-07-28 whose tool says which token it got.
pub(super) fn tools(asked: &Asked) -> Answer {
    let message = asked.message();
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} })
        }
        "tools/list" => json!({ "tools": [{ "name": "who", "inputSchema": { "type": "object" } }] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": format!("it is {:?}", asked.token) }] })
        }
        _ => return (405, String::new(), String::new()),
    };
    ok(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let path = words.nth(1)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Asked {
        path,
        token: headers.get("authorization").cloned(),
        body: String::from_utf8(body).unwrap(),
    })
}
