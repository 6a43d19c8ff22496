//! Verification of one bundle by `sigstore-verify`, and what it leaves to its callers.

use anyhow::{Context as _, anyhow, bail, ensure};
use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_verify::types::{Bundle, KindVersion, SignatureContent, Statement};
use sigstore_verify::{
    CertificateError, Error, IdentityMatcher, SubjectAltName, VerificationPolicy, Verifier,
};

use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::KeyUsage;

use super::provider::with_message;
use crate::packages::publisher::Identity;

/// Maximum length of a reason of the crate, in characters: it can have text of the bundle.
const MAX_REASON: usize = 300;

/// Maximum number of log entries of a bundle, each of which is verified. Signers write one.
const MAX_LOG_ENTRIES: usize = 8;

/// Statements that say that a component is the signer's. Others say something about it, such as the result of a scan.
const PREDICATES: [&str; 2] = [
    "https://sigstore.dev/cosign/sign/v1",
    "https://slsa.dev/provenance/v1",
];

/// Types of statements of in-toto.
const STATEMENTS: [&str; 2] = [
    "https://in-toto.io/Statement/v0.1",
    "https://in-toto.io/Statement/v1",
];

/// Certificate authorities and logs that are trusted.
pub(super) struct Root {
    verifier: Verifier,
    has_certificate_logs: bool,
}

impl Root {
    /// Parses a trusted root, or takes that of the public Sigstore.
    ///
    /// # Errors
    /// Returns an error if it is not valid, or nothing could be verified by it.
    pub(super) fn parse(json: Option<&str>) -> anyhow::Result<Self> {
        let root = TrustedRoot::from_json(json.unwrap_or(SIGSTORE_PRODUCTION_TRUSTED_ROOT));
        let parsed = root.map_err(|error| shown(&error)).and_then(|root| {
            ensure!(
                !root.certificate_authorities.is_empty() && !root.tlogs.is_empty(),
                "it has no certificate authority or no transparency log"
            );
            let verifier = with_message(&[], || Verifier::new(&root));
            Ok(Self {
                verifier: verifier.map_err(|error| shown(&error))?,
                has_certificate_logs: !root.ctlogs.is_empty(),
            })
        });
        parsed.context("the trusted root is not as expected")
    }

    /// Verifies that a bundle signs these bytes as the identity.
    ///
    /// # Errors
    /// Returns an error with the reason.
    pub(super) fn verify(&self, bundle: &[u8], signed: &[u8], identity: &Identity) -> anyhow::Result<()> {
        let bundle: Bundle = serde_json::from_slice(bundle)
            .map_err(|error| shown(&error))
            .context("its bundle is not as expected")?;
        check_log_entries(&bundle)?;
        check_statement(&bundle)?;
        check_key_usage(&bundle)?;
        let name = identity.identity().to_owned();
        let matcher = match identity.is_uri() {
            true => IdentityMatcher::Uri(name),
            false => IdentityMatcher::Email(name),
        };
        let mut policy = VerificationPolicy::new(matcher, identity.issuer());
        // Nobody could have signed the timestamp of a certificate for a root of the user's own that has no such log.
        if !self.has_certificate_logs {
            policy = policy.skip_sct();
        }
        match with_message(signed, || self.verifier.verify(signed, &bundle, &policy)) {
            Ok(_) => Ok(()),
            Err(error) => Err(reason(&error)),
        }
    }
}

/// Requires that each entry is proved to be in its log. Old forms of bundles can do without, and the size of the tree is in the
/// proof as well as in what the log has signed.
fn check_log_entries(bundle: &Bundle) -> anyhow::Result<()> {
    let entries = &bundle.verification_material.tlog_entries;
    ensure!(
        !entries.is_empty(),
        "its bundle has no entry of a transparency log"
    );
    ensure!(
        entries.len() <= MAX_LOG_ENTRIES,
        "its bundle has more than {MAX_LOG_ENTRIES} entries of transparency logs"
    );
    for entry in entries {
        let proof = entry.inclusion_proof.as_ref();
        let proof = proof.context("its bundle has no proof that it is in the transparency log")?;
        let checkpoint = proof.checkpoint.checkpoint();
        let checkpoint = checkpoint.context("its bundle has no checkpoint of the transparency log")?;
        // Entries of the second version of the log take the size from the checkpoint alone.
        let is_of_checkpoint = entry.kind_version == KindVersion::HashedRekordV002;
        ensure!(
            is_of_checkpoint || checkpoint.tree_size() == proof.tree_size,
            "the proof of its bundle is for another size of the transparency log than the checkpoint"
        );
    }
    Ok(())
}

/// Requires that a statement, if the bundle has one, says that the component is the signer's.
fn check_statement(bundle: &Bundle) -> anyhow::Result<()> {
    let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
        return Ok(());
    };
    let statement: Statement = serde_json::from_slice(envelope.payload.as_bytes())
        .map_err(|error| shown(&error))
        .context("the statement of its bundle is not as expected")?;
    ensure!(
        STATEMENTS.contains(&statement.type_.as_str()),
        "the statement of its bundle is of an unknown type: `{}`",
        cut(&statement.type_)
    );
    if !PREDICATES.contains(&statement.predicate_type.as_str()) {
        bail!(
            "its bundle is not a signature but a statement about it, of the type `{}`",
            cut(&statement.predicate_type)
        );
    }
    Ok(())
}

/// Requires that the key of the certificate is for signatures (RFC 5280, section 4.2.1.3), as every certificate for signers says.
fn check_key_usage(bundle: &Bundle) -> anyhow::Result<()> {
    let Some(certificate) = bundle.signing_certificate() else {
        // The crate refuses it.
        return Ok(());
    };
    let usage = Certificate::from_der(certificate.as_bytes())
        .and_then(|certificate| certificate.tbs_certificate.get::<KeyUsage>())
        .map_err(|error| shown(&error))
        .context("its bundle is not as expected")?;
    ensure!(
        usage.is_some_and(|(_, usage)| usage.digital_signature()),
        "the key in the certificate of its bundle is not for signatures"
    );
    Ok(())
}

/// Says what failed, in words of this program. Text of the bundle is quoted.
fn reason(error: &Error) -> anyhow::Error {
    let quoted = |text: &str| format!("`{}`", cut(text));
    let what = match error {
        Error::IdentityMismatch { expected, actual } => {
            let actual = match actual {
                Some(SubjectAltName::Email(address)) => format!("the e-mail address {}", quoted(address)),
                Some(other) => format!("the URI {}", quoted(other.as_str())),
                None => "a certificate without an e-mail address or URI".into(),
            };
            let expected = match expected {
                IdentityMatcher::Email(address) => format!("the e-mail address {}", quoted(address)),
                IdentityMatcher::Uri(uri) => format!("the URI {}", quoted(uri)),
                other => quoted(&other.to_string()),
            };
            return anyhow!("it is signed by {actual}, and its publisher is pinned to {expected}");
        }
        Error::IssuerMismatch { expected, actual } => {
            let actual = actual.as_deref().map_or("no issuer".into(), quoted);
            return anyhow!(
                "its signer is vouched for by {actual}, and its publisher is pinned to the issuer {}",
                quoted(expected)
            );
        }
        Error::SignatureInvalid(_) | Error::ArtifactMismatch(_) => "its bundle is not of this component",
        Error::Certificate(CertificateError::Sct(_)) => {
            "the certificate of its bundle is not in a certificate log of the trusted root"
        }
        Error::Certificate(_) => {
            "the certificate of its bundle is not of the trusted root, or was not valid when it was signed"
        }
        Error::TransparencyLog(_) => {
            "the entry of its bundle is not in a transparency log of the trusted root"
        }
        Error::Timestamp(_) => "its bundle has no trusted time of signing",
        _ => "its bundle is not as expected",
    };
    shown(error).context(what)
}

/// An error of the crate, without what a terminal would obey.
fn shown(error: &dyn std::error::Error) -> anyhow::Error {
    anyhow!("{}", cut(&error.to_string()))
}

fn cut(text: &str) -> String {
    let mut escaped: String = text.escape_debug().to_string();
    if let Some((end, _)) = escaped.char_indices().nth(MAX_REASON) {
        escaped.truncate(end);
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_root_is_part_of_the_binary() {
        assert!(Root::parse(None).unwrap().has_certificate_logs);
    }

    #[test]
    fn root_by_which_nothing_could_be_verified_is_refused() {
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"mediaType": "x"}"#,
            r#"{"mediaType": "x", "tlogs": 3}"#,
        ] {
            assert!(Root::parse(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reason_of_the_crate_is_short_and_inert() {
        let error = Error::InvalidBundle(format!("\u{1b}[2J\n{}", "x".repeat(1000)));
        let shown = format!("{:#}", reason(&error));
        assert!(shown.starts_with("its bundle is not as expected: "), "{shown}");
        assert!(shown.len() < 400 && !shown.contains(['\u{1b}', '\n']), "{shown}");
    }
}
