//! Tokens that are kept: in the keyring, or in a file that the user named.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_fs::{PRIVATE, Rules};
use url::Url;

use super::token::Tokens;
use crate::components::keyring::Keyring;
use crate::config::McpSettings;
use crate::config::mcp::Transport;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, Text, text};

/// Maximum size of the file, in bytes: two tokens, and some addresses.
const MAX_BYTES: u64 = 64 << 10;

/// Prefix of the accounts of tokens, followed by the name of the server.
const ACCOUNT: &str = "mcp-login:";

/// Place of the tokens for one server.
#[derive(Clone)]
pub(crate) struct TokenStore {
    place: Place,
    name: String,
    /// Address of the server: tokens for another one do not count.
    server: String,
    /// Authorization server that the user named: tokens of another one do not count.
    issuer: Option<String>,
}

#[derive(Clone)]
enum Place {
    Keyring(Arc<Keyring>),
    File(PathBuf),
}

impl TokenStore {
    /// Place of the tokens for a server; `None` if it is not reached over HTTP.
    pub(crate) fn of(server: &McpSettings) -> Option<Self> {
        Self::with(server, Keyring::of_system())
    }

    fn with(server: &McpSettings, keyring: Keyring) -> Option<Self> {
        let Transport::Http { url, oauth, .. } = &server.transport else {
            return None;
        };
        Some(Self {
            place: match &oauth.file {
                Some(file) => Place::File(file.clone()),
                None => Place::Keyring(Arc::new(keyring)),
            },
            name: server.name.clone(),
            // As metadata and requests have it.
            server: Url::parse(url).map_or_else(|_| url.clone(), String::from),
            issuer: oauth.issuer.clone(),
        })
    }

    /// Returns the tokens for this server; `None` if there are none, or only ones for another server.
    ///
    /// # Errors
    /// Fails if the keyring or the file cannot be read.
    pub(crate) async fn load(&self) -> Result<Option<Tokens>, Failure> {
        self.blocking(|store| {
            let text = match &store.place {
                Place::Keyring(keyring) => keyring
                    .get(&store.account())
                    .map_err(|failure| store.without_keyring(failure))?,
                Place::File(file) => match toolcell_fs::read_text(file, &Rules::own(MAX_BYTES)) {
                    Ok(text) => Some(text),
                    Err(error) if error.is_not_found() => None,
                    Err(error) => return Err(store.fail("read").because(error)),
                },
            };
            let Some(text) = text else { return Ok(None) };
            // The error of the parser could repeat a part of a token.
            let tokens: Tokens = serde_json::from_str(&text).map_err(|_| {
                store
                    .fail("read")
                    .why("they are not as Toolcell writes them")
                    .hint(text!("remove them: toolcell mcp logout {}", store.name))
            })?;
            let is_for_it = tokens.server == store.server
                && store
                    .issuer
                    .as_ref()
                    .is_none_or(|issuer| *issuer == tokens.issuer);
            Ok(is_for_it.then_some(tokens))
        })
        .await
    }

    /// Keeps tokens, and replaces the previous ones.
    ///
    /// # Errors
    /// Fails if the keyring or the file cannot be written.
    pub(crate) async fn save(&self, tokens: &Tokens) -> Result<(), Failure> {
        let text = serde_json::to_string(tokens).map_err(|_| self.fail("written"))?;
        self.blocking(move |store| match &store.place {
            Place::Keyring(keyring) => keyring
                .set(&store.account(), text)
                .map_err(|failure| store.without_keyring(failure)),
            Place::File(file) => toolcell_fs::replace(file, text.as_bytes(), PRIVATE)
                .map_err(|error| store.fail("written").because(error)),
        })
        .await
    }

    /// Removes the tokens, whatever server they are for. Returns true if there were any.
    ///
    /// # Errors
    /// Fails if the keyring or the file cannot be changed.
    pub(crate) async fn remove(&self) -> Result<bool, Failure> {
        self.blocking(|store| match &store.place {
            Place::Keyring(keyring) => keyring
                .delete(&store.account())
                .map_err(|failure| store.without_keyring(failure)),
            Place::File(file) => {
                // Only a file of this program is removed.
                match toolcell_fs::open(file, &Rules::own(MAX_BYTES)) {
                    Ok(open) => toolcell_fs::remove_if_same(file, &open)
                        .map_err(|error| store.fail("removed").because(error)),
                    Err(error) if error.is_not_found() => Ok(false),
                    Err(error) => Err(store.fail("removed").because(error)),
                }
            }
        })
        .await
    }

    /// The place of the tokens, for the user.
    pub(crate) fn shown(&self) -> Text {
        match &self.place {
            Place::Keyring(_) => "the keyring".into(),
            Place::File(file) => text!("`{}`", file.display()),
        }
    }

    /// Address of the server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Name of the server.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn account(&self) -> String {
        format!("{ACCOUNT}{}", self.name)
    }

    fn fail(&self, what: &'static str) -> Failure {
        Failure::new(
            Exit::Config,
            text!(
                "the tokens for the MCP server `{}` cannot be {}",
                self.name,
                Own(what)
            ),
        )
    }

    fn without_keyring(&self, failure: Failure) -> Failure {
        failure.without_hints().hint(text!(
            "without a keyring, name a file for the tokens: [mcp.{}.oauth] file = \"PATH\"",
            self.name
        ))
    }

    /// Stores block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let store = self.clone();
        match tokio::task::spawn_blocking(move || work(&store)).await {
            Ok(done) => done,
            Err(_) => Err(self.fail("reached")),
        }
    }
}

impl std::fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenStore({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};
    use crate::environment::Environment;

    fn server(dir: &std::path::Path, url: &str, oauth: &str) -> McpSettings {
        let path = dir.join("config.toml");
        let toml = format!("[mcp.srv]\nurl = \"{url}\"\n[mcp.srv.oauth]\n{oauth}\n");
        std::fs::write(&path, toml).unwrap();
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        let settings = config::load(&Environment::for_tests(dir, &[]), overrides).unwrap();
        settings.mcp["srv"].clone()
    }

    fn tokens(server: &str) -> Tokens {
        serde_json::from_value(serde_json::json!({
            "server": server, "resource": server, "issuer": "https://login.example",
            "token_endpoint": "https://login.example/token",
            "client": { "id": "c", "method": "none" }, "access_token": "planted-access-token",
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn tokens_are_kept_in_the_keyring_for_one_server() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(Keyring::in_memory());
        let store = |url: &str, oauth: &str| TokenStore {
            place: Place::Keyring(keyring.clone()),
            ..TokenStore::with(&server(dir.path(), url, oauth), Keyring::closed()).unwrap()
        };
        let own = store("https://mcp.example", "");
        assert!(own.load().await.unwrap().is_none());
        own.save(&tokens(own.server())).await.unwrap();
        let loaded = own.load().await.unwrap().unwrap();
        assert_eq!(loaded.access_token, "planted-access-token");
        // The address is compared in its canonical form; another one, or another issuer, has no tokens.
        assert!(
            store("https://MCP.example:443/", "")
                .load()
                .await
                .unwrap()
                .is_some()
        );
        for (url, oauth) in [
            ("https://mcp.example/other", ""),
            ("https://evil.example", ""),
            ("https://mcp.example", "issuer = \"https://login.example/\""),
        ] {
            assert!(store(url, oauth).load().await.unwrap().is_none(), "{url} {oauth}");
        }
        assert!(own.remove().await.unwrap());
        assert!(!own.remove().await.unwrap());
    }

    #[tokio::test]
    async fn damaged_tokens_are_told_without_their_text() {
        let dir = tempfile::tempdir().unwrap();
        let server = server(dir.path(), "https://mcp.example", "file = \"t.json\"");
        let store = TokenStore::with(&server, Keyring::closed()).unwrap();
        store.save(&tokens(store.server())).await.unwrap();
        let file = dir.path().join("t.json");
        let text = std::fs::read_to_string(&file).unwrap();
        for damaged in [
            text.replace("\"server\"", "\"sever\""),
            text[..text.len() - 5].to_owned(),
        ] {
            std::fs::write(&file, damaged).unwrap();
            let failure = format!("{:?}", store.load().await.unwrap_err());
            assert!(failure.contains("toolcell mcp logout srv"), "{failure}");
            assert!(!failure.contains("planted-access-token"), "{failure}");
        }
        // A link is neither followed nor removed.
        std::fs::rename(&file, dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("other"), &file).unwrap();
        assert!(store.load().await.is_err() && store.remove().await.is_err());
        assert!(dir.path().join("other").exists());
        // Without a keyring, the hint is a file.
        let place = Place::Keyring(Arc::new(Keyring::closed()));
        let failure = TokenStore { place, ..store }.load().await.unwrap_err();
        assert!(
            format!("{failure:?}").contains("[mcp.srv.oauth] file"),
            "{failure:?}"
        );
    }
}
