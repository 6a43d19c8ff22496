//! Artefacts that refer to another one (OCI Distribution Specification 1.1): bundles of Sigstore, as cosign 3 writes them.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use hyper::StatusCode;
use serde::Deserialize;
use toolcell_sandbox::Digest;

use super::check_digest;
use super::registry::{Layer, MANIFEST, MAX_MANIFEST_BYTES, Session};
use super::sigstore::{MAX_BUNDLE_BYTES, MEDIA_TYPE};

/// Media type of a list of manifests (OCI Image Specification 1.1).
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Maximum number of bundles that are read. A release has one for each signer, and one for its provenance.
const MAX_BUNDLES: usize = 16;

/// Maximum time for all bundles of a component together. They have 16 MiB at most.
const TIME: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    artifact_type: Option<String>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

/// Downloads the bundles that refer to a manifest, or the reason why one of them cannot be read.
///
/// # Errors
/// Returns an error if the registry does not list them, or takes too long for all of them together.
pub(super) async fn bundles(
    session: &mut Session<'_>,
    manifest: Digest,
) -> anyhow::Result<Vec<anyhow::Result<Vec<u8>>>> {
    within(TIME, listed_bundles(session, manifest)).await
}

async fn within<T>(time: Duration, read: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let Ok(read) = tokio::time::timeout(time, read).await else {
        bail!("its bundles were not read within {} s", time.as_secs());
    };
    read
}

async fn listed_bundles(
    session: &mut Session<'_>,
    manifest: Digest,
) -> anyhow::Result<Vec<anyhow::Result<Vec<u8>>>> {
    let mut bundles = Vec::new();
    let listed = list(session, manifest)
        .await
        .context("its bundles are not listed")?;
    let of_type = |referrer: &&Referrer| match &referrer.artifact_type {
        Some(artifact_type) => artifact_type == MEDIA_TYPE,
        None => true,
    };
    for referrer in listed.iter().filter(of_type).take(MAX_BUNDLES) {
        bundles.push(bundle(session, referrer).await.context("a bundle cannot be read"));
    }
    Ok(bundles)
}

/// The artefacts that refer to a manifest. A registry without such lists has them as a tag.
async fn list(session: &mut Session<'_>, manifest: Digest) -> anyhow::Result<Vec<Referrer>> {
    let mut url = session.image.url(&format!("referrers/{manifest}"))?;
    url.query_pairs_mut().append_pair("artifactType", MEDIA_TYPE);
    let mut answer = session.ask(&url, Some(INDEX), MAX_MANIFEST_BYTES).await?;
    if answer.status == StatusCode::NOT_FOUND {
        let tag = session
            .image
            .url(&format!("manifests/sha256-{}", manifest.hex()))?;
        answer = session.ask(&tag, Some(INDEX), MAX_MANIFEST_BYTES).await?;
    }
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(Vec::new());
    }
    let index: Result<Index, _> = serde_json::from_slice(&answer.succeeded()?.body);
    Ok(index
        .map_err(|_| anyhow::anyhow!("the list is not as expected"))?
        .manifests)
}

/// Downloads a bundle.
async fn bundle(session: &mut Session<'_>, referrer: &Referrer) -> anyhow::Result<Vec<u8>> {
    let digest = Digest::try_from(referrer.digest.clone())?;
    let url = session.image.url(&format!("manifests/{digest}"))?;
    let answer = session.ask(&url, Some(MANIFEST), MAX_MANIFEST_BYTES).await?;
    let answer = answer.succeeded()?;
    check_digest(&answer.body, digest).context("its manifest was changed")?;
    let manifest: Manifest = serde_json::from_slice(&answer.body)
        .map_err(|_| anyhow::anyhow!("its manifest is not as expected"))?;
    let mut layers = manifest
        .layers
        .iter()
        .filter(|layer| layer.media_type == MEDIA_TYPE);
    let Some(layer) = layers.next() else {
        bail!("its manifest has no layer of the type `{MEDIA_TYPE}`");
    };
    ensure!(layers.next().is_none(), "its manifest has several bundles");
    session.blob(layer, "bundle", MAX_BUNDLE_BYTES).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_bundles_have_one_time_limit() {
        let endless = async {
            // Each of them is within the limit of one request.
            for _ in 0..MAX_BUNDLES {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let error = within(Duration::from_millis(50), endless).await.unwrap_err();
        assert!(error.to_string().contains("were not read within"), "{error}");
        within(TIME, async { Ok(()) }).await.unwrap();
    }
}
