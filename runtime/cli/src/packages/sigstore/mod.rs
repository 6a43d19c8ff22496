//! Sigstore: bundles that bind a component to an identity, verified without the network.
//!
//! A bundle has a certificate that was valid for minutes, a signature, and the proof that both are in a transparency log. The
//! checks are those of the crate `sigstore-verify`, which a build with the feature `sigstore` has; the cryptography is that of
//! ring. A build without it refuses what is pinned to an identity.

#[cfg(feature = "sigstore")]
mod provider;
#[cfg(feature = "sigstore")]
mod verify;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use super::evidence::Evidence;
use super::keys::KeyRing;
use super::publisher::{Identity, Publisher};
use super::{Refused, store};
use crate::environment::Environment;

/// End of the name of a file with a bundle, after that of the component: the one that other tools write.
pub(crate) const BUNDLE: &str = ".sigstore.json";

/// Media type of a bundle, and type of an artefact that consists of one.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Maximum size of a bundle, in bytes. A signature has about 10 KiB, the provenance of a large build some hundred.
pub(crate) const MAX_BUNDLE_BYTES: u64 = 1 << 20;

/// Maximum size of a trusted root, in bytes. That of the public Sigstore has 7 KiB, and keys are added to it, not replaced.
const MAX_ROOT_BYTES: u64 = 256 << 10;

/// Directory of trusted roots by their digests, in that of the keys.
const ROOTS: &str = "roots";

/// Refuses in a build without the feature.
///
/// # Errors
/// Returns an error in such a build.
pub(crate) fn supported() -> Result<(), Refused> {
    if cfg!(feature = "sigstore") {
        return Ok(());
    }
    Err(Refused {
        why: "this build of Toolcell cannot verify identities of Sigstore".into(),
        hint: "install a build that can, in a checkout: cargo install --path runtime/cli --features sigstore",
    })
}

/// Verifies that one of the bundles is of the component and by the identity.
///
/// # Errors
/// Returns an error with the reason for each bundle if there is none.
pub(crate) fn verify(
    identity: &Identity,
    evidence: &Evidence,
    environment: &Environment,
) -> anyhow::Result<()> {
    supported()?;
    let root = match identity.trusted_root() {
        None => None,
        Some(digest) => Some(read_root(digest, environment)?),
    };
    let mut reasons = Vec::new();
    for found in evidence.found() {
        match found.and_then(|bundle| check(bundle, evidence, identity, root.as_deref())) {
            Ok(()) => return Ok(()),
            Err(error) => reasons.push(format!("{error:#}")),
        }
    }
    let unverified = match reasons.as_slice() {
        [] => Refused {
            why: "it has no bundle of Sigstore, and its publisher is pinned by an identity".into(),
            hint: "ask its publisher for the bundle, and name the file with `--bundle`",
        },
        reasons => Refused {
            why: match reasons {
                [only] => only.clone(),
                several => format!(
                    "none of its {} bundles is valid: {}",
                    several.len(),
                    several.join("; ")
                ),
            },
            hint: "do not use it before its publisher has explained this; `toolcell tool update NAME --publisher OTHER` accepts another publisher",
        },
    };
    Err(unverified.into())
}

#[cfg(feature = "sigstore")]
fn check(bundle: &[u8], evidence: &Evidence, identity: &Identity, root: Option<&str>) -> anyhow::Result<()> {
    verify::Root::parse(root)?.verify(bundle, evidence.signed(), identity)
}

#[cfg(not(feature = "sigstore"))]
fn check(_: &[u8], _: &Evidence, _: &Identity, _: Option<&str>) -> anyhow::Result<()> {
    Ok(supported()?)
}

/// Keeps the trusted root of a private Sigstore beside the keys, and returns its digest.
///
/// # Errors
/// Returns an error if it is not a trusted root, or cannot be written.
pub(crate) fn keep_root(file: &str, environment: &Environment) -> anyhow::Result<Digest> {
    supported()?;
    let path = environment.path(file, &environment.cwd);
    let root = toolcell_fs::read_text(&path, &Rules::named(MAX_ROOT_BYTES))
        .context("the trusted root cannot be read")?;
    #[cfg(feature = "sigstore")]
    verify::Root::parse(Some(&root))?;
    let digest = Digest::of(root.as_bytes());
    let kept = root_file(digest, environment)?;
    if let Some(directory) = kept.parent() {
        toolcell_fs::private_dir(directory)?;
    }
    toolcell_fs::replace(&kept, root.as_bytes(), toolcell_fs::PRIVATE)?;
    Ok(digest)
}

/// Removes the trusted roots that no identity in the ring and no package is pinned with.
///
/// # Errors
/// Returns an error if the keys or the packages cannot be read, in which case none is removed.
pub(crate) fn remove_unused_roots(ring: &KeyRing, environment: &Environment) -> anyhow::Result<()> {
    let Some(data) = &environment.data_dir else {
        return Ok(());
    };
    let entries = match std::fs::read_dir(data.join("keys").join(ROOTS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let packages = store::packages(environment)?.into_iter();
    let publishers = (ring.keys()?.into_iter().map(|key| key.publisher))
        .chain(packages.filter_map(|package| package.publisher));
    let used: BTreeSet<String> = publishers
        .filter_map(|publisher| match publisher {
            Publisher::Identity(identity) => identity.trusted_root(),
            Publisher::Key(_) => None,
        })
        .map(root_name)
        .collect();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let is_root = name.to_str().is_some_and(|name| {
            let hex = name.strip_suffix(".json");
            let is_digest = |hex: &str| Digest::try_from(format!("sha256:{hex}")).is_ok();
            hex.is_some_and(is_digest) && !used.contains(name)
        });
        if is_root || toolcell_fs::is_unfinished(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn root_name(digest: Digest) -> String {
    format!("{}.json", digest.hex())
}

fn read_root(digest: Digest, environment: &Environment) -> anyhow::Result<String> {
    let file = root_file(digest, environment)?;
    let read = toolcell_fs::read_text(&file, &Rules::own(MAX_ROOT_BYTES)).map_err(anyhow::Error::from);
    let read = read.and_then(|root| {
        ensure!(Digest::of(root.as_bytes()) == digest, "it was changed");
        Ok(root)
    });
    read.with_context(|| {
        format!("the trusted root {digest} of its publisher cannot be used; `toolcell key add` with `--trusted-root` writes it again")
    })
}

fn root_file(digest: Digest, environment: &Environment) -> anyhow::Result<PathBuf> {
    let data = environment
        .data_dir
        .as_ref()
        .context("there is no home directory for keys")?;
    Ok(data.join("keys").join(ROOTS).join(root_name(digest)))
}
