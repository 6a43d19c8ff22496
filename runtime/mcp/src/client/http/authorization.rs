//! Access tokens of OAuth for a server over HTTP, and what the server says about those that it wants (RFC 6750, RFC 9728).
//!
//! A request is sent with the token that is held. One that the server refuses with status 401 was not carried out, so it is
//! sent once more if there is another token. Tokens are removed from everything that the server sends, before it is parsed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use toolcell_core::{BoxFuture, Redactor};

/// Maximum size of a `WWW-Authenticate` header that is read, in bytes: a URL and some scopes. A longer one counts as absent.
pub const MAX_CHALLENGE_BYTES: usize = 8 << 10;

/// Maximum number of tokens that are removed from what a server sends: the current one and those before it.
const MAX_HELD: usize = 4;

/// Requirements of a server in its refusal of a request. All values are words of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Address of its metadata (RFC 9728).
    pub resource_metadata: Option<String>,
    /// Scopes that it wants, separated by spaces.
    pub scope: Option<String>,
    /// Error code, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
}

/// Refusal of a request for want of an authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Requirements of the server.
    pub challenge: Challenge,
    /// Action for the user, if a login could help. Never shown to a model.
    pub hint: Option<String>,
}

/// Supplies the access tokens for a server over HTTP, and for no other.
pub trait TokenSource: fmt::Debug + Send + Sync {
    /// Returns the token for the next request; `None` as long as the server has not asked for one, or if there is none.
    fn current(&self) -> BoxFuture<'_, Option<String>>;

    /// Returns another token after the server refused `refused`, or a request without a token. `None` if the user has to
    /// log in.
    fn renewed<'a>(&'a self, refused: Option<&'a str>) -> BoxFuture<'a, Option<String>>;

    /// Notes the scopes that a token lacked, for the next login.
    fn lacks<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, ()>;

    /// Action for the user if there is no token that the server accepts.
    fn hint(&self) -> String;
}

/// Tokens for all connections to a server.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    pub(super) source: Arc<dyn TokenSource>,
    held: Arc<Mutex<Held>>,
}

/// Tokens that were sent, newest last.
#[derive(Default)]
struct Held {
    values: VecDeque<String>,
    redactor: Redactor,
}

impl Tokens {
    pub(super) fn new(source: Arc<dyn TokenSource>) -> Self {
        Self {
            source,
            held: Arc::default(),
        }
    }

    /// Returns the value of the header `authorization` for a token, which is removed from all answers from now on. `None` if it
    /// has characters that no header can have.
    pub(super) fn header(&self, token: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.values.iter().any(|held| held == token) {
            held.values.push_back(token.to_owned());
            if held.values.len() > MAX_HELD {
                held.values.pop_front();
            }
            let values = held.values.iter().map(|value| ("access token", value.as_str()));
            held.redactor = Redactor::new(values);
        }
        Some(value)
    }

    /// Removes the tokens that were sent from what the server sends.
    pub(super) fn redactor(&self) -> Redactor {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.redactor.clone()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.values.len())
    }
}

impl Challenge {
    /// Reads the challenge for bearer tokens; an empty one if there is none.
    pub(super) fn of(headers: &HeaderMap, redactor: &Redactor) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut found = values
            .filter_map(|value| value.to_str().ok())
            .filter(|value| value.len() <= MAX_CHALLENGE_BYTES)
            .filter_map(bearer);
        let mut challenge = found.next().unwrap_or_default();
        let Self {
            resource_metadata,
            scope,
            error,
        } = &mut challenge;
        for text in [resource_metadata, scope, error].into_iter().flatten() {
            redactor.string(text);
        }
        challenge
    }
}

/// Reads the parameters of the scheme `Bearer` in a header (RFC 9110, section 11.6.1). The first value of a name counts.
fn bearer(header: &str) -> Option<Challenge> {
    let mut challenge: Option<Challenge> = None;
    let mut rest = header.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let after = behind.trim_start_matches([' ', '\t']);
        let Some(value) = after.strip_prefix('=').filter(|_| !word.is_empty()) else {
            // A scheme; one of another kind ends the parameters of this one.
            if challenge.is_some() {
                break;
            }
            challenge = word.eq_ignore_ascii_case("bearer").then(Challenge::default);
            let next = behind.trim_start_matches([' ', '\t', ',']);
            if next.len() == rest.len() {
                break;
            }
            rest = next;
            continue;
        };
        let (value, next) = value_of(value.trim_start_matches([' ', '\t']))?;
        rest = next.trim_start_matches([' ', '\t', ',']);
        let Some(challenge) = &mut challenge else { continue };
        let place = match word.to_ascii_lowercase().as_str() {
            "resource_metadata" => &mut challenge.resource_metadata,
            "scope" => &mut challenge.scope,
            "error" => &mut challenge.error,
            _ => continue,
        };
        place.get_or_insert(value);
    }
    challenge
}

/// Reads a token or a quoted string. Returns it, and the rest; `None` if the string has no end.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Some((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Challenge {
        let mut headers = HeaderMap::new();
        headers.insert(WWW_AUTHENTICATE, header.parse().unwrap());
        Challenge::of(&headers, &Redactor::new([("t", "s3cret-token")]))
    }

    #[test]
    fn challenge_for_bearer_tokens_is_read() {
        let full = Challenge {
            resource_metadata: Some("https://a.example/x".into()),
            scope: Some("a b".into()),
            error: Some("insufficient_scope".into()),
        };
        for header in [
            "Bearer resource_metadata=\"https://a.example/x\", scope=\"a b\", error=\"insufficient_scope\"",
            "Basic realm=\"x\", bearer error=insufficient_scope,scope = \"a\\ b\" , resource_metadata=\"https://a.example/x\"",
            "Bearer scope=\"a b\", scope=\"c\", error=insufficient_scope, resource_metadata=\"https://a.example/x\", Basic realm=\"Bearer\", scope=\"d\"",
        ] {
            assert_eq!(read(header), full, "{header}");
        }
        for header in [
            "",
            ",",
            "=",
            "=,=",
            "Bearer",
            "Basic realm=\"x\"",
            "Bearer scope=\"never ends",
            "Bearer =x",
            "Negotiate abc==",
        ] {
            assert_eq!(read(header), Challenge::default(), "{header}");
        }
    }

    #[test]
    fn challenge_has_a_maximum_size_and_no_token() {
        let header = |size: usize| {
            let scope = "a".repeat(size - "Bearer scope=\"\"".len());
            format!("Bearer scope=\"{scope}\"")
        };
        assert!(read(&header(MAX_CHALLENGE_BYTES)).scope.is_some());
        assert!(read(&header(MAX_CHALLENGE_BYTES + 1)).scope.is_none());
        let scope = read("Bearer scope=\"x s3cret-token\"").scope.unwrap();
        assert!(!scope.contains("s3cret-token"), "{scope}");
    }
}
