use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::*;

const ISSUER: &str = "https://login.example";
const SERVER: &str = "https://tools.example/mcp";

/// Time of the tests, in seconds since 1970.
const NOW: f64 = 2_000_000_000.0;

/// Modulus of an RSA key with the exponent 65537, and a token that OpenSSL signed with it: until the year 2100, with the scope
/// `tools`.
const RSA: [&str; 2] = [
    "xdVDkzIJg5D1o5DF-a0DOiZm4-REqLRrzjwLP5c1EzOXdM-fDp8_wf7N5VBynfl-8GlS-Y9f6EDet7dHYlMwgkxC0z8Ze3cl9zPhpeHgAYVu5P\
     a_99AZabJDTBUy6X0zBbC7F1vX80qV6vN1EnVgUyeJMos22APlc87Ek-Mf7IbCtM3QqjatOg_RZGfHits9fVeYhkd5k3i59ca-URP9erbG1wS2\
     fNinTxRIjV8FWbodBA7GTqyNPh2SanOo67WphTpiTt4FQzdi7OfieCSN9g-qW91K7gmBSXrZ6JY4DHv5tnLH3NSgZuTi8ejVUHQsnjqvMjoT5s\
     PO0anKdXY_Mw",
    "eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJzdWIiOiJhZ\
     GEiLCJhdWQiOiJodHRwczovL3Rvb2xzLmV4YW1wbGUvbWNwIiwiZXhwIjo0MTAyNDQ0ODAwLCJzY29wZSI6InRvb2xzIn0.SfZdzc61UKYMn10\
     RrY0Xm4Ph4V5HePNKAR2zoBtnuCWsSSW3KaWTmctl7QvjTrQ5VqHTS-GhbDziMOKvfj6tDiOUbdoLoIdYUssUw__3LzNh29vXf5KcKiQWDJLMm\
     SK35nkLFYD8RXjiOlUxvbFWoUhG0JlzorZkcjyUpYSKiGzDH5Tbxc_u8mgJEqFX0VHz2ImCxacY2CWhljVSsUNilW9sTIQrBuXFWZn3MtnMOr2\
     18VSsoRtWAau27vLuP0CX4yzNLSB2SojoRqlvCtGDYNSKtNCClWWMo815_7o8h7DyJ8X1h2y65IsR-o79xzYskQpStjF9oQ9qGwTA8vgbYw",
];

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An authorization server with a key.
struct Issuer(Ed25519KeyPair);

impl Issuer {
    fn new() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn jwk(&self, id: &str) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64(self.0.public_key()) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64(header), base64(claims));
        let signature = base64(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

fn header() -> Value {
    json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": "a" })
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "ada", "aud": SERVER, "exp": NOW + 300.0, "scope": "tools read" })
}

fn keys(all: impl IntoIterator<Item = Value>) -> Keys {
    Keys::of(json!({ "keys": all.into_iter().collect::<Vec<_>>() })).unwrap()
}

fn required(scopes: &[&str]) -> Required {
    Required {
        issuer: ISSUER.into(),
        audience: SERVER.into(),
        scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
    }
}

/// Checks a token with changed parts.
fn checked(issuer: &Issuer, header: &Value, claims: &Value) -> Result<String, InvalidToken> {
    let token = issuer.sign(header, claims);
    jwt::check(&token, &keys([issuer.jwk("a")]), &required(&["tools"]), NOW)
}

/// Returns the JSON with a member changed; `null` removes it.
fn with(mut json: Value, name: &str, value: Value) -> Value {
    json[name] = value;
    let members = json.as_object_mut().unwrap();
    members.retain(|_, value| !value.is_null());
    json
}

#[test]
fn tokens_of_each_algorithm_are_accepted() {
    let issuer = Issuer::new();
    assert_eq!(checked(&issuer, &header(), &claims()), Ok("ada".into()));

    let [n, token] = RSA;
    let rsa =
        |n: &str| json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig", "n": n, "e": "AQAB" });
    let check = |token: &str, keys: &Keys| jwt::check(token, keys, &required(&["tools"]), NOW);
    assert_eq!(check(token, &keys([rsa(n)])), Ok("ada".into()));
    let mut zeros = vec![0; 2];
    zeros.extend(URL_SAFE_NO_PAD.decode(n).unwrap());
    assert_eq!(check(token, &keys([rsa(&base64(zeros))])), Ok("ada".into()));

    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
    let point = key.public_key().as_ref();
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": base64(&point[1..33]), "y": base64(&point[33..]) });
    let signed = format!(
        "{}.{}",
        base64(json!({ "alg": "ES256", "typ": "JWT" }).to_string()),
        base64(claims().to_string())
    );
    let signature = key.sign(&random, signed.as_bytes()).unwrap();
    let token = format!("{signed}.{}", base64(signature));
    assert_eq!(check(&token, &keys([jwk])), Ok("ada".into()));
}

#[test]
fn token_of_another_kind_is_refused() {
    let issuer = Issuer::new();
    for (name, value, expected) in [
        ("alg", json!("none"), InvalidToken::Kind),
        ("alg", json!("HS256"), InvalidToken::Kind),
        ("alg", json!("eddsa"), InvalidToken::Kind),
        ("alg", json!("RS256"), InvalidToken::UnknownKey),
        ("alg", Value::Null, InvalidToken::Malformed),
        ("typ", json!("dpop+jwt"), InvalidToken::Kind),
        ("typ", json!("id_token"), InvalidToken::Kind),
        ("typ", Value::Null, InvalidToken::Kind),
        ("crit", json!(["exp"]), InvalidToken::Kind),
        ("crit", json!([]), InvalidToken::Kind),
        ("kid", json!("b"), InvalidToken::UnknownKey),
        ("kid", json!(5), InvalidToken::Malformed),
    ] {
        let refused = checked(&issuer, &with(header(), name, value.clone()), &claims());
        assert_eq!(refused, Err(expected), "{name} {value}");
    }
    for (name, value) in [
        ("typ", json!("application/AT+JWT")),
        ("typ", json!("jwt")),
        ("kid", Value::Null),
    ] {
        let accepted = checked(&issuer, &with(header(), name, value.clone()), &claims());
        assert_eq!(accepted, Ok("ada".into()), "{name} {value}");
    }
}

#[test]
fn text_of_a_token_has_one_meaning() {
    let issuer = Issuer::new();
    let (header, claims) = (header().to_string(), claims().to_string());
    // A member before the others, which may have it as well.
    let with = |text: &str, member: &str| text.replacen('{', &format!("{{{member},"), 1);
    let check = |header: &str, claims: &str| {
        let token = issuer.sign_text(header, claims);
        jwt::check(&token, &keys([issuer.jwk("a")]), &required(&["tools"]), NOW)
    };
    assert_eq!(check(&header, &claims), Ok("ada".into()));
    for (member, expected) in [
        (r#""crit":null"#, InvalidToken::Kind),
        (r#""crit":false"#, InvalidToken::Kind),
        (r#""alg":"none""#, InvalidToken::Malformed),
        (r#""typ":"at+jwt""#, InvalidToken::Malformed),
        (r#""kid":"b""#, InvalidToken::Malformed),
        (r#""\u0061lg":"EdDSA""#, InvalidToken::Malformed),
    ] {
        assert_eq!(check(&with(&header, member), &claims), Err(expected), "{member}");
    }
    for member in [
        r#""sub":"eve""#,
        r#""aud":"https://other.example""#,
        r#""exp":1e308"#,
        r#""nbf":0,"nbf":0"#,
        r#""scope":"x""#,
        r#""\u0073ub":"eve""#,
        r#""nbf":1e999"#,
    ] {
        let refused = check(&header, &with(&claims, member));
        assert_eq!(refused, Err(InvalidToken::Claims), "{member}");
    }
}

#[test]
fn claims_of_another_server_time_or_scope_are_refused() {
    let issuer = Issuer::new();
    let leeway = f64::from(LEEWAY_SECONDS);
    let long = |size: usize| json!("s".repeat(size));
    for (name, value, expected) in [
        ("iss", json!("https://login.example/"), Some(InvalidToken::Issuer)),
        ("iss", Value::Null, Some(InvalidToken::Claims)),
        (
            "aud",
            json!("https://tools.example/"),
            Some(InvalidToken::Audience),
        ),
        ("aud", json!([]), Some(InvalidToken::Audience)),
        ("aud", json!(["https://other.example", SERVER]), None),
        ("aud", Value::Null, Some(InvalidToken::Claims)),
        ("exp", json!(NOW - leeway), Some(InvalidToken::Expired)),
        ("exp", json!(NOW - leeway + 1.0), None),
        ("exp", json!("tomorrow"), Some(InvalidToken::Claims)),
        ("exp", Value::Null, Some(InvalidToken::Claims)),
        ("nbf", json!(NOW + leeway), None),
        ("nbf", json!(NOW + leeway + 1.0), Some(InvalidToken::Early)),
        ("nbf", json!("now"), Some(InvalidToken::Claims)),
        ("scope", json!("tool read tools2"), Some(InvalidToken::Scope)),
        ("scope", Value::Null, Some(InvalidToken::Scope)),
        ("sub", json!(""), Some(InvalidToken::Claims)),
        ("sub", Value::Null, Some(InvalidToken::Claims)),
        ("sub", long(MAX_SUBJECT_BYTES), None),
        ("sub", long(MAX_SUBJECT_BYTES + 1), Some(InvalidToken::Claims)),
    ] {
        let token = checked(&issuer, &header(), &with(claims(), name, value.clone()));
        assert_eq!(token.err(), expected, "{name} {value}");
    }
}

#[test]
fn changed_token_is_refused() {
    let issuer = Issuer::new();
    let (known, required) = (keys([issuer.jwk("a")]), required(&[]));
    let check = |token: &str| jwt::check(token, &known, &required, NOW);
    let token = issuer.sign(&header(), &claims());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let other = Issuer::new().sign(&header(), &claims());
    let (_, foreign) = other.rsplit_once('.').unwrap();
    let ada = base64(with(claims(), "sub", json!("eve")).to_string());
    let (head, _) = signed.split_once('.').unwrap();
    for (changed, expected) in [
        (format!("{signed}.{foreign}"), InvalidToken::Signature),
        (format!("{head}.{ada}.{signature}"), InvalidToken::Signature),
        (format!("{signed}."), InvalidToken::Signature),
        (format!("{token}="), InvalidToken::Malformed),
        (format!("{token}."), InvalidToken::Malformed),
        (signed.to_owned(), InvalidToken::Malformed),
        (format!(".{signature}"), InvalidToken::Malformed),
        ("..".into(), InvalidToken::Malformed),
        (String::new(), InvalidToken::Malformed),
    ] {
        assert_eq!(check(&changed), Err(expected), "{changed}");
    }
    // The edge of the size, with a header that fills the token.
    let sized = |size: usize| {
        let fill = |length| issuer.sign(&with(header(), "x", json!("x".repeat(length))), &claims());
        // Four characters of a token are three bytes.
        let most = (size - fill(0).len()) / 4 * 3 + 8;
        (most - 16..most)
            .rev()
            .map(fill)
            .find(|token| token.len() == size)
    };
    let size = MAX_ACCESS_TOKEN_BYTES;
    let largest = sized(size).or_else(|| sized(size - 1)).unwrap();
    assert_eq!(check(&largest), Ok("ada".into()));
    let larger = sized(size + 1).or_else(|| sized(size + 2)).unwrap();
    assert_eq!(check(&larger), Err(InvalidToken::Malformed));
}

#[test]
fn key_is_found_only_if_it_is_the_one() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let check = |all: Vec<Value>, id: Value| {
        let token = issuer.sign(&with(header(), "kid", id), &claims());
        jwt::check(&token, &keys(all), &required(&[]), NOW)
    };
    let (a, b) = (issuer.jwk("a"), other.jwk("b"));
    assert_eq!(check(vec![b.clone(), a.clone()], json!("a")), Ok("ada".into()));
    let unknown = Err(InvalidToken::UnknownKey);
    // Without an identifier, or with the same one, there are two.
    assert_eq!(check(vec![a.clone(), b.clone()], Value::Null), unknown);
    assert_eq!(check(vec![a.clone(), other.jwk("a")], json!("a")), unknown);
    assert_eq!(
        check(vec![with(a.clone(), "use", json!("enc"))], json!("a")),
        unknown
    );
    assert_eq!(
        check(vec![with(a.clone(), "alg", json!("RS256"))], json!("a")),
        unknown
    );
    assert_eq!(
        check(vec![with(a.clone(), "alg", json!("Ed25519"))], json!("a")),
        Ok("ada".into())
    );
    assert_eq!(check(vec![with(a.clone(), "x", json!("%"))], json!("a")), unknown);
    assert_eq!(
        check(vec![with(a.clone(), "x", json!(base64([1; 31])))], json!("a")),
        Err(InvalidToken::Signature)
    );
    assert_eq!(
        check(
            vec![json!(5), json!({ "kty": "oct", "k": "c2VjcmV0" }), a.clone()],
            json!("a")
        ),
        Ok("ada".into())
    );

    let many = |before: usize| {
        let mut all: Vec<Value> = (0..before).map(|n| other.jwk(&n.to_string())).collect();
        all.push(a.clone());
        check(all, json!("a"))
    };
    assert_eq!(many(MAX_KEYS - 1), Ok("ada".into()));
    assert_eq!(many(MAX_KEYS), unknown);
    for wrong in [json!([]), json!({}), json!({ "keys": {} }), json!(null)] {
        assert!(Keys::of(wrong.clone()).is_err(), "{wrong}");
    }
    assert!(keys([json!({ "kty": "oct" })]).is_empty());
}

/// Gives sets of keys one after another, and counts.
#[derive(Default)]
struct Scripted {
    sets: Mutex<VecDeque<Option<Keys>>>,
    reads: Arc<AtomicUsize>,
}

impl KeySource for Scripted {
    fn read(&self) -> BoxFuture<'_, Option<Keys>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let next = self.sets.lock().unwrap().pop_front().flatten();
        Box::pin(async { next })
    }
}

fn verifier(first: Keys, sets: impl IntoIterator<Item = Option<Keys>>) -> (Verifier, Arc<AtomicUsize>) {
    let reads = Arc::default();
    let source = Scripted {
        sets: Mutex::new(sets.into_iter().collect()),
        reads: Arc::clone(&reads),
    };
    let resource = Resource {
        url: SERVER.into(),
        issuer: ISSUER.into(),
        scopes: vec!["tools".into()],
    };
    (Verifier::new(resource, first, Box::new(source)), reads)
}

/// A token of a key, valid until the year 2100.
fn bearer(issuer: &Issuer, id: &str) -> Vec<u8> {
    let claims = with(claims(), "exp", json!(4_102_444_800_u64));
    let token = issuer.sign(&with(header(), "kid", json!(id)), &claims);
    format!("Bearer {token}").into_bytes()
}

#[tokio::test(start_paused = true)]
async fn unknown_key_is_looked_up_at_most_twice_a_minute() {
    let (old, new) = (Issuer::new(), Issuer::new());
    let second = keys([old.jwk("old"), new.jwk("new")]);
    let (verifier, reads) = verifier(keys([old.jwk("old")]), [Some(second)]);
    let reads = || reads.load(Ordering::SeqCst);
    assert_eq!(
        verifier.subject(&bearer(&old, "old")).await,
        Some(Ok("ada".into()))
    );
    assert_eq!(reads(), 0);
    assert_eq!(
        verifier.subject(&bearer(&new, "new")).await,
        Some(Ok("ada".into()))
    );
    assert_eq!(reads(), 1);
    let unknown = Some(Err(InvalidToken::UnknownKey));
    for _ in 0..100 {
        assert_eq!(verifier.subject(&bearer(&new, "third")).await, unknown);
    }
    tokio::time::advance(BETWEEN_READS - Duration::from_millis(1)).await;
    assert_eq!(verifier.subject(&bearer(&new, "third")).await, unknown);
    assert_eq!(reads(), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    // The source fails now: what is known stays.
    assert_eq!(verifier.subject(&bearer(&new, "third")).await, unknown);
    assert_eq!(reads(), 2);
    assert_eq!(
        verifier.subject(&bearer(&new, "new")).await,
        Some(Ok("ada".into()))
    );
}

#[tokio::test(start_paused = true)]
async fn withdrawn_key_ends_with_the_time_of_the_keys() {
    let (old, new) = (Issuer::new(), Issuer::new());
    let (verifier, reads) = verifier(keys([old.jwk("a")]), [Some(keys([new.jwk("b")]))]);
    tokio::time::advance(KEYS_TIME - Duration::from_millis(1)).await;
    assert_eq!(verifier.subject(&bearer(&old, "a")).await, Some(Ok("ada".into())));
    assert_eq!(reads.load(Ordering::SeqCst), 0);
    tokio::time::advance(Duration::from_millis(1)).await;
    let withdrawn = verifier.subject(&bearer(&old, "a")).await;
    assert_eq!(withdrawn, Some(Err(InvalidToken::UnknownKey)));
    assert_eq!(verifier.subject(&bearer(&new, "b")).await, Some(Ok("ada".into())));
}

#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_read_again_hold_for_a_day() {
    let issuer = Issuer::new();
    let (verifier, reads) = verifier(keys([issuer.jwk("a")]), []);
    tokio::time::advance(MAX_KEYS_TIME - Duration::from_millis(1)).await;
    assert_eq!(
        verifier.subject(&bearer(&issuer, "a")).await,
        Some(Ok("ada".into()))
    );
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    let refused = verifier.subject(&bearer(&issuer, "a")).await;
    assert_eq!(refused, Some(Err(InvalidToken::NoKeys)));
}

#[tokio::test]
async fn header_and_metadata_are_those_of_the_specifications() {
    let issuer = Issuer::new();
    let (verifier, _) = verifier(keys([issuer.jwk("a")]), []);
    for none in [
        &b""[..],
        b"Bearer",
        b"Bearer ",
        b"Bearer opaque",
        b"Basic a.b.c",
        "Bear\u{e9}r a.b".as_bytes(),
    ] {
        assert_eq!(verifier.subject(none).await, None, "{none:?}");
    }
    let token = bearer(&issuer, "a");
    let lower = [b"bearer  ", &token[7..]].concat();
    assert_eq!(verifier.subject(&lower).await, Some(Ok("ada".into())));
    let metadata: Value = serde_json::from_str(&verifier.metadata()).unwrap();
    assert_eq!(metadata["resource"], SERVER);
    assert_eq!(metadata["authorization_servers"], json!([ISSUER]));
    assert_eq!(metadata["scopes_supported"], json!(["tools"]));
    let place = "/.well-known/oauth-protected-resource";
    for (path, is_one) in [
        (place.to_owned(), true),
        (format!("{place}/mcp"), true),
        (format!("{place}/mcp/"), false),
        (format!("{place}/other"), false),
        ("/mcp".into(), false),
    ] {
        assert_eq!(verifier.is_metadata(&path), is_one, "{path}");
    }
    let (origin, path) = ("https://t.x", "/mcp");
    let short = Verifier::new(
        Resource {
            url: format!("{origin}{path}"),
            issuer: ISSUER.into(),
            scopes: Vec::new(),
        },
        Keys::default(),
        Box::new(Scripted::default()),
    );
    assert_eq!(short.parts(), (origin, path));
    assert_eq!(
        verifier.challenge(Some("invalid_token")),
        format!(
            "Bearer resource_metadata=\"https://tools.example{place}/mcp\", scope=\"tools\", error=\"invalid_token\""
        )
    );
}

#[tokio::test]
async fn time_is_that_of_the_system() {
    let issuer = Issuer::new();
    let (verifier, _) = verifier(keys([issuer.jwk("a")]), []);
    let with_claim = |name: &str, seconds: u64| {
        let claims = with(
            with(claims(), "exp", json!(4_102_444_800_u64)),
            name,
            json!(seconds),
        );
        format!("Bearer {}", issuer.sign(&header(), &claims)).into_bytes()
    };
    // The years 2001 and 2099.
    let (past, future) = (1_000_000_000, 4_070_908_800);
    for (name, seconds, expected) in [
        ("exp", past, Err(InvalidToken::Expired)),
        ("exp", future, Ok("ada".into())),
        ("nbf", past, Ok("ada".into())),
        ("nbf", future, Err(InvalidToken::Early)),
    ] {
        let subject = verifier.subject(&with_claim(name, seconds)).await;
        assert_eq!(subject, Some(expected), "{name} {seconds}");
    }
}
