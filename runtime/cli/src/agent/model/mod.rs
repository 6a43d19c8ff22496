//! Selection and setup of the model provider.

mod check;
mod connection;
pub(crate) mod local;
mod service;
mod vertex;

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcell_core::Provider;
use toolcell_core::provider::Prices;
use toolcell_providers::anthropic::Anthropic;
use toolcell_providers::gemini::{Gemini, GenerateContent};
use toolcell_providers::offline::{self, Offline};
use toolcell_providers::ollama::{Chat, Ollama};
use toolcell_providers::openai::{ChatCompletions, OpenAi, ToolSchemas};
use toolcell_providers::responses::{OpenAiResponses, Responses};
use toolcell_providers::scripted::Scripted;
use toolcell_providers::{ApiKey, Connection, Failover, HttpOptions, SetupError};

pub(crate) use self::check::check;
use self::connection::{http, is_loopback};
use self::service::{OPENAI_KEY, Service};
pub(crate) use self::service::{default_of, default_of_each};
use crate::components::keyring::{self, Keyring};
use crate::config::layers::profiles::find;
use crate::config::provider::{HeaderValue, ProviderName};
use crate::config::{Origin, ProviderSettings, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::{ModelName, Name, Own, Text, text};

/// A provider that is set up, and the reason for its choice.
pub(crate) struct Chosen {
    /// The provider.
    pub(crate) provider: Arc<dyn Provider>,
    /// Model and the reason for its choice, on one line.
    pub(crate) note: Text,
    /// Names of the models that answer instead of it.
    pub(crate) fallbacks: Vec<String>,
}

/// Returns the kind of provider and its origin: the configuration; else `openai` if its key is set, or if its URL, its key or a
/// model is configured: the user expects a model then; else `offline`.
pub(crate) fn name(provider: &ProviderSettings, environment: &Environment) -> (ProviderName, Origin) {
    if let Some(name) = &provider.name {
        return (name.value, name.origin.clone());
    }
    let url = provider.base_url.as_ref().map(|url| &url.origin);
    let others = [&provider.api_key_env, &provider.api_key_keyring, &provider.model];
    let mut others = others.into_iter().flatten().map(|setting| &setting.origin);
    let other = others.find(|origin| !matches!(origin, Origin::Default));
    match (url, other) {
        (Some(origin), _) => (ProviderName::OpenAi, origin.clone()),
        _ if environment.var(OPENAI_KEY).is_some() => (ProviderName::OpenAi, Origin::Variable(OPENAI_KEY)),
        (None, Some(origin)) => (ProviderName::OpenAi, origin.clone()),
        (None, None) => (ProviderName::Offline, Origin::Default),
    }
}

/// Sets up the provider and those of its fallback profiles, without sending a request. `prices` are those of models by name.
///
/// # Errors
/// Returns an error if a profile, a key, a model or a script is missing or invalid.
pub(crate) fn choose(
    settings: &ProviderSettings,
    profiles: &BTreeMap<String, ProviderSettings>,
    prices: &BTreeMap<String, Sourced<Prices>>,
    environment: &Environment,
) -> Result<Chosen, Failure> {
    let mut chosen = one(settings, environment)?;
    let Some(fallback) = &settings.fallback else {
        return Ok(chosen);
    };
    let mut others = Vec::new();
    for name in &fallback.value.0 {
        let profile = settings.with(find(profiles, name, fallback)?);
        let other = one(&profile, environment)
            .map_err(|failure| failure.why(text!("it is the profile `{}`, a fallback", name)))?;
        others.push(other.provider);
    }
    if !others.is_empty() {
        let name = |provider: &Arc<dyn Provider>| provider.info().model.clone();
        let price = |model: &String| prices.get(model).map(|prices| prices.value);
        let all = std::iter::once(&chosen.provider).chain(&others);
        let counts_costs = all.map(name).any(|model| price(&model).is_some());
        chosen.fallbacks = others.iter().map(name).collect();
        let mut failover = Failover::new(chosen.provider, others);
        if counts_costs {
            failover = failover.with_prices(chosen.fallbacks.iter().map(price).collect());
        }
        chosen.provider = Arc::new(failover);
    }
    Ok(chosen)
}

fn one(settings: &ProviderSettings, environment: &Environment) -> Result<Chosen, Failure> {
    let (name, origin) = name(settings, environment);
    settings.check_for(name)?;
    let mut memory = Text::from("");
    let provider: Arc<dyn Provider> = match (name, Service::of(name)) {
        (ProviderName::Local, _) => {
            let (provider, note) = local::local(settings, environment)?;
            memory = note;
            provider
        }
        (ProviderName::Scripted, _) => Arc::new(scripted(settings, environment)?),
        (_, Some(service)) => over_network(name, &service, settings, environment)?,
        (_, None) => Arc::new(Offline::new()),
    };
    let provider = match &settings.tool_calls {
        Some(way) => service::calling(provider, way.value),
        None => provider,
    };
    let model = provider.info().model.clone();
    let note = match (name, origin) {
        (ProviderName::Offline, Origin::Default) => text!(
            "{}: no provider is configured and {} is not set",
            Own(offline::MARK),
            Own(OPENAI_KEY)
        ),
        (ProviderName::Offline, origin) => text!("{} ({})", Own(offline::MARK), origin),
        (name, origin) => text!("{} {} ({}){}", name, ModelName(&model), origin, memory),
    };
    Ok(Chosen {
        provider,
        note,
        fallbacks: Vec::new(),
    })
}

fn scripted(settings: &ProviderSettings, environment: &Environment) -> Result<Scripted, Failure> {
    let model = settings.model.as_ref().ok_or_else(|| {
        Failure::new(Exit::Config, "provider `scripted` needs a script")
            .hint("give one with --model FILE.json")
    })?;
    let path = environment.path(&model.value, &environment.cwd);
    Scripted::from_file(&path).map_err(|error| cannot_set_up(ProviderName::Scripted, OPENAI_KEY, error))
}

fn over_network(
    name: ProviderName,
    service: &Service,
    settings: &ProviderSettings,
    environment: &Environment,
) -> Result<Arc<dyn Provider>, Failure> {
    let connection = connect(name, service, settings, environment)?;
    let tool_schemas = match &settings.strict {
        Some(Sourced { value: true, .. }) => ToolSchemas::Strict,
        _ => ToolSchemas::Loose,
    };
    let provider: Result<Arc<dyn Provider>, SetupError> = match name {
        ProviderName::Responses => {
            let mut protocol = Responses::default();
            protocol.tool_schemas = tool_schemas;
            OpenAiResponses::with(connection, protocol).map(shared)
        }
        ProviderName::Anthropic => Anthropic::new(connection).map(shared),
        ProviderName::Gemini => Gemini::new(connection).map(shared),
        ProviderName::Vertex => Gemini::with(connection, GenerateContent::vertex()).map(shared),
        ProviderName::Ollama => {
            let mut protocol = Chat::default();
            protocol.context = settings.num_ctx.as_ref().map(|tokens| tokens.value.0);
            Ollama::with(connection, protocol).map(shared)
        }
        ProviderName::OpenAi | ProviderName::Local | ProviderName::Scripted | ProviderName::Offline => {
            let mut protocol = ChatCompletions::default();
            protocol.tool_schemas = tool_schemas;
            OpenAi::with(connection, protocol).map(shared)
        }
    };
    provider.map_err(|error| cannot_set_up(name, service.key, error))
}

fn shared(provider: impl Provider + 'static) -> Arc<dyn Provider> {
    Arc::new(provider)
}

/// Returns the model and the connection, which do not depend on the protocol.
fn connect(
    name: ProviderName,
    service: &Service,
    settings: &ProviderSettings,
    environment: &Environment,
) -> Result<Connection, Failure> {
    let written_url = settings.base_url.as_ref().map(|url| url.value.as_str());
    let model = match (&settings.model, service.model) {
        (Some(model), _) => model.value.as_str(),
        (None, Some(model)) if written_url.is_none() => model,
        (None, _) => {
            let unnamed = match written_url.or(service.base_url) {
                None => text!("no model is set for `{}`", name),
                Some(url) => text!("no model is set for `{}` at `{}`", name, url),
            };
            return Err(Failure::new(Exit::Config, unnamed)
                .hint("set it with --model, TOOLCELL_MODEL or `[provider] model`"));
        }
    };
    let base_url = match written_url.or(service.base_url) {
        Some(url) => url.to_owned(),
        None => vertex::base_url(settings, environment)?,
    };
    one_source_of_key(service, settings)?;
    let mut connection = Connection::new(model);
    connection.tokens = settings
        .token_command
        .as_ref()
        .map(|command| vertex::of_command(&command.value.0));
    if connection.tokens.is_none() {
        connection.api_key = key(service, settings, environment, &base_url)?.map(ApiKey::new);
    }
    connection.http = http(environment, &base_url);
    apply(settings, environment, &mut connection.http)?;
    Ok(connection.with_base_url(base_url))
}

/// Refuses a key beside a header that has the key as well: one of them would be ignored.
fn one_source_of_key(service: &Service, settings: &ProviderSettings) -> Result<(), Failure> {
    let Some(headers) = (settings.headers.as_ref()).filter(|headers| headers.value.has(service.key_header))
    else {
        return Ok(());
    };
    let env = settings
        .api_key_env
        .as_ref()
        .map(|key| ("api_key_env", &key.origin));
    let keyring = settings.api_key_keyring.as_ref();
    let keyring = keyring.map(|key| ("api_key_keyring", &key.origin));
    let command = settings.token_command.as_ref();
    let command = command.map(|command| ("token_command", &command.origin));
    let Some((setting, origin)) = env.or(keyring).or(command) else {
        return Ok(());
    };
    Err(
        Failure::new(Exit::Config, "the key of the provider has two sources")
            .why(origin.point_at())
            .why(headers.origin.point_at())
            .hint(text!(
                "keep one of `{}` and the header `{}`",
                setting,
                service.key_header
            )),
    )
}

/// Sets the configured timeouts, retries and headers.
fn apply(
    settings: &ProviderSettings,
    environment: &Environment,
    http: &mut HttpOptions,
) -> Result<(), Failure> {
    if let Some(timeout) = &settings.idle_timeout {
        http.idle_timeout = timeout.value.0;
        // A server that only keeps the connection alive is given at least as long.
        http.progress_timeout = http.progress_timeout.max(timeout.value.0);
    }
    http.deadline = settings.request_timeout.as_ref().map(|timeout| timeout.value.0);
    if let Some(retries) = &settings.retries {
        http.retry.retries = retries.value.0;
    }
    for (name, value) in settings.headers.iter().flat_map(|headers| &headers.value.0) {
        let value = match value {
            HeaderValue::Text(text) => text.clone(),
            HeaderValue::Variable { env } => environment.var(env).map(str::to_owned).ok_or_else(|| {
                let unset = text!(
                    "the variable `{}` for the header `{}` is not set, or empty",
                    env,
                    name
                );
                let failure = Failure::new(Exit::Config, unset);
                let origin = settings.headers.as_ref().map(|headers| headers.origin.point_at());
                match origin {
                    Some(origin) => failure.why(origin),
                    None => failure,
                }
                .hint(text!("set it: export {}=…", env))
            })?,
        };
        http.headers.push((name.clone(), value));
    }
    Ok(())
}

/// Variable that usually contains the key of a provider, by the name of the provider.
pub(crate) fn key_variable(provider: &str) -> Option<&'static str> {
    let name = provider.parse().ok()?;
    Service::of(name).map(|service| service.key)
}

/// Returns the source of the key that the user configured, for the hint about a refused key.
pub(crate) fn key_source(settings: &ProviderSettings) -> Option<Text> {
    if settings.fallback.is_some() {
        // Another profile may have been asked.
        return None;
    }
    let variable = settings.api_key_env.as_ref();
    let account = settings.api_key_keyring.as_ref();
    if let (None, None, Some(headers)) = (variable, account, &settings.headers)
        && let Some(name) = headers.value.with_key()
    {
        return Some(text!("the header `{}` of `[provider] headers`", name));
    }
    let variable = variable.map(|name| text!("{}", Name(&name.value)));
    variable
        .or_else(|| account.map(|name| text!("the keyring (`toolcell secret set {}`)", Name(&name.value))))
}

/// Returns the key, from the configured variable or keyring account, or from the usual variable.
fn key(
    service: &Service,
    provider: &ProviderSettings,
    environment: &Environment,
    base_url: &str,
) -> Result<Option<String>, Failure> {
    match (&provider.api_key_env, &provider.api_key_keyring) {
        (Some(name), Some(account)) if !matches!(name.origin, Origin::Flag(_)) => Err(Failure::new(
            Exit::Config,
            "the key of the provider has two sources",
        )
        .why(name.origin.point_at())
        .why(account.origin.point_at())
        .hint("keep one of `api_key_env` and `api_key_keyring`")),
        (Some(name), _) => match environment.var(&name.value) {
            Some(key) => Ok(Some(key.to_owned())),
            None => Err(Failure::new(
                Exit::Provider,
                text!("the variable `{}` contains no key", name.value),
            )
            .why("it is not set, or empty")
            .why(name.origin.point_at())
            .hint(text!("set it: export {}=…", name.value))),
        },
        (None, Some(account)) => key_in(&Keyring::of_system(), account).map(Some),
        // A header with a key takes its place.
        (None, None)
            if (provider.headers.as_ref()).is_some_and(|headers| headers.value.with_key().is_some()) =>
        {
            Ok(None)
        }
        // The usual key is not sent unencrypted to a server for which the user did not configure a key.
        (None, None) if base_url.starts_with("https://") || is_loopback(base_url) => {
            Ok(environment.var(service.key).map(str::to_owned))
        }
        (None, None) => Ok(None),
    }
}

/// Returns the key of a keyring account.
fn key_in(keyring: &Keyring, account: &Sourced<String>) -> Result<String, Failure> {
    let name = &account.value;
    let key = keyring
        .get(name)
        .map_err(|failure| failure.why(account.origin.point_at()))?;
    key.ok_or_else(|| {
        keyring::no_entry(Exit::Provider, name)
            .why(account.origin.point_at())
            .hint(text!(
                "to store the key: toolcell secret set {}",
                escape::shell(name)
            ))
    })
}

fn cannot_set_up(name: ProviderName, key: &str, error: SetupError) -> Failure {
    let exit = match error {
        SetupError::MissingKey { .. } => Exit::Provider,
        _ => Exit::Config,
    };
    let hint = match &error {
        SetupError::MissingKey { .. } if name == ProviderName::Vertex => Some(format!(
            "configure a command that prints tokens: [provider] token_command = [\"gcloud\", \"auth\", \"print-access-token\"]\nor set one: export {key}=…"
        )),
        SetupError::MissingKey { .. } => Some(format!(
            "set the key: export {key}=…\nor try without a model: --provider offline"
        )),
        SetupError::BaseUrl { .. } => Some(match Service::of(name).and_then(|service| service.base_url) {
            Some(usual) => format!("a base URL of `{name}` looks like `{usual}`"),
            None => "a base URL looks like `https://example.com/v1`".into(),
        }),
        SetupError::Header { .. } => Some("check the key, and `[provider] headers`".into()),
        SetupError::Script { .. } => Some(SCRIPT_HINT.into()),
        SetupError::Proxy(_) => {
            Some("check HTTPS_PROXY, http_proxy and ALL_PROXY, or exclude the host with NO_PROXY".into())
        }
        _ => None,
    };
    Failure::new(exit, text!("provider `{}` could not be set up", name))
        .because(error)
        .hints(hint)
}

/// A complete script, as a hint for an invalid one.
const SCRIPT_HINT: &str = r#"a script is JSON such as {"steps": [{"calls": [{"name": "clock_now", "arguments": {}}]}, {"text": "Done."}]}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_in_hint_is_valid() {
        let (_, script) = SCRIPT_HINT.split_once("such as ").unwrap();
        toolcell_providers::scripted::Script::parse(script).unwrap();
    }

    #[test]
    fn provider_key_is_read_from_keyring_or_reported_missing() {
        let keyring = Keyring::in_memory();
        let account = Sourced::flag("--test", "openai".to_owned());
        let failure = key_in(&keyring, &account).unwrap_err();
        assert_eq!(failure.exit, Exit::Provider);
        assert!(format!("{failure:?}").contains("toolcell secret set openai"));
        keyring.set("openai", "planted-key".into()).unwrap();
        assert_eq!(key_in(&keyring, &account).unwrap(), "planted-key");
        assert_eq!(
            key_in(&Keyring::closed(), &account).unwrap_err().exit,
            Exit::Config
        );
    }
}
