//! What a project's file may do. It comes with the files of the project, so anybody may have written it.
//!
//! It may switch tools off, take grants away, and lower limits. It may bring tools of its own, which are used only when a
//! person names them, and which reach nothing unless a person grants it. It may not: choose to whom the conversation is
//! sent, or with which key; grant what the person's file does not grant; raise a limit; switch on what the person has
//! switched off; put another component behind a name that the person's file or Toolcell itself has given.

use toml::Spanned;

use super::file::ProviderTable;
use super::layers::{declare, grant_lines, origin};
use super::limits;
use super::parse::Parsed;
use super::settings::{GrantLine, Settings, ToolSettings};
use super::source::{Origin, Sourced};
use crate::environment::Environment;
use crate::model::default_max_steps;
use crate::report::{Exit, Failure};

/// Applies the project's file.
///
/// # Errors
/// When it does more than narrow.
pub(super) fn apply_project(
    settings: &mut Settings,
    project: &Parsed,
    environment: &Environment,
) -> Result<(), Failure> {
    let Parsed { source, file } = project;
    let base = source.path.parent().unwrap_or(&environment.cwd).to_owned();
    settings.files.push(source.clone());
    if let Some(place) = first_provider_key(&file.provider) {
        return Err(refused("a project's file cannot choose the model provider")
            .why(source.point_at(&place))
            .why("it decides who reads the conversation and with which key it is paid")
            .hint("move `[provider]` to your own configuration (`toolcell config check` shows where it lies), or use --provider, --model and --base-url"));
    }
    if let Some(steps) = &file.turn.max_steps {
        let value = *steps.get_ref();
        let allowed = settings
            .max_steps
            .clone()
            .unwrap_or_else(|| Sourced::default(default_max_steps()));
        check_number(
            "loop.max_steps",
            u64::from(value),
            Some((u64::from(allowed.value), &allowed.origin)),
            &origin(source, steps),
        )?;
        settings.max_steps = Some(Sourced {
            value,
            origin: origin(source, steps),
        });
    }
    if let Some(deadline) = &file.turn.deadline {
        let millis = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let value = deadline.get_ref().0;
        check_number(
            "loop.deadline",
            millis(value),
            settings.deadline.as_ref().map(|s| (millis(s.value), &s.origin)),
            &origin(source, deadline),
        )?;
        settings.deadline = Some(Sourced {
            value,
            origin: origin(source, deadline),
        });
    }
    for (name, table) in &file.tools {
        let tool = declare(settings, name, table, source, environment)?;
        if let Some(enabled) = &table.enabled {
            narrow_enabled(tool, enabled, origin(source, enabled))?;
        }
        if table.grants.is_some() {
            narrow_grants(tool, grant_lines(table, source, &base), environment)?;
        }
        for (limit, place) in limits::of_table(&table.limits, source) {
            let allowed = limits::get(&tool.limits.limits, limit.name);
            if limit.value > allowed {
                return Err(
                    refused(format!("the project's file raises a limit of `{}`", tool.name))
                        .why(format!(
                            "`{}` is {} there\n{}",
                            limit.name,
                            limits::shown(limit.name, limit.value),
                            place.point_at()
                        ))
                        .why(allowed_by(
                            limit.name,
                            &limits::shown(limit.name, allowed),
                            &tool.limits.origin(limit.name),
                        ))
                        .hint(format!(
                            "to allow it, set it in your own configuration or use --limit {}:{}=…",
                            tool.name, limit.name
                        )),
                );
            }
            tool.limits.set(limit, place);
        }
    }
    Ok(())
}

fn refused(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Config, what)
}

fn first_provider_key(provider: &ProviderTable) -> Option<std::ops::Range<usize>> {
    let ProviderTable {
        name,
        model,
        base_url,
        api_key_env,
    } = provider;
    [
        name.as_ref().map(Spanned::span),
        model.as_ref().map(Spanned::span),
        base_url.as_ref().map(Spanned::span),
        api_key_env.as_ref().map(Spanned::span),
    ]
    .into_iter()
    .flatten()
    .min_by_key(|span| span.start)
}

fn check_number(
    name: &str,
    value: u64,
    allowed: Option<(u64, &Origin)>,
    place: &Origin,
) -> Result<(), Failure> {
    match allowed {
        Some((allowed, by)) if value > allowed => Err(refused(format!("the project's file raises `{name}`"))
            .why(place.point_at())
            .why(allowed_by(name, &allowed.to_string(), by))
            .hint("to allow it, raise it in your own configuration or use the flag of that name")),
        _ => Ok(()),
    }
}

fn allowed_by(name: &str, allowed: &str, by: &Origin) -> String {
    match by {
        Origin::Default => format!("the default of `{name}` is {allowed}"),
        by => format!("your own configuration allows {allowed}\n{}", by.point_at()),
    }
}

fn narrow_enabled(tool: &mut ToolSettings, enabled: &Spanned<bool>, place: Origin) -> Result<(), Failure> {
    if *enabled.get_ref() && !tool.enabled.value {
        return Err(refused(format!("the project's file switches `{}` on", tool.name))
            .why(place.point_at())
            .why(format!(
                "your own configuration switches it off\n{}",
                tool.enabled.origin.point_at()
            ))
            .hint("to use it, switch it on in your own configuration"));
    }
    tool.enabled = Sourced {
        value: *enabled.get_ref(),
        origin: place,
    };
    Ok(())
}

/// Puts the project's grants in the place of the person's, each of which must lie within one of the person's.
fn narrow_grants(
    tool: &mut ToolSettings,
    lines: Vec<GrantLine>,
    environment: &Environment,
) -> Result<(), Failure> {
    // A grant of the person that cannot be given here covers nothing here.
    let allowed: Vec<_> = tool
        .grants
        .iter()
        .filter_map(|line| Some((line, line.place(environment).ok()?)))
        .collect();
    for line in &lines {
        let placed = line.place(environment)?;
        if allowed.iter().any(|(_, outer)| outer.covers(&placed)) {
            continue;
        }
        let same_kind: Vec<String> = tool.grants.iter().map(|line| line.origin.point_at()).collect();
        let flag = format!("--grant '{}:{}'", tool.name, line.grant);
        return Err(refused(format!("the project's file grants `{}` more than your own configuration does", tool.name))
            .why(line.origin.point_at())
            .why(if same_kind.is_empty() {
                format!("your own configuration grants `{}` nothing", tool.name)
            } else {
                format!("your own configuration grants it only\n{}", same_kind.join("\n"))
            })
            .hint(if tool.is_of_project() {
                format!("to allow it once: {flag}")
            } else {
                format!(
                    "to allow it once: {flag}\nto allow it always, in your own configuration: [tools.{}] grants = [\"{}\"]",
                    tool.name, line.grant
                )
            }));
    }
    tool.grants = lines;
    Ok(())
}
