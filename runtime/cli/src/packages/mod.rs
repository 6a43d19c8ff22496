//! Packages: components from files, HTTPS addresses and OCI registries, stored by their digests.
//!
//! What a server says about a package is never trusted: every byte is compared with a digest, sizes are limited, requests
//! reach public addresses alone unless the user named another, and what a package asks for is shown and never granted.

pub(crate) mod credentials;
pub(crate) mod download;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod store;
pub(crate) mod wants;

use toolcell_sandbox::Digest;

use crate::components::sandbox::MAX_COMPONENT_BYTES;
use crate::environment::Environment;
use crate::packages::credentials::Credentials;
use crate::packages::download::Downloader;
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

/// Fetches a package, and checks its digest and size.
///
/// # Errors
/// Returns an error if it cannot be read or downloaded, or differs from a digest.
pub(crate) async fn fetch(
    reference: &Reference,
    is_private_allowed: bool,
    environment: &Environment,
) -> anyhow::Result<Fetched> {
    let bytes = match reference {
        Reference::File(path) => toolcell_fs::read(path, &toolcell_fs::Rules::named(MAX_COMPONENT_BYTES))?,
        Reference::Https { url, digest } => {
            let downloader = Downloader::new(url, is_private_allowed)?;
            let answer = downloader.get(url, None, None, MAX_COMPONENT_BYTES).await?;
            let answer = answer.succeeded()?;
            check_digest(&answer.body, *digest)?;
            answer.body
        }
        Reference::Oci(image) => {
            let credentials = Credentials::read(environment)?;
            registry::pull(image, is_private_allowed, &credentials).await?
        }
    };
    anyhow::ensure!(bytes.starts_with(MAGIC), "it is not a WebAssembly file");
    Ok(Fetched {
        digest: Digest::of(&bytes),
        bytes,
    })
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
