//! `toolcell config show`: every effective setting and its origin.

use clap::Args;
use serde_json::json;
use toolcell_core::suggest::nearest;

use super::rows::{self, Detail};
use crate::config::{self, Overrides, Row};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::text;

/// Show every effective setting and where its value comes from. Nothing is loaded or run.
///
/// Origins: `default`, `preset NAME`, a line of a file, `$VARIABLE`, or the flag. Later ones win, in this order; a
/// project's `toolcell.toml` can only narrow.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell config show
  toolcell config show loop context --preset stepwise
  toolcell config show tools.files --json

Exit codes:
    0   the settings were printed
    2   no setting has this key
    3   the configuration cannot be used")]
pub(crate) struct Show {
    /// Show only the settings of this key or table, such as `loop` or `tools.files.limits` (repeatable).
    #[arg(value_name = "KEY")]
    keys: Vec<String>,

    /// Print one JSON object: `value` and `from` by key, below `settings`. The value is `null` where there is none.
    /// `turn_ends_with` says what the preset chooses.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    agent: AgentFlags,
}

impl Show {
    pub(super) fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.agent.apply(&mut overrides, environment)?;
        let settings = config::load(environment, overrides)?;
        let all = rows::of(&settings, environment, Detail::All);
        for key in &self.keys {
            check(key, &all)?;
        }
        let is_shown =
            |row: &Row| self.keys.is_empty() || self.keys.iter().any(|key| is_below(&row.key, key));
        let shown: Vec<Row> = all.into_iter().filter(is_shown).collect();
        if self.json {
            let mut object = json!({ "settings": rows::to_json(&shown) });
            if rows::has_preset(&shown) {
                object["turn_ends_with"] = settings.turn.end_of_turn().0.plain().into();
            }
            print_line(console, &object)?;
        } else {
            console.write(|s| {
                rows::print(&mut s.out, &shown)?;
                rows::print_end_of_turn(&mut s.out, &shown, &settings)?;
                s.out.flush()
            })?;
        }
        Ok(Exit::Ok)
    }
}

/// True if `key` is `table`, or a key or entry of it.
fn is_below(key: &str, table: &str) -> bool {
    let rest = key.strip_prefix(table);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn check(key: &str, all: &[Row]) -> Result<(), Failure> {
    if all.iter().any(|row| is_below(&row.key, key)) {
        return Ok(());
    }
    let known: Vec<&str> = all.iter().map(|row| row.key.as_str()).collect();
    let failure = Failure::new(Exit::Usage, text!("there is no setting `{}`", key));
    Err(match nearest(key, &known).first() {
        Some(near) => failure.hint(text!("did you mean `{}`?", near)),
        None => failure.hint("`toolcell config show` lists all settings"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_or_table_selects_its_settings() {
        for (key, table, is_selected) in [
            ("loop.max_steps", "loop", true),
            ("loop.max_steps", "loop.max_steps", true),
            ("deny[0]", "deny", true),
            ("tools.files.limits.wall", "tools.files", true),
            ("loop.max_steps", "loop.max", false),
            ("tools.files.enabled", "tools.file", false),
        ] {
            assert_eq!(is_below(key, table), is_selected, "{key} {table}");
        }
    }
}
