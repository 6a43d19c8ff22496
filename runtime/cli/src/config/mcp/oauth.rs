//! `[mcp.NAME.oauth]`: the login to a server over HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_mcp::client::check_url;

use crate::config::mcp::SecretName;
use crate::config::source::{Origin, Source};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Maximum size of an identifier of a client, in bytes.
const MAX_CLIENT_ID: usize = 2 << 10;

/// Login to a server over HTTP by OAuth (`toolcell mcp login NAME`). Nothing in it is required.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OAuthTable {
    /// Authorization server to use, by its identifier, such as `https://login.example`. By default the server names it. Its host
    /// can be a private address.
    #[schemars(with = "Option<String>")]
    issuer: Option<Spanned<String>>,
    /// Client that you have registered at the authorization server: its identifier, or the `https` address of its metadata
    /// document. By default Toolcell registers itself, where the authorization server has that.
    #[schemars(with = "Option<String>")]
    client_id: Option<Spanned<String>>,
    /// Secret of that client, as `{ secret = "NAME" }`. It needs `issuer`, so that no other one gets it.
    client_secret: Option<SecretName>,
    /// Scopes to request instead of those that the server names.
    #[schemars(with = "Option<Vec<String>>")]
    scopes: Option<Spanned<Vec<String>>>,
    /// File for the tokens instead of the keyring, relative to the directory of this file. Only you can read it, and no tool.
    #[schemars(with = "Option<String>")]
    file: Option<Spanned<String>>,
}

/// Settings of the login.
#[derive(Debug, Clone, Default)]
pub(crate) struct OAuthSettings {
    /// Identifier of the authorization server.
    pub(crate) issuer: Option<String>,
    /// Identifier of the client.
    pub(crate) client_id: Option<String>,
    /// Name of its secret in `[secrets]`.
    pub(crate) client_secret: Option<String>,
    /// Scopes to request.
    pub(crate) scopes: Option<Vec<String>>,
    /// File for the tokens; `None` means the keyring.
    pub(crate) file: Option<PathBuf>,
}

impl OAuthTable {
    /// True if the table has a key.
    pub(super) fn is_set(&self) -> bool {
        let Self {
            issuer,
            client_id,
            client_secret,
            scopes,
            file,
        } = self;
        issuer.is_some()
            || client_id.is_some()
            || client_secret.is_some()
            || scopes.is_some()
            || file.is_some()
    }

    /// Reads the settings of a server.
    ///
    /// # Errors
    /// Returns an error if a value is not valid, or a secret has no authorization server.
    pub(super) fn settings(
        &self,
        name: &Spanned<String>,
        source: &Arc<Source>,
        environment: &Environment,
    ) -> Result<OAuthSettings, Failure> {
        let key = name.get_ref();
        let fail = |what: Text, span| {
            Failure::new(Exit::Config, what).why(Origin::File(source.clone(), span).point_at())
        };
        if let Some(issuer) = &self.issuer {
            check_url(issuer.get_ref()).map_err(|error| {
                let what = text!("`issuer` of the MCP server `{}` cannot be used", key);
                fail(what, issuer.span()).because(error)
            })?;
        }
        if let Some(id) = &self.client_id
            && !((1..=MAX_CLIENT_ID).contains(&id.get_ref().len())
                && id.get_ref().bytes().all(|byte| (0x20..0x7f).contains(&byte)))
        {
            let what = text!("`client_id` of the MCP server `{}` cannot be used", key);
            return Err(fail(what, id.span()).hint(text!(
                "use 1 to {} visible ASCII characters, as the authorization server gives it",
                MAX_CLIENT_ID
            )));
        }
        if let Some(secret) = &self.client_secret
            && (self.client_id.is_none() || self.issuer.is_none())
        {
            let what = text!(
                "`client_secret` of the MCP server `{}` would be for any authorization server",
                key
            );
            return Err(fail(what, name.span())
                .why(text!(
                    "the secret `{}` has no `client_id` and `issuer`",
                    secret.secret
                ))
                .hint(
                    "set `client_id`, and `issuer` to the only authorization server that may get the secret",
                ));
        }
        if let Some(scopes) = &self.scopes {
            let is_valid = |scope: &String| {
                !scope.is_empty()
                    && scope.len() <= 256
                    && scope
                        .bytes()
                        .all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
            };
            if let Some(scope) = scopes.get_ref().iter().find(|scope| !is_valid(scope)) {
                let what = text!("the scope `{}` of the MCP server `{}` is not valid", scope, key);
                return Err(fail(what, scopes.span()).hint(
                    "use 1 to 256 visible ASCII characters other than `\"` and `\\`, one scope per text",
                ));
            }
        }
        let base = source.path.parent().unwrap_or(&environment.cwd);
        Ok(OAuthSettings {
            issuer: self.issuer.as_ref().map(|issuer| issuer.get_ref().clone()),
            client_id: self.client_id.as_ref().map(|id| id.get_ref().clone()),
            client_secret: self.client_secret.as_ref().map(|name| name.secret.clone()),
            scopes: self.scopes.as_ref().map(|scopes| scopes.get_ref().clone()),
            file: self
                .file
                .as_ref()
                .map(|file| environment.path(file.get_ref(), base)),
        })
    }
}
