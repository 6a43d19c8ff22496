//! Packages: components from files, HTTPS addresses and OCI registries, stored by their digests.
//!
//! Statements of a server about a package are never trusted: every byte is compared with a digest, sizes are limited, requests
//! reach public addresses alone unless the user named another, and what a package asks for is shown and never granted.

pub(crate) mod credentials;
pub(crate) mod download;
pub(crate) mod keys;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod store;
pub(crate) mod wants;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::environment::Environment;
use crate::packages::credentials::Credentials;
use crate::packages::download::Downloader;
use crate::packages::keys::{MAX_SIGNATURE_BYTES, PublicKey};
use crate::packages::reference::Reference;

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

/// Fetches a package, and checks its digest and size, and its signature if the key of its publisher is given.
///
/// # Errors
/// Returns an error if it cannot be read or downloaded, differs from a digest, or has no valid signature of the publisher.
pub(crate) async fn fetch(
    reference: &Reference,
    is_private_allowed: bool,
    publisher: Option<&PublicKey>,
    environment: &Environment,
) -> anyhow::Result<Fetched> {
    let (bytes, signature) = match reference {
        Reference::File(path) => {
            let bytes = toolcell_fs::read(path, &Rules::named(MAX_COMPONENT_BYTES))?;
            let beside = signature_file(path);
            let signature = match publisher
                .map(|_| toolcell_fs::read_text(&beside, &Rules::named(MAX_SIGNATURE_BYTES)))
            {
                None => None,
                Some(Err(error)) if error.is_not_found() => None,
                Some(signature) => Some(signature?),
            };
            (bytes, signature)
        }
        Reference::Https { url, digest } => {
            let downloader = Downloader::new(url, is_private_allowed)?;
            let answer = downloader.get(url, None, None, MAX_COMPONENT_BYTES).await?;
            let answer = answer.succeeded()?;
            check_digest(&answer.body, *digest)?;
            let mut signature = None;
            if publisher.is_some() {
                let mut beside = url.clone();
                beside.set_path(&format!("{}{SIGNATURE}", url.path()));
                let answer = downloader.get(&beside, None, None, MAX_SIGNATURE_BYTES).await?;
                if answer.status != hyper::StatusCode::NOT_FOUND {
                    signature = Some(String::from_utf8(answer.succeeded()?.body)?);
                }
            }
            (answer.body, signature)
        }
        Reference::Oci(image) => {
            let credentials = Credentials::read(environment)?;
            let pulled = registry::pull(image, is_private_allowed, &credentials).await?;
            (pulled.component, pulled.signature)
        }
    };
    anyhow::ensure!(bytes.starts_with(MAGIC), "it is not a WebAssembly file");
    let digest = Digest::of(&bytes);
    if let Some(publisher) = publisher {
        let signature = signature.context("it is not signed, and its publisher is pinned")?;
        publisher.verify(digest, &signature)?;
    }
    Ok(Fetched { bytes, digest })
}

/// End of the name of a file with a signature, after that of the component.
const SIGNATURE: &str = ".sig";

/// File with the signature of a component.
pub(crate) fn signature_file(component: &Path) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(SIGNATURE);
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
