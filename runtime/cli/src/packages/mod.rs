//! Packages: components from files, HTTPS addresses and OCI registries, stored by their digests.
//!
//! Statements of a server about a package are never trusted: every byte is compared with a digest, sizes are limited, requests
//! reach public addresses alone unless the user named another, and what a package asks for is shown and never granted.

pub(crate) mod credentials;
pub(crate) mod download;
mod evidence;
pub(crate) mod keys;
pub(crate) mod publisher;
pub(crate) mod reference;
mod referrers;
pub(crate) mod registry;
pub(crate) mod sigstore;
pub(crate) mod store;
pub(crate) mod wants;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::credentials::Credentials;
use crate::packages::download::Downloader;
use crate::packages::evidence::Evidence;
use crate::packages::publisher::Publisher;
use crate::packages::reference::Reference;
use crate::packages::store::DamagedList;
use crate::ui::escape;
use crate::ui::terminal::{Shown, text};

/// A component that was fetched.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Their digest.
    pub(crate) digest: Digest,
}

/// First bytes of every WebAssembly file.
const MAGIC: &[u8] = b"\0asm";

/// Signer that a package must have, and where its bundle is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signer<'a> {
    /// Pinned publisher.
    pub(crate) publisher: Option<&'a Publisher>,
    /// File with the bundle, if it is not where it is looked for.
    pub(crate) bundle: Option<&'a Path>,
}

/// Fetches a package, and checks its digest and size, and that it is of its publisher if one is pinned.
///
/// # Errors
/// Returns an error if it cannot be read or downloaded, differs from a digest, or is not signed by the publisher.
pub(crate) async fn fetch(
    reference: &Reference,
    is_private_allowed: bool,
    signer: Signer<'_>,
    environment: &Environment,
) -> anyhow::Result<Fetched> {
    let publisher = signer.publisher;
    if let Some(Publisher::Identity(_)) = publisher {
        sigstore::supported()?;
    }
    let named = named_bundle(signer)?;
    // What is named is not looked for.
    let wanted = publisher.filter(|_| named.is_none());
    let evidence = match reference {
        Reference::File(path) => {
            let component = toolcell_fs::read(path, &Rules::named(MAX_COMPONENT_BYTES))?;
            let mut found = named;
            if let Some(publisher) = wanted {
                let (ending, max_bytes) = publisher.beside();
                found = match toolcell_fs::read(&beside(path, ending), &Rules::named(max_bytes)) {
                    Err(error) if error.is_not_found() => None,
                    read => Some(read?),
                };
            }
            Evidence::beside(component, found)
        }
        Reference::Https { url, digest } => {
            let downloader = Downloader::new(url, is_private_allowed)?;
            let answer = downloader.get(url, None, None, MAX_COMPONENT_BYTES).await?;
            let component = answer.succeeded()?.body;
            check_digest(&component, *digest)?;
            let mut found = named;
            if let Some(publisher) = wanted {
                let (ending, max_bytes) = publisher.beside();
                let mut beside = url.clone();
                beside.set_path(&format!("{}{ending}", url.path()));
                let answer = downloader.get(&beside, None, None, max_bytes).await?;
                if answer.status != hyper::StatusCode::NOT_FOUND {
                    found = Some(answer.succeeded()?.body);
                }
            }
            Evidence::beside(component, found)
        }
        Reference::Oci(image) => {
            let credentials = Credentials::read(environment)?;
            registry::pull(image, is_private_allowed, wanted, named, &credentials).await?
        }
    };
    anyhow::ensure!(
        evidence.component().starts_with(MAGIC),
        "it is not a WebAssembly file"
    );
    if let Some(publisher) = publisher {
        publisher.verify(&evidence, environment)?;
    }
    let bytes = evidence.into_component();
    let digest = Digest::of(&bytes);
    Ok(Fetched { bytes, digest })
}

/// Reads the bundle that the user named.
fn named_bundle(signer: Signer<'_>) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(path) = signer.bundle else {
        return Ok(None);
    };
    anyhow::ensure!(
        matches!(signer.publisher, Some(Publisher::Identity(_))),
        "a bundle was named, and no identity of Sigstore is pinned that it could be of"
    );
    let read = toolcell_fs::read(path, &Rules::named(sigstore::MAX_BUNDLE_BYTES));
    read.context("the bundle cannot be read").map(Some)
}

/// Returns the failure for an error of the store, with a way out if its list is damaged.
pub(crate) fn unusable_store(error: anyhow::Error, environment: &Environment) -> Failure {
    let damaged = error.downcast_ref::<DamagedList>();
    let hint = damaged.map(|damaged| {
        let file = escape::shell_path(&environment.shown(&damaged.file));
        text!(
            "restore the file from a copy; or move it away and add the packages again, whose components stay while the configuration names them: mv {} {}.damaged",
            Shown(&file),
            Shown(&file)
        )
    });
    Failure::new(Exit::Io, "the packages cannot be used")
        .because(error)
        .hints(hint)
}

/// Reason why a package is not accepted, with what the user can do.
#[derive(Debug)]
pub(crate) struct Refused {
    why: String,
    /// Action for the user.
    pub(crate) hint: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Returns what the user can do after an error of a package.
    pub(crate) fn hint_of(error: &anyhow::Error) -> &'static str {
        match error.downcast_ref::<Self>() {
            Some(refused) => refused.hint,
            None => "nothing was changed: check the reference, or ask who publishes it",
        }
    }
}

/// End of the name of a file with a signature, after that of the component.
const SIGNATURE: &str = ".sig";

/// File with the signature of a component.
pub(crate) fn signature_file(component: &Path) -> PathBuf {
    beside(component, SIGNATURE)
}

/// File whose name is that of a component with another ending after it.
fn beside(component: &Path, ending: &str) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Compares bytes with the digest that they should have.
fn check_digest(bytes: &[u8], expected: Digest) -> anyhow::Result<()> {
    let digest = Digest::of(bytes);
    anyhow::ensure!(
        digest == expected,
        "its digest is {digest}, and {expected} was expected: it is not what was meant"
    );
    Ok(())
}
