//! One access token: a signed JWT (RFC 7519, RFC 9068).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::keys::{Algorithm, Keys};

/// Maximum size of a token, in bytes.
pub const MAX_ACCESS_TOKEN_BYTES: usize = 8 << 10;

/// Maximum size of the name of a subject, in bytes.
pub const MAX_SUBJECT_BYTES: usize = 256;

/// Seconds by which the clock of the authorization server may differ.
pub const LEEWAY_SECONDS: u32 = 60;

/// An access token that is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The text is no signed JWT, or is too long.
    #[error("it is not a signed JWT")]
    Malformed,
    /// Its header names another algorithm or type, or an extension.
    #[error("its type or algorithm is not accepted")]
    Kind,
    /// The authorization server has no such key.
    #[error("its key is not one of the authorization server")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("its signature is not valid")]
    Signature,
    /// A required claim is missing, or is of another type.
    #[error("it lacks a claim, or a claim is not valid")]
    Claims,
    /// Another authorization server issued it.
    #[error("another authorization server issued it")]
    Issuer,
    /// It was issued for another server.
    #[error("it is for another server")]
    Audience,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not begun.
    #[error("it is not valid yet")]
    Early,
    /// It lacks a required scope.
    #[error("it lacks a scope")]
    Scope,
    /// The keys of the authorization server could not be read.
    #[error("the keys of the authorization server cannot be read now")]
    NoKeys,
}

/// Properties that a token must have.
#[derive(Debug)]
pub(super) struct Required {
    pub(super) issuer: String,
    pub(super) audience: String,
    pub(super) scopes: Vec<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    /// True with extensions that must be understood, whatever their value. None are.
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    scope: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Checks a token. `now` is in seconds since 1970. Returns its subject.
pub(super) fn check(token: &str, keys: &Keys, required: &Required, now: f64) -> Result<String, InvalidToken> {
    let (signed, signature) = token.rsplit_once('.').ok_or(InvalidToken::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(InvalidToken::Malformed)?;
    if token.len() > MAX_ACCESS_TOKEN_BYTES || payload.contains('.') {
        return Err(InvalidToken::Malformed);
    }
    let header: Header = decode(header).ok_or(InvalidToken::Malformed)?;
    let algorithm = serde_json::from_value::<Algorithm>(header.alg.into()).map_err(|_| InvalidToken::Kind)?;
    if header.crit || !header.typ.as_deref().is_some_and(is_access_token) {
        return Err(InvalidToken::Kind);
    }
    let verifies = keys
        .find(algorithm, header.kid.as_deref())
        .ok_or(InvalidToken::UnknownKey)?;
    let signature = URL_SAFE_NO_PAD
        .decode(signature)
        .map_err(|_| InvalidToken::Malformed)?;
    if !verifies(signed.as_bytes(), &signature) {
        return Err(InvalidToken::Signature);
    }
    let claims: Claims = decode(payload).ok_or(InvalidToken::Claims)?;
    claims.check(required, now)?;
    Ok(claims.sub)
}

impl Claims {
    fn check(&self, required: &Required, now: f64) -> Result<(), InvalidToken> {
        let is_for = match &self.aud {
            Audience::One(audience) => *audience == required.audience,
            Audience::Several(all) => all.contains(&required.audience),
        };
        let has = |scope: &String| self.scope.split(' ').any(|own| own == scope);
        let leeway = f64::from(LEEWAY_SECONDS);
        if self.sub.is_empty() || self.sub.len() > MAX_SUBJECT_BYTES {
            Err(InvalidToken::Claims)
        } else if self.iss != required.issuer {
            Err(InvalidToken::Issuer)
        } else if !is_for {
            Err(InvalidToken::Audience)
        } else if now >= self.exp + leeway {
            Err(InvalidToken::Expired)
        } else if self.nbf.is_some_and(|begin| now < begin - leeway) {
            Err(InvalidToken::Early)
        } else if !required.scopes.iter().all(has) {
            Err(InvalidToken::Scope)
        } else {
            Ok(())
        }
    }
}

/// True for the type of access tokens, and for the one that most authorization servers write instead of it.
fn is_access_token(kind: &str) -> bool {
    ["at+jwt", "application/at+jwt", "jwt"]
        .iter()
        .any(|accepted| kind.eq_ignore_ascii_case(accepted))
}

/// Reads any value, also `null`.
fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(value).map(|_| true)
}

fn decode<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
