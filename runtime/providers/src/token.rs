//! Access tokens that expire: requested when needed, cached while valid.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use toolcell_core::BoxFuture;

use crate::ApiKey;

/// Time before its expiry at which a token is no longer used, so that it does not expire during a request.
const MARGIN: Duration = Duration::from_secs(60);

/// Access token with its lifetime.
#[derive(Debug, Clone)]
pub struct Token {
    /// Value of the token, sent in a header.
    pub value: ApiKey,
    /// Remaining lifetime; `None` if unknown. The token is then used until the service refuses it.
    pub expires_in: Option<Duration>,
}

/// Source of access tokens: a function of the embedder, called before the first request, after the last token has
/// expired, and once for a request whose token the service refuses (401). Clones share the token.
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
    /// Creates a source from a function; its error is the reason, without a secret.
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

    /// Returns a valid token. `refused` is a token that the service did not accept and is not returned again.
    /// Concurrent requests share one call of the function.
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
    async fn token_is_cached_until_it_is_refused() {
        let source = counting(None);
        let first = source.get(None).await.unwrap();
        assert_eq!(source.get(None).await.unwrap(), first);
        let second = source.get(Some(&first)).await.unwrap();
        assert_ne!(second, first);
        // Another request that was refused with the first token does not discard the second one.
        assert_eq!(source.get(Some(&first)).await.unwrap(), second);
    }

    #[tokio::test]
    async fn token_is_renewed_a_minute_before_it_expires() {
        let holding = counting(Some(MARGIN + Duration::from_secs(3_600)));
        assert_eq!(holding.get(None).await, holding.get(None).await);
        let ending = counting(Some(MARGIN));
        assert_ne!(ending.get(None).await, ending.get(None).await);
    }
}
