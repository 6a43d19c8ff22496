//! List of the models of a service.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;
use toolcell_core::ProviderError;
use toolcell_core::provider::{ModelInfo, ProviderErrorKind};

use super::exchange::{Http, MAX_WHOLE_BODY};
use super::protocol::Protocol;
use super::retry::FailedAttempt;
use super::service::{HttpRequest, ServiceRequest};
use crate::framing;

/// Maximum time until a list of models is complete, also if something of it arrives all the time.
const LIST_TIME: Duration = Duration::from_secs(60);

/// Maximum length of the name of a model, in bytes. Longer ones are left out.
const MAX_NAME: usize = 256;

impl Http {
    /// Requests the list of models, with both forms of the base URL.
    pub(super) async fn models<P: Protocol>(
        &self,
        request: &ServiceRequest<'_, P>,
    ) -> Result<Vec<ModelInfo>, ProviderError> {
        let mut failed = None;
        for listing in request.listings()? {
            match self.list(listing).await {
                Ok(mut models) => {
                    // A server may repeat the key that it received.
                    let redactor = self.redactor(request.secret());
                    for model in &mut models {
                        redactor.string(&mut model.name);
                    }
                    return Ok(models);
                }
                // That of the first form explains more, unless it only says that there is nothing.
                Err(failure) => {
                    let is_missing = failure.error.status == Some(404);
                    let failure = failed.take().unwrap_or(failure);
                    failed = Some(failure);
                    if !is_missing {
                        break;
                    }
                }
            }
        }
        let failure = failed.unwrap_or_else(|| {
            FailedAttempt::fatal(self.error(ProviderErrorKind::InvalidRequest, "it has no list of models"))
        });
        Err(self.without_secrets_of(failure, request.secret()).error)
    }

    async fn list(&self, request: HttpRequest) -> Result<Vec<ModelInfo>, FailedAttempt> {
        let time = self
            .options()
            .deadline
            .map_or(LIST_TIME, |time| time.min(LIST_TIME));
        let deadline = Some(Instant::now() + time);
        let get = self
            .client()
            .get(request.url)
            .headers(HeaderMap::from_iter(request.headers));
        let mut response = self
            .in_time(deadline, get.send())
            .await?
            .map_err(|error| self.of_transport(error))?;
        if !response.status().is_success() {
            return Err(self.refused(response, deadline).await);
        }
        let mut body: Vec<u8> = Vec::new();
        loop {
            let chunk = self.in_time(deadline, response.chunk()).await?;
            let Some(chunk) = chunk.map_err(|error| self.of_transport(error))? else {
                break;
            };
            if body.len() + chunk.len() > MAX_WHOLE_BODY {
                let why = format!("the list of models has more than {MAX_WHOLE_BODY} bytes");
                return Err(FailedAttempt::fatal(self.error(ProviderErrorKind::Protocol, why)));
            }
            body.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(body).ok();
        let answer = text.and_then(|text| framing::parse(&text).ok());
        answer.as_ref().and_then(models_of).ok_or_else(|| {
            let why = "the answer is not a list of models; the base URL may be wrong";
            FailedAttempt::fatal(self.error(ProviderErrorKind::Protocol, why))
        })
    }
}

/// Reads a list of models in the form of any of the services. Models that answer no messages are left out where the service
/// says so.
fn models_of(answer: &Value) -> Option<Vec<ModelInfo>> {
    let listed = ["data", "models"]
        .iter()
        .find_map(|key| answer.get(key)?.as_array());
    let entries = listed.or_else(|| answer.as_array())?;
    Some(entries.iter().filter_map(model_of).collect())
}

fn model_of(entry: &Value) -> Option<ModelInfo> {
    let name = ["id", "name"].iter().find_map(|key| entry.get(key)?.as_str())?;
    let name = name.strip_prefix("models/").unwrap_or(name);
    let methods = entry.get("supportedGenerationMethods").and_then(Value::as_array);
    let answers = methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"));
    let context = [
        "inputTokenLimit",
        "context_length",
        "context_window",
        "max_context_length",
        "max_input_tokens",
        "max_model_len",
    ];
    (answers && !name.is_empty() && name.len() <= MAX_NAME).then(|| ModelInfo {
        name: name.to_owned(),
        context_tokens: context.iter().find_map(|key| entry.get(key)?.as_u64()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(answer: Value) -> Option<Vec<(String, Option<u64>)>> {
        let models = models_of(&answer)?;
        Some(
            models
                .into_iter()
                .map(|model| (model.name, model.context_tokens))
                .collect(),
        )
    }

    #[test]
    fn list_of_every_service_is_read() {
        let named = |name: &str, context| Some(vec![(name.to_owned(), context)]);
        for (answer, expected) in [
            (
                json!({"object": "list", "data": [{"id": "gpt-5", "object": "model"}]}),
                named("gpt-5", None),
            ),
            (
                json!({"data": [{"id": "a/b", "name": "B", "context_length": 131072}]}),
                named("a/b", Some(131_072)),
            ),
            (
                json!({"models": [
                    {"name": "models/gemini-x", "inputTokenLimit": 1048576, "supportedGenerationMethods": ["generateContent"]},
                    {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
                ]}),
                named("gemini-x", Some(1_048_576)),
            ),
            (
                json!({"models": [{"name": "qwen3:8b", "size": 5}]}),
                named("qwen3:8b", None),
            ),
            (
                json!([{"id": "bare"}, {"id": ""}, {"id": 1}, 2]),
                named("bare", None),
            ),
            (json!({"data": []}), Some(Vec::new())),
            (json!({"data": {}}), None),
            (json!("<html>"), None),
        ] {
            assert_eq!(read(answer.clone()), expected, "{answer}");
        }
    }

    #[test]
    fn name_beyond_its_maximum_is_left_out() {
        let list = |length: usize| read(json!([{"id": "x".repeat(length)}])).unwrap().len();
        assert_eq!((list(MAX_NAME), list(MAX_NAME + 1)), (1, 0));
    }
}
