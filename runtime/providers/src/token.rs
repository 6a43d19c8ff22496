//! Access tokens that expire: asked for when they are needed, kept while they hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use toolcell_core::BoxFuture;

use crate::ApiKey;

/// How long before its end a token is no longer used: a request must not outlive it on its way.
const MARGIN: Duration = Duration::from_secs(60);

/// An access token, and how long it holds.
#[derive(Debug, Clone)]
pub struct Token {
    /// The token.
    pub value: ApiKey,
    /// How long it holds from now on; `None` where nobody says so. Then it is used until the service refuses it.
    pub expires_in: Option<Duration>,
}

/// Where access tokens come from: a function of the embedder, asked for a token before the first request, after the last
/// one has expired, and once for a request whose token the service refuses (401). Clones share the token.
#[derive(Clone)]
pub struct TokenSource {
    ask: Arc<Ask>,
    kept: Arc<Mutex<Option<Kept>>>,
}

type Ask = dyn Fn() -> BoxFuture<'static, Result<Token, String>> + Send + Sync;

struct Kept {
    value: ApiKey,
    until: Option<Instant>,
}

impl TokenSource {
    /// Tokens of a function; its error says why there is none, without a secret.
    pub fn new<F, R>(ask: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Token, String>> + Send + 'static,
    {
        Self {
            ask: Arc::new(move || Box::pin(ask())),
            kept: Arc::default(),
        }
    }

    /// A token that holds. `refused` is one that the service did not accept: it is not given again. Many requests that
    /// wait for a token ask once.
    pub(crate) async fn get(&self, refused: Option<&ApiKey>) -> Result<ApiKey, String> {
        let mut kept = self.kept.lock().await;
        if let Some(known) = kept.as_ref()
            && refused != Some(&known.value)
            && known.until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(known.value.clone());
        }
        let token = (self.ask)().await?;
        *kept = Some(Kept {
            value: token.value.clone(),
            until: token
                .expires_in
                .map(|time| Instant::now() + time.saturating_sub(MARGIN)),
        });
        Ok(token.value)
    }
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSource")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn counting(expires_in: Option<Duration>) -> TokenSource {
        let asked = Arc::new(AtomicU32::new(0));
        TokenSource::new(move || {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                Ok(Token {
                    value: ApiKey::new(format!("token-{number}")),
                    expires_in,
                })
            }
        })
    }

    #[tokio::test]
    async fn a_token_is_asked_for_once_while_it_holds_and_again_when_it_is_refused() {
        let source = counting(None);
        let first = source.get(None).await.unwrap();
        assert_eq!(source.get(None).await.unwrap(), first);
        let second = source.get(Some(&first)).await.unwrap();
        assert_ne!(second, first);
        // Another request that was refused with the first one does not throw the second one away.
        assert_eq!(source.get(Some(&first)).await.unwrap(), second);
    }

    #[tokio::test]
    async fn a_token_is_asked_for_again_a_minute_before_it_expires() {
        let holding = counting(Some(MARGIN + Duration::from_secs(3_600)));
        assert_eq!(holding.get(None).await, holding.get(None).await);
        let ending = counting(Some(MARGIN));
        assert_ne!(ending.get(None).await, ending.get(None).await);
    }
}
