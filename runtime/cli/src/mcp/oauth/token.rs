//! Requests to the token endpoint (RFC 6749) and to the revocation endpoint (RFC 7009), and the login that they begin and end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use toolcell_core::Secrets;
use url::Url;

use super::client::{Client, OwnClient};
use super::fetch::{Fetcher, PostError};
use super::{MAX_TEXT_BYTES, Reason};
use crate::ui::terminal::text;

/// Time before its end from which an access token is not used any more: clocks differ, and requests take time.
const MARGIN: Duration = Duration::from_secs(30);

/// Code of the answer to a token of a kind that is not revoked (RFC 7009, section 2.2.1).
const UNSUPPORTED: &str = "unsupported_token_type";

/// Tokens for one server, from one authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Tokens {
    /// Address of the server in the configuration. For another one the tokens do not count.
    pub(super) server: String,
    /// Identifier of the server, for which they were requested (RFC 8707).
    pub(super) resource: String,
    /// Identifier of the authorization server.
    pub(super) issuer: String,
    pub(super) token_endpoint: String,
    /// Address at which tokens are revoked (RFC 7009), if the authorization server has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client: Client,
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// End of the access token, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    /// Granted scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    /// Scopes that a request lacked, for the next login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lacking: Option<String>,
}

/// Answer of a token endpoint.
#[derive(Deserialize)]
pub(super) struct Issued {
    access_token: String,
    token_type: String,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    scope: Option<String>,
}

/// Lifetime of a token: a number of seconds (RFC 6749, section 5.1), which some servers write as text or with a fraction. Anything
/// else is an unknown lifetime: the token is used until the server refuses it.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => Some(number),
        _ => None,
    };
    Ok(number.and_then(|number| {
        let time = number.as_f64().map(Duration::try_from_secs_f64);
        number.as_u64().or_else(|| Some(time?.ok()?.as_secs()))
    }))
}

/// Values of a checked answer.
pub(super) struct Granted {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) expires_at: Option<u64>,
    pub(super) scope: Option<String>,
}

impl Issued {
    /// Checks the answer: a bearer token that a header can have.
    pub(super) fn checked(self) -> Result<Granted, Reason> {
        if !self.token_type.eq_ignore_ascii_case("bearer") {
            return Err("the access token is of a kind that is not supported".into());
        }
        let tokens = std::iter::once(&self.access_token).chain(&self.refresh_token);
        for token in tokens {
            let is_valid = token.bytes().all(|byte| (0x21..0x7f).contains(&byte))
                && Secrets::default().insert("token", token.as_str()).is_ok();
            if !is_valid {
                return Err(
                    "a token is too short or too long, or has characters that no header can have".into(),
                );
            }
        }
        Ok(Granted {
            access_token: self.access_token,
            refresh_token: self.refresh_token,
            expires_at: self.expires_in.map(|seconds| now().saturating_add(seconds)),
            scope: self.scope.filter(|scope| scopes(scope).is_ok()),
        })
    }
}

impl Tokens {
    /// True if the access token has not ended yet.
    pub(super) fn is_current(&self) -> bool {
        self.expires_at
            .is_none_or(|end| now().saturating_add(MARGIN.as_secs()) < end)
    }

    /// Requests a new access token.
    ///
    /// # Errors
    /// `None` for the code if the request failed, so that it can be repeated.
    pub(super) async fn refresh(&self, fetcher: &Fetcher, own: &OwnClient) -> Result<Self, PostError> {
        let failed = |reason| PostError { reason, code: None };
        let Some(refresh_token) = &self.refresh_token else {
            return Err(failed("there is no refresh token".into()));
        };
        let endpoint: Url = fetcher.address(&self.token_endpoint).map_err(failed)?;
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("resource", self.resource.as_str()),
        ];
        let authorization = self.client.authenticate(own, &mut form);
        let issued: Issued = fetcher
            .post_form(&endpoint, &form, authorization.as_deref())
            .await?;
        let granted = issued.checked().map_err(failed)?;
        Ok(Self {
            access_token: granted.access_token,
            refresh_token: granted.refresh_token.or_else(|| self.refresh_token.clone()),
            expires_at: granted.expires_at,
            scope: granted.scope.or_else(|| self.scope.clone()),
            ..self.clone()
        })
    }
}

impl Tokens {
    /// True if the authorization server has an address at which tokens are revoked.
    pub(super) fn can_be_revoked(&self) -> bool {
        self.revocation_endpoint.is_some()
    }

    /// Revokes the tokens: the refresh token, then the access token.
    ///
    /// # Errors
    /// Fails if one of them still counts, as far as is known.
    pub(super) async fn revoke(&self, fetcher: &Fetcher, own: &OwnClient) -> Result<(), Reason> {
        let Some(endpoint) = &self.revocation_endpoint else {
            return Ok(());
        };
        let endpoint: Url = fetcher.address(endpoint)?;
        let refresh = self.refresh_token.iter().map(|token| (token, "refresh_token"));
        let all = refresh.chain(std::iter::once((&self.access_token, "access_token")));
        let mut is_revoked = false;
        for (token, hint) in all {
            let mut form = vec![("token", token.as_str()), ("token_type_hint", hint)];
            let authorization = self.client.authenticate(own, &mut form);
            let sent = fetcher
                .send_form(&endpoint, &form, authorization.as_deref())
                .await;
            match sent {
                Ok(_) => is_revoked = true,
                // Some access tokens cannot be revoked; without the refresh token, they soon end.
                Err(error) if is_revoked && error.code.as_deref() == Some(UNSUPPORTED) => {}
                Err(error) => return Err(error.reason),
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.issuer)
    }
}

/// Reads scopes, separated by spaces (RFC 6749, section 3.3).
pub(super) fn scopes(written: &str) -> Result<Vec<String>, Reason> {
    let is_valid = |scope: &str| {
        scope
            .bytes()
            .all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
    };
    let scopes: Vec<String> = written
        .split(' ')
        .filter(|scope| !scope.is_empty())
        .map(str::to_owned)
        .collect();
    match written.len() <= MAX_TEXT_BYTES && scopes.iter().all(|scope| is_valid(scope)) {
        true => Ok(scopes),
        false => Err(text!("the scopes `{}` cannot be requested", written)),
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(access_token: &str, token_type: &str) -> Issued {
        Issued {
            access_token: access_token.into(),
            token_type: token_type.into(),
            expires_in: Some(60),
            refresh_token: None,
            scope: None,
        }
    }

    #[test]
    fn token_is_a_bearer_token_that_a_header_can_have() {
        let most = toolcell_core::secret::SecretValue::MAX_LEN;
        for good in ["abcdef", "a.b-c_d~e+f/g=", &"a".repeat(most)] {
            assert!(issued(good, "bearer").checked().is_ok());
        }
        for bad in [
            "",
            "short",
            "two words",
            "new\nline",
            "é-token",
            &"a".repeat(most + 1),
        ] {
            assert!(issued(bad, "Bearer").checked().is_err(), "{bad}");
        }
        assert!(issued("abcdef", "DPoP").checked().is_err());
    }

    #[test]
    fn lifetime_is_read_as_servers_write_it() {
        for (written, read) in [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("3599.9", Some(3599)),
            ("0", Some(0)),
            ("-1", None),
            ("\"soon\"", None),
            ("null", None),
            ("[60]", None),
        ] {
            let answer =
                format!(r#"{{"access_token":"abcdef","token_type":"bearer","expires_in":{written}}}"#);
            let issued: Issued = serde_json::from_str(&answer).unwrap();
            assert_eq!(issued.expires_in, read, "{written}");
        }
    }

    #[test]
    fn scopes_have_valid_characters_and_a_size() {
        assert_eq!(scopes("a  b:c").unwrap(), ["a", "b:c"]);
        assert!(scopes("").unwrap().is_empty());
        assert!(scopes(&"a".repeat(MAX_TEXT_BYTES)).is_ok());
        for bad in ["a\"b", "a\\b", "a\nb", "é", &"a".repeat(MAX_TEXT_BYTES + 1)] {
            assert!(scopes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_near_its_end_is_not_used() {
        let mut tokens: Tokens = serde_json::from_value(serde_json::json!({
            "server": "s", "resource": "r", "issuer": "i", "token_endpoint": "t",
            "client": { "id": "c", "method": "none" }, "access_token": "abcdef",
        }))
        .unwrap();
        assert!(tokens.is_current());
        for (end, is_current) in [
            (0, false),
            (now(), false),
            (now() + 3_600, true),
            (u64::MAX, true),
        ] {
            tokens.expires_at = Some(end);
            assert_eq!(tokens.is_current(), is_current, "{end}");
        }
        assert!(!format!("{tokens:?}").contains("abcdef"));
    }
}
