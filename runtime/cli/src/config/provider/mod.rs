//! `[provider]`: the model, its service, and the parameters of every request.

mod name;
pub(crate) mod token_command;
mod value;

use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toolcell_agent::ModelSettings;
use toolcell_agent::policy::Reasoning;

use super::setting::{Setting, SettingSpec, SettingTable, Written, declare_settings};
use super::source::{Origin, Source, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;
pub(crate) use name::{ProviderName, ToolCalls};
pub(crate) use token_command::TokenCommand;
pub(crate) use value::{
    HeaderValue, Headers, ProfileNames, Retries, Seed, StopTexts, Temperature, Timeout, Tokens, TopP,
};

/// Minimum length of a context, in tokens.
const MIN_CONTEXT: u64 = 1_000;

const VERTEX: &[ProviderName] = &[ProviderName::Vertex];
const OPENAI: &[ProviderName] = &[ProviderName::OpenAi, ProviderName::Responses];
/// Providers that allocate the memory of a context.
const CONTEXT: &[ProviderName] = &[ProviderName::Ollama, ProviderName::Local];
/// Providers whose protocol has texts at which an answer ends.
const STOP: &[ProviderName] = &[
    ProviderName::OpenAi,
    ProviderName::Anthropic,
    ProviderName::Gemini,
    ProviderName::Vertex,
    ProviderName::Ollama,
    ProviderName::Local,
];
/// Providers whose protocol has a seed.
const SEED: &[ProviderName] = &[
    ProviderName::OpenAi,
    ProviderName::Gemini,
    ProviderName::Vertex,
    ProviderName::Ollama,
    ProviderName::Local,
];

declare_settings! {
    /// Model provider.
    table ProviderTable;

    /// Settings of the model provider, with their origins.
    values ProviderSettings;

    /// Flags of the settings that have one.
    flags ProviderFlags;

    /// Provider: `openai`, `responses`, `anthropic`, `gemini`, `vertex`, `ollama`, `local`, `scripted`, `offline`.
    name: ProviderName, flag("--provider", "NAME"), variable("TOOLCELL_PROVIDER");

    /// Profile of `[profiles]`, whose settings replace those of `[provider]`.
    profile: String, flag("--profile", "NAME"), variable("TOOLCELL_PROFILE");

    /// Profiles whose models answer, in this order, when the model cannot be reached, is overloaded, refuses the key, has no
    /// quota left or is silent. Costs are those of the model that answers.
    fallback: ProfileNames, flag("--fallback", "NAME,…");

    /// Name of the model; for `local`, its GGUF file or the name of one in the directory of models; for `scripted`, the file with
    /// its turns.
    model: String, flag("--model", "MODEL"), variable("TOOLCELL_MODEL");

    /// Base URL of the provider, such as `http://localhost:11434/v1`.
    base_url: String, flag("--base-url", "URL"), variable("TOOLCELL_BASE_URL");

    /// Environment variable with the API key [default: that of the provider, such as OPENAI_API_KEY]. The key itself
    /// never appears in a configuration file.
    api_key_env: String, flag("--api-key-env", "VARIABLE"), variable("TOOLCELL_API_KEY_ENV");

    /// Account in the system keyring with the API key (`toolcell secret set ACCOUNT`), if no variable is set.
    api_key_keyring: String;

    /// For `vertex`: the Google Cloud project. Defaults to `GOOGLE_CLOUD_PROJECT`.
    project: String, only_for(VERTEX);

    /// For `vertex`: the location, such as `europe-west4`. Defaults to `GOOGLE_CLOUD_LOCATION`, or `global`.
    location: String, only_for(VERTEX);

    /// For `vertex`: the program that prints an access token, with its arguments, such as `["gcloud", "auth",
    /// "print-access-token"]`. Runs before the first request, and again when a token has expired.
    token_command: TokenCommand, only_for(VERTEX);

    /// Tool call format: `native`; `watch` for models that sometimes write calls as text; or a text format for models
    /// without tool calling: `hermes`, `labels`, `tool-tag`, `action` [default: native].
    tool_calls: ToolCalls, flag("--tool-calls", "FORMAT");

    /// For `openai` and `responses`: enforces the schemas of tools, if they have a strict form.
    strict: bool, only_for(OPENAI);

    /// Reasoning effort, as named by the provider, such as `low` or `high`.
    reasoning: String, flag("--reasoning", "EFFORT");

    /// Sampling temperature, from 0 to 2.
    temperature: Temperature;

    /// Probability mass of the tokens that are sampled, above 0 and up to 1.
    top_p: TopP;

    /// Texts at which an answer ends.
    stop: StopTexts, only_for(STOP);

    /// Seed of the sampling, for answers that can be repeated.
    seed: Seed, only_for(SEED);

    /// Maximum number of tokens in one answer.
    max_output_tokens: Tokens<1>, flag("--max-output-tokens", "TOKENS");

    /// For `ollama` and `local`: length of the context, in tokens [default: for `ollama`, follows the conversation, up to what the
    /// model supports; for `local`, 8 k, or what the model was trained for if that is less]. At least 1 k: what the model is told
    /// about itself and its tools is longer.
    num_ctx: Tokens<MIN_CONTEXT>, only_for(CONTEXT);

    /// Maximum time in which no data of an answer arrives [default: 5 min].
    idle_timeout: Timeout;

    /// Maximum time of one request, with its retries [default: none].
    request_timeout: Timeout;

    /// Number of times that a request is repeated after an error that may pass [default: 2].
    retries: Retries;

    /// Additional headers of every request: `{ X-Title = "mine" }`, or for a secret, the variable that contains the value:
    /// `{ X-Key = { env = "VARIABLE" } }`. One with a key, such as `Authorization`, takes the place of the usual key. Headers of the
    /// connection and the body, such as `Host` and `Content-Type`, are refused.
    headers: Headers;
}

impl ProviderSettings {
    /// Refuses empty settings, and those that the provider does not use, because a setting without effect is a mistake.
    /// Settings of the file are ignored if a variable or a flag selects another provider.
    ///
    /// # Errors
    /// Returns an error that names the setting.
    pub(crate) fn check_for(&self, name: ProviderName) -> Result<(), Failure> {
        let by_file = |origin: &Origin| matches!(origin, Origin::File(..));
        let chosen_later = self.name.as_ref().is_some_and(|name| !by_file(&name.origin));
        for (spec, setting) in self.all() {
            let Some(origin) = setting.origin() else { continue };
            if setting.shown().is_some_and(|value| value.trim().is_empty()) {
                let exit = match origin {
                    Origin::Flag(_) => Exit::Usage,
                    _ => Exit::Config,
                };
                return Err(
                    Failure::new(exit, text!("the setting `{}` of the provider is empty", spec.key))
                        .why(origin.point_at())
                        .hint("give it a value, or remove it"),
                );
            }
            let is_used = spec.providers.is_empty() || spec.providers.contains(&name);
            if is_used || (chosen_later && by_file(origin)) {
                continue;
            }
            let users: Vec<String> = spec.providers.iter().map(|name| format!("`{name}`")).collect();
            return Err(Failure::new(
                Exit::Config,
                text!("provider `{}` does not use `{}`", name, spec.key),
            )
            .why(origin.point_at())
            .hint(text!(
                "it is for {}; remove it, or set the provider",
                users.join(" and ")
            )));
        }
        Ok(())
    }

    /// Returns the parameters of every request.
    pub(crate) fn model_settings(&self) -> ModelSettings {
        ModelSettings {
            max_output_tokens: self.max_output_tokens.as_ref().map(|tokens| tokens.value.0),
            temperature: self.temperature.as_ref().map(|temperature| temperature.value.0),
            top_p: self.top_p.as_ref().map(|top_p| top_p.value.0),
            stop: self
                .stop
                .as_ref()
                .map(|stop| stop.value.0.as_slice().into())
                .unwrap_or_default(),
            seed: self.seed.as_ref().map(|seed| seed.value.0),
        }
    }

    /// Returns the reasoning effort, if set.
    pub(crate) fn reasoning(&self) -> Option<Reasoning> {
        self.reasoning.as_ref().map(|effort| Reasoning::Always {
            effort: effort.value.clone(),
        })
    }

    /// Merges the settings of a subagent into those of the main agent. Nothing is inherited if another provider or
    /// server is set: a key is for one of them.
    pub(crate) fn with(&self, own: &Self) -> Self {
        if own.name.is_some() || own.base_url.is_some() {
            return own.clone();
        }
        let mut both = self.clone();
        // A variable has priority over an account, so that an inherited variable must not override an account set here.
        if own.api_key_env.is_some() || own.api_key_keyring.is_some() {
            both.api_key_env = None;
            both.api_key_keyring = None;
        }
        both.overlay(own);
        both
    }

    /// Returns every setting except the name, with its value and origin.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, String, Origin)> {
        self.all()
            .filter(|(spec, _)| spec.key != "name")
            .filter_map(|(spec, setting)| Some((spec.key, setting.shown()?, setting.origin()?.clone())))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;
    use crate::config::source::Layer;
    use std::collections::BTreeMap;
    use std::sync::OnceLock;

    const ALL: &str = r#"
        name = "vertex"
        profile = "own"
        fallback = ["other", "third"]
        model = "m"
        base_url = "https://example.com"
        api_key_env = "KEY"
        api_key_keyring = "account"
        project = "p"
        location = "global"
        token_command = ["print", "token"]
        tool_calls = "hermes"
        strict = true
        reasoning = "low"
        temperature = 0.5
        top_p = 0.9
        stop = ["END", "---"]
        seed = 7
        max_output_tokens = 1
        num_ctx = "32 k"
        idle_timeout = "10 s"
        request_timeout = "1 min"
        retries = 0
        headers = { X-Title = "mine", X-Key = { env = "KEY" } }
    "#;

    fn of_file(text: &str) -> ProviderSettings {
        let source = Arc::new(Source {
            layer: Layer::User,
            path: "/c.toml".into(),
            shown: "c.toml".into(),
            text: text.into(),
            line_starts: OnceLock::new(),
        });
        ProviderSettings::of_table(&toml::from_str(text).unwrap(), &source)
    }

    /// Value of each setting as text, as in a variable or a flag.
    fn texts() -> BTreeMap<&'static str, String> {
        let mut texts: BTreeMap<_, _> = of_file(ALL).rows().map(|(key, value, _)| (key, value)).collect();
        texts.insert("name", "vertex".into());
        texts
    }

    #[test]
    fn every_setting_is_read_from_the_file_and_shown() {
        let keys: Vec<&str> = of_file(ALL).rows().map(|(key, ..)| key).collect();
        let declared: Vec<&str> = ProviderSettings::SPECS.iter().map(|spec| spec.key).collect();
        assert_eq!(keys, declared[1..]);
        let schema = schemars::schema_for!(ProviderTable);
        let properties = schema.get("properties").unwrap().as_object().unwrap();
        assert_eq!(properties.len(), declared.len());
        assert!(declared.iter().all(|key| properties.contains_key(*key)));
    }

    #[test]
    fn settings_are_read_from_their_variables_and_flags() {
        let texts = texts();
        let mut arguments = vec!["toolcell".to_owned()];
        let mut variables = Vec::new();
        for spec in ProviderSettings::SPECS {
            let text = &texts[spec.key];
            arguments.extend(spec.flag_name().map(|flag| format!("{flag}={text}")));
            variables.extend(spec.variable.map(|name| (name, text.as_str())));
        }
        let command = ProviderFlags::augment_args(Command::new("toolcell"));
        let matches = command.try_get_matches_from(arguments).unwrap();
        let flags = ProviderFlags::from_arg_matches(&matches).unwrap().0;
        let mut environment = ProviderSettings::default();
        let cwd = std::path::Path::new("/");
        environment
            .read_variables(&Environment::for_tests(cwd, &variables))
            .unwrap();
        for (spec, setting) in flags.all() {
            let expected = spec.flag_name().map(|_| texts[spec.key].clone());
            assert_eq!(setting.shown(), expected, "{}", spec.key);
        }
        for (spec, setting) in environment.all() {
            let expected = spec.variable.map(|_| texts[spec.key].clone());
            assert_eq!(setting.shown(), expected, "{}", spec.key);
        }
    }

    #[test]
    fn later_layers_win_and_leave_the_rest() {
        let mut settings = of_file("model = \"a\"\nstrict = true\n");
        settings.overlay(&of_file("model = \"b\"\n"));
        let rows: Vec<_> = settings.rows().map(|(key, value, _)| (key, value)).collect();
        assert_eq!(rows, [("model", "b".to_owned()), ("strict", "true".to_owned())]);
    }

    #[test]
    fn agent_inherits_key_only_if_it_sets_none() {
        let main = of_file("model = \"a\"\napi_key_env = \"KEY\"\n");
        let own = main.with(&of_file("api_key_keyring = \"account\"\n"));
        assert!(own.api_key_env.is_none());
        assert_eq!(own.model.map(|model| model.value).as_deref(), Some("a"));
        let same = main.with(&of_file("model = \"b\"\n"));
        assert!(same.api_key_env.is_some());
        let elsewhere = main.with(&of_file("base_url = \"http://localhost:1\"\n"));
        assert!(elsewhere.api_key_env.is_none() && elsewhere.model.is_none());
    }

    #[test]
    fn numbers_are_taken_up_to_their_bounds() {
        let read = |text: &str| toml::from_str::<ProviderTable>(text).is_ok();
        for (text, is_taken) in [
            ("temperature = 0.0", true),
            ("temperature = 2", true),
            ("temperature = -0.1", false),
            ("temperature = 2.1", false),
            ("temperature = nan", false),
            ("max_output_tokens = 1", true),
            ("max_output_tokens = \"4k\"", true),
            ("max_output_tokens = 0", false),
            ("top_p = 1", true),
            ("top_p = 0.0", false),
            ("top_p = 1.1", false),
            ("retries = 20", true),
            ("retries = 21", false),
            ("idle_timeout = \"0 s\"", false),
            ("idle_timeout = \"1 ms\"", true),
            ("stop = []", false),
            ("stop = [\"\"]", false),
            ("seed = 9223372036854775807", true),
            ("seed = -1", false),
            ("num_ctx = 999", false),
            ("num_ctx = 1000", true),
            ("headers = { a = 1 }", false),
        ] {
            assert_eq!(read(text), is_taken, "{text}");
        }
    }
}
