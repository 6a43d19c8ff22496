//! Access tokens of an authorization server (OAuth 2.1): JWTs, which are checked with its keys, and the metadata with which a
//! client finds it (RFC 9728).
//!
//! The keys are read every hour, and for a token with an unknown key, at most twice a minute.

mod jwt;
mod keys;
#[cfg(test)]
mod tests;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::time::Instant;

use crate::listener::BoxFuture;
use jwt::Required;
pub use jwt::{InvalidToken, LEEWAY_SECONDS, MAX_ACCESS_TOKEN_BYTES, MAX_SUBJECT_BYTES};
pub use keys::{InvalidKeys, Keys, MAX_KEYS};

/// Time after which the keys are read again. A key that its server has withdrawn is accepted until then.
pub const KEYS_TIME: Duration = Duration::from_secs(60 * 60);

/// Time for which keys are used that cannot be read again.
pub const MAX_KEYS_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two attempts to read the keys.
pub const BETWEEN_READS: Duration = Duration::from_secs(30);

/// Reads the keys of an authorization server.
pub trait KeySource: Send + Sync {
    /// Reads the keys. `None` if they cannot be read.
    fn read(&self) -> BoxFuture<'_, Option<Keys>>;
}

/// A server that accepts access tokens.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its URL, as clients know it, which tokens must have as their audience.
    pub url: String,
    /// Identifier of the authorization server.
    pub issuer: String,
    /// Scopes that each token must have.
    pub scopes: Vec<String>,
}

/// Checks access tokens.
pub struct Verifier {
    required: Required,
    source: Box<dyn KeySource>,
    known: RwLock<Known>,
    /// Held while the keys are read; time of the last attempt.
    reading: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Known {
    keys: Arc<Keys>,
    since: Instant,
}

impl Known {
    fn now(keys: Keys) -> Self {
        Self {
            keys: Arc::new(keys),
            since: Instant::now(),
        }
    }
}

impl Verifier {
    /// Creates a verifier for a server, with the keys that the source has given at first.
    pub fn new(resource: Resource, keys: Keys, source: Box<dyn KeySource>) -> Self {
        Self {
            required: Required {
                issuer: resource.issuer,
                audience: resource.url,
                scopes: resource.scopes,
            },
            source,
            known: RwLock::new(Known::now(keys)),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Checks the token of an `Authorization` header. Returns its subject; `None` if the header has no token of this kind.
    ///
    /// # Errors
    /// [`InvalidToken`] with the reason.
    pub async fn subject(&self, header: &[u8]) -> Option<Result<String, InvalidToken>> {
        let (scheme, token) = header.split_at_checked(7)?;
        let token = std::str::from_utf8(token.trim_ascii()).ok()?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || !token.contains('.') {
            return None;
        }
        Some(self.check(token).await)
    }

    async fn check(&self, token: &str) -> Result<String, InvalidToken> {
        let check = |keys: &Keys| jwt::check(token, keys, &self.required, now());
        let known = self.known();
        let age = known.since.elapsed();
        let first = match age < MAX_KEYS_TIME {
            true => check(&known.keys),
            false => Err(InvalidToken::NoKeys),
        };
        if age < KEYS_TIME && first != Err(InvalidToken::UnknownKey) {
            return first;
        }
        match self.read(known.since).await {
            Some(keys) => check(&keys),
            None => first,
        }
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the keys, or returns those which another request has read since. `None` if there are no newer ones.
    async fn read(&self, since: Instant) -> Option<Arc<Keys>> {
        let mut last = self.reading.lock().await;
        let known = self.known();
        if known.since != since {
            return Some(known.keys);
        }
        if last.is_some_and(|last| last.elapsed() < BETWEEN_READS) {
            return None;
        }
        *last = Some(Instant::now());
        let known = Known::now(self.source.read().await?);
        let keys = known.keys.clone();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Some(keys)
    }

    /// The metadata of the server (RFC 9728), as JSON.
    pub fn metadata(&self) -> String {
        let mut metadata = json!({
            "resource": self.required.audience,
            "authorization_servers": [self.required.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolcell",
        });
        if !self.required.scopes.is_empty() {
            metadata["scopes_supported"] = self.required.scopes.clone().into();
        }
        metadata.to_string()
    }

    /// True if a path is one of the metadata: the well-known one, with the path of the server behind it or without.
    pub fn is_metadata(&self, path: &str) -> bool {
        path.strip_prefix(WELL_KNOWN)
            .is_some_and(|rest| rest.is_empty() || rest == self.parts().1)
    }

    /// Value of `WWW-Authenticate` for a request that is refused (RFC 6750, RFC 9728), with the code of the error.
    pub fn challenge(&self, error: Option<&str>) -> String {
        let (origin, path) = self.parts();
        let mut challenge = format!("Bearer resource_metadata=\"{origin}{WELL_KNOWN}{path}\"");
        if !self.required.scopes.is_empty() {
            challenge += &format!(", scope=\"{}\"", self.required.scopes.join(" "));
        }
        if let Some(error) = error {
            challenge += &format!(", error=\"{error}\"");
        }
        challenge
    }

    /// The URL of the server, divided into origin and path; the path of the root is empty.
    fn parts(&self) -> (&str, &str) {
        let url = &self.required.audience;
        let begin = url.find("://").map_or(0, |scheme| scheme + 3);
        let end = url[begin..].find('/').map_or(url.len(), |path| begin + path);
        let (origin, path) = url.split_at(end);
        (origin, path.trim_end_matches('/'))
    }
}

/// Well-known path of the metadata of a server.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
