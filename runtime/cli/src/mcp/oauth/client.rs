//! Identifier of this client at an authorization server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolcell_core::secret::SecretValue;

use super::fetch::Fetcher;
use super::metadata::AuthorizationServer;
use super::{MAX_TEXT_BYTES, Reason};
use crate::ui::terminal::{ShownUrl, text};

/// Way in which a client authenticates to the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthMethod {
    /// Not at all: the client is a public one.
    None,
    /// In the header `authorization`.
    ClientSecretBasic,
    /// In the form.
    ClientSecretPost,
}

/// This client, as one authorization server knows it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    /// Secret that the authorization server gave to it. One of the user is not kept here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    pub(super) method: AuthMethod,
}

/// Client that the user has registered.
#[derive(Clone, Default)]
pub(crate) struct OwnClient {
    pub(crate) id: Option<String>,
    pub(crate) secret: Option<String>,
}

/// Answer to a registration (RFC 7591).
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<AuthMethod>,
}

impl Client {
    /// Returns the client of the user, or registers one.
    pub(super) async fn find(
        fetcher: &Fetcher,
        server: &AuthorizationServer,
        own: &OwnClient,
        redirect: &str,
    ) -> Result<Self, Reason> {
        if let Some(id) = &own.id {
            let is_document = id.starts_with("https://");
            if !is_document || server.reads_client_documents {
                return Ok(Self {
                    id: id.clone(),
                    secret: None,
                    method: match own.secret {
                        Some(_) => with_secret(&server.auth_methods),
                        None => AuthMethod::None,
                    },
                });
            }
        }
        let Some(endpoint) = &server.registration_endpoint else {
            return Err(text!(
                "the authorization server {} does not register clients",
                ShownUrl(&server.issuer)
            ));
        };
        let wanted = match server.auth_methods.iter().any(|method| method == "none") {
            true => AuthMethod::None,
            false => with_secret(&server.auth_methods),
        };
        let body = json!({
            "client_name": "Toolcell",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": wanted,
            "application_type": "native",
        });
        let registered: Registered = fetcher.post_json(endpoint, &body).await?;
        Self::of(registered, wanted)
    }

    fn of(registered: Registered, wanted: AuthMethod) -> Result<Self, Reason> {
        let Registered {
            client_id,
            client_secret,
            token_endpoint_auth_method,
        } = registered;
        let is_valid = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        };
        if !is_valid(&client_id, MAX_TEXT_BYTES)
            || !client_secret
                .as_deref()
                .is_none_or(|secret| is_valid(secret, SecretValue::MAX_LEN))
        {
            return Err("the registration has an identifier or a secret that cannot be used".into());
        }
        let method = match (&client_secret, token_endpoint_auth_method) {
            (None, _) => AuthMethod::None,
            (Some(_), method) => method.unwrap_or(wanted),
        };
        Ok(Self {
            id: client_id,
            secret: client_secret,
            method,
        })
    }

    /// Adds the identifier to a form. Returns the header `authorization`, if the client authenticates by it.
    pub(super) fn authenticate<'a>(
        &'a self,
        own: &'a OwnClient,
        form: &mut Vec<(&'static str, &'a str)>,
    ) -> Option<String> {
        // A secret of the user is for the client of the user.
        let of_user = own
            .secret
            .as_deref()
            .filter(|_| own.id.as_ref() == Some(&self.id));
        let secret = of_user.or(self.secret.as_deref()).unwrap_or_default();
        if self.method == AuthMethod::ClientSecretBasic {
            let encoded =
                |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(&self.id), encoded(secret));
            return Some(format!("Basic {}", BASE64_STANDARD.encode(pair)));
        }
        form.push(("client_id", &self.id));
        if self.method == AuthMethod::ClientSecretPost {
            form.push(("client_secret", secret));
        }
        None
    }
}

/// The way for a client with a secret: by the header, unless only the form is accepted.
fn with_secret(methods: &[String]) -> AuthMethod {
    let has = |name| methods.iter().any(|method| method == name);
    match has("client_secret_post") && !has("client_secret_basic") {
        true => AuthMethod::ClientSecretPost,
        false => AuthMethod::ClientSecretBasic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_of_the_user_is_for_the_client_of_the_user() {
        let own = OwnClient {
            id: Some("mine".into()),
            secret: Some("s&cret".into()),
        };
        let client = |id: &str, method| Client {
            id: id.into(),
            secret: None,
            method,
        };
        let mine = client("mine", AuthMethod::ClientSecretBasic);
        let header = mine.authenticate(&own, &mut Vec::new()).unwrap();
        assert_eq!(
            header,
            format!("Basic {}", BASE64_STANDARD.encode("mine:s%26cret"))
        );
        for (id, secret) in [("mine", "s&cret"), ("other", "")] {
            let (client, mut form) = (client(id, AuthMethod::ClientSecretPost), Vec::new());
            assert_eq!(client.authenticate(&own, &mut form), None);
            assert_eq!(form, [("client_id", id), ("client_secret", secret)]);
        }
        let (public, mut form) = (client("mine", AuthMethod::None), Vec::new());
        assert_eq!(public.authenticate(&own, &mut form), None);
        assert_eq!(form, [("client_id", "mine")]);
    }
}
