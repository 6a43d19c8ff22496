//! Rules for a project's file, which is untrusted: it comes with the files of the project.
//!
//! It can disable tools, remove grants, add denials (`deny`), and lower limits and budgets. It can define components,
//! which are used only if the user names them as `project:NAME` and trusts them, and which have only the grants that
//! the user gives to that name.
//!
//! It cannot choose the provider or its key; add grants to those of the user's file, or map them to other guest paths;
//! raise a limit or a budget, or set prices; enable anything the user has disabled; replace a component of the user's
//! file or a built-in one; define or change an MCP server, which runs in every session; or configure hooks,
//! because a hook sees every prompt and every call and a guard must stay enabled.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toolcell_core::Grant;

use super::forbid::{
    forbid_agent, forbid_agents, forbid_buckets, forbid_description, forbid_hooks, forbid_log, forbid_mcp,
    forbid_prices, forbid_profiles, forbid_provider, forbid_scratch, forbid_secrets, refused,
};
use super::tool_table::{self, declare, deny_lines, grant_lines, origin};
use super::turn::{forbid_context, narrow_loop};
use crate::config::budget::{self, NamedBudget};
use crate::config::file::parse::Parsed;
use crate::config::file::{ApprovalTable, File, ToolTable};
use crate::config::grants::ResolvedGrant;
use crate::config::limits::{self, NamedLimit};
use crate::config::names::TakenNames;
use crate::config::settings::{GrantLine, Overrides, Settings, ToolSettings};
use crate::config::source::{Origin, Source, Sourced};
use crate::config::user_files::user_file_shown;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Name, Shown, Text, text};

/// Maximum number of components that a project can define. Each is a line in lists that the user reads, and one more path
/// that every call is kept from.
const MAX_COMPONENTS: usize = 256;

/// Applies the project's file. Every key of every table is destructured here: a new key is refused, narrows, or does
/// not compile.
///
/// # Errors
/// Returns an error if the file widens anything.
pub(super) fn apply_project(
    settings: &mut Settings,
    project: &Parsed,
    environment: &Environment,
) -> Result<(), Failure> {
    let Parsed { source, file } = project;
    let base = source.path.parent().unwrap_or(&environment.cwd).to_owned();
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
    forbid_provider(provider, source)?;
    forbid_profiles(profiles, source)?;
    forbid_agent(agent, source)?;
    forbid_agents(agents, source)?;
    forbid_log(log, source)?;
    forbid_secrets(secrets, tools, source)?;
    forbid_hooks(hooks, source)?;
    forbid_buckets(buckets, source)?;
    forbid_mcp(mcp, source)?;
    forbid_context(context, source)?;
    forbid_prices(prices, source)?;
    narrow_approval(settings, approval, source)?;
    let user_file = user_file_shown(environment);
    narrow_loop(settings, turn, source, &user_file)?;
    for (budget, place) in budget::of_table(budget, source) {
        narrow_budget(settings, budget, place, &user_file)?;
    }
    settings.deny.extend(deny_lines(deny, source, &base));
    check_number(tools, source)?;
    let taken = TakenNames::of(settings);
    for (name, table) in tools {
        let ToolTable {
            component: _, // Read by `declare`.
            description,
            enabled,
            only,
            grants,
            limits,
            scratch,
            secrets: _, // Refused above.
        } = table;
        forbid_scratch(scratch.as_ref(), source)?;
        forbid_description(description.as_ref(), source)?;
        let tool = declare(settings, &taken, name, table, source, environment)?
            .name
            .clone();
        let Settings { tools, overrides, .. } = settings;
        let tool = tools.get_mut(&tool).expect("it was declared above");
        if let Some(enabled) = enabled {
            narrow_enabled(tool, enabled, origin(source, enabled), &user_file)?;
        }
        if only.is_some()
            && let Some(only) = tool_table::only(table, source)
        {
            narrow_only(tool, only)?;
        }
        if grants.is_some() {
            let lines = grant_lines(grants.as_deref(), source, &base);
            narrow_grants(tool, lines, overrides, environment, &user_file)?;
        }
        for (limit, place) in limits::of_table(limits, source) {
            narrow_limit(tool, limit, place, overrides, &user_file)?;
        }
    }
    Ok(())
}

fn check_number(tools: &BTreeMap<Spanned<String>, ToolTable>, source: &Source) -> Result<(), Failure> {
    let defined = tools.iter().filter(|(_, table)| table.component.is_some());
    let Some((beyond, _)) = defined.clone().nth(MAX_COMPONENTS) else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Config,
        text!(
            "the project defines {} components, more than {}",
            defined.count(),
            MAX_COMPONENTS
        ),
    )
    .why(source.point_at(&beyond.span()))
    .hint("use a component by its path: toolcell call ./FILE.wasm#TOOL"))
}

fn narrow_approval(
    settings: &mut Settings,
    table: &ApprovalTable,
    source: &Arc<Source>,
) -> Result<(), Failure> {
    let ApprovalTable { flow, rules: _ } = table;
    // The user's rules come last, and the last matching rule applies: a project can ask or deny where the user has no
    // rule, and never allow what the user does not.
    settings.rules.splice(0..0, super::rules(table, source));
    let Some(flow) = flow else { return Ok(()) };
    let narrowed = Sourced {
        value: *flow.get_ref(),
        origin: origin(source, flow),
    };
    if narrowed.value < settings.flow.value && settings.overrides.flow.is_none() {
        let shown = format!("{:?}", settings.flow.value).to_lowercase();
        return Err(refused("the project's file loosens `approval.flow`")
            .why(narrowed.origin.point_at())
            .why(allowed_by("approval.flow", &shown, &settings.flow.origin))
            .hint("to allow it once: --flow off"));
    }
    settings.flow = narrowed;
    Ok(())
}

/// Creates the failure for a number that the project's file raises.
pub(super) fn raised(name: &str, place: &Origin, allowed: &str, by: &Origin) -> Failure {
    refused(text!("the project's file raises `{}`", name))
        .why(place.point_at())
        .why(allowed_by(name, allowed, by))
}

fn allowed_by(name: &str, allowed: &str, by: &Origin) -> Text {
    let allowed = Text::sentence(allowed, []);
    match by {
        Origin::Default => text!("the default of `{}` is {}", name, allowed),
        Origin::Preset(preset) => text!("the preset `{}` sets `{}` to {}", *preset, name, allowed),
        by => text!("your own configuration allows {}\n{}", allowed, by.point_at()),
    }
}

fn narrow_enabled(
    tool: &mut ToolSettings,
    enabled: &Spanned<bool>,
    place: Origin,
    user_file: &str,
) -> Result<(), Failure> {
    if *enabled.get_ref() && !tool.enabled.value {
        let failure = refused(text!("the project's file enables `{}`", tool.name)).why(place.point_at());
        return Err(match &tool.enabled.origin {
            Origin::Default => failure.why("it is disabled by default").hint(text!(
                "to use it, in {}: [tools.{}] enabled = true",
                user_file,
                tool.name
            )),
            by => failure
                .why(text!("your own configuration disables it\n{}", by.point_at()))
                .hint("to use it, enable it in your own configuration"),
        });
    }
    tool.enabled = Sourced {
        value: *enabled.get_ref(),
        origin: place,
    };
    Ok(())
}

/// Removes tools that the project's list does not contain; the list cannot name tools that the user's does not.
fn narrow_only(tool: &mut ToolSettings, only: Sourced<Vec<String>>) -> Result<(), Failure> {
    if let Some(user) = &tool.only
        && let Some(more) = only.value.iter().find(|name| !user.value.contains(name))
    {
        return Err(refused(text!(
            "the project's file offers `{}`, and your own configuration does not",
            more
        ))
        .why(only.origin.point_at())
        .why(user.origin.point_at())
        .hint("to offer it, name it in your own configuration"));
    }
    tool.only = Some(only);
    Ok(())
}

/// Replaces the user's grants with those of the project's file, each of which must be covered by a grant of the user's
/// file or the command line.
fn narrow_grants(
    tool: &mut ToolSettings,
    lines: Vec<GrantLine>,
    overrides: &Overrides,
    environment: &Environment,
    user_file: &str,
) -> Result<(), Failure> {
    let (denials, mut lines): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.grant.is_denial());
    if lines.is_empty() && !denials.is_empty() {
        // A list of denials alone removes no grants.
        tool.grants.extend(denials);
        return Ok(());
    }
    let mut user_grants = tool.clone();
    user_grants.apply(overrides, environment);
    // A grant of the user that cannot be resolved covers nothing.
    let allowed: Vec<_> = user_grants
        .grants
        .iter()
        .filter_map(|line| line.resolve(environment).ok())
        .collect();
    for line in &mut lines {
        let placed = line.resolve(environment)?;
        check_guest(line, &placed, &allowed)?;
        if let Some(outer) = nearest_cover(&allowed, &placed) {
            keep_guest(&mut line.grant, outer, &placed);
            continue;
        }
        let grants: Vec<Text> = tool.grants.iter().map(|line| line.origin.point_at()).collect();
        let failure = refused(text!(
            "the project's file grants `{}` more than your own configuration does",
            tool.name
        ))
        .why(line.origin.point_at())
        .why(if grants.is_empty() {
            text!("your own configuration grants `{}` nothing", tool.name)
        } else {
            text!(
                "your own configuration grants it only\n{}",
                Text::join(grants, "\n")
            )
        });
        // What the project chose is shown above and not advised: the user writes what they mean.
        let name = Name(&tool.name);
        return Err(failure.hint(if tool.is_of_project() {
            text!("to grant more once: --grant {}:GRANT", name)
        } else {
            text!(
                "to grant more once: --grant {}:GRANT\nto grant more always: `grants` of `[tools.{}]` in {}",
                name,
                name,
                Shown(user_file)
            )
        }));
    }
    tool.grants.retain(|line| line.grant.is_denial());
    tool.grants.extend(denials);
    tool.grants.extend(lines);
    Ok(())
}

/// Refuses a guest path chosen by the project: the user's rules, hooks and approvals would know the same files by
/// another path.
fn check_guest(line: &GrantLine, placed: &ResolvedGrant, allowed: &[ResolvedGrant]) -> Result<(), Failure> {
    let chooses = match &line.grant {
        Grant::Dir { guest, .. } => guest.is_some(),
        Grant::Bucket(bucket) => bucket.guest != bucket.bucket,
        _ => false,
    };
    if !chooses || allowed.contains(placed) {
        return Ok(());
    }
    Err(
        refused("a project's file cannot choose the guest path or name of a directory or bucket")
            .why(line.origin.point_at())
            .why("your rules, hooks and saved approvals use its own name")
            .hint("remove the part after the colon, or add the same line to your own configuration"),
    )
}

/// Returns the grant that covers another one most narrowly.
fn nearest_cover<'a>(allowed: &'a [ResolvedGrant], placed: &ResolvedGrant) -> Option<&'a ResolvedGrant> {
    let covers = allowed.iter().filter(|outer| outer.covers(placed));
    covers.max_by_key(|outer| match outer {
        // The same grant names its guest path itself.
        outer if *outer == placed => usize::MAX,
        ResolvedGrant::Dir(dir) => dir.host.as_os_str().len(),
        _ => 0,
    })
}

/// Gives a directory or bucket the guest path or name that it has under the user's grant, where rules, hooks and saved
/// approvals know it.
fn keep_guest(grant: &mut Grant, outer: &ResolvedGrant, placed: &ResolvedGrant) {
    match (grant, outer, placed) {
        (Grant::Dir { guest, .. }, ResolvedGrant::Dir(outer), ResolvedGrant::Dir(inner)) => {
            let Ok(below) = inner.host.strip_prefix(&outer.host) else {
                return;
            };
            *guest = Some(match below.to_string_lossy().as_ref() {
                "" => outer.guest.clone(),
                below => format!("{}/{below}", outer.guest.trim_end_matches('/')),
            });
        }
        (Grant::Bucket(bucket), ResolvedGrant::Bucket(outer), _) => bucket.guest.clone_from(&outer.guest),
        _ => {}
    }
}

fn narrow_limit(
    tool: &mut ToolSettings,
    limit: NamedLimit,
    place: Origin,
    overrides: &Overrides,
    user_file: &str,
) -> Result<(), Failure> {
    let allowed = limits::get(&tool.limits.limits, limit.name);
    let flag_allows = overrides
        .limits_for(tool)
        .any(|flag| flag.name == limit.name && flag.value >= limit.value);
    if limit.value > allowed && !flag_allows {
        let shown = |value| limits::shown(limit.name, value);
        let (tool_name, limit_name) = (Name(&tool.name), Name(limit.name));
        let once = text!("to allow more once: --limit {}:{}=VALUE", tool_name, limit_name);
        let failure = raised(
            &format!("{}.limits.{}", tool.name, limit.name),
            &place,
            &shown(allowed),
            &tool.limits.origin(limit.name),
        );
        if tool.is_of_project() {
            return Err(failure.hint(once));
        }
        return Err(failure.hint(text!(
            "{}\nto allow more always: `{}` of `[tools.{}.limits]` in {}",
            once,
            limit_name,
            tool_name,
            Shown(user_file)
        )));
    }
    tool.limits.set(limit, place);
    Ok(())
}

fn narrow_budget(
    settings: &mut Settings,
    budget: NamedBudget,
    place: Origin,
    user_file: &str,
) -> Result<(), Failure> {
    let NamedBudget { name, value } = budget;
    let mut of_flags = settings.overrides.budget.iter();
    let flag_allows = of_flags.any(|flag| flag.name == name && flag.value >= value);
    match settings.budget.get(name) {
        Some(allowed) if value > allowed.value && !flag_allows => {
            let shown = budget::exactly(name, allowed.value);
            Err(
                raised(&format!("budget.{name}"), &place, &shown, &allowed.origin).hint(text!(
                    "to allow more once: --budget {}=VALUE\nto allow more always: `{}` of `[budget]` in {}",
                    Name(name),
                    Name(name),
                    Shown(user_file)
                )),
            )
        }
        _ => {
            settings.budget.set(budget, place);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::config::file::FlowRule;
    use crate::config::turn::{Number, Positive};

    /// Loads the configuration of a user, the file of a project and flags, in a directory with `docs/a` and `other`.
    fn load(own: &str, project: &str, flag: impl FnOnce(&mut Overrides)) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("docs/a")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        let user = dir.path().join("user.toml");
        std::fs::write(&user, own).unwrap();
        std::fs::write(dir.path().join("toolcell.toml"), project).unwrap();
        let environment = Environment::for_tests(&dir.path().canonicalize().unwrap(), &[]);
        let mut overrides = Overrides {
            config: Some(user),
            ..Overrides::default()
        };
        flag(&mut overrides);
        config::load(&environment, overrides)
    }

    fn applies(own: &str, project: &str) -> bool {
        load(own, project, |_| {}).is_ok()
    }

    #[test]
    fn project_defines_a_limited_number_of_components() {
        let defining = |number| {
            let define = |i| format!("[tools.t{i}]\ncomponent = \"c.wasm\"\n");
            // A table without a component defines none.
            let tables = (0..number).map(define).collect::<String>();
            load("", &format!("[tools.text]\nenabled = true\n{tables}"), |_| {})
        };
        assert_eq!(
            defining(256).unwrap().tools.len(),
            256 + crate::components::builtin::ALL.len()
        );
        let refused = defining(257).unwrap_err();
        assert_eq!(refused.exit, Exit::Config);
        let message = refused.to_json();
        assert_eq!(
            message["what"],
            "the project defines 257 components, more than 256"
        );
    }

    #[test]
    fn project_may_equal_each_value_of_the_user_and_not_exceed_it() {
        let cases = [
            ("", "[loop]\nmax_steps = @", "50", "51"),
            ("[loop]\nmax_steps = 7\n", "[loop]\nmax_steps = @", "7", "8"),
            (
                "[loop]\ndeadline = \"1m\"\n",
                "[loop]\ndeadline = @",
                "\"60s\"",
                "\"61s\"",
            ),
            // A preset of the user is the base.
            (
                "[loop]\npreset = \"resilient\"\n",
                "[loop]\nmax_steps = @",
                "10",
                "11",
            ),
            (
                "[loop]\npreset = \"stepwise\"\n",
                "[loop]\nmax_steps = @",
                "100",
                "101",
            ),
            (
                "[loop]\npreset = \"sequential\"\n",
                "[loop]\ndeadline = @",
                "\"300 s\"",
                "\"301 s\"",
            ),
            (
                "[loop]\npreset = \"task\"\n",
                "[loop]\nprovider_retries = @",
                "5",
                "6",
            ),
            ("", "[loop]\nprovider_retries = @", "0", "1"),
            ("", "[loop]\nconcurrency = @", "8", "9"),
            ("", "[loop]\ncall_attempts = @", "1", "2"),
            (
                "[loop]\ncall_timeout = \"2s\"\n",
                "[loop]\ncall_timeout = @",
                "\"2s\"",
                "\"2001ms\"",
            ),
            // 0 is no limit.
            ("", "[loop]\nerror_breaker = @", "5", "0"),
            ("", "[loop]\nrepeat_stop = @", "5", "6"),
            ("[loop]\nrepeat_stop = 0\n", "[loop]\nrepeat_stop = @", "0", "-1"),
            ("[budget]\ncalls = 2\n", "[budget]\ncalls = @", "2", "3"),
            (
                "[tools.text.limits]\nwall = \"1s\"\n",
                "[tools.text.limits]\nwall = @",
                "\"1000ms\"",
                "\"1001ms\"",
            ),
            (
                "[approval]\nflow = \"ask\"\n",
                "[approval]\nflow = @",
                "\"ask\"",
                "\"off\"",
            ),
            (
                "[tools.text]\nonly = [\"text_count\"]\n",
                "[tools.text]\nonly = @",
                "[\"text_count\"]",
                "[\"text_count\", \"text_find\"]",
            ),
            (
                "[tools.text]\nenabled = false\n",
                "[tools.text]\nenabled = @",
                "false",
                "true",
            ),
            (
                "[tools.files]\ngrants = [\"read=docs\"]\n",
                "[tools.files]\ngrants = @",
                "[\"read=docs/a\", \"read=docs\"]",
                "[\"read=docs/a\", \"read=.\"]",
            ),
            // Guest paths that the user did not choose.
            (
                "[tools.files]\ngrants = [\"read=docs\", \"read=other:/o\"]\n",
                "[tools.files]\ngrants = @",
                "[\"read=other:/o\"]",
                "[\"read=docs:/o\"]",
            ),
            (
                "[tools.memory]\ngrants = [\"keyvalue=a\", \"keyvalue=b:c\"]\n",
                "[tools.memory]\ngrants = @",
                "[\"keyvalue=a\", \"keyvalue=b:c\"]",
                "[\"keyvalue=a:c\"]",
            ),
        ];
        for (own, project, within, beyond) in cases {
            assert!(
                applies(own, &project.replace('@', within)),
                "{own}{project} {within}"
            );
            assert!(
                !applies(own, &project.replace('@', beyond)),
                "{own}{project} {beyond}"
            );
        }
        // Where the user sets nothing, only what has no default is free.
        assert!(applies("", "[loop]\ndeadline = \"9h\"\n[budget]\ncalls = 9000"));
    }

    #[test]
    fn flag_of_the_user_allows_what_the_project_exceeds() {
        let limit = |text: &str| text.parse().unwrap();
        for (flag, wall, is_ok) in [
            ("text:wall=2s", "2s", true),
            ("text:wall=2s", "2001ms", false),
            ("files:wall=2s", "2s", false),
            ("text:memory=1GiB", "2s", false),
        ] {
            let own = "[tools.text.limits]\nwall = \"1s\"\n";
            let project = format!("[tools.text.limits]\nwall = \"{wall}\"\n");
            let loaded = load(own, &project, |flags| flags.limits = vec![limit(flag)]);
            assert_eq!(loaded.is_ok(), is_ok, "{flag} {wall}");
        }
        for (flag, is_ok) in [("calls=3", true), ("calls=2", false), ("tokens=9", false)] {
            let loaded = load("[budget]\ncalls = 1\n", "[budget]\ncalls = 3\n", |flags| {
                flags.budget = vec![flag.parse().unwrap()];
            });
            assert_eq!(loaded.is_ok(), is_ok, "{flag}");
        }
        let project = "[loop]\nmax_steps = 60\ndeadline = \"2m\"\n[approval]\nflow = \"off\"\n";
        let own = "[loop]\ndeadline = \"1m\"\n[approval]\nflow = \"ask\"\n";
        let flags = |steps: bool, deadline: bool, flow: bool| {
            load(own, project, |flags| {
                let flag = |name| Origin::Flag(name);
                flags.turn.max_steps = steps.then(|| Sourced {
                    value: Number(60),
                    origin: flag("--max-steps"),
                });
                let time = Positive::millis(120_000);
                flags.turn.deadline = deadline.then(|| Sourced {
                    value: time,
                    origin: flag("--deadline"),
                });
                flags.flow = flow.then_some(FlowRule::Off);
            })
        };
        assert!(flags(true, true, true).is_ok());
        assert!(flags(false, true, true).is_err());
        assert!(flags(true, false, true).is_err());
        assert!(flags(true, true, false).is_err());
    }

    #[test]
    fn lower_values_of_the_project_apply() {
        let settings = load(
            "[loop]\nmax_steps = 9\n[approval]\nflow = \"ask\"\nrules = [{tool = \"a\", verdict = \"allow\"}]\n\
             [tools.text]\ngrants = [\"read=docs\", \"deny=docs/a\"]\n",
            "[loop]\nmax_steps = 3\ndeadline = \"5s\"\n[approval]\nflow = \"refuse\"\nrules = [{tool = \"b\", verdict = \"deny\"}]\n\
             [budget]\ncalls = 4\n[tools.text]\nonly = []\ngrants = []\nlimits.wall = \"1s\"\n\
             [tools.files]\nenabled = false\ngrants = [\"deny=other\"]\n",
            |_| {},
        )
        .unwrap();
        assert_eq!(settings.turn.max_steps.unwrap().value, Number(3));
        assert_eq!(settings.turn.deadline.unwrap().value, Positive::millis(5_000));
        assert_eq!(settings.flow.value, FlowRule::Refuse);
        assert_eq!(settings.budget.get("calls").unwrap().value, 4);
        // The user's rules come last, and the last one that matches applies.
        let rules: Vec<&str> = settings
            .rules
            .iter()
            .map(|rule| rule.value.tool.get_ref().as_str())
            .collect();
        assert_eq!(rules, ["b", "a"]);
        let text = &settings.tools["text"];
        assert!(!text.offers("text_count") && text.is_usable());
        assert_eq!(text.limits.limits.wall_ms, 1_000);
        let lines = |tool: &ToolSettings| -> Vec<bool> {
            tool.grants.iter().map(|line| line.grant.is_denial()).collect()
        };
        assert_eq!(
            lines(text),
            [true],
            "the user's denial stays, and the grant is removed"
        );
        let files = &settings.tools["files"];
        assert!(!files.is_usable());
        assert_eq!(lines(files), [true]);
    }

    #[test]
    fn refusal_names_what_the_user_allows() {
        for (own, project, allowed) in [
            (
                "",
                "[loop]\nmax_steps = 51",
                "the default of `loop.max_steps` is 50",
            ),
            (
                "[loop]\nmax_steps = 7\n",
                "[loop]\nmax_steps = 8",
                "your own configuration allows 7",
            ),
        ] {
            let failure = load(own, project, |_| {}).unwrap_err();
            let failure = format!("{failure:?}");
            assert!(failure.contains(allowed), "{failure}");
        }
    }
}
