//! The cryptography of `sigstore-verify`, by ring: verification alone, as nothing is signed here.
//!
//! ring verifies messages and no digests of them, and bundles of files have their signature verified by the digest. So the
//! message is told to the provider for the time of a verification; one that does not have the digest is refused.

use std::cell::RefCell;

use ring::digest::{self, Context, SHA256, SHA384, SHA512};
use ring::signature::{self as algorithms, UnparsedPublicKey, VerificationAlgorithm};
use sigstore_verify::crypto::{
    CryptoProvider, Error, HashContext, Result, SigningScheme, install_default_provider,
};
use sigstore_verify::types::HashAlgorithm;

thread_local! {
    /// Message whose digests may be verified on this thread.
    static MESSAGE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Ring;

/// Runs a verification of signatures of a message.
pub(super) fn with_message<T>(message: &[u8], verify: impl FnOnce() -> T) -> T {
    /// Forgets the message, also if the verification panics.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            MESSAGE.set(None);
        }
    }
    // It is the only one of the process: a second call changes nothing.
    let _ = install_default_provider(&Ring);
    let _forget = Forget;
    MESSAGE.set(Some(message.to_vec()));
    verify()
}

/// A digest that is being computed.
struct Hashing(Context);

impl HashContext for Hashing {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        Ok(Box::new(Hashing(Context::new(hash(algorithm)?))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<()> {
        let key = UnparsedPublicKey::new(algorithm(scheme)?, key);
        let verified = key.verify(data, signature);
        verified.map_err(|_| Error::Verification(format!("the {} signature is not valid", scheme.name())))
    }

    fn verify_prehashed(
        &self,
        scheme: SigningScheme,
        key: &[u8],
        digest: &[u8],
        signature: &[u8],
    ) -> Result<()> {
        let unsupported = || Error::UnsupportedAlgorithm(format!("{} without the message", scheme.name()));
        let hash = hash(scheme.hash_algorithm().ok_or_else(unsupported)?)?;
        MESSAGE.with_borrow(|message| {
            let message = message.as_ref().ok_or_else(unsupported)?;
            if digest::digest(hash, message).as_ref() != digest {
                return Err(Error::Verification(
                    "the digest is that of another message".into(),
                ));
            }
            self.verify_raw(scheme, key, message, signature)
        })
    }
}

fn hash(algorithm: HashAlgorithm) -> Result<&'static digest::Algorithm> {
    match algorithm {
        HashAlgorithm::Sha2256 => Ok(&SHA256),
        HashAlgorithm::Sha2384 => Ok(&SHA384),
        HashAlgorithm::Sha2512 => Ok(&SHA512),
        other => Err(Error::UnsupportedAlgorithm(other.to_string())),
    }
}

fn algorithm(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &algorithms::ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &algorithms::ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &algorithms::ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &algorithms::ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &algorithms::ED25519,
        SigningScheme::RsaPssSha256 => &algorithms::RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &algorithms::RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &algorithms::RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &algorithms::RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &algorithms::RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &algorithms::RSA_PKCS1_2048_8192_SHA512,
        other => return Err(Error::UnsupportedAlgorithm(other.name().into())),
    })
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn digest_is_verified_only_of_the_message_that_was_told() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let signature = pair.sign(&random, b"message").unwrap();
        let verify = |digest: &[u8]| {
            let key = pair.public_key().as_ref();
            Ring.verify_prehashed(SigningScheme::EcdsaP256Sha256, key, digest, signature.as_ref())
                .is_ok()
        };
        let [digest, other] = [&b"message"[..], b"other"].map(|text| Ring.sha256(text));
        assert!(!verify(&digest));
        assert!(with_message(b"message", || verify(&digest) && !verify(&other)));
        assert!(with_message(b"other", || !verify(&digest) && !verify(&other)));
        assert!(!verify(&digest), "the message is forgotten");
    }

    #[test]
    fn schemes_and_digests_are_those_of_certificates() {
        for scheme in [
            SigningScheme::EcdsaP256Sha256,
            SigningScheme::EcdsaP384Sha384,
            SigningScheme::Ed25519,
            SigningScheme::RsaPssSha256,
            SigningScheme::RsaPkcs1Sha256,
        ] {
            assert!(algorithm(scheme).is_ok(), "{scheme:?}");
        }
        assert!(algorithm(SigningScheme::MlDsa44).is_err());
        assert_eq!(
            Ring.sha256(b"").len() + Ring.sha384(b"").len() + Ring.sha512(b"").len(),
            144
        );
    }
}
