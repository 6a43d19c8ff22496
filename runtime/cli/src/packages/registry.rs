//! Components in an OCI registry (OCI Distribution Specification 1.1), in the form of wasm-pkg-tools and wassette.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use hyper::header::{HeaderMap, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use toolcell_sandbox::Digest;
use url::Url;

use super::check_digest;
use super::credentials::Credentials;
use super::download::{Answer, Downloader, Outgoing};
use super::evidence::Evidence;
use super::publisher::Publisher;
use super::reference::Image;
use super::referrers;
use crate::components::sandbox::MAX_COMPONENT_BYTES;

/// Media type of a manifest (OCI Image Specification 1.1).
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Media types of a layer that is a component: of the Wasm OCI artefact layout, and of its predecessor.
const LAYERS: [&str; 2] = ["application/wasm", "application/vnd.wasm.content.layer.v1+wasm"];

/// Annotation of a manifest with the signature of the component.
const SIGNATURE: &str = "dev.toolcell.signature";

/// Media type of the configuration of a component.
const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// Maximum size of an answer to an upload, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Maximum size of a manifest, in bytes: that which registries accept.
pub(super) const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// Maximum size of the answer with a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u64,
    media_type: Option<String>,
    #[serde(default)]
    layers: Vec<Layer>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    pub(super) media_type: String,
    digest: String,
    size: u64,
}

/// Pulls the component of an artefact, with what a wanted publisher has signed, or with the bundle that was named.
///
/// # Errors
/// Returns an error if the registry refuses, or something differs from its digest, its size or the expected form.
pub(crate) async fn pull(
    image: &Image,
    is_private_allowed: bool,
    wanted: Option<&Publisher>,
    named: Option<Vec<u8>>,
    credentials: &Credentials,
) -> anyhow::Result<Evidence> {
    let url = image.url(&format!("manifests/{}", image.version()))?;
    let mut session = Session::new(image, is_private_allowed, credentials, "pull")?;
    let answer = session.get(&url, Some(MANIFEST), MAX_MANIFEST_BYTES).await?;
    let manifest = answer.body;
    if let Some(digest) = image.digest {
        check_digest(&manifest, digest).context("the manifest was changed")?;
    }
    let (layer, signature) = component_layer(&manifest)?;
    let component = session.blob(&layer, "component", MAX_COMPONENT_BYTES).await?;
    let mut found: Vec<anyhow::Result<Vec<u8>>> = named.into_iter().map(Ok).collect();
    match wanted {
        None => {}
        Some(Publisher::Key(_)) => found.extend(signature.map(|signature| Ok(signature.into_bytes()))),
        Some(Publisher::Identity(_)) => {
            found.extend(referrers::bundles(&mut session, Digest::of(&manifest)).await?);
        }
    }
    Ok(Evidence::of_artefact(component, manifest, found))
}

/// Pushes a component, and returns the digest of its manifest. The same component gives the same manifest.
///
/// # Errors
/// Returns an error if the registry refuses, or the reference names a digest that is another.
pub(crate) async fn push(
    image: &Image,
    component: &[u8],
    signature: Option<&str>,
    is_private_allowed: bool,
    credentials: &Credentials,
) -> anyhow::Result<Digest> {
    let layer = Digest::of(component);
    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer.to_string()],
    });
    let config = config.to_string().into_bytes();
    let mut manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": { "mediaType": CONFIG, "digest": Digest::of(&config).to_string(), "size": config.len() },
        "layers": [{ "mediaType": LAYERS[0], "digest": layer.to_string(), "size": component.len() }],
    });
    if let Some(signature) = signature {
        manifest["annotations"] = json!({ SIGNATURE: signature });
    }
    let manifest = manifest.to_string().into_bytes();
    let digest = Digest::of(&manifest);
    if let Some(wanted) = image.digest {
        check_digest(&manifest, wanted).context("the reference has the digest of another artefact")?;
    }
    let mut session = Session::new(image, is_private_allowed, credentials, "pull,push")?;
    session.upload(&config).await?;
    session.upload(component).await?;
    let url = image.url(&format!("manifests/{}", image.version()))?;
    session
        .send(Method::PUT, &url, Some((MANIFEST, manifest)))
        .await?;
    Ok(digest)
}

/// The only layer of a manifest that is a component, and its signature.
fn component_layer(manifest: &[u8]) -> anyhow::Result<(Layer, Option<String>)> {
    let mut manifest: Manifest =
        serde_json::from_slice(manifest).context("the manifest is not as expected")?;
    let media_type = manifest.media_type.as_deref().unwrap_or(MANIFEST);
    ensure!(
        manifest.schema_version == 2 && media_type == MANIFEST,
        "the manifest is a `{}`, and not that of one artefact",
        media_type.escape_debug()
    );
    let types: Vec<String> = manifest
        .layers
        .iter()
        .map(|layer| layer.media_type.clone())
        .take(5)
        .collect();
    let mut components = manifest
        .layers
        .into_iter()
        .filter(|layer| LAYERS.contains(&layer.media_type.as_str()));
    match (components.next(), components.next()) {
        (Some(only), None) => Ok((only, manifest.annotations.remove(SIGNATURE))),
        (Some(_), Some(_)) => bail!("the artefact has several components"),
        (None, _) => bail!(
            "the artefact has no layer of the type `{}`; its types are {types:?}",
            LAYERS[0]
        ),
    }
}

/// Requests to one repository.
pub(super) struct Session<'a> {
    downloader: Downloader,
    pub(super) image: &'a Image,
    credentials: &'a Credentials,
    /// Actions on the repository that a token should allow.
    actions: &'static str,
    authorization: Option<String>,
}

impl<'a> Session<'a> {
    fn new(
        image: &'a Image,
        is_private_allowed: bool,
        credentials: &'a Credentials,
        actions: &'static str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            downloader: Downloader::new(&image.url("")?, is_private_allowed)?,
            image,
            credentials,
            actions,
            authorization: None,
        })
    }

    /// Uploads a blob in one piece.
    async fn upload(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let start = self.image.url("blobs/uploads/")?;
        let answer = self.send(Method::POST, &start, None).await?;
        let location = answer
            .headers
            .get(LOCATION)
            .and_then(|location| location.to_str().ok());
        let mut url = start.join(location.context("the registry names no place for an upload")?)?;
        url.query_pairs_mut()
            .append_pair("digest", &Digest::of(content).to_string());
        let body = Some(("application/octet-stream", content.to_vec()));
        self.send(Method::PUT, &url, body).await.map(drop)
    }

    /// Sends a request that changes something, with a token if the registry asks for one.
    async fn send(
        &mut self,
        method: Method,
        url: &Url,
        body: Option<(&str, Vec<u8>)>,
    ) -> anyhow::Result<Answer> {
        let outgoing = |authorization| Outgoing {
            method: method.clone(),
            url,
            accept: None,
            body: body.clone(),
            authorization,
            max_bytes: MAX_ANSWER_BYTES,
        };
        let known = self.authorization.clone();
        let answer = self.downloader.send(outgoing(known.as_deref())).await?;
        if answer.status != StatusCode::UNAUTHORIZED || self.authorization.is_some() {
            return answer.succeeded();
        }
        self.authorization = self.authorize(&answer.headers).await?;
        let authorization = self.authorization.as_deref();
        self.downloader.send(outgoing(authorization)).await?.succeeded()
    }

    /// Downloads a layer, and compares it with its manifest.
    pub(super) async fn blob(
        &mut self,
        layer: &Layer,
        what: &str,
        max_bytes: u64,
    ) -> anyhow::Result<Vec<u8>> {
        let digest = Digest::try_from(layer.digest.clone())?;
        ensure!(
            layer.size <= max_bytes,
            "its {what} has {} bytes, and the limit is {max_bytes}",
            layer.size
        );
        let url = self.image.url(&format!("blobs/{digest}"))?;
        let answer = self.get(&url, None, layer.size).await?;
        ensure!(
            answer.body.len() as u64 == layer.size,
            "its {what} has {} bytes, and its manifest says {}",
            answer.body.len(),
            layer.size
        );
        check_digest(&answer.body, digest).with_context(|| format!("the {what} was changed"))?;
        Ok(answer.body)
    }

    /// Requests a resource that must exist.
    async fn get(&mut self, url: &Url, accept: Option<&str>, max_bytes: u64) -> anyhow::Result<Answer> {
        self.ask(url, accept, max_bytes).await?.succeeded()
    }

    /// Requests a resource, with a token if the registry asks for one.
    pub(super) async fn ask(
        &mut self,
        url: &Url,
        accept: Option<&str>,
        max_bytes: u64,
    ) -> anyhow::Result<Answer> {
        let first = self
            .downloader
            .get(url, accept, self.authorization.as_deref(), max_bytes);
        let answer = first.await?;
        if answer.status != StatusCode::UNAUTHORIZED || self.authorization.is_some() {
            return Ok(answer);
        }
        self.authorization = self.authorize(&answer.headers).await?;
        let authorization = self.authorization.as_deref();
        self.downloader.get(url, accept, authorization, max_bytes).await
    }

    /// Value of the header `authorization`, as the registry asks for it.
    async fn authorize(&self, headers: &HeaderMap) -> anyhow::Result<Option<String>> {
        let basic = self.credentials.basic(&self.image.registry).await?;
        let challenge = headers
            .get(WWW_AUTHENTICATE)
            .and_then(|value| value.to_str().ok());
        let challenge = challenge.context("the registry does not say how to authenticate")?;
        let Some(parameters) = strip_scheme(challenge, "bearer ") else {
            ensure!(
                basic.is_some(),
                "the registry asks for a user and a password: `docker login {}` stores them",
                self.image.registry
            );
            return Ok(basic);
        };
        let parameter = |name: &str| parameter(parameters, name);
        let mut realm = Url::parse(&parameter("realm").context("the registry names no server for tokens")?)?;
        {
            let mut query = realm.query_pairs_mut();
            if let Some(service) = parameter("service") {
                query.append_pair("service", &service);
            }
            query.append_pair(
                "scope",
                &format!("repository:{}:{}", self.image.repository, self.actions),
            );
        }
        // Only the registry itself gets its credentials, and the token server of Docker Hub.
        let is_of_hub = realm.host_str() == Some("auth.docker.io") && is_docker_hub(&self.image.registry);
        let registry = self.image.url("")?;
        let is_own = realm.origin() == registry.origin();
        let basic = basic.filter(|_| is_own || (is_of_hub && realm.scheme() == "https"));
        // Its host was named by the registry, not by the user: it gets no exception.
        let downloader = match is_own {
            true => None,
            false => Some(Downloader::public(&realm)?),
        };
        let downloader = downloader.as_ref().unwrap_or(&self.downloader);
        let answer = downloader
            .get(
                &realm,
                Some("application/json"),
                basic.as_deref(),
                MAX_TOKEN_BYTES,
            )
            .await?
            .succeeded()
            .context("the registry gave no token")?;
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let token: Token = serde_json::from_slice(&answer.body)
            .map_err(|_| anyhow::anyhow!("the answer with the token is not as expected"))?;
        let token = token
            .token
            .or(token.access_token)
            .context("the registry gave no token")?;
        Ok(Some(format!("Bearer {token}")))
    }
}

/// The rest of a text after a prefix in any case.
fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let start = text.get(..scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
}

/// A parameter of a challenge (RFC 9110, section 11.2).
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_matches([' ', ',']);
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = next;
    }
}

/// True for the names of Docker Hub, whose token server is another host.
fn is_docker_hub(registry: &str) -> bool {
    matches!(registry, "docker.io" | "index.docker.io" | "registry-1.docker.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: &str) -> anyhow::Result<Layer> {
        let found = component_layer(format!(r#"{{"schemaVersion": 2, "layers": [{layers}]}}"#).as_bytes());
        found.map(|(layer, _)| layer)
    }

    #[test]
    fn manifest_has_one_component() {
        let layer =
            |media_type: &str| format!(r#"{{"mediaType": "{media_type}", "digest": "x", "size": 3}}"#);
        for media_type in LAYERS {
            assert_eq!(manifest(&layer(media_type)).unwrap().size, 3);
        }
        let beside = format!("{},{}", layer("text/plain"), layer(LAYERS[0]));
        assert!(manifest(&beside).is_ok());
        let twice = format!("{},{}", layer(LAYERS[0]), layer(LAYERS[1]));
        for wrong in [
            twice.as_str(),
            "",
            &layer("application/vnd.oci.image.layer.v1.tar+gzip"),
        ] {
            assert!(manifest(wrong).is_err(), "{wrong}");
        }
        let index = br#"{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}"#;
        assert!(component_layer(index).is_err());
        assert!(component_layer(b"<html>").is_err());
    }

    #[test]
    fn challenge_is_read_with_and_without_quotes() {
        let challenge = r#"realm="https://a.example/token?x=1",service=s, scope="a,b""#;
        assert_eq!(
            parameter(challenge, "realm").unwrap(),
            "https://a.example/token?x=1"
        );
        assert_eq!(parameter(challenge, "Service").unwrap(), "s");
        assert_eq!(parameter(challenge, "scope").unwrap(), "a,b");
        assert_eq!(parameter(challenge, "error"), None);
        assert_eq!(parameter("realm=\"open", "realm"), None);
    }
}
