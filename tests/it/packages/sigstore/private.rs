//! A private Sigstore: a certificate authority, a certificate log and a transparency log, which live in one test.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType,
    SerialNumber, SigningKey as _, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Media type of a bundle.
pub(in crate::packages) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Type of the statement that cosign signs for an artefact of a registry.
pub(in crate::packages) const COSIGN: &str = "https://sigstore.dev/cosign/sign/v1";

/// Start of every certificate: 2025-01-10. It is valid for ten minutes.
const START: i64 = 1_736_467_200;

/// OpenID Connect issuer of a certificate (extensions of Fulcio), in the old form and in the present one.
const OLD_ISSUER_OID: [u64; 9] = [1, 3, 6, 1, 4, 1, 57264, 1, 1];
const ISSUER_OID: [u64; 9] = [1, 3, 6, 1, 4, 1, 57264, 1, 8];

/// List of signed certificate timestamps (RFC 6962).
const SCT_OID: [u64; 10] = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

pub(in crate::packages) struct Sigstore {
    authority: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
    log: KeyPair,
    certificate_log: KeyPair,
}

/// A signer, and what is special about the signature.
#[derive(Clone)]
pub(in crate::packages) struct Signer {
    pub(in crate::packages) name: SanType,
    pub(in crate::packages) issuer: String,
    /// Time of the entry in the log, in seconds after the start of the certificate.
    pub(in crate::packages) time: i64,
    /// Type of the statement; without one the bytes are signed.
    pub(in crate::packages) statement: Option<String>,
    /// Number of entries in the log: one or two.
    pub(in crate::packages) tree_size: u64,
    pub(in crate::packages) has_sct: bool,
    pub(in crate::packages) usage: ExtendedKeyUsagePurpose,
    pub(in crate::packages) key_usages: Vec<KeyUsagePurpose>,
    /// Issuer in the old form of the extension.
    pub(in crate::packages) old_issuer: Option<String>,
    /// Changes the statement before it is signed.
    pub(in crate::packages) rewrite: fn(String) -> String,
    /// Type of the statement's envelope.
    pub(in crate::packages) media: String,
    /// Number of signatures of the statement, all equal.
    pub(in crate::packages) signatures: usize,
}

impl Signer {
    pub(in crate::packages) fn mail(address: &str) -> Self {
        Self {
            name: SanType::Rfc822Name(address.try_into().unwrap()),
            issuer: "https://accounts.example.com".into(),
            time: 60,
            statement: None,
            tree_size: 2,
            has_sct: true,
            usage: ExtendedKeyUsagePurpose::CodeSigning,
            key_usages: vec![KeyUsagePurpose::DigitalSignature],
            old_issuer: None,
            rewrite: |statement| statement,
            media: "application/vnd.in-toto+json".into(),
            signatures: 1,
        }
    }

    pub(in crate::packages) fn uri(uri: &str) -> Self {
        Self {
            name: SanType::URI(uri.try_into().unwrap()),
            ..Self::mail("x")
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn sha256(parts: &[&[u8]]) -> Vec<u8> {
    digest(&SHA256, &parts.concat()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A short DER value.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    match length {
        0..128 => [&[tag, length], content].concat(),
        _ => [&[tag, 0x81, length], content].concat(),
    }
}

/// The first value in a DER sequence.
fn first_of(sequence: &[u8]) -> &[u8] {
    let header = |value: &[u8]| match value[1] {
        short @ 0..128 => (2, usize::from(short)),
        long => {
            let bytes = &value[2..2 + usize::from(long & 0x7f)];
            let length = bytes
                .iter()
                .fold(0, |length, byte| (length << 8) | usize::from(*byte));
            (2 + bytes.len(), length)
        }
    };
    let content = &sequence[header(sequence).0..];
    let (start, length) = header(content);
    &content[..start + length]
}

fn pem(certificate: &[u8]) -> String {
    let text = base64(certificate);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

impl Sigstore {
    pub(in crate::packages) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "authority");
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2040, 1, 1));
        let key = key();
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        Self {
            authority: Issuer::new(params, key),
            certificate,
            log: self::key(),
            certificate_log: self::key(),
        }
    }

    /// Its trusted root, as users have it in a file.
    pub(in crate::packages) fn trusted_root(&self) -> Value {
        let log = |key: &KeyPair| {
            json!([{
                "baseUrl": "https://log.example",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": base64(&key.subject_public_key_info()),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": { "start": "2020-01-01T00:00:00Z" },
                },
                "logId": { "keyId": base64(&sha256(&[&key.subject_public_key_info()])) },
            }])
        };
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": log(&self.log),
            "certificateAuthorities": [{
                "subject": { "organization": "example", "commonName": "authority" },
                "uri": "https://authority.example",
                "certChain": { "certificates": [{ "rawBytes": base64(&self.certificate) }] },
                "validFor": { "start": "2020-01-01T00:00:00Z" },
            }],
            "ctlogs": log(&self.certificate_log),
        })
    }

    /// A certificate for ten minutes.
    fn certificate(&self, signer: &Signer, key: &KeyPair) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.serial_number = Some(SerialNumber::from(7));
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(2025, 1, 10);
        params.not_after = params.not_before + std::time::Duration::from_secs(600);
        params.subject_alt_names = vec![signer.name.clone()];
        params.key_usages = signer.key_usages.clone();
        params.extended_key_usages = vec![signer.usage.clone()];
        let old_issuer = signer.old_issuer.as_ref().unwrap_or(&signer.issuer);
        let issuer = der(0x0c, signer.issuer.as_bytes());
        params.custom_extensions = vec![
            CustomExtension::from_oid_content(&OLD_ISSUER_OID, old_issuer.clone().into_bytes()),
            CustomExtension::from_oid_content(&ISSUER_OID, issuer),
        ];
        let sign =
            |params: &CertificateParams| params.signed_by(key, &self.authority).unwrap().der().to_vec();
        if signer.has_sct {
            let list = self.timestamp(first_of(&sign(&params)));
            let extension = CustomExtension::from_oid_content(&SCT_OID, der(0x04, &list));
            params.custom_extensions.push(extension);
        }
        sign(&params)
    }

    /// The list with the timestamp of the certificate log for the signed part of a certificate.
    fn timestamp(&self, certificate: &[u8]) -> Vec<u8> {
        let time = (START as u64 * 1000).to_be_bytes();
        let length = u32::try_from(certificate.len()).unwrap().to_be_bytes();
        let authority = sha256(&[&self.authority.key().subject_public_key_info()]);
        let signed: &[&[u8]] = &[
            &[0, 0],
            &time,
            &[0, 1],
            &authority,
            &length[1..],
            certificate,
            &[0, 0],
        ];
        let signature = self.certificate_log.sign(&signed.concat()).unwrap();
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
        let log = sha256(&[&self.certificate_log.subject_public_key_info()]);
        let timestamp = [
            &[0][..],
            &log,
            &time,
            &[0, 0, 4, 3],
            &length(&signature),
            &signature,
        ]
        .concat();
        let list = [&length(&timestamp)[..], &timestamp].concat();
        [&length(&list)[..], &list].concat()
    }

    /// Signs bytes, as their signer would with cosign.
    pub(in crate::packages) fn sign(&self, bytes: &[u8], signer: &Signer) -> Value {
        let key = key();
        let certificate = self.certificate(signer, &key);
        let sign = |message: &[u8]| key.sign(message).unwrap();
        let hash = sha256(&[bytes]);
        let (content, signature, entry, kind) = match &signer.statement {
            None => {
                let signature = sign(bytes);
                let content = json!({
                    "messageDigest": { "algorithm": "SHA2_256", "digest": base64(&hash) },
                    "signature": base64(&signature),
                });
                let entry = json!({
                    "data": { "hash": { "algorithm": "sha256", "value": hex(&hash) } },
                    "signature": {
                        "content": base64(&signature),
                        "publicKey": { "content": base64(pem(&certificate).as_bytes()) },
                    },
                });
                (content, "messageSignature", entry, "hashedrekord")
            }
            Some(predicate) => {
                let statement = json!({
                    "_type": "https://in-toto.io/Statement/v1",
                    "subject": [{ "name": "", "digest": { "sha256": hex(&hash) } }],
                    "predicateType": predicate,
                    "predicate": {},
                });
                let (statement, media) = ((signer.rewrite)(statement.to_string()), &signer.media);
                let encoded = format!("DSSEv1 {} {media} {} {statement}", media.len(), statement.len());
                let signature = sign(encoded.as_bytes());
                let content = json!({
                    "payload": base64(statement.as_bytes()),
                    "payloadType": media,
                    "signatures": vec![json!({ "sig": base64(&signature) }); signer.signatures],
                });
                let hash =
                    |text: &str| json!({ "algorithm": "sha256", "value": hex(&sha256(&[text.as_bytes()])) });
                let entry = json!({
                    "envelopeHash": hash(&content.to_string()),
                    "payloadHash": hash(&statement),
                    "signatures": vec![json!({
                        "signature": base64(&signature),
                        "verifier": base64(pem(&certificate).as_bytes()),
                    }); signer.signatures],
                });
                (content, "dsseEnvelope", entry, "dsse")
            }
        };
        let body = json!({ "apiVersion": "0.0.1", "kind": kind, "spec": entry }).to_string();
        json!({
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": {
                "certificate": { "rawBytes": base64(&certificate) },
                "tlogEntries": [self.entry(&body, kind, signer)],
            },
            signature: content,
        })
    }

    /// An entry of the log: the last one.
    fn entry(&self, body: &str, kind: &str, signer: &Signer) -> Value {
        let (time, index) = (START + signer.time, signer.tree_size - 1);
        let body64 = base64(body.as_bytes());
        let log = sha256(&[&self.log.subject_public_key_info()]);
        let promised = format!(
            r#"{{"body":"{body64}","integratedTime":{time},"logID":"{}","logIndex":{index}}}"#,
            hex(&log)
        );
        let leaf = sha256(&[&[0], body.as_bytes()]);
        let other = sha256(&[&[0], b"another entry"]);
        let (root, hashes) = match signer.tree_size {
            1 => (leaf, Vec::new()),
            _ => (sha256(&[&[1], &other, &leaf]), vec![base64(&other)]),
        };
        let head = format!("log.example - 1\n{}\n{}\n", signer.tree_size, base64(&root));
        let signature = [&log[..4], &self.log.sign(head.as_bytes()).unwrap()].concat();
        json!({
            "logIndex": index.to_string(),
            "logId": { "keyId": base64(&log) },
            "kindVersion": { "kind": kind, "version": "0.0.1" },
            "integratedTime": time.to_string(),
            "inclusionPromise": {
                "signedEntryTimestamp": base64(&self.log.sign(promised.as_bytes()).unwrap()),
            },
            "inclusionProof": {
                "logIndex": index.to_string(),
                "rootHash": base64(&root),
                "treeSize": signer.tree_size.to_string(),
                "hashes": hashes,
                "checkpoint": { "envelope": format!("{head}\n— log.example {}\n", base64(&signature)) },
            },
            "canonicalizedBody": body64,
        })
    }
}
