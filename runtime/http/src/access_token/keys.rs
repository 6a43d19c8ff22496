//! Keys of an authorization server (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// Maximum number of keys of a document. Further ones do not count.
pub const MAX_KEYS: usize = 64;

/// Algorithm of a signature (RFC 7518, RFC 8037). Others, such as those with a shared secret or without a signature, are
/// accepted for no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Algorithm {
    #[serde(rename = "RS256")]
    Rsa,
    #[serde(rename = "ES256")]
    P256,
    #[serde(rename = "EdDSA", alias = "Ed25519")]
    Ed25519,
}

/// Keys with which an authorization server signs tokens.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    public: Public,
}

#[derive(Debug)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256([u8; 65]),
    Ed25519(Vec<u8>),
}

/// A document that is no set of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not a set of keys (RFC 7517)")]
pub struct InvalidKeys;

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Takes the keys of a document. Those of other kinds are passed over.
    ///
    /// # Errors
    /// [`InvalidKeys`] if the document is not a set of keys.
    pub fn of(document: serde_json::Value) -> Result<Self, InvalidKeys> {
        let document: Document = serde_json::from_value(document).map_err(|_| InvalidKeys)?;
        let keys = document.keys.into_iter().take(MAX_KEYS);
        let known = keys.filter_map(|key| Key::of(serde_json::from_value(key).ok()?));
        Ok(Self(known.collect()))
    }

    /// True if there is no key that can be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key with which a token was signed: the one with its identifier, or the only one of its kind.
    pub(super) fn find(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> Option<impl Fn(&[u8], &[u8]) -> bool> {
        let mut keys = (self.0.iter())
            .filter(|key| key.public.algorithm() == algorithm && (id.is_none() || key.id.as_deref() == id));
        let found = keys.next()?;
        keys.next()
            .is_none()
            .then_some(|message: &[u8], signature: &[u8]| found.public.verifies(message, signature))
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Public::Rsa {
                n: without_zeros(bytes(jwk.n)?),
                e: without_zeros(bytes(jwk.e)?),
            },
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(jwk.x)?, bytes(jwk.y)?);
                let mut point = [4; 65];
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                point[1..33].copy_from_slice(&x);
                point[33..].copy_from_slice(&y);
                Public::P256(point)
            }
            ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(jwk.x)?),
            _ => return None,
        };
        let named = jwk.alg.map(|name| serde_json::from_value(name.into()).ok());
        match named {
            Some(named) if named != Some(public.algorithm()) => None,
            _ => Some(Self { id: jwk.kid, public }),
        }
    }
}

impl Public {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rsa,
            Self::P256(_) => Algorithm::P256,
            Self::Ed25519(_) => Algorithm::Ed25519,
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }
}

/// Removes the zeros before a number, with which `ring` does not take it.
fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}
