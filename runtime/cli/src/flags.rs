//! Groups of flags that several commands share: policy of tools, selection of an agent, its model.

use std::path::PathBuf;

use clap::Args;
use toolcell_core::Schema;
use toolcell_fs::Rules;

use crate::config::budget::NamedBudget;
use crate::config::file::{FlowRule, ProjectInstructions};
use crate::config::grants::FlagGrant;
use crate::config::limits::FlagLimit;
use crate::config::provider::ProviderFlags;
use crate::config::turn::{ContextFlags, LoopFlags};
use crate::config::user_files::because;
use crate::config::{Overrides, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Grants and limits of tools.
#[derive(Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// Grant access (repeatable), such as `read=.`, `write=out`, `env=LANG`, `http=example.com`.
    ///
    /// Without a grant, here or in your own configuration, a tool has no access. A grant applies to every component in
    /// use except those of a project, or to the one named in front: `files:read=.`, `project:linter:read=.`.
    #[arg(long = "grant", value_name = "[COMPONENT:]GRANT")]
    pub(crate) grants: Vec<FlagGrant>,

    /// Set a limit for one call (repeatable), such as `wall=60s`, `memory=512MiB`, `fuel=5G`.
    #[arg(long = "limit", value_name = "[COMPONENT:]NAME=VALUE")]
    pub(crate) limits: Vec<FlagLimit>,

    /// Allow overly broad grants (`/`, the home directory, keys, system directories, sockets).
    #[arg(long)]
    pub(crate) dangerous: bool,

    /// Redirect file changes to this directory for review (see `toolcell scratch`).
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

impl PolicyFlags {
    /// Copies the flags into the last configuration layer.
    pub(crate) fn apply(&self, overrides: &mut Overrides) {
        overrides.grants.clone_from(&self.grants);
        overrides.limits.clone_from(&self.limits);
        overrides.dangerous = self.dangerous;
        overrides.scratch.clone_from(&self.scratch);
    }
}

/// Flags that select the tools and the behaviour of an agent.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentFlags {
    /// Offer only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    pub(crate) tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// What to do with a call that would combine private data, untrusted content and network egress [default: ask].
    #[arg(long, value_name = "ACTION")]
    flow: Option<FlowRule>,

    /// Set a budget of the session (repeatable), such as `calls=20`, `tokens=200k`, `wall=10m`, `cost=0.50`. All turns of
    /// the session count; the budget itself is not stored: repeat it when the session is resumed.
    #[arg(long = "budget", value_name = "NAME=VALUE")]
    budget: Vec<NamedBudget>,

    /// Ask for an answer in JSON that fits the JSON Schema in this file. An answer that does not is refused, and the model
    /// tries again.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Refuse tools and hooks that differ from `toolcell.lock`.
    #[arg(long)]
    pub(crate) locked: bool,

    #[command(flatten)]
    pub(crate) model: ModelFlags,
}

/// Model and limits of a turn.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    #[command(flatten)]
    provider: ProviderFlags,

    /// Instructions for the model, or a file with them. They follow those of Toolcell and take precedence. A text that
    /// begins with `@` is written with two.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) system: Option<String>,

    /// Use of the `AGENTS.md` of the project [default: ask].
    #[arg(long, value_name = "USE")]
    project_instructions: Option<ProjectInstructions>,

    #[command(flatten)]
    turn: LoopFlags,

    #[command(flatten)]
    context: ContextFlags,
}

impl AgentFlags {
    /// Replaces the model and returns the former one.
    pub(crate) fn set_model(&mut self, model: Option<Sourced<String>>) -> Option<Sourced<String>> {
        std::mem::replace(&mut self.model.provider.0.model, model)
    }

    /// Reads the schema of answers, if there is one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is no schema.
    pub(crate) fn answer_schema(&self, environment: &Environment) -> Result<Option<Schema>, Failure> {
        let Some(path) = &self.schema else {
            return Ok(None);
        };
        let path = environment.cwd.join(path);
        let fail = || {
            let shown = environment.shown(&path);
            Failure::new(Exit::Usage, text!("the schema in `{}` cannot be used", shown))
        };
        let text = toolcell_fs::read_text(&path, &Rules::named(MAX_SCHEMA))
            .map_err(|error| because(fail(), error))?;
        let schema = Schema::parse(&text).map_err(|error| fail().because(error))?;
        Ok(Some(schema))
    }

    /// Copies the flags into the last configuration layer.
    ///
    /// # Errors
    /// Returns an error if the file of `--system` cannot be read.
    pub(crate) fn apply(&self, overrides: &mut Overrides, environment: &Environment) -> Result<(), Failure> {
        self.policy.apply(overrides);
        if let Some(system) = &self.model.system {
            let (text, file) = text_or_file(system, environment)?;
            if text.trim().is_empty() {
                return Err(
                    Failure::new(Exit::Usage, "the instructions of --system are empty").hint(
                        "give a text, or `@FILE` with one; without --system those of Toolcell are sent",
                    ),
                );
            }
            overrides.system = Some(text);
            overrides.system_file = file;
        }
        overrides.project_instructions = self.model.project_instructions;
        overrides.flow = self.flow;
        overrides.budget.clone_from(&self.budget);
        let model = &self.model;
        overrides.provider = model.provider.0.clone();
        overrides.turn = model.turn.0.clone();
        overrides.context = model.context.0.clone();
        Ok(())
    }
}

/// Maximum size of a file with instructions, in bytes: far more than is useful in every request.
const MAX_INSTRUCTIONS: u64 = 256 << 10;

/// Maximum size of a file with a schema, in bytes. Schemas have their own, smaller maximum.
const MAX_SCHEMA: u64 = 1 << 20;

/// Returns a text as written, or that of the file behind `@` with its path.
fn text_or_file(written: &str, environment: &Environment) -> Result<(String, Option<PathBuf>), Failure> {
    let Some(path) = written.strip_prefix('@') else {
        return Ok((written.to_owned(), None));
    };
    if path.starts_with('@') {
        return Ok((path.to_owned(), None));
    }
    let path = environment.path(path, &environment.cwd);
    let text = toolcell_fs::read_text(&path, &Rules::named(MAX_INSTRUCTIONS)).map_err(|error| {
        let failure = Failure::new(
            Exit::Usage,
            text!(
                "the instructions in `{}` cannot be read",
                environment.shown(&path)
            ),
        );
        because(failure, error)
    })?;
    Ok((text, Some(path)))
}
