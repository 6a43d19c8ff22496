//! Locates the files, reads the environment, and merges the layers.

mod agents;
mod forbid;
pub(crate) mod hooks;
pub(crate) mod profiles;
mod project;
pub(crate) mod tool_table;
mod turn;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toolcell_core::keyvalue::is_bucket_name;
use toolcell_core::suggest::nearest;
use toolcell_fs::Rules;
use toolcell_store::BucketLimits;

use self::tool_table::{bindings, declare, deny_lines, grant_lines, only, origin};
use crate::components::builtin;
use crate::config::budget::{self, SourcedBudget};
use crate::config::file::parse::{self, Parsed};
use crate::config::file::{
    ApprovalTable, BucketTable, File, FlowRule, LogTable, ProjectInstructions, RuleTable, SecretTable,
};
use crate::config::limits;
use crate::config::mcp::{self, McpSettings};
use crate::config::names::TakenNames;
use crate::config::provider::ProviderSettings;
use crate::config::setting::SettingSpec;
use crate::config::settings::{LogSettings, Overrides, Settings, ToolSettings};
use crate::config::source::{Layer, Origin, Source, Sourced};
use crate::config::turn::{ContextSettings, LoopSettings};
use crate::config::user_files::user_file;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Name of a project's file.
pub(crate) const PROJECT_FILE: &str = "toolcell.toml";

/// Every variable that Toolcell reads, and what it sets.
pub(crate) fn variables() -> Vec<(&'static str, String)> {
    let of = |table: &'static str, specs: &'static [SettingSpec]| {
        let named = specs.iter().filter_map(|spec| Some((spec.variable?, spec.key)));
        named.map(move |(variable, key)| (variable, format!("{table}.{key}")))
    };
    let fixed = |name, what: &str| (name, what.to_owned());
    std::iter::once(fixed("TOOLCELL_CONFIG", "the user's configuration file"))
        .chain(of("provider", ProviderSettings::SPECS))
        .chain(of("loop", LoopSettings::SPECS))
        .chain([fixed(
            "TOOLCELL_LOG",
            "what is logged to standard error, such as `debug`",
        )])
        .collect()
}

/// Returns a warning for each variable that looks like a setting and is none. It is no error, because other programs and
/// other versions share the environment.
pub(crate) fn unknown_variables(environment: &Environment) -> Vec<Text> {
    const PREFIX: &str = "TOOLCELL_";
    let known = variables().into_iter();
    let known: Vec<&str> = known.filter_map(|(name, _)| name.strip_prefix(PREFIX)).collect();
    let names = environment.names_with_prefix(PREFIX);
    names
        .filter_map(|name| name.strip_prefix(PREFIX))
        .filter(|name| !known.contains(name))
        .map(|unknown| {
            let warning = text!("warning: the variable `{}{}` has no effect", PREFIX, unknown);
            match nearest(unknown, &known).first() {
                Some(near) => text!("{}; did you mean `{}{}`?", warning, PREFIX, near),
                None => warning,
            }
        })
        .collect()
}

/// Loads every layer.
///
/// # Errors
/// Returns an error if a file or a variable is invalid, or the project's file widens what the user's file allows.
pub(crate) fn load(environment: &Environment, overrides: Overrides) -> Result<Settings, Failure> {
    let mut settings = Settings {
        files: Vec::new(),
        variables: Vec::new(),
        provider: ProviderSettings::default(),
        profiles: BTreeMap::new(),
        instructions: None,
        tells_environment: Sourced::default(true),
        project_instructions: Sourced::default(ProjectInstructions::Ask),
        turn: LoopSettings::default(),
        context: ContextSettings::default(),
        budget: SourcedBudget::default(),
        prices: BTreeMap::new(),
        agents: BTreeMap::new(),
        log: None,
        rules: Vec::new(),
        secrets: BTreeMap::new(),
        flow: Sourced::default(FlowRule::Ask),
        tools: builtin::ALL
            .iter()
            .map(|shipped| (shipped.name.to_owned(), ToolSettings::shipped(shipped)))
            .collect(),
        hooks: BTreeMap::new(),
        buckets: BTreeMap::new(),
        mcp: BTreeMap::new(),
        deny: Vec::new(),
        overrides,
    };
    if let Some(user) = read_user_file(environment, settings.overrides.config.as_deref())? {
        apply_user(&mut settings, &user, environment)?;
    }
    if let Some(project) = read_project_file(environment)? {
        project::apply_project(&mut settings, &project, environment)?;
    }
    apply_variables(&mut settings, environment)?;
    profiles::apply(&mut settings)?;
    apply_flags(&mut settings, environment);
    Ok(settings)
}

fn read_user_file(environment: &Environment, flag: Option<&Path>) -> Result<Option<Parsed>, Failure> {
    let named = flag
        .map(|path| (environment.cwd.join(path), "--config"))
        .or_else(|| {
            let path = environment.var("TOOLCELL_CONFIG")?;
            Some((environment.path(path, &environment.cwd), "TOOLCELL_CONFIG"))
        });
    if let Some((path, by)) = named {
        return match parse::read(&path, Layer::User, Rules::named(parse::MAX_BYTES), environment)? {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(Failure::new(
                Exit::Config,
                text!("the configuration `{}` cannot be read", environment.shown(&path)),
            )
            .why("there is no such file")
            .hint(text!("check the path in `{}`", by))),
        };
    }
    match user_file(environment) {
        Some(path) => {
            // Dotfile managers keep configuration elsewhere and link to it.
            let rules = Rules {
                follow: true,
                ..Rules::found(parse::MAX_BYTES)
            };
            parse::read(&path, Layer::User, rules, environment)
        }
        None => Ok(None),
    }
}

/// Reads the nearest `toolcell.toml`, from the working directory upwards, but not above the home directory.
///
/// The file is untrusted. A symbolic link could make an error show any file of the user, and a file of another user, in
/// a parent directory such as `/tmp`, must have no effect.
fn read_project_file(environment: &Environment) -> Result<Option<Parsed>, Failure> {
    for dir in environment.cwd.ancestors() {
        let rules = Rules::found(parse::MAX_BYTES);
        if let Some(parsed) = parse::read(&dir.join(PROJECT_FILE), Layer::Project, rules, environment)? {
            return Ok(Some(parsed));
        }
        if environment.home.as_deref() == Some(dir) {
            break;
        }
    }
    Ok(None)
}

/// True if the settings have a part that a project's file sets.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub(crate) fn has_project_file(environment: &Environment) -> Result<bool, Failure> {
    Ok(read_project_file(environment)?.is_some())
}

/// Returns the approval rules of a file with their places.
fn rules(table: &ApprovalTable, source: &Arc<Source>) -> Vec<Sourced<RuleTable>> {
    let rules = table.rules.iter();
    rules
        .map(|rule| Sourced {
            value: rule.clone(),
            origin: origin(source, &rule.tool),
        })
        .collect()
}

fn apply_user(settings: &mut Settings, user: &Parsed, environment: &Environment) -> Result<(), Failure> {
    let Parsed { source, file } = user;
    settings.files.push(source.clone());
    let File {
        provider,
        profiles,
        agent,
        turn,
        context,
        budget,
        prices,
        agents,
        log,
        approval,
        secrets,
        tools,
        hooks,
        buckets,
        mcp,
        deny,
    } = file;
    settings.buckets = bucket_limits(buckets, source)?;
    settings.deny = deny_lines(deny, source, &environment.cwd);
    settings.secrets = named(secrets, SecretTable::clone, source);
    settings.provider = ProviderSettings::of_table(provider, source);
    settings.profiles = profiles::of_tables(profiles, source)?;
    settings.log = log_settings(log, source, environment);
    set(&mut settings.instructions, agent.instructions.as_ref(), source);
    if let Some(environment) = &agent.environment {
        settings.tells_environment = Sourced {
            value: *environment.get_ref(),
            origin: origin(source, environment),
        };
    }
    if let Some(project) = &agent.project_instructions {
        settings.project_instructions = Sourced {
            value: *project.get_ref(),
            origin: origin(source, project),
        };
    }
    settings.turn = LoopSettings::of_table(turn, source);
    settings.context = ContextSettings::of_table(context, source);
    settings.rules = rules(approval, source);
    if let Some(flow) = &approval.flow {
        settings.flow = Sourced {
            value: *flow.get_ref(),
            origin: origin(source, flow),
        };
    }
    for (budget, origin) in budget::of_table(budget, source) {
        settings.budget.set(budget, origin);
    }
    settings.prices = named(prices, budget::prices, source);
    let taken = TakenNames::default();
    for (name, table) in tools {
        let tool = declare(settings, &taken, name, table, source, environment)?;
        if let Some(enabled) = &table.enabled {
            tool.enabled = Sourced {
                value: *enabled.get_ref(),
                origin: origin(source, enabled),
            };
        }
        tool.description = table.description.as_ref().map(|text| Sourced {
            value: text.get_ref().clone(),
            origin: origin(source, text),
        });
        tool.only = only(table, source);
        tool.grants = grant_lines(table.grants.as_deref(), source, &environment.cwd);
        tool.bindings = bindings(name, &table.secrets, source)?;
        tool.scratch = table.scratch.as_ref().map(|dir| Sourced {
            value: dir.get_ref().clone(),
            origin: origin(source, dir),
        });
        for (limit, origin) in limits::of_table(&table.limits, source) {
            tool.limits.set(limit, origin);
        }
    }
    for (name, table) in hooks {
        let hook = hooks::read(name, table, source, environment)?;
        settings.hooks.insert(name.get_ref().clone(), hook);
    }
    settings.mcp = mcp::of_tables(mcp, &mut TakenNames::of(settings), source, environment)?;
    let components = settings.tools.keys();
    let known: Vec<&str> = components
        .chain(settings.mcp.keys())
        .map(String::as_str)
        .collect();
    settings.agents = agents::of_tables(agents, &known, source)?;
    Ok(())
}

/// Converts the tables of a name each; their origin is the name.
fn named<T, V>(
    tables: &BTreeMap<Spanned<String>, T>,
    value: impl Fn(&T) -> V,
    source: &Arc<Source>,
) -> BTreeMap<String, Sourced<V>> {
    let named = tables.iter().map(|(name, table)| {
        let value = Sourced {
            value: value(table),
            origin: origin(source, name),
        };
        (name.get_ref().clone(), value)
    });
    named.collect()
}

/// Limits of the buckets of a file.
fn bucket_limits(
    tables: &BTreeMap<Spanned<String>, BucketTable>,
    source: &Arc<Source>,
) -> Result<BTreeMap<String, Sourced<BucketLimits>>, Failure> {
    if let Some((name, _)) = tables.iter().find(|(name, _)| !is_bucket_name(name.get_ref())) {
        return Err(Failure::new(Exit::Config, "this is not the name of a bucket")
            .why(source.point_at(&name.span()))
            .hint("use 1 to 64 letters, digits, `.`, `_` and `-`, a letter or a digit first"));
    }
    let limits = |table: &BucketTable| {
        let default = BucketLimits::default();
        BucketLimits {
            keys: table.keys.as_ref().map_or(default.keys, |keys| keys.get_ref().0),
            bytes: table
                .bytes
                .as_ref()
                .map_or(default.bytes, |bytes| bytes.get_ref().0),
        }
    };
    Ok(named(tables, limits, source))
}

fn log_settings(table: &LogTable, source: &Arc<Source>, environment: &Environment) -> Option<LogSettings> {
    let dir = table.dir.as_ref()?;
    let base = source.path.parent().unwrap_or(&environment.cwd);
    let (retention, retention_origin) = match &table.retention {
        Some(time) => (time.get_ref().0, origin(source, time)),
        None => (toolcell_store::log_files::KEEP, Origin::Default),
    };
    Some(LogSettings {
        dir: Sourced {
            value: environment.path(dir.get_ref(), base),
            origin: origin(source, dir),
        },
        retention: Some(retention).filter(|time| !time.is_zero()),
        retention_origin,
    })
}

fn set<T: Clone>(setting: &mut Option<Sourced<T>>, value: Option<&Spanned<T>>, source: &Arc<Source>) {
    if let Some(value) = value {
        *setting = Some(Sourced {
            value: value.get_ref().clone(),
            origin: origin(source, value),
        });
    }
}

fn apply_variables(settings: &mut Settings, environment: &Environment) -> Result<(), Failure> {
    settings.provider.read_variables(environment)?;
    settings.turn.read_variables(environment)?;
    settings.context.read_variables(environment)?;
    settings.variables = variables()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| environment.var(name).is_some())
        .collect();
    Ok(())
}

fn apply_flags(settings: &mut Settings, environment: &Environment) {
    let Settings {
        provider,
        overrides,
        tools,
        hooks,
        mcp,
        ..
    } = settings;
    provider.overlay(&overrides.provider);
    if let Some(system) = &overrides.system {
        settings.instructions = Some(Sourced::flag("--system", system.clone()));
    }
    if let Some(project) = overrides.project_instructions {
        settings.project_instructions = Sourced::flag("--project-instructions", project);
    }
    settings.turn.overlay(&overrides.turn);
    settings.context.overlay(&overrides.context);
    for budget in &overrides.budget {
        settings.budget.set(*budget, Origin::Flag("--budget"));
    }
    if let Some(flow) = overrides.flow {
        settings.flow = Sourced::flag("--flow", flow);
    }
    for tool in tools.values_mut() {
        tool.apply(overrides, environment);
    }
    // Grants and limits of the command line are for tools; `--dangerous` and denials apply to hooks and to MCP servers in cells
    // as well.
    let in_cells = mcp.values_mut().filter_map(McpSettings::component_mut);
    let of_hooks = hooks.values_mut().map(|hook| &mut hook.component);
    for component in of_hooks.chain(in_cells) {
        component.dangerous = overrides.dangerous;
        component.apply_denials(overrides, environment);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Loads the user's file with these variables, in a directory of its own.
    fn load(own: &str, vars: &[(&str, &str)]) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, own).unwrap();
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        super::load(&Environment::for_tests(dir.path(), vars), overrides)
    }

    #[test]
    fn variable_overrides_the_file() {
        let own = "[loop]\nmax_steps = 7\ndeadline = \"7s\"\n";
        let of = |vars| {
            let Settings { turn, variables, .. } = load(own, vars).unwrap();
            let shown = |key: &str| {
                turn.rows(&ContextSettings::default())
                    .into_iter()
                    .find(|row| row.key == key)
                    .unwrap()
            };
            (
                turn.max_steps.as_ref().unwrap().value.0,
                shown("loop.deadline").value.unwrap(),
                variables,
            )
        };
        assert_eq!(of(&[]), (7, "7 s".into(), vec![]));
        let both = [
            ("TOOLCELL_DEADLINE", "3s"),
            ("TOOLCELL_LOG", "debug"),
            ("TOOLCELL_MAX_STEPS", "3"),
        ];
        let names = vec!["TOOLCELL_MAX_STEPS", "TOOLCELL_DEADLINE", "TOOLCELL_LOG"];
        assert_eq!(of(&both), (3, "3 s".into(), names));
    }

    #[test]
    fn unusable_value_is_refused_and_unknown_variable_is_not() {
        for (name, value, reason) in [
            ("TOOLCELL_MAX_STEPS", "x", "`TOOLCELL_MAX_STEPS=x` cannot be used"),
            ("TOOLCELL_MAX_STEPS", "0", "use at least 1"),
            ("TOOLCELL_DEADLINE", "3", "`TOOLCELL_DEADLINE=3` cannot be used"),
        ] {
            let failure = load("", &[(name, value)]).unwrap_err().to_string();
            assert!(failure.contains(reason), "{failure}");
        }
        assert!(load("", &[("TOOLCELL_MAX_STEPS", "1")]).is_ok());
        let unknown = [
            ("TOOLCELL_MAX_STEP", "0"),
            ("TOOLCELL_X", ""),
            ("TOOLCELL_MAX_STEPS", "1"),
        ];
        assert!(load("", &unknown).is_ok());
        let warnings = unknown_variables(&Environment::for_tests(Path::new("/"), &unknown));
        let warnings: Vec<String> = warnings.iter().map(Text::plain).collect();
        assert_eq!(
            warnings,
            [
                "warning: the variable `TOOLCELL_MAX_STEP` has no effect; did you mean `TOOLCELL_MAX_STEPS`?",
                "warning: the variable `TOOLCELL_X` has no effect",
            ]
        );
    }

    #[test]
    fn preset_of_the_loop_has_a_known_name() {
        for name in toolcell_agent::preset::NAMES {
            assert!(load(&format!("[loop]\npreset = \"{name}\"\n"), &[]).is_ok());
        }
        let failure = load("[loop]\npreset = \"none\"\n", &[]).unwrap_err().to_string();
        assert!(failure.contains("there is no loop preset `none`"), "{failure}");
    }

    #[test]
    fn logs_are_kept_for_ever_with_a_retention_of_zero() {
        for (retention, expected) in [
            ("", Some(toolcell_store::log_files::KEEP)),
            ("retention = \"1s\"\n", Some(Duration::from_secs(1))),
            ("retention = \"0s\"\n", None),
        ] {
            let settings = load(&format!("[log]\ndir = \"logs\"\n{retention}"), &[]).unwrap();
            assert_eq!(settings.log.unwrap().retention, expected, "{retention}");
        }
    }

    #[test]
    fn project_file_is_the_nearest_one_up_to_the_home_directory() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("home/work/sub");
        std::fs::create_dir_all(&work).unwrap();
        let mut environment = Environment::for_tests(&work, &[]);
        environment.home = Some(dir.path().join("home"));
        let found = || {
            let parsed = read_project_file(&environment).unwrap();
            parsed.map(|parsed| parsed.source.path.clone())
        };
        for (at, is_found) in [
            (PROJECT_FILE, false),
            ("home/toolcell.toml", true),
            ("home/work/toolcell.toml", true),
            ("home/work/sub/toolcell.toml", true),
        ] {
            let path = dir.path().join(at);
            std::fs::write(&path, "").unwrap();
            assert_eq!(found(), is_found.then_some(path));
        }
    }

    #[test]
    fn usual_file_of_the_user_may_be_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("dotfile"), "[loop]\nmax_steps = 3\n").unwrap();
        std::os::unix::fs::symlink("dotfile", dir.path().join("config.toml")).unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        environment.config_dir = Some(dir.path().to_owned());
        let settings = super::load(&environment, Overrides::default()).unwrap();
        assert_eq!(settings.turn.max_steps.unwrap().value.0, 3);
    }
}
