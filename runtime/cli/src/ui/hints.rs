//! Hints that allow a denied access or raise a limit: a flag, and a line of the user's configuration. They are shown to
//! the user and never to the model.

use std::collections::BTreeMap;

use toolcell_agent::budget::{Prices, Spent};
use toolcell_core::policy::DirAccess;
use toolcell_core::receipt::Denial;
use toolcell_core::{Grant, Limit, Limits, Receipt, ToolError};
use toolcell_sandbox::Ability;

use crate::components::loader::Loaded;
use crate::config::budget::{NamedBudget, SourcedBudget};
use crate::config::limits;
use crate::config::source::PROJECT;
use crate::config::{ComponentSource, Origin, Settings};
use crate::environment::Environment;
use crate::ui::escape;
use crate::ui::render::receipt;

/// Denial in a receipt of a tool that requested its directories and has none.
const DIRECTORIES: &str = "directories";

/// Component of a tool, as needed for hints.
#[derive(Clone)]
struct Known {
    component: String,
    /// True if the user's configuration can have settings for it.
    configured: bool,
    /// True if it can request files and has no directory. Without a directory there is no path to request, and no
    /// denial.
    without_files: bool,
}

/// Hints per tool that allow denied accesses.
#[derive(Default)]
pub(crate) struct AllowHints {
    /// Components by the name of the tool.
    tools: BTreeMap<String, Known>,
    user_file: Option<String>,
}

impl AllowHints {
    /// Creates hints for the tools of these components.
    pub(crate) fn new<'b>(loaded: impl IntoIterator<Item = &'b Loaded>, environment: &Environment) -> Self {
        let mut tools = BTreeMap::new();
        for loaded in loaded {
            let configured = match &loaded.settings.component {
                ComponentSource::Shipped(_) => true,
                ComponentSource::File(path) => {
                    matches!(path.origin, Origin::File(..)) && !loaded.settings.is_of_project()
                }
            };
            let has_directory =
                (loaded.settings.grants.iter()).any(|line| matches!(line.grant, Grant::Dir { .. }));
            let known = Known {
                component: loaded.settings.name.clone(),
                configured,
                without_files: !has_directory && loaded.component.abilities().contains(&Ability::Files),
            };
            for tool in &loaded.tools {
                tools.insert(tool.spec().name.to_string(), known.clone());
            }
        }
        Self {
            tools,
            user_file: crate::config::user_files::user_file(environment).map(|path| environment.shown(&path)),
        }
    }

    /// Returns hints that allow the denied accesses of this call, or raise the limit it reached.
    pub(crate) fn of(&self, tool: &str, receipt: &Receipt, error: Option<&ToolError>) -> Vec<String> {
        let mut hints = self.of_denials(tool, receipt, error);
        hints.extend(error.and_then(|error| self.of_limit(tool, error)));
        hints
    }

    /// Returns hints that allow the denied accesses of this call.
    pub(crate) fn of_denials(&self, tool: &str, receipt: &Receipt, error: Option<&ToolError>) -> Vec<String> {
        let Some(known) = self.tools.get(tool) else {
            return Vec::new();
        };
        let component = &known.component;
        let file = self.user_file.as_deref().filter(|_| known.configured);
        let mut hints = receipt::allow_hints(receipt, component, file);
        // The tool requested its directories and has none. This is observed by the host, not claimed by the tool.
        let asked_for_files = receipt.denials.iter().any(|denial| denial.what == DIRECTORIES);
        if known.without_files && asked_for_files && error.is_some() {
            let allow = receipt::allow(
                &Grant::Dir {
                    host: ".".into(),
                    guest: None,
                    access: DirAccess::READ,
                },
                component,
                file,
            );
            hints.push(format!(
                "no directory is granted to it; if it needs files here, {allow}"
            ));
        }
        hints
    }

    /// Returns the hint that raises the limit which ended this call.
    pub(crate) fn of_limit(&self, tool: &str, error: &ToolError) -> Option<String> {
        let ToolError::Limit { limit } = error else {
            return None;
        };
        let known = self.tools.get(tool)?;
        let component = &known.component;
        let (name, value) = limit_setting(limit)?;
        let flag = value.replace(' ', "");
        Some(match self.user_file.as_deref().filter(|_| known.configured) {
            // A flag without a name does not apply to a component of a project.
            None if component.starts_with(PROJECT) => format!(
                "raise the limit with --limit {}",
                escape::shell(&format!("{component}:{name}={flag}"))
            ),
            None => format!(
                "raise the limit with --limit {}",
                escape::shell(&format!("{name}={flag}"))
            ),
            Some(path) => format!(
                "raise the limit with --limit {}\nor, in {path}: [tools.{component}.limits] {name} = {}",
                escape::shell(&format!("{component}:{name}={flag}")),
                escape::toml(&value)
            ),
        })
    }

    /// Returns one sentence per denial of a hook, with the configuration line that would allow it, or the denial that
    /// refused it.
    pub(crate) fn of_hook(&self, hook: &str, receipt: &Receipt) -> Vec<String> {
        let file = self.user_file.as_deref().unwrap_or("your own configuration");
        let sentence = |denial: &Denial| {
            let denied = format!("the hook `{hook}` was denied {} {}", denial.what, denial.target);
            // The line comes from what a guest asked for: only what reads as a grant is shown, in its own written form.
            let grant = denial
                .allow_with
                .as_ref()
                .and_then(|line| line.parse::<Grant>().ok());
            match (&denial.denied_by, grant) {
                (Some(by), _) => format!("{denied}, by {by}"),
                (None, Some(grant)) => format!(
                    "{denied}; to allow it, in {file}: [hooks.{hook}] grants = [{}]",
                    escape::toml(&grant.to_string())
                ),
                (None, None) => denied,
            }
        };
        receipt.denials.iter().map(sentence).collect()
    }
}

/// Hints that raise the budget that ended a turn.
pub(crate) struct BudgetHints {
    budget: SourcedBudget,
    prices: Option<Prices>,
    user_file: String,
}

impl BudgetHints {
    /// Creates hints for the budgets of these settings.
    pub(crate) fn new(settings: &Settings, prices: Option<Prices>, environment: &Environment) -> Self {
        Self {
            budget: settings.budget.clone(),
            prices,
            user_file: crate::config::user_files::user_file_shown(environment),
        }
    }

    /// Returns a flag and a configuration line with twice the allowed or used amount, for the first exhausted budget,
    /// or else for the one with the highest share in use: time may run out while a turn waits, and the rest may not
    /// suffice for another request.
    pub(crate) fn of(&self, spent: &Spent) -> Option<String> {
        let used = |named: NamedBudget| match named.name {
            "fuel" => spent.fuel,
            "wall" => spent.wall_ms,
            "call_wall" => spent.call_us / 1_000,
            "bytes" => spent.bytes,
            "calls" => spent.calls,
            "tokens" => spent.tokens(),
            _ => self.prices.map_or(0, |prices| spent.cost_micros(&prices)),
        };
        let share = |named: NamedBudget| u128::from(used(named)) * 1_000 / u128::from(named.value.max(1));
        let is_used_up = |named: NamedBudget| used(named) >= named.value;
        let (named, origin) = self
            .budget
            .all()
            .find(|(named, _)| is_used_up(*named))
            .or_else(|| self.budget.all().max_by_key(|(named, _)| share(*named)))?;
        let used = used(named);
        let more = NamedBudget {
            value: named.value.max(used).max(1).saturating_mul(2),
            ..named
        };
        let file = match origin {
            Origin::File(source, _) => &source.shown,
            _ => &self.user_file,
        };
        Some(format!(
            "raise the budget with {}\nor, in {file}: {}",
            more.flag(),
            more.line()
        ))
    }
}

/// Returns the setting behind a limit, and twice its value, or the default of a limit of 0.
fn limit_setting(limit: &Limit) -> Option<(&'static str, String)> {
    let (name, value) = match *limit {
        Limit::Fuel(n) => ("fuel", n),
        Limit::WallTimeMs(n) => ("wall", n),
        Limit::Memory(n) => ("memory", n),
        Limit::TableElements(n) => ("table_elements", n),
        Limit::Handles(n) => ("handles", n),
        Limit::Output(n) => ("output", n),
        _ => return None,
    };
    let more = match value {
        0 => limits::get(&Limits::default(), name),
        value => value.saturating_mul(2),
    };
    Some((name, limits::shown(name, more)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_for_a_limit_is_above_it() {
        let setting = |limit| limit_setting(&limit);
        for (limit, expected) in [
            (Limit::Memory(0), ("memory", "256 MiB")),
            (Limit::Output(0), ("output", "4 MiB")),
            (Limit::Output(1), ("output", "2 B")),
            (Limit::WallTimeMs(2_000), ("wall", "4 s")),
        ] {
            assert_eq!(setting(limit), Some((expected.0, expected.1.to_owned())));
        }
    }

    #[test]
    fn denial_claimed_by_tool_makes_no_hint() {
        let known = Known {
            component: "x".into(),
            configured: false,
            without_files: true,
        };
        let hints = AllowHints {
            tools: BTreeMap::from([("x".into(), known)]),
            user_file: None,
        };
        let claim = ToolError::denied("grant me --grant read=/", Some("--grant write=/".into()));
        assert_eq!(hints.of("x", &Receipt::default(), Some(&claim)), [] as [&str; 0]);
        let asked = Receipt {
            denials: vec![Denial {
                what: DIRECTORIES.into(),
                target: "/".into(),
                allow_with: None,
                denied_by: None,
            }],
            ..Receipt::default()
        };
        assert_eq!(
            hints.of("x", &asked, Some(&claim)),
            ["no directory is granted to it; if it needs files here, allow it with --grant read=."]
        );
        assert_eq!(hints.of("x", &asked, None), [] as [&str; 0]);
    }

    #[test]
    fn denial_of_hook_names_line_that_would_allow_it() {
        let hints = AllowHints {
            tools: BTreeMap::new(),
            user_file: Some("~/config.toml".into()),
        };
        let denial = |allow: Option<&str>, by: Option<&str>| Denial {
            what: "http".into(),
            target: "example.com:443".into(),
            allow_with: allow.map(Into::into),
            denied_by: by.map(Into::into),
        };
        let receipt = Receipt {
            denials: vec![
                denial(Some("http=example.com"), None),
                denial(Some("no grant"), None),
                denial(None, Some("deny=private (config.toml:1)")),
            ],
            ..Receipt::default()
        };
        let denied = "the hook `h` was denied http example.com:443";
        assert_eq!(
            hints.of_hook("h", &receipt),
            [
                format!("{denied}; to allow it, in ~/config.toml: [hooks.h] grants = [\"http=example.com\"]"),
                denied.to_owned(),
                format!("{denied}, by deny=private (config.toml:1)"),
            ]
        );
    }
}
