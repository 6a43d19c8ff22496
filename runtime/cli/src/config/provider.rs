//! `[provider]`: which model is asked, where it is, and what every request asks of it.

use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_agent::ModelSettings;
use toolcell_agent::policy::Reasoning;

use super::source::{Origin, Source, Sourced};
use super::units::Count;
use crate::agent::model::{ProviderName, ToolCalls};
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Highest temperature that any provider takes.
const MAX_TEMPERATURE: f64 = 2.0;

/// The model that is asked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProviderTable {
    /// Which kind of provider.
    #[schemars(with = "Option<ProviderName>")]
    pub(crate) name: Option<Spanned<ProviderName>>,
    /// Name of the model; for `scripted`, the file with its turns.
    #[schemars(with = "Option<String>")]
    pub(crate) model: Option<Spanned<String>>,
    /// Where the provider listens, such as `http://localhost:11434/v1`.
    #[schemars(with = "Option<String>")]
    pub(crate) base_url: Option<Spanned<String>>,
    /// Name of the environment variable that holds the key. The key itself is never written here.
    #[schemars(with = "Option<String>")]
    pub(crate) api_key_env: Option<Spanned<String>>,
    /// The account in the keyring of this system that holds the key (`toolcell secret set ACCOUNT`). Only where no
    /// variable is named.
    #[schemars(with = "Option<String>")]
    pub(crate) api_key_keyring: Option<Spanned<String>>,
    /// For `vertex`: the project of Google Cloud. Otherwise `GOOGLE_CLOUD_PROJECT` names it.
    #[schemars(with = "Option<String>")]
    pub(crate) project: Option<Spanned<String>>,
    /// For `vertex`: the place, such as `europe-west4`. Otherwise `GOOGLE_CLOUD_LOCATION` names it; `global` by default.
    #[schemars(with = "Option<String>")]
    pub(crate) location: Option<Spanned<String>>,
    /// For `vertex`: the program that prints an access token, with its arguments, such as
    /// `["gcloud", "auth", "print-access-token"]`. Run before the first request, and again when a token has expired.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) token_command: Option<Spanned<Vec<String>>>,
    /// How the model calls tools: `native` (the default), `watch` where calls sometimes come as text all the same, or in
    /// text, for models without tool calling: `hermes`, `labels`, `tool-tag`, `action`.
    #[schemars(with = "Option<ToolCalls>")]
    pub(crate) tool_calls: Option<Spanned<ToolCalls>>,
    /// For `openai` and `responses`: the model is held to the schemas of tools, where they have a strict form.
    #[schemars(with = "Option<bool>")]
    pub(crate) strict: Option<Spanned<bool>>,
    /// How much the model shall reason, in the provider's words, such as `low` or `high`.
    #[schemars(with = "Option<String>")]
    pub(crate) reasoning: Option<Spanned<String>>,
    /// Sampling temperature, from 0 to 2.
    #[schemars(with = "Option<f64>", range(min = 0, max = 2))]
    pub(crate) temperature: Option<Spanned<f64>>,
    /// Most tokens of one answer.
    #[schemars(with = "Option<Count>")]
    pub(crate) max_output_tokens: Option<Spanned<Count>>,
}

/// The model that is asked, each setting with the place that decided it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderSettings {
    /// Which kind; `None` means that nobody chose one.
    pub(crate) name: Option<Sourced<ProviderName>>,
    /// Name of the model.
    pub(crate) model: Option<Sourced<String>>,
    /// Where it listens.
    pub(crate) base_url: Option<Sourced<String>>,
    /// The variable that holds the key.
    pub(crate) api_key_env: Option<Sourced<String>>,
    /// The account in the keyring that holds the key, where no variable is named.
    pub(crate) api_key_keyring: Option<Sourced<String>>,
    /// The project of Google Cloud.
    pub(crate) project: Option<Sourced<String>>,
    /// The place of Google Cloud.
    pub(crate) location: Option<Sourced<String>>,
    /// What prints an access token.
    pub(crate) token_command: Option<Sourced<Vec<String>>>,
    /// How the model calls tools.
    pub(crate) tool_calls: Option<Sourced<ToolCalls>>,
    /// Whether it is held to the schemas of tools.
    pub(crate) strict: Option<Sourced<bool>>,
    /// How much it shall reason.
    pub(crate) reasoning: Option<Sourced<String>>,
    /// Sampling temperature.
    pub(crate) temperature: Option<Sourced<f64>>,
    /// Most tokens of one answer.
    pub(crate) max_output_tokens: Option<Sourced<u64>>,
}

impl ProviderTable {
    /// Where its first key stands; `None` when nothing is set.
    pub(super) fn first_key(&self) -> Option<Range<usize>> {
        fn span<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
            value.as_ref().map(Spanned::span)
        }
        let Self {
            name,
            model,
            base_url,
            api_key_env,
            api_key_keyring,
            project,
            location,
            token_command,
            tool_calls,
            strict,
            reasoning,
            temperature,
            max_output_tokens,
        } = self;
        [
            span(name),
            span(model),
            span(base_url),
            span(api_key_env),
            span(api_key_keyring),
            span(project),
            span(location),
            span(token_command),
            span(tool_calls),
            span(strict),
            span(reasoning),
            span(temperature),
            span(max_output_tokens),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|span| span.start)
    }
}

impl ProviderSettings {
    /// Takes over what a table sets.
    ///
    /// # Errors
    /// When a number is none that a provider takes.
    pub(super) fn set(&mut self, table: &ProviderTable, source: &Arc<Source>) -> Result<(), Failure> {
        fn set<T: Clone>(setting: &mut Option<Sourced<T>>, value: Option<&Spanned<T>>, source: &Arc<Source>) {
            if let Some(value) = value {
                *setting = Some(Sourced {
                    value: value.get_ref().clone(),
                    origin: Origin::File(source.clone(), value.span()),
                });
            }
        }
        set(&mut self.name, table.name.as_ref(), source);
        set(&mut self.model, table.model.as_ref(), source);
        set(&mut self.base_url, table.base_url.as_ref(), source);
        set(&mut self.api_key_env, table.api_key_env.as_ref(), source);
        set(&mut self.api_key_keyring, table.api_key_keyring.as_ref(), source);
        set(&mut self.project, table.project.as_ref(), source);
        set(&mut self.location, table.location.as_ref(), source);
        set(&mut self.token_command, table.token_command.as_ref(), source);
        set(&mut self.tool_calls, table.tool_calls.as_ref(), source);
        set(&mut self.strict, table.strict.as_ref(), source);
        set(&mut self.reasoning, table.reasoning.as_ref(), source);
        set(&mut self.temperature, table.temperature.as_ref(), source);
        if let Some(tokens) = &table.max_output_tokens {
            self.max_output_tokens = Some(Sourced {
                value: tokens.get_ref().0,
                origin: Origin::File(source.clone(), tokens.span()),
            });
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), Failure> {
        let refused = |what: &'static str, origin: &Origin, hint: String| {
            Err(Failure::new(Exit::Config, what).why(origin.point_at()).hint(hint))
        };
        if let Some(temperature) = &self.temperature
            && !(0.0..=MAX_TEMPERATURE).contains(&temperature.value)
        {
            let hint = format!("a temperature lies between 0 and {MAX_TEMPERATURE}");
            return refused("the temperature cannot be used", &temperature.origin, hint);
        }
        if let Some(tokens) = &self.max_output_tokens
            && tokens.value == 0
        {
            let hint = "allow at least 1".to_owned();
            return refused("an answer cannot have 0 tokens", &tokens.origin, hint);
        }
        Ok(())
    }

    /// Refuses what the kind of provider has no use for: a setting that does nothing is a mistake. Not so where a variable
    /// or a flag chose another provider than the file, which is about its own.
    ///
    /// # Errors
    /// Names the setting.
    pub(crate) fn check_for(&self, name: ProviderName) -> Result<(), Failure> {
        let is_vertex = name == ProviderName::Vertex;
        let is_openai = matches!(name, ProviderName::OpenAi | ProviderName::Responses);
        let by_file = |origin: &Origin| matches!(origin, Origin::File(..));
        let chosen_later = self.name.as_ref().is_some_and(|name| !by_file(&name.origin));
        let of = |key: &'static str, origin: Option<&Origin>, used: bool, by: &'static str| {
            origin
                .filter(|origin| !(used || chosen_later && by_file(origin)))
                .map(|origin| (key, origin.clone(), by))
        };
        let useless = [
            of(
                "project",
                self.project.as_ref().map(|s| &s.origin),
                is_vertex,
                "`vertex`",
            ),
            of(
                "location",
                self.location.as_ref().map(|s| &s.origin),
                is_vertex,
                "`vertex`",
            ),
            of(
                "token_command",
                self.token_command.as_ref().map(|s| &s.origin),
                is_vertex,
                "`vertex`",
            ),
            of(
                "strict",
                self.strict.as_ref().map(|s| &s.origin),
                is_openai,
                "`openai` and `responses`",
            ),
        ];
        match useless.into_iter().flatten().next() {
            None => Ok(()),
            Some((key, origin, by)) => Err(Failure::new(
                Exit::Config,
                text!("the provider `{}` has no use for `{}`", name, key),
            )
            .why(origin.point_at())
            .hint(text!("it is for {}; take it out, or name the provider", by))),
        }
    }

    /// What every request asks of the model.
    pub(crate) fn model_settings(&self) -> ModelSettings {
        ModelSettings {
            max_output_tokens: self.max_output_tokens.as_ref().map(|tokens| tokens.value),
            temperature: self.temperature.as_ref().map(|temperature| temperature.value),
        }
    }

    /// How much the model shall reason, where somebody said so.
    pub(crate) fn reasoning(&self) -> Option<Reasoning> {
        self.reasoning.as_ref().map(|effort| Reasoning::Always {
            effort: effort.value.clone(),
        })
    }

    /// The settings of a model beside this one. Nothing is taken over where another provider or another server is named:
    /// a key is for one of them.
    pub(crate) fn with(&self, own: &Self) -> Self {
        if own.name.is_some() || own.base_url.is_some() {
            return own.clone();
        }
        let Self {
            name,
            model,
            base_url,
            api_key_env,
            api_key_keyring,
            project,
            location,
            token_command,
            tool_calls,
            strict,
            reasoning,
            temperature,
            max_output_tokens,
        } = own.clone();
        let main = self.clone();
        // A variable goes before an account: one that is named here must not lose to one that is named there.
        let (main_env, main_keyring) = match (&api_key_env, &api_key_keyring) {
            (None, None) => (main.api_key_env, main.api_key_keyring),
            _ => (None, None),
        };
        Self {
            name: name.or(main.name),
            model: model.or(main.model),
            base_url: base_url.or(main.base_url),
            api_key_env: api_key_env.or(main_env),
            api_key_keyring: api_key_keyring.or(main_keyring),
            project: project.or(main.project),
            location: location.or(main.location),
            token_command: token_command.or(main.token_command),
            tool_calls: tool_calls.or(main.tool_calls),
            strict: strict.or(main.strict),
            reasoning: reasoning.or(main.reasoning),
            temperature: temperature.or(main.temperature),
            max_output_tokens: max_output_tokens.or(main.max_output_tokens),
        }
    }

    /// Every setting but the name, with its value and who decided it.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String, Origin)> {
        fn row<T>(
            key: &'static str,
            setting: &Option<Sourced<T>>,
            shown: impl Fn(&T) -> String,
        ) -> Option<(&'static str, String, Origin)> {
            let setting = setting.as_ref()?;
            Some((key, shown(&setting.value), setting.origin.clone()))
        }
        [
            row("model", &self.model, String::clone),
            row("base_url", &self.base_url, String::clone),
            row("api_key_env", &self.api_key_env, String::clone),
            row("api_key_keyring", &self.api_key_keyring, String::clone),
            row("project", &self.project, String::clone),
            row("location", &self.location, String::clone),
            row("token_command", &self.token_command, |command| command.join(" ")),
            row("tool_calls", &self.tool_calls, |way| way.as_str().to_owned()),
            row("strict", &self.strict, bool::to_string),
            row("reasoning", &self.reasoning, String::clone),
            row("temperature", &self.temperature, f64::to_string),
            row("max_output_tokens", &self.max_output_tokens, u64::to_string),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
