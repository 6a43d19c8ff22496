//! Other models for requests that a model does not answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use toolcell_core::provider::{
    Completion, Delta, ModelInfo, Prices, ProviderErrorKind, ProviderInfo, Request,
};
use toolcell_core::{BoxFuture, BoxStream, Provider, ProviderError};

use crate::emit::{self, Emitter};

/// Time for which a model that failed is not asked first again.
pub const REST: Duration = Duration::from_secs(60);

/// Wrapper of several providers: a request that the first one does not answer goes to the next.
///
/// The next one is asked if the service cannot be reached, is overloaded, does not accept the key, has no quota left, or is
/// silent, and nothing of an answer has arrived. A request that is wrong or too long is wrong everywhere. The user is told.
/// For [`REST`] after a failure, further requests begin with the model that answered.
pub struct Failover {
    first: Arc<dyn Provider>,
    others: Vec<Arc<dyn Provider>>,
    /// Prices of the others, in their order, if costs are counted.
    prices: Option<Vec<Option<Prices>>>,
    /// Model that answered instead of the first, and until when it is asked first.
    preferred: Mutex<Option<(usize, Instant)>>,
}

impl Failover {
    /// Creates a provider with the identity of `first`.
    pub fn new(first: Arc<dyn Provider>, others: Vec<Arc<dyn Provider>>) -> Self {
        Self {
            first,
            others,
            prices: None,
            preferred: Mutex::default(),
        }
    }

    /// Counts the tokens of the other models at their own prices, given in their order. Those of a model without prices cost
    /// nothing, which the user is told when it answers. Without this, all tokens count at the prices of the first model.
    #[must_use]
    pub fn with_prices(mut self, prices: Vec<Option<Prices>>) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Prices of a model: `None` if those of the session apply, `Some(None)` if they are not known.
    fn prices(&self, index: usize) -> Option<Option<Prices>> {
        let other = index.checked_sub(1)?;
        let prices = self.prices.as_ref()?;
        Some(prices.get(other).copied().flatten())
    }

    fn provider(&self, index: usize) -> &Arc<dyn Provider> {
        index
            .checked_sub(1)
            .and_then(|other| self.others.get(other))
            .unwrap_or(&self.first)
    }

    /// Index of the model that is asked first.
    fn start(&self) -> usize {
        let preferred = *self.preferred.lock().unwrap_or_else(PoisonError::into_inner);
        preferred.map_or(0, |(index, until)| if Instant::now() < until { index } else { 0 })
    }

    async fn exchange(&self, request: Request, mut out: Emitter) -> Result<Completion, ProviderError> {
        let start = self.start();
        // Each once, also those before a preferred one.
        let order = (start..=self.others.len()).chain(0..start);
        let mut failed: Option<ProviderError> = None;
        for index in order {
            let provider = self.provider(index);
            if let Some(error) = &failed {
                let ProviderInfo { provider, model } = provider.info();
                let unpriced = match self.prices(index) {
                    Some(None) => ", and its tokens are not in the cost: its prices are not set",
                    _ => "",
                };
                let told = format!("{error}; `{model}` of {provider} answers instead{unpriced}");
                out.emit(Delta::Notice(told)).await;
            }
            let error = match relay(provider, request.clone(), &mut out).await {
                Ok(mut completion) => {
                    if let (Some(prices), Some(usage)) = (self.prices(index), &mut completion.usage) {
                        usage.unpriced = prices.is_none();
                        usage.cost_micros = Some(prices.unwrap_or_default().cost_micros(usage));
                    }
                    if failed.is_some() {
                        let until = Instant::now() + REST;
                        *self.preferred.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, until));
                    }
                    return Ok(completion);
                }
                Err(error) => error,
            };
            if out.has_emitted() || !passes_on(error.kind) {
                return Err(error);
            }
            // The error of the user's own choice explains more than that of the last resort.
            failed.get_or_insert(error);
        }
        Err(failed.unwrap_or_else(|| {
            let name = &self.first.info().provider;
            ProviderError::new(name, ProviderErrorKind::Unavailable, "no model is left")
        }))
    }
}

/// Passes on what a provider streams, up to the completion.
async fn relay(
    provider: &Arc<dyn Provider>,
    request: Request,
    out: &mut Emitter,
) -> Result<Completion, ProviderError> {
    let mut stream = provider.stream(request);
    while let Some(delta) = stream.next().await {
        match delta? {
            Delta::Finished(completion) => return Ok(completion),
            delta => out.emit(delta).await,
        }
    }
    let name = &provider.info().provider;
    Err(ProviderError::new(
        name,
        ProviderErrorKind::Truncated,
        "the answer has no end",
    ))
}

/// True if another model may answer where one has failed in this way.
fn passes_on(kind: ProviderErrorKind) -> bool {
    match kind {
        ProviderErrorKind::Unauthorized
        | ProviderErrorKind::RateLimited
        | ProviderErrorKind::QuotaExceeded
        | ProviderErrorKind::Unavailable
        | ProviderErrorKind::Truncated
        | ProviderErrorKind::Protocol
        | ProviderErrorKind::Timeout
        | ProviderErrorKind::Network => true,
        // Wrong or too long everywhere.
        _ => false,
    }
}

impl Provider for Failover {
    fn info(&self) -> &ProviderInfo {
        self.first.info()
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        emit::stream(|out| self.exchange(request, out))
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<ModelInfo>, ProviderError>> {
        self.first.models()
    }
}

impl std::fmt::Debug for Failover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let others = self.others.iter().map(|provider| provider.info());
        f.debug_struct("Failover")
            .field("first", self.first.info())
            .field("others", &others.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use toolcell_core::Part;
    use toolcell_core::provider::StopReason;

    /// A model that plays back what each request gets.
    struct Playing {
        info: ProviderInfo,
        answers: Mutex<VecDeque<Vec<Result<Delta, ProviderErrorKind>>>>,
    }

    type Answer = Vec<Result<Delta, ProviderErrorKind>>;

    fn model(name: &str, answers: Vec<Answer>) -> Arc<Playing> {
        Arc::new(Playing {
            info: ProviderInfo {
                provider: "p".into(),
                model: name.into(),
            },
            answers: Mutex::new(answers.into()),
        })
    }

    impl Playing {
        fn left(&self) -> usize {
            self.answers.lock().unwrap().len()
        }
    }

    impl Provider for Playing {
        fn info(&self) -> &ProviderInfo {
            &self.info
        }

        fn stream(&self, _: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
            let answer = self
                .answers
                .lock()
                .unwrap()
                .pop_front()
                .expect("one request more");
            let name = self.info.model.clone();
            let deltas = answer.into_iter();
            let deltas =
                deltas.map(move |delta| delta.map_err(|kind| ProviderError::new("p", kind, name.clone())));
            Box::pin(futures_util::stream::iter(deltas))
        }
    }

    fn says(text: &str) -> Answer {
        vec![Ok(Delta::Finished(Completion {
            parts: vec![Part::text(text)],
            stop: StopReason::Complete,
            usage: None,
        }))]
    }

    fn fails(kind: ProviderErrorKind) -> Answer {
        vec![Err(kind)]
    }

    /// Texts of the answer, or the error, and the notices before it.
    async fn ask(provider: &Failover) -> (Result<String, String>, Vec<String>) {
        let mut notices = Vec::new();
        let mut stream = provider.stream(Request::default());
        while let Some(delta) = stream.next().await {
            match delta {
                Ok(Delta::Finished(completion)) => {
                    let texts = completion.parts.iter().map(|part| match part {
                        Part::Text { text, .. } => text.as_str(),
                        _ => "",
                    });
                    return (Ok(texts.collect()), notices);
                }
                Ok(Delta::Notice(notice)) => notices.push(notice),
                Ok(_) => {}
                Err(error) => return (Err(error.message), notices),
            }
        }
        unreachable!("a stream ends with an answer or an error")
    }

    fn failover(first: &Arc<Playing>, others: &[&Arc<Playing>]) -> Failover {
        let others = others
            .iter()
            .map(|other| -> Arc<dyn Provider> { (*other).clone() });
        Failover::new(first.clone(), others.collect())
    }

    #[tokio::test]
    async fn next_model_answers_where_another_can_help() {
        use ProviderErrorKind as Kind;
        for (kind, is_helped) in [
            (Kind::Unauthorized, true),
            (Kind::RateLimited, true),
            (Kind::QuotaExceeded, true),
            (Kind::Unavailable, true),
            (Kind::Truncated, true),
            (Kind::Protocol, true),
            (Kind::Timeout, true),
            (Kind::Network, true),
            (Kind::ContextLength, false),
            (Kind::ToolsUnsupported, false),
            (Kind::InvalidRequest, false),
        ] {
            let (first, second) = (model("a", vec![fails(kind)]), model("b", vec![says("yes")]));
            let (answer, notices) = ask(&failover(&first, &[&second])).await;
            let expected = if is_helped {
                Ok("yes".to_owned())
            } else {
                Err("a".to_owned())
            };
            assert_eq!(answer, expected, "{kind:?}");
            assert_eq!(notices.len(), usize::from(is_helped), "{kind:?}");
            assert!(
                notices
                    .iter()
                    .all(|notice| notice.ends_with("`b` of p answers instead")),
                "{notices:?}"
            );
        }
    }

    #[tokio::test]
    async fn answer_that_has_begun_is_not_begun_again() {
        let begun = vec![Ok(Delta::Text("so".into())), Err(ProviderErrorKind::Network)];
        let (first, second) = (model("a", vec![begun]), model("b", vec![says("yes")]));
        assert_eq!(ask(&failover(&first, &[&second])).await.0, Err("a".to_owned()));
        assert_eq!(second.left(), 1);
    }

    #[tokio::test]
    async fn error_of_the_first_is_told_if_all_fail() {
        let all = |name| model(name, vec![fails(ProviderErrorKind::Unavailable)]);
        let (first, second, third) = (all("a"), all("b"), all("c"));
        let (answer, notices) = ask(&failover(&first, &[&second, &third])).await;
        assert_eq!((answer, notices.len()), (Err("a".to_owned()), 2));
        assert_eq!((second.left(), third.left()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn model_that_failed_rests() {
        let first = model("a", vec![fails(ProviderErrorKind::Unavailable), says("a again")]);
        let second = model("b", vec![says("b"), says("b again")]);
        let both = failover(&first, &[&second]);
        assert_eq!(ask(&both).await.0, Ok("b".to_owned()));
        tokio::time::advance(REST - Duration::from_millis(1)).await;
        assert_eq!(ask(&both).await, (Ok("b again".to_owned()), Vec::new()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask(&both).await.0, Ok("a again".to_owned()));
    }

    #[tokio::test]
    async fn first_model_is_asked_again_if_the_preferred_fails() {
        let first = model("a", vec![fails(ProviderErrorKind::Unavailable), says("a again")]);
        let second = model("b", vec![says("b"), fails(ProviderErrorKind::Network)]);
        let both = failover(&first, &[&second]);
        assert_eq!(ask(&both).await.0, Ok("b".to_owned()));
        assert_eq!(ask(&both).await.0, Ok("a again".to_owned()));
    }

    #[tokio::test]
    async fn answer_of_another_model_costs_what_that_model_does() {
        let answer = || -> Answer {
            vec![Ok(Delta::Finished(Completion {
                parts: vec![Part::text("hi")],
                stop: StopReason::Complete,
                usage: Some(toolcell_core::provider::Usage {
                    input: 1_000_000,
                    ..Default::default()
                }),
            }))]
        };
        let price = Prices {
            input: 2_000_000,
            ..Prices::default()
        };
        let mut told = Vec::new();
        for (prices, cost) in [
            (None, None),
            (Some(vec![Some(price)]), Some(2_000_000)),
            (Some(vec![None]), Some(0)),
        ] {
            let first = model("first", vec![fails(ProviderErrorKind::Unavailable)]);
            let other: Arc<dyn Provider> = model("other", vec![answer()]);
            let mut failover = Failover::new(first, vec![other]);
            if let Some(prices) = prices {
                failover = failover.with_prices(prices);
            }
            let mut stream = failover.stream(Request::default());
            let (mut notice, mut usage) = (String::new(), None);
            while let Some(delta) = stream.next().await {
                match delta.unwrap() {
                    Delta::Notice(text) => notice = text,
                    Delta::Finished(completion) => usage = completion.usage,
                    _ => {}
                }
            }
            let usage = usage.unwrap();
            assert_eq!(usage.cost_micros, cost, "{notice}");
            assert_eq!(usage.unpriced, cost == Some(0), "{notice}");
            told.push(notice.contains("not in the cost"));
        }
        assert_eq!(told, [false, false, true]);

        let alone = Failover::new(model("first", vec![answer()]), Vec::new()).with_prices(Vec::new());
        let mut stream = alone.stream(Request::default());
        let Some(Ok(Delta::Finished(completion))) = stream.next().await else {
            panic!("no answer");
        };
        assert_eq!(completion.usage.unwrap().cost_micros, None);
    }
}
