//! `toolcell mcp serve --oauth-issuer`: our server takes the access tokens of an authorization server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::site::{Asked, Site, metadata, ok};
use super::{Login, NO_FLOW};
use crate::mcp::http::Host;
use crate::mcp_client::result;
use crate::support::cli_user::User;

/// Key of an authorization server.
struct Signer(Ed25519KeyPair);

impl Signer {
    fn new() -> Arc<Self> {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Arc::new(Self(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()))
    }

    /// A token until the year 2100.
    fn token(&self, issuer: &str, audience: &str, subject: &str) -> String {
        let part = |json: Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
        let header = part(json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": "a" }));
        let claims = part(json!({
            "iss": issuer, "aud": audience, "sub": subject, "exp": 4_102_444_800_u64, "scope": "tools"
        }));
        let signed = format!("{header}.{claims}");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// The authorization server.
    fn site(self: &Arc<Self>, audience: &str) -> Site {
        let (signer, audience) = (self.clone(), audience.to_owned());
        Site::start(move |asked: &Asked, origin| match asked.path.as_str() {
            "/.well-known/oauth-authorization-server" => {
                let mut metadata = metadata(origin);
                metadata["jwks_uri"] = format!("{origin}/jwks").into();
                Some(ok(&metadata))
            }
            "/jwks" => {
                let x = BASE64_URL_SAFE_NO_PAD.encode(signer.0.public_key());
                let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": x });
                Some(ok(&json!({ "keys": [key] })))
            }
            "/token" => {
                let resource = &asked.form()["resource"];
                assert_eq!(resource, &audience);
                let token = signer.token(origin, resource, "ada");
                Some(ok(
                    &json!({ "access_token": token, "token_type": "Bearer", "expires_in": 3600 }),
                ))
            }
            _ => None,
        })
    }
}

/// Address of this machine that nobody listens to.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Requests a document without a token, and returns the head and the body of the answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn access_token_is_checked_and_its_subject_is_the_client() {
    let (address, signer) = (free(), Signer::new());
    let resource = format!("http://{address}/mcp");
    let site = signer.site(&resource);
    let operator = User::new();
    operator.configure("[budget]\ncalls = 1\n");
    let flags = [
        "--tool",
        "text",
        "--oauth-issuer",
        &site.origin,
        "--oauth-resource",
        &resource,
        "--oauth-scope",
        "tools",
        "--oauth-subject",
        "ada",
        "--oauth-subject",
        "bob",
    ];
    let mut host = Host::start_at(&operator, &address, &flags);
    let count = |token: Option<&str>| host.call("text_count", json!({ "text": "one two" }), token);
    let token = |audience: &str, subject: &str| signer.token(&site.origin, audience, subject);

    let (head, _) = get(&address, "/mcp");
    let place = "/.well-known/oauth-protected-resource/mcp";
    let challenge =
        format!("www-authenticate: bearer resource_metadata=\"http://{address}{place}\", scope=\"tools\"");
    assert!(
        head.starts_with("http/1.1 401") && head.contains(&challenge),
        "{head}"
    );
    let (head, metadata) = get(&address, place);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(metadata["resource"], resource);
    assert_eq!(metadata["authorization_servers"], json!([site.origin]));

    let other = Signer::new().token(&site.origin, &resource, "ada");
    for (refused, status) in [
        (None, 401),
        (Some("opaque-token-of-nobody-1234567890"), 401),
        (Some(&*other), 401),
        (Some(&*token("http://127.0.0.1:1/mcp", "ada")), 401),
        (
            Some(&*signer.token("https://evil.example", &resource, "ada")),
            401,
        ),
        (Some(&*token(&resource, "eve\u{1b}[2J $(reboot)")), 403),
    ] {
        assert_eq!(count(refused).0, status, "{refused:?}");
    }
    let (ada, bob) = (token(&resource, "ada"), token(&resource, "bob"));
    let (status, counted) = count(Some(&ada));
    assert_eq!(status, 200);
    assert_eq!(counted["result"]["structuredContent"]["words"], 2, "{counted}");
    // The budget of one call is over for the one, and untouched for the other.
    let (_, over) = count(Some(&ada));
    assert_eq!(over["result"]["isError"], true, "{over}");
    let (_, counted) = count(Some(&bob));
    assert_eq!(counted["result"]["structuredContent"]["words"], 2, "{counted}");
    let told = host.wait_for("nobody has allowed its subject");
    assert!(told.contains(r"`--oauth-subject 'eve␛[2J $(reboot)'`"), "{told}");
    host.stop();
}

#[test]
fn login_of_our_client_is_accepted_by_our_server() {
    let (address, signer) = (free(), Signer::new());
    let resource = format!("http://{address}/mcp");
    let site = signer.site(&resource);
    let operator = User::new();
    let flags = [
        "--tool",
        "text",
        "--oauth-issuer",
        &site.origin,
        "--oauth-resource",
        &resource,
        "--oauth-subject",
        "ada",
    ];
    let host = Host::start_at(&operator, &address, &flags);
    let user = User::new();
    user.configure(&format!(
        "{NO_FLOW}[mcp.srv]\nurl = \"{resource}\"\n[mcp.srv.oauth]\nfile = \"tokens.json\"\n"
    ));
    user.run(&["mcp", "test", "srv"]).ended(3);
    Login::begin(&user, &site).accept(&site).ended(0);
    let script = json!({ "steps": [
        { "calls": [{ "name": "srv_text_count", "arguments": { "text": "one two three" } }] },
        { "text": "Done." },
    ] });
    user.file("script.json", script.to_string());
    let seen = user.run_script(&["--json", "--tool", "srv"]).ended(0);
    assert_eq!(result(&seen, "srv_text_count")["structured"]["words"], 3);
    host.stop();
}

#[test]
fn server_does_not_start_without_keys_or_subjects() {
    let signer = Signer::new();
    let site = signer.site("");
    let user = User::new();
    let run = |flags: &[&str]| {
        let all = ["mcp", "serve", "--http", "127.0.0.1:0"];
        user.run(&[&all[..], flags].concat())
    };
    let resource = "https://tools.example/mcp";
    let of = |issuer: &str| {
        run(&[
            "--oauth-issuer",
            issuer,
            "--oauth-resource",
            resource,
            "--oauth-subject",
            "ada",
        ])
    };
    let away = format!("http://{}", free());
    let slash = format!("{}/", site.origin);
    for (issuer, part) in [(&*away, "Connection refused"), (&*slash, "those of another one")] {
        let failed = of(issuer).ended(3).stderr;
        for part in ["the keys of the authorization server", part, "as `issuer`"] {
            assert!(failed.contains(part), "{part}: {failed}");
        }
    }
    let broken = Site::start(|asked, origin| match asked.path.as_str() {
        "/.well-known/oauth-authorization-server" => Some(ok(
            &json!({ "issuer": origin, "jwks_uri": format!("{origin}/jwks") }),
        )),
        "/jwks" => Some(ok(&json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] }))),
        _ => None,
    });
    let failed = of(&broken.origin).ended(3).stderr;
    assert!(
        failed.contains("has no key for RS256, ES256 or EdDSA"),
        "{failed}"
    );
    let inside = Site::start(|asked, origin| match asked.path.as_str() {
        "/.well-known/oauth-authorization-server" => Some(ok(
            &json!({ "issuer": origin, "jwks_uri": "http://169.254.169.254/jwks" }),
        )),
        _ => None,
    });
    let failed = of(&inside.origin).ended(3).stderr;
    assert!(failed.contains("it is not reached over `https`"), "{failed}");
    for flags in [
        &["--oauth-issuer", &site.origin, "--oauth-subject", "ada"][..],
        &["--oauth-issuer", &site.origin, "--oauth-resource", resource],
        &["--oauth-resource", resource],
        &["--oauth-subject", "ada"],
        &[
            "--oauth-issuer",
            "http://login.example",
            "--oauth-resource",
            resource,
            "--oauth-subject",
            "ada",
        ],
        &[
            "--oauth-issuer",
            &site.origin,
            "--oauth-resource",
            "tools",
            "--oauth-subject",
            "ada",
        ],
    ] {
        run(flags).ended(2);
    }
}
