//! Keys of publishers, and signatures of components (Ed25519, RFC 8032).
//!
//! A signature is detached, and covers the digest of a component under a prefix of its own, so that it says nothing else. The
//! key that a package was added with stays pinned: each later component of it needs a signature by the same key.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use crate::config::user_files::{read_list, write_list};
use crate::environment::Environment;
use crate::packages::publisher::Publisher;

/// The list of keys.
const LIST: &str = "keys.json";

/// Algorithm of keys and signatures, in front of each.
const ALGORITHM: &str = "ed25519:";

/// First line of what is signed.
const CONTEXT: &str = "toolcell package signature v1";

/// Maximum size of a signature, in bytes of its text.
pub(crate) const MAX_SIGNATURE_BYTES: u64 = 1 << 10;

/// Size of a public key and of a signature, in bytes.
const PUBLIC_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

/// The y-coordinates of the points of edwards25519 whose order is 4, 1, 8, 8 and 2, as in a key without the sign of x.
const SMALL_ORDER: [[u8; PUBLIC_BYTES]; 5] = [
    [0; PUBLIC_BYTES],
    ends(1, 0, 0),
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    ends(0xec, 0xff, 0x7f),
];

/// Bytes with these ends and equal ones between them.
const fn ends(first: u8, middle: u8, last: u8) -> [u8; PUBLIC_BYTES] {
    let mut bytes = [middle; PUBLIC_BYTES];
    bytes[0] = first;
    bytes[PUBLIC_BYTES - 1] = last;
    bytes
}

/// Maximum size of the file of a private key, in bytes.
const MAX_KEY_BYTES: u64 = 4 << 10;

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 64;

/// Public key of a publisher. Printed as `ed25519:` and base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PublicKey([u8; PUBLIC_BYTES]);

/// A key or an identity of the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedKey {
    pub(crate) name: String,
    #[serde(rename = "key")]
    pub(crate) publisher: Publisher,
}

/// The user's keys: public ones in a list, private ones in a file each. Locked for other processes until it is dropped.
pub(crate) struct KeyRing {
    directory: PathBuf,
    _lock: File,
}

impl PublicKey {
    /// Checks a signature of a component.
    ///
    /// # Errors
    /// Returns an error if it is not a signature of this component by this key.
    pub(crate) fn verify(&self, digest: Digest, signature: &str) -> anyhow::Result<()> {
        let signature =
            decode::<SIGNATURE_BYTES>(signature.trim()).context("its signature is not as expected")?;
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        let valid = key.verify(message(digest).as_bytes(), &signature);
        valid.map_err(|_| anyhow::anyhow!("its signature is not one of this component by the key {self}"))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let bytes = decode(text)?;
        ensure!(
            !is_weak(&bytes),
            "it is no key that a program makes: anyone can make signatures for it"
        );
        Ok(Self(bytes))
    }
}

/// True for a point of small order, for which one signature fits every component, and for a point that is not written in its canonical
/// form (RFC 8032, section 5.1.3): verification accepts both.
fn is_weak(key: &[u8; PUBLIC_BYTES]) -> bool {
    let mut y = *key;
    // The sign of x.
    y[PUBLIC_BYTES - 1] &= 0x7f;
    let [first, middle @ .., last] = y;
    let has_no_canonical_form = first >= 0xed && middle.iter().all(|byte| *byte == 0xff) && last == 0x7f;
    has_no_canonical_form || SMALL_ORDER.contains(&y)
}

impl TryFrom<String> for PublicKey {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// The text that is signed.
fn message(digest: Digest) -> String {
    format!("{CONTEXT}\n{digest}\n")
}

fn decode<const SIZE: usize>(text: &str) -> anyhow::Result<[u8; SIZE]> {
    let what = || format!("expected `{ALGORITHM}` and {SIZE} bytes in base64");
    let encoded = text.strip_prefix(ALGORITHM).with_context(what)?;
    let bytes = STANDARD.decode(encoded).with_context(what)?;
    bytes.try_into().ok().with_context(what)
}

impl KeyRing {
    /// Opens the ring of the user, and waits for other processes.
    ///
    /// # Errors
    /// Returns an error if there is no home directory or the ring cannot be used.
    pub(crate) fn open(environment: &Environment) -> anyhow::Result<Self> {
        let data = environment
            .data_dir
            .as_ref()
            .context("there is no home directory for keys")?;
        let directory = toolcell_fs::private_dir(&data.join("keys"))?;
        let lock = File::open(&directory)?;
        lock.lock()?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Returns the public keys and identities of the user as far as they can be read, for display. Needs no lock: the list is replaced
    /// as a whole.
    pub(crate) fn known(environment: &Environment) -> Vec<NamedKey> {
        let list = environment
            .data_dir
            .as_ref()
            .map(|data| data.join("keys").join(LIST));
        list.and_then(|list| read_list(&list).ok()).unwrap_or_default()
    }

    fn list(&self) -> PathBuf {
        self.directory.join(LIST)
    }

    fn private(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.private"))
    }

    /// Returns the public keys and identities by name.
    ///
    /// # Errors
    /// Returns an error if the list is damaged.
    pub(crate) fn keys(&self) -> anyhow::Result<Vec<NamedKey>> {
        read_list(&self.list())
            .with_context(|| format!("the keys in `{}` cannot be used", self.list().display()))
    }

    /// Returns a public key or an identity by its name.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub(crate) fn publisher(&self, name: &str) -> anyhow::Result<Publisher> {
        let found = self.keys()?.into_iter().find(|known| known.name == name);
        found.map(|known| known.publisher).with_context(|| {
            format!(
                "there is no key `{}`; `toolcell key add` adds one",
                name.escape_debug()
            )
        })
    }

    /// True if the private part of a key is here.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.private(name).exists()
    }

    /// Adds the public key or the identity of a publisher.
    ///
    /// # Errors
    /// Returns an error if the name is taken or not valid, or the ring cannot be written.
    pub(crate) fn add(&self, name: &str, publisher: Publisher) -> anyhow::Result<()> {
        check_name(name)?;
        let mut keys = self.keys()?;
        ensure!(
            keys.iter().all(|known| known.name != name),
            "there is a key `{name}`; remove it first: toolcell key remove {name}"
        );
        keys.push(NamedKey {
            name: name.to_owned(),
            publisher,
        });
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(write_list(&self.list(), &keys)?)
    }

    /// Creates a key, and returns its public part.
    ///
    /// The private part is written first: a public key that is listed and given to users always has one.
    ///
    /// # Errors
    /// As [`KeyRing::add`].
    pub(crate) fn generate(&self, name: &str) -> anyhow::Result<PublicKey> {
        check_name(name)?;
        ensure!(
            !self.is_own(name),
            "there is a private key `{name}`; remove it first: toolcell key remove {name}"
        );
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        let pair = pair(pkcs8.as_ref())?;
        let public = public(&pair)?;
        toolcell_fs::replace(&self.private(name), pkcs8.as_ref(), toolcell_fs::PRIVATE)?;
        if let Err(error) = self.add(name, Publisher::Key(public.clone())) {
            std::fs::remove_file(self.private(name))?;
            return Err(error);
        }
        Ok(public)
    }

    /// Removes a key, with its private part. One of the two is enough, as a process that was killed can leave it.
    ///
    /// # Errors
    /// Returns an error if there is none, or the ring cannot be written.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        check_name(name)?;
        let mut keys = self.keys()?;
        if self.is_own(name) {
            std::fs::remove_file(self.private(name))?;
        } else {
            self.publisher(name)?;
        }
        keys.retain(|known| known.name != name);
        Ok(write_list(&self.list(), &keys)?)
    }

    /// Signs a component with a private key.
    ///
    /// # Errors
    /// Returns an error if there is no private key of this name, or it cannot be used.
    pub(crate) fn sign(&self, name: &str, digest: Digest) -> anyhow::Result<String> {
        check_name(name)?;
        let path = self.private(name);
        let pkcs8 = match toolcell_fs::read(&path, &Rules::own(MAX_KEY_BYTES)) {
            Ok(pkcs8) => pkcs8,
            Err(error) if error.is_not_found() => {
                ensure!(
                    self.publisher(name).is_err(),
                    "the private part of `{name}` is not here; `toolcell key list` shows which keys are your own"
                );
                bail!("there is no private key `{name}`; `toolcell key generate {name}` creates one")
            }
            Err(error) => return Err(error.into()),
        };
        let pair =
            pair(&pkcs8).with_context(|| format!("the private key `{}` cannot be used", path.display()))?;
        let signature = pair.sign(message(digest).as_bytes());
        Ok(format!("{ALGORITHM}{}", STANDARD.encode(signature.as_ref())))
    }
}

fn pair(pkcs8: &[u8]) -> anyhow::Result<Ed25519KeyPair> {
    Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|error| anyhow::anyhow!("it is no key of Ed25519: {error}"))
}

fn public(pair: &Ed25519KeyPair) -> anyhow::Result<PublicKey> {
    let bytes = pair.public_key().as_ref().try_into();
    Ok(PublicKey(bytes.context("a public key has 32 bytes")?))
}

/// A name is that of a file as well.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_@.".contains(c);
    ensure!(
        !name.is_empty()
            && name.len() <= MAX_NAME
            && name.chars().all(is_part)
            && !name.starts_with(['.', '-']),
        "`{}` is not the name of a key, which has up to {MAX_NAME} letters, digits, `-`, `_`, `@` and `.`",
        name.escape_debug()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (tempfile::TempDir, KeyRing) {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        assert!(KeyRing::open(&environment).is_err());
        environment.data_dir = Some(dir.path().to_owned());
        let ring = KeyRing::open(&environment).unwrap();
        (dir, ring)
    }

    #[test]
    fn signature_is_of_one_component_by_one_key() {
        let (_dir, ring) = ring();
        let [mine, other] = ["mine", "other"].map(|name| ring.generate(name).unwrap());
        let [one, two] = ["one", "two"].map(|text| Digest::of(text.as_bytes()));
        let signature = ring.sign("mine", one).unwrap();
        mine.verify(one, &signature).unwrap();
        assert!(mine.verify(two, &signature).is_err());
        assert!(other.verify(one, &signature).is_err());
        let mut changed = signature.clone().into_bytes();
        let at = ALGORITHM.len() + 5;
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        assert!(mine.verify(one, std::str::from_utf8(&changed).unwrap()).is_err());
        for wrong in ["", "ed25519:", "rsa:AAAA", &signature[..signature.len() - 4]] {
            assert!(mine.verify(one, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn key_for_which_anyone_can_sign_is_refused() {
        let digest = Digest::of(b"any");
        let mut forged = [0; SIGNATURE_BYTES];
        forged[0] = 1;
        let forged = format!("{ALGORITHM}{}", STANDARD.encode(forged));
        let mut weak = SMALL_ORDER.to_vec();
        // Other spellings of 0, 1 and more.
        weak.extend((0xed..=0xff).map(|first| ends(first, 0xff, 0x7f)));
        for sign in [0, 0x80] {
            for key in &weak {
                let mut key = *key;
                key[PUBLIC_BYTES - 1] |= sign;
                let text = PublicKey(key).to_string();
                assert!(text.parse::<PublicKey>().is_err(), "{text}");
            }
        }
        // It fits indeed.
        PublicKey(ends(1, 0, 0)).verify(digest, &forged).unwrap();
        // The base point is a key.
        assert!(!is_weak(&ends(0x58, 0x66, 0x66)));
    }

    #[test]
    fn signature_has_a_prefix_of_its_own() {
        let (_dir, ring) = ring();
        let key = ring.generate("mine").unwrap();
        let digest = Digest::of(b"one");
        let pkcs8 = std::fs::read(ring.private("mine")).unwrap();
        let bare = pair(&pkcs8).unwrap().sign(digest.to_string().as_bytes());
        let bare = format!("{ALGORITHM}{}", STANDARD.encode(bare.as_ref()));
        assert!(key.verify(digest, &bare).is_err());
    }

    #[test]
    fn ring_keeps_keys_by_name() {
        let (_dir, ring) = ring();
        let key = ring.generate("mine").unwrap();
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap(), key);
        assert_eq!(ring.publisher("mine").unwrap(), Publisher::Key(key.clone()));
        let key = Publisher::Key(key);
        assert!(ring.generate("mine").is_err() && ring.add("mine", key.clone()).is_err());
        ring.add("them@example.com", key).unwrap();
        assert!(ring.is_own("mine") && !ring.is_own("them@example.com"));
        let foreign = ring.sign("them@example.com", Digest::of(b"x")).unwrap_err();
        assert!(foreign.to_string().contains("`toolcell key list`"), "{foreign}");
        ring.remove("mine").unwrap();
        assert!(!ring.is_own("mine") && ring.publisher("mine").is_err() && ring.remove("mine").is_err());
        for name in ["", "../x", ".x", "a b", "a/b"] {
            assert!(ring.generate(name).is_err(), "{name}");
        }
        assert!(ring.remove("../x").is_err());
        let long = |length: usize| ring.generate(&"x".repeat(length)).is_ok();
        assert!(long(MAX_NAME) && !long(MAX_NAME + 1));
    }

    #[test]
    fn keys_made_at_once_are_all_listed() {
        let (dir, ring) = ring();
        drop(ring);
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.data_dir = Some(dir.path().to_owned());
        let environment = &environment;
        std::thread::scope(|scope| {
            for i in 0..12 {
                scope.spawn(move || KeyRing::open(environment).unwrap().generate(&format!("k{i}")));
            }
        });
        assert_eq!(KeyRing::open(environment).unwrap().keys().unwrap().len(), 12);
    }

    #[test]
    fn half_of_a_key_can_be_removed() {
        let (_dir, ring) = ring();
        let key = ring.generate("mine").unwrap();
        std::fs::remove_file(ring.list()).unwrap();
        assert!(ring.generate("mine").is_err(), "a private key is not replaced");
        ring.remove("mine").unwrap();
        assert!(!ring.is_own("mine") && ring.remove("mine").is_err());
        ring.add("mine", Publisher::Key(key)).unwrap();
        assert!(ring.generate("mine").is_err() && !ring.is_own("mine"));
        ring.remove("mine").unwrap();
        ring.generate("mine").unwrap();
    }
}
