//! Which model provider a name stands for, and which one is taken when nobody names one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolcell_core::Provider;
use toolcell_providers::anthropic::{self, Anthropic};
use toolcell_providers::gemini::{self, Gemini};
use toolcell_providers::offline::{self, Offline};
use toolcell_providers::ollama::{self, Ollama};
use toolcell_providers::openai::{self, OpenAi};
use toolcell_providers::responses::{self, OpenAiResponses};
use toolcell_providers::scripted::Scripted;
use toolcell_providers::{ApiKey, HttpOptions, SetupError};

use crate::config::{Origin, Settings, Sourced};
use crate::environment::Environment;
use crate::keyring::{self, Keyring};
use crate::near::nearest;
use crate::report::{Exit, Failure};

/// The variable that holds the key of OpenAI, and of servers that speak its wire.
const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// A model at OpenAI that is asked when nobody names one.
const OPENAI_MODEL: &str = "gpt-5-mini";

/// What the providers that are reached over a network have by default.
struct Wire {
    /// The variable that usually holds the key.
    key: &'static str,
    /// Where the provider itself listens.
    base_url: &'static str,
    /// The model that is asked there when nobody names one; `None` where somebody must.
    model: Option<&'static str>,
}

impl ProviderName {
    /// The defaults of a provider that is reached over a network.
    fn wire(self) -> Option<Wire> {
        Some(match self {
            Self::OpenAi => Wire {
                key: OPENAI_KEY,
                base_url: openai::OPENAI_BASE_URL,
                model: Some(OPENAI_MODEL),
            },
            Self::Responses => Wire {
                key: OPENAI_KEY,
                base_url: openai::OPENAI_BASE_URL,
                model: Some(OPENAI_MODEL),
            },
            Self::Anthropic => Wire {
                key: "ANTHROPIC_API_KEY",
                base_url: anthropic::ANTHROPIC_BASE_URL,
                model: None,
            },
            Self::Gemini => Wire {
                key: "GEMINI_API_KEY",
                base_url: gemini::GEMINI_BASE_URL,
                model: None,
            },
            Self::Ollama => Wire {
                key: "OLLAMA_API_KEY",
                base_url: ollama::OLLAMA_BASE_URL,
                model: None,
            },
            Self::Scripted | Self::Offline => return None,
        })
    }
}

/// The kinds of providers, by the names that people write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// OpenAI, or any server that speaks its Chat Completions.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini, from Google.
    Gemini,
    /// Ollama's own wire.
    Ollama,
    /// Turns from a JSON file, for tests and demonstrations.
    Scripted,
    /// No model: a small stand-in that matches words of the request with the tools.
    Offline,
}

impl ProviderName {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::OpenAi,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
        Self::Ollama,
        Self::Scripted,
        Self::Offline,
    ];

    /// The name, as people write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Scripted => "scripted",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProviderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = Self::ALL.into_iter().find(|name| name.as_str() == text) {
            return Ok(name);
        }
        let known = Self::ALL.map(Self::as_str);
        Err(match nearest(text, &known).first() {
            Some(near) => format!(
                "there is no provider `{}`; did you mean `{near}`?",
                text.escape_debug()
            ),
            None => format!(
                "there is no provider `{}`; there are {}",
                text.escape_debug(),
                known.map(|name| format!("`{name}`")).join(", ")
            ),
        })
    }
}

/// Requests to the model in one turn, where nobody says otherwise.
pub(crate) fn default_max_steps() -> u32 {
    toolcell_agent::LoopPolicy::default().max_steps
}

/// A provider that is ready, and who chose it.
pub(crate) struct Chosen {
    /// The provider.
    pub(crate) provider: Arc<dyn Provider>,
    /// Which model it is and why, on one line.
    pub(crate) note: String,
}

/// The kind of provider, and who chose it: configuration; else `openai` where its key is set; else `offline`.
pub(crate) fn name(settings: &Settings, environment: &Environment) -> (ProviderName, Origin) {
    match &settings.provider.name {
        Some(name) => (name.value, name.origin.clone()),
        None if settings.provider.base_url.is_some() => {
            let origin = settings
                .provider
                .base_url
                .as_ref()
                .map_or(Origin::Default, |url| url.origin.clone());
            (ProviderName::OpenAi, origin)
        }
        None if environment.var(OPENAI_KEY).is_some() => (ProviderName::OpenAi, Origin::Variable(OPENAI_KEY)),
        None => (ProviderName::Offline, Origin::Default),
    }
}

/// Sets the provider up; nothing is sent.
///
/// # Errors
/// When a key, a model or a script is missing or cannot be used.
pub(crate) fn choose(settings: &Settings, environment: &Environment) -> Result<Chosen, Failure> {
    let (name, origin) = name(settings, environment);
    let provider: Arc<dyn Provider> = match (name, name.wire()) {
        (ProviderName::Scripted, _) => Arc::new(scripted(settings, environment)?),
        (_, Some(wire)) => over_network(name, &wire, settings, environment)?,
        (_, None) => Arc::new(Offline::new()),
    };
    let model = provider.info().model.clone();
    let note = match (name, origin) {
        (ProviderName::Offline, Origin::Default) => format!(
            "{}: no provider is configured and {OPENAI_KEY} is not set",
            offline::MARK
        ),
        (ProviderName::Offline, origin) => format!("{} ({origin})", offline::MARK),
        (name, origin) => format!("{name} {model} ({origin})"),
    };
    Ok(Chosen { provider, note })
}

fn scripted(settings: &Settings, environment: &Environment) -> Result<Scripted, Failure> {
    let model = settings.provider.model.as_ref().ok_or_else(|| {
        Failure::new(Exit::Config, "the provider `scripted` has no script")
            .hint("name it with --model FILE.json")
    })?;
    let path = environment.path(&model.value, &environment.cwd);
    Scripted::from_file(&path).map_err(|error| cannot_set_up(ProviderName::Scripted, OPENAI_KEY, error))
}

fn over_network(
    name: ProviderName,
    wire: &Wire,
    settings: &Settings,
    environment: &Environment,
) -> Result<Arc<dyn Provider>, Failure> {
    let provider = &settings.provider;
    let base_url = provider
        .base_url
        .as_ref()
        .map_or(wire.base_url, |url| url.value.as_str());
    let model = match (&provider.model, wire.model) {
        (Some(model), _) => model.value.as_str(),
        (None, Some(model)) if provider.base_url.is_none() => model,
        (None, _) => {
            return Err(Failure::new(
                Exit::Config,
                format!("no model is named for `{name}` at `{base_url}`"),
            )
            .hint("name it with --model, TOOLCELL_MODEL or `[provider] model`"));
        }
    };
    let key = key(wire, settings, environment, base_url)?.map(ApiKey::new);
    let http = http(environment, base_url);
    let refused = |error| cannot_set_up(name, wire.key, error);
    Ok(match name {
        ProviderName::Responses => {
            let mut options = responses::Options::new(model);
            (options.base_url, options.api_key, options.http) = (base_url.into(), key, http);
            Arc::new(OpenAiResponses::new(options).map_err(refused)?)
        }
        ProviderName::Anthropic => {
            let mut options = anthropic::Options::new(model);
            (options.base_url, options.api_key, options.http) = (base_url.into(), key, http);
            Arc::new(Anthropic::new(options).map_err(refused)?)
        }
        ProviderName::Gemini => {
            let mut options = gemini::Options::new(model);
            (options.base_url, options.api_key, options.http) = (base_url.into(), key, http);
            Arc::new(Gemini::new(options).map_err(refused)?)
        }
        ProviderName::Ollama => {
            let mut options = ollama::Options::new(model);
            (options.base_url, options.api_key, options.http) = (base_url.into(), key, http);
            Arc::new(Ollama::new(options).map_err(refused)?)
        }
        _ => {
            let mut options = openai::Options::new(model);
            (options.base_url, options.api_key, options.http) = (base_url.into(), key, http);
            Arc::new(OpenAi::new(options).map_err(refused)?)
        }
    })
}

/// The key, from the variable or the account in the keyring that the person named, or from the usual variable.
fn key(
    wire: &Wire,
    settings: &Settings,
    environment: &Environment,
    base_url: &str,
) -> Result<Option<String>, Failure> {
    let provider = &settings.provider;
    match (&provider.api_key_env, &provider.api_key_keyring) {
        (Some(name), Some(account)) if !matches!(name.origin, Origin::Flag(_)) => Err(Failure::new(
            Exit::Config,
            "the key of the provider has two places",
        )
        .why(name.origin.point_at())
        .why(account.origin.point_at())
        .hint("keep one of `api_key_env` and `api_key_keyring`")),
        (Some(name), _) => match environment.var(&name.value) {
            Some(key) => Ok(Some(key.to_owned())),
            None => Err(Failure::new(
                Exit::Provider,
                format!("the variable `{}` holds no key", name.value),
            )
            .why("it is not set, or empty")
            .why(name.origin.point_at())
            .hint(format!("set it: export {}=…", name.value))),
        },
        (None, Some(account)) => key_in(&Keyring::of_system(), account).map(Some),
        // The usual key is not sent in the clear to a server that the person did not name a key for.
        (None, None) if base_url.starts_with("https://") || is_loopback(base_url) => {
            Ok(environment.var(wire.key).map(str::to_owned))
        }
        (None, None) => Ok(None),
    }
}

/// The key, from an account in the keyring.
fn key_in(keyring: &Keyring, account: &Sourced<String>) -> Result<String, Failure> {
    let name = &account.value;
    let key = keyring
        .get(name)
        .map_err(|failure| failure.why(account.origin.point_at()))?;
    key.ok_or_else(|| {
        keyring::no_entry(Exit::Provider, name)
            .why(account.origin.point_at())
            .hint(format!("store the key: toolcell secret set {name}"))
    })
}

fn host_of(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_loopback(url: &str) -> bool {
    let host = host_of(url);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// The connection: through a proxy where the usual variables name one.
fn http(environment: &Environment, base_url: &str) -> HttpOptions {
    let mut options = HttpOptions::default();
    let of = |upper: &str, lower: &str| {
        environment
            .var(lower)
            .or_else(|| environment.var(upper))
            .map(str::to_owned)
    };
    let excluded = of("NO_PROXY", "no_proxy").unwrap_or_default();
    let host = host_of(base_url);
    let is_excluded = is_loopback(base_url)
        || excluded
            .split(',')
            .map(|entry| entry.trim().trim_start_matches('.'))
            .any(|entry| {
                entry == "*" || (!entry.is_empty() && (host == entry || host.ends_with(&format!(".{entry}"))))
            });
    if !is_excluded {
        let by_scheme = if base_url.starts_with("https://") {
            of("HTTPS_PROXY", "https_proxy")
        } else {
            // Upper case is not read here: a CGI server sets HTTP_PROXY from a request header (httpoxy.org).
            environment.var("http_proxy").map(str::to_owned)
        };
        options.proxy = by_scheme.or_else(|| of("ALL_PROXY", "all_proxy"));
    }
    options
}

fn cannot_set_up(name: ProviderName, key: &str, error: SetupError) -> Failure {
    let exit = match error {
        SetupError::MissingKey { .. } => Exit::Provider,
        _ => Exit::Config,
    };
    let hint = match &error {
        SetupError::MissingKey { .. } => Some(format!(
            "set the key: export {key}=…\nor try without a model: --provider offline"
        )),
        SetupError::BaseUrl { .. } => {
            Some("a base URL looks like `https://api.openai.com/v1` or `http://localhost:11434/v1`".into())
        }
        SetupError::Script { .. } => Some("the format is described at `toolcell run --help`".into()),
        SetupError::Proxy { .. } => {
            Some("check HTTPS_PROXY, http_proxy and ALL_PROXY, or exclude the host with NO_PROXY".into())
        }
        _ => None,
    };
    Failure::new(exit, format!("the provider `{name}` cannot be set up"))
        .because(error)
        .hints(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_keyring_is_read_and_one_that_is_missing_is_named() {
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

    #[test]
    fn a_host_is_found_in_every_form_of_url() {
        for (url, host) in [
            ("https://api.openai.com/v1", "api.openai.com"),
            ("http://user:pw@a.b:80/x@y", "a.b"),
            ("http://[::1]:8080/v1", "::1"),
            ("localhost:1", "localhost"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }

    #[test]
    fn a_proxy_is_taken_from_the_usual_variables_and_never_for_this_machine() {
        let cwd = std::path::Path::new("/");
        let proxy = |vars: &[(&str, &str)], url: &str| http(&Environment::for_tests(cwd, vars), url).proxy;
        let https = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "x.org, .intern")];
        assert_eq!(
            proxy(&https, "https://a.example/v1").as_deref(),
            Some("http://p:1")
        );
        assert_eq!(proxy(&https, "http://a.example/v1"), None);
        assert_eq!(proxy(&https, "https://x.org/v1"), None);
        assert_eq!(proxy(&https, "https://a.intern/v1"), None);
        assert_eq!(proxy(&https, "https://ax.org/v1").as_deref(), Some("http://p:1"));
        assert_eq!(
            proxy(&[("ALL_PROXY", "http://p:1")], "http://localhost:11434/v1"),
            None
        );
        assert_eq!(proxy(&[("HTTP_PROXY", "http://p:1")], "http://a.example"), None);
    }
}
