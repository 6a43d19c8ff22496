//! Keys with which an authorization server signs the tokens of our clients.

use serde::Deserialize;
use toolcell_http::BoxFuture;
use toolcell_http::access_token::{KeySource, Keys};
use url::Url;

use super::Reason;
use super::fetch::Fetcher;
use super::metadata::of_authorization_server;
use crate::ui::terminal::{Own, ShownUrl, text};

/// Metadata of an authorization server, as far as they are needed to check its tokens.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// Reads the keys that an authorization server publishes.
pub(crate) struct PublishedKeys {
    fetcher: Fetcher,
    issuer: String,
}

impl PublishedKeys {
    /// Creates the source of keys of the authorization server with this identifier.
    pub(crate) fn of(issuer: &Url, identifier: &str) -> Self {
        Self {
            fetcher: Fetcher::new(issuer, Some(issuer)),
            issuer: identifier.to_owned(),
        }
    }

    /// Reads the keys. At least one of them can be used.
    pub(crate) async fn keys(&self) -> Result<Keys, Reason> {
        let Self { fetcher, issuer } = self;
        let document =
            of_authorization_server(fetcher, issuer, |document: &Document| &document.issuer).await?;
        let url = fetcher.address(&document.jwks_uri)?;
        let failed = |why: &'static str| text!("the document {} {}", ShownUrl(url.as_str()), Own(why));
        let found: Option<serde_json::Value> = fetcher.document(&url).await?;
        let found = found.ok_or_else(|| failed("is not there"))?;
        let keys = Keys::of(found).map_err(|_| failed("is not a set of keys (RFC 7517)"))?;
        match keys.is_empty() {
            true => Err(failed("has no key for RS256, ES256 or EdDSA")),
            false => Ok(keys),
        }
    }
}

impl KeySource for PublishedKeys {
    fn read(&self) -> BoxFuture<'_, Option<Keys>> {
        Box::pin(async {
            let read = self.keys().await;
            let failed =
                |reason: Reason| tracing::warn!(reason = reason.plain(), "the keys cannot be read again");
            read.map_err(failed).ok()
        })
    }
}
