//! `toolcell models`: the models that a provider offers.

pub(super) mod local;

use std::collections::BTreeMap;

use clap::Args;
use toolcell_core::provider::{ModelInfo, ProviderErrorKind};

use crate::agent::model;
use crate::config::provider::{ProviderFlags, ProviderName};
use crate::config::units::Count;
use crate::config::{self, Overrides, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::json::print_line;
use crate::ui::render::{Console, provider_failure};
use crate::ui::terminal::{FAINT, ModelName, STRONG, Text, text};

/// List the models that the provider offers, with the length of their context where it is known.
///
/// The provider is that of the configuration, or of these flags. One request is sent to it, with its key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell models
  toolcell models --provider anthropic
  toolcell models --base-url http://localhost:11434/v1 llama")]
pub(crate) struct Models {
    /// List only models with all of these words in their names.
    words: Vec<String>,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    provider: ProviderFlags,
}

impl Models {
    pub(crate) async fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        overrides.provider = self.provider.0.clone();
        let config::Settings {
            provider: mut settings,
            profiles,
            ..
        } = config::load(environment, overrides)?;
        // No request names it. A script is a file, without which there is nothing.
        if model::name(&settings, environment).0 != ProviderName::Scripted {
            settings
                .model
                .get_or_insert_with(|| Sourced::default("-".to_owned()));
        }
        let provider = model::choose(&settings, &profiles, &BTreeMap::new(), environment)?.provider;
        let listed = provider.models().await;
        let mut models = listed.map_err(|error| {
            let failure = provider_failure(&error, model::key_source(&settings).as_ref());
            if error.kind == ProviderErrorKind::InvalidRequest && error.status.is_none() {
                // No request was refused: neither the key nor a name is wrong.
                return failure
                    .without_hints()
                    .hint("name a provider or a server that has one with --provider or --base-url");
            }
            failure
        })?;
        let count = models.len();
        let words: Vec<String> = self.words.iter().map(|word| word.to_lowercase()).collect();
        models.retain(|model| {
            let name = model.name.to_lowercase();
            words.iter().all(|word| name.contains(word.as_str()))
        });
        models.sort_by(|a, b| a.name.cmp(&b.name));
        if self.json {
            print_line(console, &models)?;
        } else if models.is_empty() {
            console.note(text!("no model matches, of {}", count));
        } else {
            show(&models, console)?;
        }
        Ok(Exit::Ok)
    }
}

fn show(models: &[ModelInfo], console: &Console) -> Result<(), Failure> {
    let shown = |model: &ModelInfo| -> Text { text!("{}", ModelName(&model.name)) };
    let widths = models.iter().map(|model| shown(model).plain().chars().count());
    let width = widths.max().unwrap_or(0);
    console.write(|s| {
        for model in models {
            let name = shown(model);
            match model.context_tokens {
                Some(tokens) => {
                    s.out.cell(STRONG, name, width)?;
                    s.out.styled(FAINT, text!("  {} tokens", Count(tokens)))?;
                }
                None => s.out.styled(STRONG, name)?,
            }
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(())
}
