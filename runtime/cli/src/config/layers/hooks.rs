//! Parsing of the `[hooks.NAME]` tables of the user's file.

use std::sync::Arc;

use toml::Spanned;

use super::tool_table::{bindings, grant_lines, origin};
use crate::config::file::HookTable;
use crate::config::limits::{self, NamedLimit};
use crate::config::settings::{ComponentSource, HookSettings, ToolSettings};
use crate::config::source::{Origin, Source, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};

/// Default wall time at one hook point, in milliseconds. Short, because the user waits for each.
const WALL_MS: u64 = 10_000;

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
    let fail = |what: String| Failure::new(Exit::Config, what).why(source.point_at(&name.span()));
    if toolcell_core::ToolName::new(key.as_str()).is_err() {
        return Err(
            fail(format!("`{}` is not a valid name of a hook", key.escape_debug()))
                .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"),
        );
    }
    let Some(component) = &table.component else {
        return Err(fail(format!("the hook `{key}` has no component"))
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

/// Returns every setting with its value and origin. Defaults are omitted.
pub(crate) fn rows(hook: &HookSettings, environment: &Environment) -> Vec<(String, String, Origin)> {
    let of = &hook.component;
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String, origin: &Origin| {
        rows.push((format!("hooks.{}.{what}", of.name), value, origin.clone()));
    };
    if let ComponentSource::File(path) = &of.component {
        row("component", environment.shown(&path.value), &path.origin);
    }
    if !matches!(of.enabled.origin, Origin::Default) {
        row("enabled", of.enabled.value.to_string(), &of.enabled.origin);
    }
    if let Some(guard) = &hook.guard {
        row("guard", guard.value.to_string(), &guard.origin);
    }
    if let Some(priority) = &hook.priority {
        row("priority", priority.value.to_string(), &priority.origin);
    }
    for (what, names) in [("before", &hook.before), ("after", &hook.after)] {
        if let Some(names) = names {
            row(what, names.value.join(", "), &names.origin);
        }
    }
    for (i, line) in of.grants.iter().enumerate() {
        row(&format!("grants[{i}]"), line.grant.to_string(), &line.origin);
    }
    for (name, origin) in &of.limits.origins {
        let value = limits::shown(name, limits::get(&of.limits.limits, name));
        row(&format!("limits.{name}"), value, origin);
    }
    rows
}

fn sourced<T: Clone>(value: Option<&Spanned<T>>, source: &Arc<Source>) -> Option<Sourced<T>> {
    value.map(|value| Sourced {
        value: value.get_ref().clone(),
        origin: origin(source, value),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{self, Overrides};

    use super::*;

    #[test]
    fn rows_are_the_settings_that_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let table = "[hooks.plain]\ncomponent = \"p.wasm\"\n\
            [hooks.all]\ncomponent = \"h.wasm\"\nenabled = false\nguard = true\npriority = 5\n\
            before = [\"a\", \"b\"]\nafter = [\"c\"]\ngrants = [\"env=A\"]\nlimits.wall = \"1s\"\n";
        std::fs::write(&path, table).unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        let rows = |name: &str| -> Vec<(String, String)> {
            let rows = rows(&settings.hooks[name], &environment).into_iter();
            rows.map(|(key, value, _)| (key, value)).collect()
        };
        let row = |key: &str, value: &str| (format!("hooks.{key}"), value.to_owned());
        assert_eq!(rows("plain"), [row("plain.component", "p.wasm")]);
        assert_eq!(
            rows("all"),
            [
                row("all.component", "h.wasm"),
                row("all.enabled", "false"),
                row("all.guard", "true"),
                row("all.priority", "5"),
                row("all.before", "a, b"),
                row("all.after", "c"),
                row("all.grants[0]", "env=A"),
                row("all.limits.wall", "1 s"),
            ]
        );
        let wall = |name: &str| settings.hooks[name].component.limits.limits.wall_ms;
        assert_eq!((wall("plain"), wall("all")), (WALL_MS, 1_000));
    }
}
