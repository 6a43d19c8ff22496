//! Metadata of a server (RFC 9728) and of its authorization server (RFC 8414, OpenID Connect Discovery).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::fetch::Fetcher;
use super::{MAX_TEXT_BYTES, Reason};
use crate::ui::terminal::{ShownUrl, Text, text};

/// Maximum number of entries of a list in a document that count.
const MAX_LIST: usize = 64;

/// Metadata of a protected resource.
#[derive(Debug, Deserialize)]
struct Document {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

/// The server, as its metadata describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// Identifier of the server, as it is written there. Tokens are requested for it.
    pub(super) id: String,
    /// Identifiers of its authorization servers.
    pub(super) issuers: Vec<String>,
    /// Scopes that it names.
    pub(super) scopes: Option<Vec<String>>,
}

/// Metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
struct ServerDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(default)]
    registration_endpoint: Option<String>,
    #[serde(default)]
    revocation_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// An authorization server.
#[derive(Debug, Clone)]
pub(super) struct AuthorizationServer {
    /// Its identifier.
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    pub(super) revocation_endpoint: Option<Url>,
    /// Ways in which a client authenticates to it.
    pub(super) auth_methods: Vec<String>,
    /// True if it reads the metadata of a client from the URL that identifies it.
    pub(super) reads_client_documents: bool,
    /// True if its answers have its identifier (RFC 9207).
    pub(super) answers_have_issuer: bool,
    /// True if it has the scope for refresh tokens.
    pub(super) has_offline_access: bool,
}

impl Resource {
    /// Reads the metadata of a server, from the address that it named, or from its well-known ones. `None` if it has none.
    pub(super) async fn find(
        fetcher: &Fetcher,
        server: &Url,
        named: Option<&str>,
    ) -> Result<Option<Self>, Reason> {
        let places = match named {
            Some(named) => vec![of_server(fetcher, server, named)?],
            None => places(server, "oauth-protected-resource"),
        };
        for place in places {
            let found: Option<Document> = fetcher.document(&place).await?;
            if let Some(document) = found {
                return Self::of(document, server).map(Some);
            }
        }
        Ok(None)
    }

    /// The server without metadata, with the authorization server that the user named.
    pub(super) fn named(server: &Url, issuer: &str) -> Self {
        Self {
            id: server.as_str().to_owned(),
            issuers: vec![issuer.to_owned()],
            scopes: None,
        }
    }

    fn of(document: Document, server: &Url) -> Result<Self, Reason> {
        let Document {
            resource,
            mut authorization_servers,
            scopes_supported,
        } = document;
        if !is_of(&resource, server) {
            return Err(text!(
                "its metadata describe another server: {}",
                ShownUrl(&resource)
            ));
        }
        authorization_servers.truncate(MAX_LIST);
        if authorization_servers.is_empty() {
            return Err("its metadata name no authorization server".into());
        }
        Ok(Self {
            id: resource,
            issuers: authorization_servers,
            scopes: scopes_supported,
        })
    }
}

/// Reads an address of a document that a server named: one of its own.
fn of_server(fetcher: &Fetcher, server: &Url, named: &str) -> Result<Url, Reason> {
    let url = fetcher.address(named)?;
    match url.origin() == server.origin() {
        true => Ok(url),
        false => Err(text!(
            "the address of its metadata, {}, is one of another server",
            ShownUrl(named)
        )),
    }
}

/// True if an identifier is that of the server, or of a path above it.
fn is_of(resource: &str, server: &Url) -> bool {
    if resource.len() > MAX_TEXT_BYTES {
        return false;
    }
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    let above = resource.path().trim_end_matches('/');
    resource.origin() == server.origin()
        && resource.fragment().is_none()
        && resource.query().is_none_or(|query| server.query() == Some(query))
        && server
            .path()
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Well-known addresses of a document: with the path behind the suffix, and without it.
fn places(url: &Url, suffix: &str) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.set_path(&path);
        url
    };
    let root = format!("/.well-known/{suffix}");
    match path {
        "" => vec![at(root)],
        path => vec![at(format!("{root}{path}")), at(root)],
    }
}

/// Reads the metadata that an authorization server publishes, which must have its identifier.
pub(super) async fn of_authorization_server<T: DeserializeOwned>(
    fetcher: &Fetcher,
    issuer: &str,
    identifier: impl Fn(&T) -> &str,
) -> Result<T, Reason> {
    let url = fetcher.address(issuer)?;
    if url.query().is_some() {
        return Err(text!(
            "the identifier {} of the authorization server has a query",
            ShownUrl(issuer)
        ));
    }
    let path = url.path().trim_end_matches('/');
    // Without a path that of the root is the only one of its kind.
    let first = |suffix| places(&url, suffix).into_iter().next();
    let mut all: Vec<Url> = first("oauth-authorization-server").into_iter().collect();
    all.extend(first("openid-configuration"));
    if !path.is_empty() {
        let mut appended = url.clone();
        appended.set_path(&format!("{path}/.well-known/openid-configuration"));
        all.push(appended);
    }
    for place in all {
        let Some(document) = fetcher.document(&place).await? else {
            continue;
        };
        let own = identifier(&document);
        if own != issuer {
            return Err(text!(
                "the metadata of the authorization server {} are those of another one: {}",
                ShownUrl(issuer),
                ShownUrl(own)
            ));
        }
        return Ok(document);
    }
    Err(text!(
        "the authorization server {} has no metadata",
        ShownUrl(issuer)
    ))
}

impl AuthorizationServer {
    /// Reads the metadata of the authorization server with this identifier.
    pub(super) async fn find(fetcher: &Fetcher, issuer: &str) -> Result<Self, Reason> {
        let document = of_authorization_server(fetcher, issuer, |document: &ServerDocument| &document.issuer);
        Self::of(fetcher, issuer, document.await?)
    }

    fn of(fetcher: &Fetcher, issuer: &str, document: ServerDocument) -> Result<Self, Reason> {
        let methods = document.code_challenge_methods_supported.unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err(text!(
                "the authorization server {} does not offer PKCE with S256, without which an answer could be stolen",
                ShownUrl(issuer)
            ));
        }
        let auth_methods = document
            .token_endpoint_auth_methods_supported
            .unwrap_or_else(|| vec!["client_secret_basic".to_owned()]);
        let scopes = document.scopes_supported.unwrap_or_default();
        let optional =
            |endpoint: Option<&String>| endpoint.map(|endpoint| fetcher.address(endpoint)).transpose();
        Ok(Self {
            authorization_endpoint: fetcher.address(&document.authorization_endpoint)?,
            token_endpoint: fetcher.address(&document.token_endpoint)?,
            registration_endpoint: optional(document.registration_endpoint.as_ref())?,
            revocation_endpoint: optional(document.revocation_endpoint.as_ref())?,
            auth_methods,
            reads_client_documents: document.client_id_metadata_document_supported,
            answers_have_issuer: document.authorization_response_iss_parameter_supported,
            has_offline_access: scopes.iter().any(|scope| scope == super::login::OFFLINE),
            issuer: document.issuer,
        })
    }
}

/// Chooses the authorization server: that of the user, or the first one that the server names.
pub(super) fn choose<'a>(resource: &'a Resource, wanted: Option<&'a str>) -> Result<&'a str, Reason> {
    let Some(wanted) = wanted else {
        return resource
            .issuers
            .first()
            .map(String::as_str)
            .ok_or_else(|| "its metadata name no authorization server".into());
    };
    match resource.issuers.iter().any(|issuer| issuer == wanted) {
        true => Ok(wanted),
        false => {
            let named = resource
                .issuers
                .iter()
                .map(|issuer| text!("{}", ShownUrl(issuer)));
            Err(text!(
                "`issuer` in its table is {}, and the server names another authorization server: {}",
                ShownUrl(wanted),
                Text::join(named, ", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn resource_is_the_server_or_a_path_above_it() {
        let server = url("https://mcp.example/a/mcp");
        for own in [
            "https://mcp.example/a/mcp",
            "https://mcp.example/a/",
            "https://mcp.example",
            "https://MCP.example:443/a",
        ] {
            assert!(is_of(own, &server), "{own}");
        }
        let long = url(&format!("https://mcp.example/{}", "x".repeat(MAX_TEXT_BYTES)));
        let above = |size: usize| long.as_str()[..size].to_owned();
        assert!(!is_of(
            &above(MAX_TEXT_BYTES + 1),
            &url(&above(MAX_TEXT_BYTES + 1))
        ));
        assert!(is_of(&above(MAX_TEXT_BYTES), &url(&above(MAX_TEXT_BYTES))));
        for other in [
            "https://mcp.example/a/mc",
            "https://mcp.example/a/mcp/more",
            "https://mcp.example:8443/a/mcp",
            "http://mcp.example/a/mcp",
            "https://evil.example/a/mcp",
            "https://mcp.example/a/mcp?x=1",
            "https://mcp.example/a/mcp#x",
            "mcp",
            "",
        ] {
            assert!(!is_of(other, &server), "{other}");
        }
    }

    #[test]
    fn well_known_addresses_have_the_path_behind_them() {
        let of = |text| {
            let places = places(&url(text), "x");
            places.iter().map(Url::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of("https://a.example"), ["https://a.example/.well-known/x"]);
        assert_eq!(
            of("https://a.example/mcp/?q=1"),
            [
                "https://a.example/.well-known/x/mcp",
                "https://a.example/.well-known/x"
            ]
        );
    }

    #[test]
    fn metadata_are_documents_of_the_server_itself() {
        let server = url("https://mcp.example/mcp");
        let fetcher = Fetcher::new(&server, None);
        assert!(of_server(&fetcher, &server, "https://mcp.example/any/where").is_ok());
        for other in [
            "https://evil.example/x",
            "https://mcp.example:8443/x",
            "http://mcp.example/x",
            "http://127.0.0.1/x",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
            "https://u:p@mcp.example/x",
        ] {
            assert!(of_server(&fetcher, &server, other).is_err(), "{other}");
        }
    }

    #[test]
    fn authorization_server_of_the_user_is_the_only_one() {
        let server = url("https://mcp.example/mcp");
        let mut resource = Resource::named(&server, "https://a.example");
        resource.issuers.push("https://b.example".into());
        assert_eq!(choose(&resource, None).unwrap(), "https://a.example");
        assert_eq!(
            choose(&resource, Some("https://b.example")).unwrap(),
            "https://b.example"
        );
        assert!(choose(&resource, Some("https://b.example/")).is_err());
    }
}
