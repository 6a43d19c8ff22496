//! Tokens for the requests to a server: those of the last login, refreshed when they end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use toolcell_core::BoxFuture;
use toolcell_mcp::client::TokenSource;
use url::Url;

use super::Reason;
use super::client::OwnClient;
use super::fetch::Fetcher;
use super::store::TokenStore;
use super::token::{Tokens, scopes};

/// Code of the answer to a refresh token that does not count any more (RFC 6749, section 5.2).
const INVALID_GRANT: &str = "invalid_grant";

/// Age of a token that replaced a refused one, below which it is not replaced as well: a server that refuses every token is not
/// one whose tokens end.
const REFRESH_PAUSE: Duration = Duration::from_secs(60);

/// Tokens that the user has obtained by a login.
#[derive(Clone)]
pub(crate) struct StoredTokens(Arc<Shared>);

struct Shared {
    store: TokenStore,
    fetcher: Fetcher,
    client: OwnClient,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tokens in use; `None` until the server asks for one.
    tokens: Option<Tokens>,
    /// Access token that was issued after the server had refused the one before, and the time of that.
    refreshed: Option<(String, Instant)>,
}

impl StoredTokens {
    /// Tokens of a place. `issuer` is the authorization server that the user named.
    pub(crate) fn new(store: TokenStore, issuer: Option<&str>, client: OwnClient) -> Option<Self> {
        Some(Self(Arc::new(Shared {
            fetcher: fetcher(store.server(), issuer)?,
            store,
            client,
            state: Mutex::default(),
        })))
    }

    /// Runs work to its end, also if the request that waits for it is cancelled: a refresh token counts once, and its successor
    /// must not be lost.
    async fn to_the_end<T: Send + 'static>(
        work: impl Future<Output = Option<T>> + Send + 'static,
    ) -> Option<T> {
        tokio::spawn(work).await.ok().flatten()
    }
}

/// End of a login.
pub(crate) enum Revoked {
    /// The authorization server does not accept the tokens any more.
    Yes,
    /// It has no address at which tokens are revoked.
    Unsupported,
}

/// Revokes tokens at their authorization server. `issuer` is the one that the user named.
///
/// # Errors
/// Fails if the authorization server refuses, or cannot be reached.
pub(crate) async fn revoke(
    tokens: &Tokens,
    issuer: Option<&str>,
    client: &OwnClient,
) -> Result<Revoked, Reason> {
    if !tokens.can_be_revoked() {
        return Ok(Revoked::Unsupported);
    }
    let fetcher = fetcher(&tokens.server, issuer).ok_or("the address of the server is not a URL")?;
    tokens.revoke(&fetcher, client).await?;
    Ok(Revoked::Yes)
}

/// Returns the client for requests to the authorization server; `None` for an invalid URL.
fn fetcher(server: &str, issuer: Option<&str>) -> Option<Fetcher> {
    let server = Url::parse(server).ok()?;
    let issuer = issuer.and_then(|issuer| Url::parse(issuer).ok());
    Some(Fetcher::new(&server, issuer.as_ref()))
}

impl Shared {
    async fn renewed(&self, refused: Option<String>) -> Option<String> {
        let mut state = self.state.lock().await;
        let is_refused = |tokens: &Tokens| refused.as_ref() == Some(&tokens.access_token);
        // Another request may have renewed it.
        if let Some(tokens) = state.tokens.as_ref().filter(|tokens| !is_refused(tokens)) {
            return Some(tokens.access_token.clone());
        }
        if is_just_refreshed(state.refreshed.as_ref(), refused.as_deref(), Instant::now()) {
            return None;
        }
        let (tokens, is_refreshed) = self.successor(refused.as_deref()).await?;
        let token = tokens.access_token.clone();
        if refused.is_some() && is_refreshed {
            state.refreshed = Some((token.clone(), Instant::now()));
        }
        state.tokens = Some(tokens);
        Some(token)
    }

    /// Returns the tokens that are kept, if they are others than the last ones, or refreshes them. True in the second case.
    async fn successor(&self, last: Option<&str>) -> Option<(Tokens, bool)> {
        let stored = match self.store.load().await {
            Ok(stored) => stored?,
            Err(failure) => {
                tracing::warn!(server = self.store.name(), error = %failure, "tokens could not be read");
                return None;
            }
        };
        // Another process may have refreshed them, and a refresh token that is used twice can end both logins.
        if last != Some(&stored.access_token) && stored.is_current() {
            return Some((stored, false));
        }
        Some((self.refresh(stored).await?, true))
    }

    async fn refresh(&self, stored: Tokens) -> Option<Tokens> {
        match stored.refresh(&self.fetcher, &self.client).await {
            Ok(tokens) => {
                if let Err(failure) = self.store.save(&tokens).await {
                    tracing::warn!(server = self.store.name(), error = %failure, "tokens could not be kept");
                }
                Some(tokens)
            }
            Err(error) => {
                tracing::info!(server = self.store.name(), error = %error.reason, "a token was not refreshed");
                if error.code.as_deref() != Some(INVALID_GRANT) {
                    return None;
                }
                // Another process may have used the refresh token a moment ago, and kept its successor.
                let again = self.store.load().await.ok().flatten()?;
                (again.access_token != stored.access_token && again.is_current()).then_some(again)
            }
        }
    }

    async fn current(&self) -> Option<String> {
        let mut state = self.state.lock().await;
        let tokens = state.tokens.as_ref()?;
        if tokens.is_current() {
            return Some(tokens.access_token.clone());
        }
        // Without a successor the old one is sent, and the server decides.
        let old = tokens.access_token.clone();
        let Some((tokens, _)) = self.successor(Some(&old)).await else {
            return Some(old);
        };
        let token = tokens.access_token.clone();
        state.tokens = Some(tokens);
        Some(token)
    }

    async fn lacks(&self, scope: String) {
        let Ok(wanted) = scopes(&scope) else { return };
        // No refresh of this process comes between.
        let _state = self.state.lock().await;
        let lacking = Some(wanted.join(" "));
        let Ok(Some(mut stored)) = self.store.load().await else {
            return;
        };
        if stored.lacking == lacking {
            return;
        }
        stored.lacking = lacking;
        if let Err(failure) = self.store.save(&stored).await {
            tracing::warn!(server = self.store.name(), error = %failure, "scopes could not be kept");
        }
    }
}

impl TokenSource for StoredTokens {
    fn current(&self) -> BoxFuture<'_, Option<String>> {
        let shared = self.0.clone();
        Box::pin(Self::to_the_end(async move { shared.current().await }))
    }

    fn renewed<'a>(&'a self, refused: Option<&'a str>) -> BoxFuture<'a, Option<String>> {
        let (shared, refused) = (self.0.clone(), refused.map(str::to_owned));
        Box::pin(Self::to_the_end(async move { shared.renewed(refused).await }))
    }

    fn lacks<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, ()> {
        let (shared, scope) = (self.0.clone(), scope.to_owned());
        Box::pin(async move { shared.lacks(scope).await })
    }

    fn hint(&self) -> String {
        format!(
            "log in, and try again: toolcell mcp login {}",
            self.0.store.name()
        )
    }
}

impl std::fmt::Debug for StoredTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredTokens({})", self.0.store.name())
    }
}

/// True if a refused token has replaced another one less than [`REFRESH_PAUSE`] ago.
fn is_just_refreshed(refreshed: Option<&(String, Instant)>, refused: Option<&str>, now: Instant) -> bool {
    refreshed.is_some_and(|(token, time)| {
        refused == Some(token) && now.saturating_duration_since(*time) < REFRESH_PAUSE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_token_is_refreshed_again_after_a_pause() {
        let begun = Instant::now();
        let refreshed = ("new".to_owned(), begun);
        let is_new = |refused, after| is_just_refreshed(Some(&refreshed), refused, begun + after);
        assert!(is_new(Some("new"), Duration::ZERO));
        assert!(is_new(Some("new"), REFRESH_PAUSE - Duration::from_nanos(1)));
        assert!(!is_new(Some("new"), REFRESH_PAUSE));
        assert!(!is_new(Some("another"), Duration::ZERO) && !is_new(None, Duration::ZERO));
        assert!(!is_just_refreshed(None, Some("new"), begun));
    }
}
