//! One login: the metadata, the browser, and the tokens.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use toolcell_mcp::client::Challenge;
use url::Url;

use super::Reason;
use super::callback::{Callback, Parameters};
use super::client::{Client, OwnClient};
use super::fetch::{Fetcher, told};
use super::metadata::{self, AuthorizationServer, Resource};
use super::token::{Issued, Tokens, scopes};
use crate::ui::terminal::{ShownUrl, text};

/// Time in which the user logs in. After it the port is closed.
pub(crate) const LOGIN_TIME: Duration = Duration::from_secs(600);

/// Scope for refresh tokens (OpenID Connect).
pub(super) const OFFLINE: &str = "offline_access";

/// Maximum number of scopes of a login.
const MAX_SCOPES: usize = 64;

/// Size of random values, in bytes.
const RANDOM_BYTES: usize = 32;

/// A login that waits for the user.
pub(crate) struct Login {
    fetcher: Fetcher,
    server: Url,
    resource: String,
    authorization: AuthorizationServer,
    client: Client,
    own: OwnClient,
    scopes: Vec<String>,
    verifier: String,
    callback: Callback,
    /// Address that the user opens.
    url: Url,
}

/// Reason for which no login begins.
pub(crate) enum NoLogin {
    /// The server has no metadata, so that it asks for none.
    NotAsked,
    /// The authorization server registers no client.
    NoClient(Reason),
    /// Metadata, or the authorization server, is invalid or unreachable.
    Failed(Reason),
}

impl From<Reason> for NoLogin {
    fn from(reason: Reason) -> Self {
        Self::Failed(reason)
    }
}

/// Wishes of the user, and of earlier answers of the server.
#[derive(Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) issuer: Option<&'a str>,
    /// Scopes instead of those that the server names.
    pub(crate) scopes: Option<&'a [String]>,
    pub(crate) client: OwnClient,
    /// Requirements of the server in its refusal.
    pub(crate) challenge: Challenge,
    /// Tokens of the last login.
    pub(crate) last: Option<&'a Tokens>,
}

impl Login {
    /// Reads the metadata, and waits for the answer of the browser on a port of this machine.
    ///
    /// # Errors
    /// The reason for which there is no login.
    pub(crate) async fn begin(server: &str, wishes: Wishes<'_>) -> Result<Self, NoLogin> {
        let server = Url::parse(server).map_err(|_| NoLogin::NotAsked)?;
        let issuer = wishes.issuer.and_then(|issuer| Url::parse(issuer).ok());
        let fetcher = Fetcher::new(&server, issuer.as_ref());
        let named = wishes.challenge.resource_metadata.as_deref();
        let resource = match (Resource::find(&fetcher, &server, named).await?, wishes.issuer) {
            (Some(resource), _) => resource,
            (None, Some(issuer)) => Resource::named(&server, issuer),
            (None, None) => return Err(NoLogin::NotAsked),
        };
        let issuer = metadata::choose(&resource, wishes.issuer)?;
        let authorization = AuthorizationServer::find(&fetcher, issuer).await?;
        let scopes = wanted(&wishes, &resource, &authorization)?;
        let (state, verifier) = (random()?, random()?);
        let callback = Callback::open(&state).await?;
        let client = Client::find(&fetcher, &authorization, &wishes.client, &callback.redirect)
            .await
            .map_err(NoLogin::NoClient)?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut url = authorization.authorization_endpoint.clone();
        check_query(&url)?;
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client.id)
                .append_pair("redirect_uri", &callback.redirect)
                .append_pair("state", &state)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256")
                .append_pair("resource", &resource.id);
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
            if scopes.iter().any(|scope| scope == OFFLINE) {
                query.append_pair("prompt", "consent");
            }
        }
        Ok(Self {
            fetcher,
            server,
            resource: resource.id,
            authorization,
            client,
            own: wishes.client,
            scopes,
            verifier,
            callback,
            url,
        })
    }

    /// Address that the user opens in a browser.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Origin of the page where the user logs in.
    pub(crate) fn page(&self) -> String {
        self.authorization
            .authorization_endpoint
            .origin()
            .ascii_serialization()
    }

    /// Identifier of the authorization server.
    pub(crate) fn issuer(&self) -> &str {
        &self.authorization.issuer
    }

    /// Scopes that are requested.
    pub(crate) fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// True if the user logs in at another host than that of the server.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.authorization.authorization_endpoint.host_str() != self.server.host_str()
    }

    /// Waits for the answer of the browser, and exchanges its code for tokens.
    ///
    /// # Errors
    /// The reason for which there are none.
    pub(crate) async fn finish(mut self, time: Duration) -> Result<Tokens, Reason> {
        let answered = tokio::time::timeout(time, self.callback.answered()).await;
        let Ok(Some(parameters)) = answered else {
            return Err(text!(
                "no answer of the browser came within {} seconds",
                time.as_secs()
            ));
        };
        let Self {
            fetcher,
            server,
            resource,
            authorization,
            client,
            own,
            scopes,
            verifier,
            callback,
            ..
        } = self;
        let redirect = callback.redirect.clone();
        callback.close().await;
        let code = code(&authorization, parameters)?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", verifier.as_str()),
            ("resource", resource.as_str()),
        ];
        let header = client.authenticate(&own, &mut form);
        let issued: Issued = fetcher
            .post_form(&authorization.token_endpoint, &form, header.as_deref())
            .await
            .map_err(|error| error.reason)?;
        let granted = issued.checked()?;
        // Without a list the scopes are those that were requested.
        let scope = granted
            .scope
            .or_else(|| (!scopes.is_empty()).then(|| scopes.join(" ")));
        Ok(Tokens {
            server: server.into(),
            resource,
            issuer: authorization.issuer,
            token_endpoint: authorization.token_endpoint.into(),
            revocation_endpoint: authorization.revocation_endpoint.map(Into::into),
            client,
            access_token: granted.access_token,
            refresh_token: granted.refresh_token,
            expires_at: granted.expires_at,
            scope,
            lacking: None,
        })
    }
}

/// Parameters of a request for a code (RFC 6749, 7636, 8707, 9101, and OAuth 2.0 Multiple Response Types).
const PARAMETERS: [&str; 13] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "prompt",
    "redirect_uri",
    "request",
    "request_uri",
    "resource",
    "response_mode",
    "response_type",
    "scope",
    "state",
];

/// Refuses an address that has parameters of the request already: of two, servers may take the wrong one.
fn check_query(endpoint: &Url) -> Result<(), Reason> {
    let mut names = endpoint.query_pairs().map(|(name, _)| name);
    match names.find(|name| PARAMETERS.contains(&&**name)) {
        None => Ok(()),
        Some(name) => Err(text!(
            "the address of the login page has the parameter `{}`, which belongs to the request",
            name.into_owned()
        )),
    }
}

/// The code of an answer, after its issuer was compared (RFC 9207).
fn code(authorization: &AuthorizationServer, mut parameters: Parameters) -> Result<String, Reason> {
    match parameters.get("iss") {
        Some(issuer) if *issuer != authorization.issuer => {
            return Err(text!(
                "the answer is one of another authorization server, {}, than {}",
                ShownUrl(issuer),
                ShownUrl(&authorization.issuer)
            ));
        }
        None if authorization.answers_have_issuer => {
            return Err("the answer does not say from which authorization server it is".into());
        }
        _ => {}
    }
    if let Some(error) = parameters.get("error") {
        let description = parameters.get("error_description").map(String::as_str);
        return Err(text!(
            "the authorization server refused with these words: {}",
            told(error, description)
        ));
    }
    parameters
        .remove("code")
        .filter(|code| !code.is_empty())
        .ok_or_else(|| "the answer has no code".into())
}

/// Scopes of a login: those of the user; or those that the server wants or names, those of the last login, and those that
/// a request lacked.
fn wanted(
    wishes: &Wishes<'_>,
    resource: &Resource,
    authorization: &AuthorizationServer,
) -> Result<Vec<String>, Reason> {
    if let Some(own) = wishes.scopes {
        return Ok(own.to_vec());
    }
    let mut all: Vec<String> = Vec::new();
    match (&wishes.challenge.scope, &resource.scopes) {
        (Some(wanted), _) => all.extend(scopes(wanted)?),
        (None, Some(named)) => all.extend(scopes(&named.join(" "))?),
        (None, None) => {}
    }
    if let Some(last) = wishes.last.filter(|last| last.issuer == authorization.issuer) {
        for more in [&last.scope, &last.lacking].into_iter().flatten() {
            all.extend(scopes(more)?);
        }
    }
    if authorization.has_offline_access {
        all.push(OFFLINE.to_owned());
    }
    let mut known = BTreeSet::new();
    all.retain(|scope| known.insert(scope.clone()));
    match all.len() <= MAX_SCOPES {
        true => Ok(all),
        false => Err(text!("the server wants more than {} scopes", MAX_SCOPES)),
    }
}

/// A random text for `state` and PKCE.
fn random() -> Result<String, Reason> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Reason::from("the system has no random numbers"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::oauth::client::AuthMethod;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn authorization() -> AuthorizationServer {
        AuthorizationServer {
            issuer: "https://a.example".into(),
            authorization_endpoint: url("https://a.example/authorize"),
            token_endpoint: url("https://a.example/token"),
            registration_endpoint: None,
            revocation_endpoint: None,
            auth_methods: Vec::new(),
            reads_client_documents: false,
            answers_have_issuer: false,
            has_offline_access: false,
        }
    }

    #[tokio::test]
    async fn login_ends_without_an_answer() {
        let server = url("https://mcp.example/mcp");
        let login = Login {
            fetcher: Fetcher::new(&server, None),
            server: server.clone(),
            resource: server.to_string(),
            authorization: authorization(),
            client: Client {
                id: "c".into(),
                secret: None,
                method: AuthMethod::None,
            },
            own: OwnClient::default(),
            scopes: Vec::new(),
            verifier: random().unwrap(),
            callback: Callback::open("state").await.unwrap(),
            url: server,
        };
        let redirect = url(&login.callback.redirect);
        let reason = login.finish(Duration::from_millis(20)).await.unwrap_err();
        assert!(reason.plain().contains("no answer of the browser came"));
        // The port is closed.
        let address = ("127.0.0.1", redirect.port().unwrap());
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn login_page_has_no_parameters_of_the_request() {
        for plain in [
            "https://a.example/authorize",
            "https://a.example/authorize?tenant=x&audience=y",
        ] {
            assert!(check_query(&url(plain)).is_ok(), "{plain}");
        }
        for name in PARAMETERS {
            let reason = check_query(&url(&format!("https://a.example/?a=b&{name}=x"))).unwrap_err();
            assert!(reason.plain().contains(name), "{}", reason.plain());
        }
    }

    #[test]
    fn scopes_of_a_login_are_limited_in_number() {
        let resource = Resource::named(&url("https://mcp.example/mcp"), "https://a.example");
        let of = |count: usize, authorization: &AuthorizationServer| {
            let scopes: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
            let wishes = Wishes {
                challenge: Challenge {
                    scope: Some(scopes.join(" ")),
                    ..Challenge::default()
                },
                ..Wishes::default()
            };
            wanted(&wishes, &resource, authorization).map(|scopes| scopes.len())
        };
        let mut authorization = authorization();
        assert_eq!(of(MAX_SCOPES, &authorization).unwrap(), MAX_SCOPES);
        assert!(of(MAX_SCOPES + 1, &authorization).is_err());
        authorization.has_offline_access = true;
        assert!(of(MAX_SCOPES, &authorization).is_err());
    }

    #[test]
    fn random_values_differ_and_fit_pkce() {
        let (first, second) = (random().unwrap(), random().unwrap());
        assert_ne!(first, second);
        // RFC 7636, section 4.1: 43 to 128 characters.
        assert_eq!(first.len(), 43);
    }
}
