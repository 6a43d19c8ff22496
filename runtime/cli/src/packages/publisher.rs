//! Publishers that a package is pinned to: a key, or an identity of Sigstore.

use std::fmt;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use toolcell_sandbox::Digest;

use super::evidence::Evidence;
use super::keys::{MAX_SIGNATURE_BYTES, PublicKey};
use super::{Refused, sigstore};
use crate::environment::Environment;

/// Maximum length of an identity and of an issuer, in bytes: that of a URL which every server accepts.
const MAX_NAME: usize = 2_000;

/// Signer that each component of a package must have. A key is stored as text, an identity as an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Publisher {
    /// A key of the publisher's own.
    Key(PublicKey),
    /// An identity that a certificate authority of Sigstore has checked.
    Identity(Identity),
}

/// Identity in the certificate of a signer: both parts exactly, never a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "IdentityText")]
pub(crate) struct Identity {
    /// Subject alternative name: an e-mail address or a URI.
    identity: String,
    /// OpenID Connect issuer that vouched for it.
    issuer: String,
    /// Digest of the trusted root; that of the public Sigstore, if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted_root: Option<Digest>,
}

/// An identity as it is stored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityText {
    identity: String,
    issuer: String,
    #[serde(default)]
    trusted_root: Option<Digest>,
}

impl TryFrom<IdentityText> for Identity {
    type Error = anyhow::Error;

    fn try_from(text: IdentityText) -> anyhow::Result<Self> {
        Self::new(text.identity, text.issuer, text.trusted_root)
    }
}

impl Publisher {
    /// End of the name of the file beside a component, and its maximum size in bytes.
    pub(crate) fn beside(&self) -> (&'static str, u64) {
        match self {
            Self::Key(_) => (super::SIGNATURE, MAX_SIGNATURE_BYTES),
            Self::Identity(_) => (sigstore::BUNDLE, sigstore::MAX_BUNDLE_BYTES),
        }
    }

    /// Checks what was found with a component.
    ///
    /// # Errors
    /// Returns an error if nothing of it is a signature of this component by this publisher.
    pub(crate) fn verify(&self, evidence: &Evidence, environment: &Environment) -> anyhow::Result<()> {
        match self {
            Self::Key(key) => {
                let signature = evidence.first().ok_or(Refused {
                    why: "it is not signed, and its publisher is pinned".into(),
                    hint: "ask its publisher for the signature; `toolcell tool push --key` and `toolcell key sign` make one",
                })??;
                let signature = std::str::from_utf8(signature).context("its signature is not as expected")?;
                key.verify(Digest::of(evidence.component()), signature)
            }
            Self::Identity(identity) => sigstore::verify(identity, evidence, environment),
        }
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{key}"),
            Self::Identity(identity) => write!(f, "{identity}"),
        }
    }
}

impl Identity {
    /// Creates an identity.
    ///
    /// # Errors
    /// Returns an error if a part cannot be one of a certificate.
    pub(crate) fn new(
        identity: String,
        issuer: String,
        trusted_root: Option<Digest>,
    ) -> anyhow::Result<Self> {
        for (what, text) in [("identity", &identity), ("issuer", &issuer)] {
            // Certificates have such text alone, and it can be printed as it is.
            ensure!(
                !text.is_empty()
                    && text.len() <= MAX_NAME
                    && text.bytes().all(|byte| byte.is_ascii_graphic()),
                "`{}` is not an {what}, which has up to {MAX_NAME} characters of ASCII without spaces",
                text.escape_debug()
            );
        }
        for text in [&identity, &issuer] {
            ensure!(
                !text.contains('*') && !text.starts_with('^') && !text.ends_with('$'),
                "`{text}` is a pattern; it is compared as a whole, with nothing left open"
            );
        }
        ensure!(
            is_uri(&identity) || is_address(&identity),
            "`{identity}` is neither an e-mail address nor a URI"
        );
        ensure!(
            is_uri(&issuer),
            "`{issuer}` is not the URL of an issuer, such as `https://accounts.google.com`"
        );
        Ok(Self {
            identity,
            issuer,
            trusted_root,
        })
    }

    /// The same identity by another trusted root.
    pub(crate) fn with_root(self, trusted_root: Digest) -> Self {
        Self {
            trusted_root: Some(trusted_root),
            ..self
        }
    }

    /// Digest of the trusted root, if it is not that of the public Sigstore.
    pub(crate) fn trusted_root(&self) -> Option<Digest> {
        self.trusted_root
    }
}

#[cfg_attr(
    not(feature = "sigstore"),
    allow(dead_code, reason = "certificates are compared with it")
)]
impl Identity {
    /// Subject alternative name of the certificate.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// True if it is a URI, and false if it is an e-mail address.
    pub(crate) fn is_uri(&self) -> bool {
        is_uri(&self.identity)
    }

    /// Issuer in the certificate.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (issuer {}", self.identity, self.issuer)?;
        match self.trusted_root {
            Some(digest) => write!(f, ", trusted root {digest})"),
            None => write!(f, ")"),
        }
    }
}

/// True for `local@domain`.
fn is_address(text: &str) -> bool {
    text.rsplit_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

/// True for `scheme://rest`.
fn is_uri(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://accounts.example.com";

    fn identity(identity: &str, issuer: &str) -> anyhow::Result<Identity> {
        Identity::new(identity.into(), issuer.into(), None)
    }

    #[test]
    fn identity_is_an_address_or_a_uri_and_no_pattern() {
        let workflow = "https://example.com/me/tool/.ci/release.yml@refs/tags/v1";
        for (text, is_uri) in [
            ("me@example.com", false),
            (workflow, true),
            ("spiffe://a/b", true),
        ] {
            assert_eq!(identity(text, ISSUER).unwrap().is_uri(), is_uri, "{text}");
        }
        for wrong in [
            "",
            "*",
            ".*",
            "me",
            "@",
            "me@",
            "a b@example.com",
            "me@example.com\n",
            ".*@example.com",
            "^me@example.com",
            "me@example.com$",
            "https://example.com/*",
            "é@example.com",
            "://",
            "://x",
            "a://",
            "a-b://x",
            "@example.com",
        ] {
            assert!(identity(wrong, ISSUER).is_err(), "{wrong}");
        }
        for wrong in [
            "",
            "*",
            "https://*.example.com",
            "accounts.example.com",
            "https://a b",
            "https://\u{202e}",
        ] {
            assert!(identity("me@example.com", wrong).is_err(), "{wrong}");
        }
        let long = |length: usize| identity(&format!("a://{}", "x".repeat(length - 4)), ISSUER).is_ok();
        assert!(long(MAX_NAME) && !long(MAX_NAME + 1));
    }

    #[test]
    fn publisher_is_stored_as_text_or_as_an_object() {
        let key = r#""ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=""#;
        let root = Digest::of(b"root");
        let object =
            format!(r#"{{"identity":"me@example.com","issuer":"{ISSUER}","trusted_root":"{root}"}}"#);
        for text in [key, &object] {
            let publisher: Publisher = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&publisher).unwrap(), text);
        }
        for wrong in [
            r#""ed25519:AAAA""#,
            r#"{"identity":"me@example.com"}"#,
            r#"{"identity":"*","issuer":"https://a.example"}"#,
            // A condition of a later version is not ignored.
            r#"{"identity":"me@example.com","issuer":"https://a.example","workflow":"x"}"#,
        ] {
            assert!(serde_json::from_str::<Publisher>(wrong).is_err(), "{wrong}");
        }
    }
}
