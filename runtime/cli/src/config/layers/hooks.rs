//! Parsing of the `[hooks.NAME]` tables of the user's file.

use std::sync::Arc;

use toml::Spanned;

use super::tool_table::{bindings, grant_lines, origin};
use crate::config::file::HookTable;
use crate::config::limits::{self, NamedLimit};
use crate::config::settings::{ComponentSource, HookSettings, ToolSettings};
use crate::config::source::{Source, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Default wall time at one hook point, in milliseconds. Short, because the user waits for each.
pub(crate) const WALL_MS: u64 = 10_000;

/// Parses one table.
///
/// # Errors
/// Returns an error if the name is invalid, or a key is missing or invalid.
pub(super) fn read(
    name: &Spanned<String>,
    table: &HookTable,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<HookSettings, Failure> {
    let key = name.get_ref();
    let fail = |what: Text| Failure::new(Exit::Config, what).why(source.point_at(&name.span()));
    if toolcell_core::ToolName::new(key.as_str()).is_err() {
        return Err(fail(text!("`{}` is not a valid name of a hook", key))
            .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"));
    }
    let Some(component) = &table.component else {
        return Err(fail(text!("the hook `{}` has no component", key))
            .hint("set its file: component = \"FILE.wasm\""));
    };
    let base = source.path.parent().unwrap_or(&environment.cwd);
    let path = Sourced {
        value: environment.path(component.get_ref(), base),
        origin: origin(source, component),
    };
    let mut settings = ToolSettings::new(key.clone(), ComponentSource::File(path));
    let wall = NamedLimit {
        name: "wall",
        value: WALL_MS,
    };
    wall.set(&mut settings.limits.limits);
    if let Some(enabled) = sourced(table.enabled.as_ref(), source) {
        settings.enabled = enabled;
    }
    settings.grants = grant_lines(table.grants.as_deref(), source, &environment.cwd);
    settings.bindings = bindings(name, &table.secrets, source)?;
    for (limit, origin) in limits::of_table(&table.limits, source) {
        settings.limits.set(limit, origin);
    }
    Ok(HookSettings {
        component: settings,
        guard: sourced(table.guard.as_ref(), source),
        priority: sourced(table.priority.as_ref(), source),
        before: sourced(table.before.as_ref(), source),
        after: sourced(table.after.as_ref(), source),
    })
}

fn sourced<T: Clone>(value: Option<&Spanned<T>>, source: &Arc<Source>) -> Option<Sourced<T>> {
    value.map(|value| Sourced {
        value: value.get_ref().clone(),
        origin: origin(source, value),
    })
}
