//! Effective settings as rows: key, value and origin.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::{Map, Value, json};

use crate::agent::model;
use crate::config::budget::{self, SourcedBudget};
use crate::config::limits::{self, SourcedLimits};
use crate::config::mcp::{EnvValue, Transport};
use crate::config::provider::ProviderSettings;
use crate::config::units::money::Money;
use crate::config::units::{Bytes, Count, Span};
use crate::config::{
    AgentSettings, ComponentSource, HookSettings, McpSettings, Origin, Row, Settings, Sourced, ToolSettings,
};
use crate::environment::Environment;
use crate::ui::escape;
use crate::ui::terminal::{FAINT, Key, NAME, Name, Screen, Shown, Text, text};

/// Settings to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Those that are set, and the defaults of the agent.
    Set,
    /// All of them.
    All,
}

/// Maximum width of the column of values.
const MAX_VALUE_WIDTH: usize = 40;

/// Between two columns.
const GAP: &str = "  ";

/// Returns the settings with their values and origins.
pub(super) fn of(settings: &Settings, environment: &Environment, detail: Detail) -> Vec<Row> {
    let mut rows = Rows {
        rows: Vec::new(),
        detail,
    };
    rows.provider(settings, environment);
    if let Some(instructions) = &settings.instructions {
        rows.add(
            "agent.instructions",
            escape::toml(&instructions.value),
            &instructions.origin,
        );
    } else {
        rows.absent("agent.instructions");
    }
    rows.sourced("agent.environment", &settings.tells_environment);
    rows.sourced("agent.project_instructions", &settings.project_instructions);
    rows.rows.extend(settings.turn.rows(&settings.context));
    if settings.deny.is_empty() {
        rows.absent("deny");
    }
    for (i, line) in settings.deny.iter().enumerate() {
        rows.add(format!("deny[{i}]"), &line.grant, &line.origin);
    }
    rows.add(
        "approval.flow",
        format!("{:?}", settings.flow.value).to_lowercase(),
        &settings.flow.origin,
    );
    if settings.rules.is_empty() {
        rows.absent("approval.rules");
    }
    for (i, rule) in settings.rules.iter().enumerate() {
        let shown = rule.value.rule(environment).to_string();
        rows.add(format!("approval.rules[{i}]"), shown, &rule.origin);
    }
    rows.budget("", &settings.budget);
    for (name, prices) in &settings.prices {
        let key = |what| format!("prices.{}.{what}", escape::toml(name));
        let of = &prices.value;
        rows.add(key("input"), Money(of.input), &prices.origin);
        rows.add(key("output"), Money(of.output), &prices.origin);
        rows.add(key("cache_read"), Money(of.cache_read), &prices.origin);
        rows.add(key("cache_write"), Money(of.cache_write), &prices.origin);
    }
    for (name, limits) in &settings.buckets {
        let of = &limits.value;
        rows.add(format!("buckets.{name}.keys"), Count(of.keys), &limits.origin);
        rows.add(format!("buckets.{name}.bytes"), Bytes(of.bytes), &limits.origin);
    }
    rows.log(settings, environment);
    for (name, secret) in &settings.secrets {
        let source = &secret.value;
        for (what, value) in [
            ("env", &source.env),
            ("file", &source.file),
            ("keyring", &source.keyring),
        ] {
            if let Some(value) = value {
                rows.add(format!("secrets.{name}.{what}"), value, &secret.origin);
            }
        }
    }
    for (name, profile) in &settings.profiles {
        let key = |what: &str| format!("profiles.{}.{what}", escape::toml(name));
        if let Some(name) = &profile.name {
            rows.sourced(key("name"), name);
        }
        for (name, value, origin) in profile.rows() {
            rows.add(key(name), value, &origin);
        }
    }
    for agent in settings.agents.values() {
        rows.agent(agent);
    }
    for tool in settings.tools.values() {
        rows.tool(tool, settings, environment);
    }
    for hook in settings.hooks.values() {
        rows.hook(hook, environment);
    }
    for server in settings.mcp.values() {
        rows.server(server, environment);
    }
    for (table, is_empty) in [
        ("prices", settings.prices.is_empty()),
        ("buckets", settings.buckets.is_empty()),
        ("secrets", settings.secrets.is_empty()),
        ("profiles", settings.profiles.is_empty()),
        ("agents", settings.agents.is_empty()),
        ("hooks", settings.hooks.is_empty()),
        ("mcp", settings.mcp.is_empty()),
    ] {
        if is_empty {
            rows.absent(table);
        }
    }
    rows.rows
}

/// Converts rows to an object of `value` and `from` by key. The value is `null` without one.
pub(super) fn to_json(rows: &[Row]) -> Map<String, Value> {
    rows.iter()
        .map(|row| {
            let setting = json!({ "value": row.value, "from": row.origin.to_string() });
            (row.key.clone(), setting)
        })
        .collect()
}

/// Prints rows in columns.
pub(super) fn print<W: Write>(out: &mut Screen<W>, rows: &[Row]) -> io::Result<()> {
    let shown = |row: &Row| match &row.value {
        Some(value) => text!("{}", Shown(value)),
        None => text!("none"),
    };
    let origin = |row: &Row| match &row.origin {
        Origin::Preset(name) => text!("preset {}", Name(name)),
        origin => text!("{}", Shown(&origin.to_string())),
    };
    let longest = |text: &dyn Fn(&Row) -> Text| {
        let lengths = rows.iter().map(|row| text(row).plain().chars().count());
        lengths.max().unwrap_or(0)
    };
    let width = longest(&|row| text!("{}", Key(&row.key)));
    // Columns are only as wide as the terminal allows; a row that is longer is wrapped.
    let room = out.size().map_or(usize::MAX, |(columns, _)| columns);
    let taken = width + longest(&origin) + 2 * GAP.len();
    let value_width = longest(&shown)
        .min(MAX_VALUE_WIDTH)
        .min(room.saturating_sub(taken + 1));
    for row in rows {
        out.cell(NAME, text!("{}", Key(&row.key)), width)?;
        out.text(GAP)?;
        let style = if row.value.is_some() { Style::new() } else { FAINT };
        out.cell(style, shown(row), value_width)?;
        out.styled(FAINT, text!("{}{}", GAP, origin(row)))?;
        out.end_line()?;
    }
    Ok(())
}

/// Prints what ends a turn below the settings of the loop: the preset chooses it, and no key does.
pub(super) fn print_end_of_turn<W: Write>(
    out: &mut Screen<W>,
    rows: &[Row],
    settings: &Settings,
) -> io::Result<()> {
    if !has_preset(rows) {
        return Ok(());
    }
    let (ends, origin) = settings.turn.end_of_turn();
    let origin = match origin {
        Origin::Preset(name) => text!("preset {}", Name(name)),
        _ => text!("default"),
    };
    out.line(text!("\na turn ends with {} ({})", ends, origin))
}

/// True if the row of the preset is shown.
pub(super) fn has_preset(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.key == "loop.preset")
}

struct Rows {
    rows: Vec<Row>,
    detail: Detail,
}

impl Rows {
    fn add(&mut self, key: impl Into<String>, value: impl ToString, origin: &Origin) {
        self.rows.push(Row::new(key, value, origin));
    }

    fn sourced<T: ToString>(&mut self, key: impl Into<String>, setting: &Sourced<T>) {
        self.add(key, setting.value.to_string(), &setting.origin);
    }

    /// Adds a setting that is unset and has no default.
    fn absent(&mut self, key: impl Into<String>) {
        if self.detail == Detail::All {
            self.rows.push(Row {
                key: key.into(),
                value: None,
                origin: Origin::Default,
            });
        }
    }

    fn provider(&mut self, settings: &Settings, environment: &Environment) {
        let (name, why) = model::name(&settings.provider, environment);
        self.add("provider.name", name, &why);
        // The stand-in has none, but is there only until a provider is chosen.
        let default_of = |key| match why {
            Origin::Default => model::default_of_each(key),
            _ => model::default_of(name, key),
        };
        let of_preset = settings.turn.reasoning_of_preset();
        for spec in ProviderSettings::SPECS.iter().filter(|spec| spec.key != "name") {
            let key = format!("provider.{}", spec.key);
            match settings.provider.rows().find(|(name, ..)| *name == spec.key) {
                Some((_, value, origin)) => self.add(key, value, &origin),
                None => match &of_preset {
                    Some(row) if row.key == key => self.rows.push(row.clone()),
                    _ => match default_of(spec.key) {
                        Some(value) if self.detail == Detail::All => self.add(key, value, &Origin::Default),
                        _ => self.absent(key),
                    },
                },
            }
        }
    }

    fn budget(&mut self, prefix: &str, budget: &SourcedBudget) {
        for name in budget::NAMES {
            let key = format!("{prefix}budget.{name}");
            match budget.get(name) {
                Some(value) => self.add(key, budget::exactly(name, value.value), &value.origin),
                None => self.absent(key),
            }
        }
    }

    fn log(&mut self, settings: &Settings, environment: &Environment) {
        let Some(log) = &settings.log else {
            return self.absent("log.dir");
        };
        let retention = match log.retention {
            Some(time) => Span(time).to_string(),
            None => "forever".to_owned(),
        };
        self.add("log.dir", environment.shown(&log.dir.value), &log.dir.origin);
        self.add("log.retention", retention, &log.retention_origin);
    }

    fn agent(&mut self, agent: &AgentSettings) {
        let key = |what: &str| format!("agents.{}.{what}", agent.name);
        self.sourced(key("description"), &agent.description);
        if let Some(tools) = &agent.tools {
            let names: Vec<&str> = tools.iter().map(|tool| tool.value.as_str()).collect();
            let origin = tools.first().map_or(&agent.origin, |tool| &tool.origin);
            self.add(key("tools"), names.join(", "), origin);
        }
        if let Some(name) = &agent.provider.name {
            self.sourced(key("provider.name"), name);
        }
        for (name, value, origin) in agent.provider.rows() {
            self.add(key(&format!("provider.{name}")), value, &origin);
        }
        if let Some(steps) = &agent.max_steps {
            self.sourced(key("max_steps"), steps);
        }
        self.budget(&key(""), &agent.budget);
    }

    fn tool(&mut self, tool: &ToolSettings, settings: &Settings, environment: &Environment) {
        let key = |what: &str| format!("tools.{}.{what}", tool.name);
        self.component(tool, &key, environment);
        if let Some(description) = &tool.description {
            let shown = escape::toml(&description.value);
            self.add(key("description"), shown, &description.origin);
        } else {
            self.absent(key("description"));
        }
        if let Some(only) = &tool.only {
            let names: Vec<String> = only.value.iter().map(|name| escape::toml(name)).collect();
            self.add(key("only"), format!("[{}]", names.join(", ")), &only.origin);
        } else {
            self.absent(key("only"));
        }
        self.grants(tool, &key);
        match settings.scratch_of(tool) {
            Some(dir) => self.sourced(key("scratch"), &dir),
            None => self.absent(key("scratch")),
        }
        self.limits(&tool.limits, &key);
    }

    fn hook(&mut self, hook: &HookSettings, environment: &Environment) {
        let of = &hook.component;
        let key = |what: &str| format!("hooks.{}.{what}", of.name);
        self.component(of, &key, environment);
        if let Some(guard) = &hook.guard {
            self.sourced(key("guard"), guard);
        }
        if let Some(priority) = &hook.priority {
            self.sourced(key("priority"), priority);
        }
        for (what, names) in [("before", &hook.before), ("after", &hook.after)] {
            if let Some(names) = names {
                self.add(key(what), names.value.join(", "), &names.origin);
            }
        }
        self.grants(of, &key);
        self.limits(&of.limits, &key);
    }

    fn server(&mut self, server: &McpSettings, environment: &Environment) {
        let key = |what: &str| format!("mcp.{}.{what}", server.name);
        let origin = &server.origin;
        match &server.transport {
            Transport::Process(process) => {
                self.add(key("command"), process.command_line(), origin);
                self.add(key("cwd"), environment.shown(&process.directory), origin);
                for (name, value) in &process.env {
                    let value = match value {
                        // Some write keys here.
                        EnvValue::Text(_) => "a text".to_owned(),
                        EnvValue::Secret(name) => format!("the secret `{}`", name.secret),
                    };
                    self.add(key(&format!("env.{name}")), value, origin);
                }
            }
            Transport::Cell { component, arguments } => {
                if let ComponentSource::File(path) = &component.component {
                    self.add(key("component"), environment.shown(&path.value), &path.origin);
                }
                if !arguments.is_empty() {
                    let words: Vec<String> = arguments.iter().map(|word| escape::toml(word)).collect();
                    self.add(key("args"), format!("[{}]", words.join(", ")), origin);
                }
                self.grants(component, &key);
                self.limits(&component.limits, &key);
            }
            Transport::Http {
                url,
                headers,
                plain,
                oauth,
            } => {
                self.add(key("url"), url, origin);
                if *plain {
                    self.add(key("plain"), "true", origin);
                }
                for (name, value) in headers {
                    let value = match value.secret() {
                        None => "a text".to_owned(),
                        Some(secret) => format!("the secret `{secret}`"),
                    };
                    self.add(key(&format!("headers.{name}")), value, origin);
                }
                let texts = [("issuer", &oauth.issuer), ("client_id", &oauth.client_id)];
                for (name, value) in texts {
                    if let Some(value) = value {
                        self.add(key(&format!("oauth.{name}")), value, origin);
                    }
                }
                if let Some(secret) = &oauth.client_secret {
                    let value = format!("the secret `{secret}`");
                    self.add(key("oauth.client_secret"), value, origin);
                }
                if let Some(scopes) = &oauth.scopes {
                    let scopes: Vec<String> = scopes.iter().map(|scope| escape::toml(scope)).collect();
                    let value = format!("[{}]", scopes.join(", "));
                    self.add(key("oauth.scopes"), value, origin);
                }
                if let Some(file) = &oauth.file {
                    self.add(key("oauth.file"), environment.shown(file), origin);
                }
            }
        }
        if self.detail == Detail::All || !matches!(server.enabled.origin, Origin::Default) {
            self.sourced(key("enabled"), &server.enabled);
        }
        let names = |names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| escape::toml(name)).collect();
            format!("[{}]", names.join(", "))
        };
        if let Some(only) = &server.only {
            self.add(key("only"), names(only), origin);
        }
        if !server.except.is_empty() {
            self.add(key("except"), names(&server.except), origin);
        }
        self.add(
            key("data_flow"),
            format!("[{}]", server.flow_words().join(", ")),
            origin,
        );
        for (what, is_set) in [
            ("required", server.required),
            ("trust_annotations", server.trusts_annotations),
        ] {
            if is_set {
                self.add(key(what), true, origin);
            }
        }
        self.add(key("start_timeout"), Span(server.start_timeout), origin);
        self.add(key("timeout"), Span(server.call_timeout), origin);
    }

    fn component(&mut self, of: &ToolSettings, key: &dyn Fn(&str) -> String, environment: &Environment) {
        if let ComponentSource::File(path) = &of.component {
            self.add(key("component"), environment.shown(&path.value), &path.origin);
        }
        if self.detail == Detail::All || !matches!(of.enabled.origin, Origin::Default) {
            self.sourced(key("enabled"), &of.enabled);
        }
    }

    fn grants(&mut self, of: &ToolSettings, key: &dyn Fn(&str) -> String) {
        if of.grants.is_empty() {
            self.absent(key("grants"));
        }
        for (i, line) in of.grants.iter().enumerate() {
            self.add(key(&format!("grants[{i}]")), &line.grant, &line.origin);
        }
    }

    fn limits(&mut self, of: &SourcedLimits, key: &dyn Fn(&str) -> String) {
        let is_listed = |name: &&str| self.detail == Detail::All || of.origins.contains_key(*name);
        for name in limits::NAMES.into_iter().filter(is_listed).collect::<Vec<_>>() {
            let value = limits::shown(name, limits::get(&of.limits, name));
            self.add(key(&format!("limits.{name}")), value, &of.origin(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::hooks::WALL_MS;
    use crate::config::{self, Overrides};

    #[test]
    fn rows_of_hooks_are_the_settings_that_are_written() {
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
            let rows = of(&settings, &environment, Detail::Set).into_iter();
            let table = format!("hooks.{name}.");
            let rows = rows.filter(|row| row.key.starts_with(&table));
            rows.map(|row| (row.key, row.value.unwrap())).collect()
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
