//! Keys that a project's file must not contain, each with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;

use crate::config::budget::PricesTable;
use crate::config::file::{
    AgentTable, BucketTable, HookTable, LogTable, MainAgentTable, SecretTable, ToolTable,
};
use crate::config::mcp::McpTable;
use crate::config::provider::ProviderTable;
use crate::config::setting::{SettingTable as _, Written};
use crate::config::source::Source;
use crate::config::turn::PresetName;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, Text, text};

pub(super) fn refused(what: impl Into<Text>) -> Failure {
    Failure::new(Exit::Config, what)
}

pub(super) fn forbid_provider(table: &ProviderTable, source: &Arc<Source>) -> Result<(), Failure> {
    let Some(place) = table.first_key() else {
        return Ok(());
    };
    Err(refused("a project's file cannot choose the model provider")
        .why(source.point_at(&place))
        .why("the provider receives the conversation, and its key is billed")
        .hint("move `[provider]` to your own configuration (`toolcell config check` shows its path), or use --provider, --model and --base-url"))
}

pub(super) fn forbid_agent(table: &MainAgentTable, source: &Arc<Source>) -> Result<(), Failure> {
    let MainAgentTable {
        instructions,
        environment,
        project_instructions,
    } = table;
    let place = instructions.as_ref().map(Spanned::span);
    let place = place.or_else(|| environment.as_ref().map(Spanned::span));
    let Some(place) = place.or_else(|| project_instructions.as_ref().map(Spanned::span)) else {
        return Ok(());
    };
    Err(refused("a project's file cannot instruct the agent")
        .why(source.point_at(&place))
        .why("its model would take the instructions for yours")
        .hint("move `[agent]` to your own configuration, or use --system"))
}

pub(super) fn forbid_agents(
    agents: &BTreeMap<Spanned<String>, AgentTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((name, _)) = agents.first_key_value() else {
        return Ok(());
    };
    Err(refused("a project's file cannot define agents")
        .why(source.point_at(&name.span()))
        .why("subagents would run its instructions in your name and on your account")
        .hint("move `[agents]` to your own configuration"))
}

pub(super) fn forbid_profiles(
    profiles: &BTreeMap<Spanned<String>, ProviderTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((name, _)) = profiles.first_key_value() else {
        return Ok(());
    };
    Err(refused("a project's file cannot define profiles")
        .why(source.point_at(&name.span()))
        .why("a provider receives the conversation, and its key is billed")
        .hint("move `[profiles]` to your own configuration"))
}

pub(super) fn forbid_log(table: &LogTable, source: &Arc<Source>) -> Result<(), Failure> {
    let LogTable { dir, retention } = table;
    let place = dir.as_ref().map(Spanned::span);
    let Some(place) = place.or_else(|| retention.as_ref().map(Spanned::span)) else {
        return Ok(());
    };
    Err(refused("a project's file cannot configure logs")
        .why(source.point_at(&place))
        .why("the log contains your conversations")
        .hint("move `[log]` to your own configuration"))
}

pub(super) fn forbid_secrets(
    secrets: &BTreeMap<Spanned<String>, SecretTable>,
    tools: &BTreeMap<Spanned<String>, ToolTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let binds = tools.iter().find(|(_, table)| !table.secrets.is_empty());
    let named = secrets.first_key_value().map(|(name, _)| name);
    let Some(name) = binds.map(|(name, _)| name).or(named) else {
        return Ok(());
    };
    Err(refused("a project's file cannot name secrets")
        .why(source.point_at(&name.span()))
        .why("it could send them anywhere")
        .hint("move them to your own configuration"))
}

pub(super) fn forbid_scratch(dir: Option<&Spanned<String>>, source: &Arc<Source>) -> Result<(), Failure> {
    let Some(dir) = dir else { return Ok(()) };
    Err(refused("a project's file cannot name a scratch directory")
        .why(source.point_at(&dir.span()))
        .why("it would choose where files are written on this machine")
        .hint("use --scratch, or put it into your own configuration"))
}

pub(super) fn forbid_description(
    text: Option<&Spanned<String>>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some(text) = text else { return Ok(()) };
    Err(refused("a project's file cannot describe a tool")
        .why(source.point_at(&text.span()))
        .why("the description tells the model when to use the tool")
        .hint("put it into your own configuration"))
}

pub(super) fn forbid_hooks(
    hooks: &BTreeMap<Spanned<String>, HookTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((hook, _)) = hooks.first_key_value() else {
        return Ok(());
    };
    Err(refused("a project's file cannot add or change a hook")
        .why(source.point_at(&hook.span()))
        .why("a hook sees every prompt and every call, and a project could disable a guard")
        .hint("review the component with `toolcell tool inspect`; to use it, move the table to your own configuration"))
}

pub(super) fn forbid_mcp(
    servers: &BTreeMap<Spanned<String>, McpTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((server, table)) = servers.first_key_value() else {
        return Ok(());
    };
    let (why, review) = if table.component.is_some() {
        (
            "its program would run in every session, in a cell, before you trusted it",
            "review the component with `toolcell tool inspect`",
        )
    } else if table.url.is_some() {
        (
            "it would receive requests of every session, and its texts reach the model",
            "review its address",
        )
    } else {
        (
            "it would start programs on this machine, outside of every cell",
            "review what it would start",
        )
    };
    Err(refused("a project's file cannot add or change an MCP server")
        .why(source.point_at(&server.span()))
        .why(why)
        .hint(text!(
            "{}; to use it, move the table to your own configuration",
            Own(review)
        )))
}

pub(super) fn forbid_preset(
    preset: Option<&Written<PresetName>>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some(preset) = preset else { return Ok(()) };
    Err(refused("a project's file cannot choose the preset of the loop")
        .why(source.point_at(&preset.span()))
        .hint("use --preset, or put it into your own configuration"))
}

pub(super) fn forbid_buckets(
    buckets: &BTreeMap<Spanned<String>, BucketTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((bucket, _)) = buckets.first_key_value() else {
        return Ok(());
    };
    Err(refused("a project's file cannot set the limits of a bucket")
        .why(source.point_at(&bucket.span()))
        .why("buckets are shared by all your projects")
        .hint("move `[buckets]` to your own configuration"))
}

pub(super) fn forbid_prices(
    prices: &BTreeMap<Spanned<String>, PricesTable>,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let Some((model, _)) = prices.first_key_value() else {
        return Ok(());
    };
    Err(refused("a project's file cannot set the prices of a model")
        .why(source.point_at(&model.span()))
        .why("a low price would raise your budget `cost`")
        .hint("move `[prices]` to your own configuration"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::config::file::schema;
    use crate::config::{self, Overrides};
    use crate::environment::Environment;

    /// Every configuration key, or a table of keys, with a project's file that contains it, and true if that is
    /// refused.
    const DECIDED: [(&str, &str, bool); 54] = [
        ("agent.environment", "[agent]\nenvironment = true", true),
        ("agent.instructions", "[agent]\ninstructions = \"x\"", true),
        (
            "agent.project_instructions",
            "[agent]\nproject_instructions = \"accepted\"",
            true,
        ),
        ("agents", "[agents.a]\ndescription = \"d\"", true),
        ("approval.flow", "[approval]\nflow = \"ask\"", false),
        (
            "approval.rules",
            "[[approval.rules]]\ntool = \"*\"\nverdict = \"ask\"",
            false,
        ),
        ("budget.bytes", "[budget]\nbytes = \"1 MiB\"", false),
        ("budget.call_wall", "[budget]\ncall_wall = \"1s\"", false),
        ("budget.calls", "[budget]\ncalls = 1", false),
        ("budget.cost", "[budget]\ncost = 1", false),
        ("budget.fuel", "[budget]\nfuel = 1", false),
        ("budget.tokens", "[budget]\ntokens = 1", false),
        ("budget.wall", "[budget]\nwall = \"1s\"", false),
        ("buckets", "[buckets.memory]\nkeys = 1", true),
        ("deny", "deny = [\"private\"]", false),
        ("hooks", "[hooks.h]\ncomponent = \"h.wasm\"", true),
        ("log.dir", "[log]\ndir = \"x\"", true),
        ("log.retention", "[log]\nretention = \"1s\"", true),
        ("context", "[context]\nkeep_rounds = 9", true),
        ("loop.all_failed", "[loop]\nall_failed = \"continue\"", true),
        ("loop.call_attempts", "[loop]\ncall_attempts = 1", false),
        ("loop.call_timeout", "[loop]\ncall_timeout = \"1s\"", false),
        ("loop.calls_per_step", "[loop]\ncalls_per_step = \"one\"", true),
        ("loop.concurrency", "[loop]\nconcurrency = 1", false),
        ("loop.deadline", "[loop]\ndeadline = \"1s\"", false),
        ("loop.error_breaker", "[loop]\nerror_breaker = 1", false),
        (
            "loop.error_visibility",
            "[loop]\nerror_visibility = \"stored\"",
            true,
        ),
        ("loop.max_steps", "[loop]\nmax_steps = 1", false),
        ("loop.on_limit", "[loop]\non_limit = \"stop\"", true),
        ("loop.preset", "[loop]\npreset = \"stepwise\"", true),
        ("loop.provider_retries", "[loop]\nprovider_retries = 0", false),
        ("loop.repeat_stop", "[loop]\nrepeat_stop = 1", false),
        ("loop.repeat_warn", "[loop]\nrepeat_warn = 1", true),
        ("loop.result_bytes", "[loop]\nresult_bytes = 1024", true),
        ("loop.retry_pause", "[loop]\nretry_pause = \"1s\"", true),
        ("mcp", "[mcp.s]\ncommand = \"x\"", true),
        ("prices", "[prices.m]\ninput = 1\noutput = 1", true),
        ("provider.model", "[provider]\nmodel = \"m\"", true),
        ("provider", "[provider]\nstrict = true", true),
        ("provider.profile", "[provider]\nprofile = \"p\"", true),
        ("profiles", "[profiles.p]\nmodel = \"m\"", true),
        ("secrets", "[secrets.s]\nenv = \"S\"", true),
        (
            "tools.*.component",
            "[tools.theirs]\ncomponent = \"t.wasm\"",
            false,
        ),
        ("tools.*.description", "[tools.text]\ndescription = \"x\"", true),
        ("tools.*.enabled", "[tools.text]\nenabled = false", false),
        ("tools.*.grants", "[tools.text]\ngrants = [\"env=X\"]", true),
        ("tools.*.grants", "[tools.text]\ngrants = []", false),
        ("tools.*.grants", "[tools.text]\ngrants = [\"deny=x\"]", false),
        ("tools.*.limits", "[tools.text.limits]\nfuel = 100", false),
        ("tools.*.limits", "[tools.text.limits]\nfuel = \"1001 G\"", true),
        ("tools.*.only", "[tools.text]\nonly = []", false),
        ("tools.*.scratch", "[tools.text]\nscratch = \"x\"", true),
        (
            "tools.*.secrets",
            "[[tools.text.secrets]]\nsecret = \"s\"\norigins = []\nheader = \"x\"",
            true,
        ),
        ("tools.*.secrets", "[tools.text]\nsecrets = []", false),
    ];

    #[test]
    fn every_project_key_is_refused_or_applied() {
        for (key, project, is_refused) in DECIDED {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("toolcell.toml"), project).unwrap();
            let environment = Environment::for_tests(&dir.path().canonicalize().unwrap(), &[]);
            let loaded = config::load(&environment, Overrides::default());
            assert_eq!(loaded.is_err(), is_refused, "{key}: {loaded:?}");
        }
    }

    #[test]
    fn every_schema_key_has_a_project_rule() {
        let root = schema::json_schema();
        let mut open = vec![(String::new(), &root)];
        while let Some((path, schema)) = open.pop() {
            let schema = resolve(schema, &root);
            let below = |name: &str| [path.as_str(), name].join(".").trim_start_matches('.').to_owned();
            if let Some(Value::Object(properties)) = schema.get("properties") {
                open.extend(properties.iter().map(|(name, schema)| (below(name), schema)));
            } else if let Some(others) = schema.get("additionalProperties").filter(|s| s.is_object()) {
                open.push((below("*"), others));
            } else {
                let covers = |key: &str| {
                    let rest = path.strip_prefix(key);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                assert!(DECIDED.iter().any(|(key, ..)| covers(key)), "decide on `{path}`");
            }
        }
    }

    fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        }
    }
}
