//! Selection of the components that a command offers: those named by flags, or all enabled ones; and the check that its
//! other flags name one of them.

use std::collections::{BTreeMap, BTreeSet};

use toolcell_core::suggest::nearest;

use crate::components::loader::{ComponentLoader, Loaded};
use crate::config::{ComponentSource, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, Text, text};

/// Loads the components that were named, or all enabled ones.
pub(crate) async fn load(
    loader: &ComponentLoader<'_>,
    named: &[String],
    console: &Console,
) -> Result<Vec<Loaded>, Failure> {
    load_all(loader, &choose(loader, named, console).await?).await
}

/// Chooses the components that were named, or all enabled ones, without loading them.
pub(crate) async fn choose(
    loader: &ComponentLoader<'_>,
    named: &[String],
    console: &Console,
) -> Result<Vec<ToolSettings>, Failure> {
    let wanted = wanted(loader, named, console).await?;
    check_flags(loader.settings, &wanted)?;
    Ok(wanted)
}

/// Loads components for an agent, then those of `also` that are missing; returns the number of the former as well.
///
/// Components and tools are left out that can do nothing without a grant, unless the component is named.
pub(crate) async fn load_for_agent(
    loader: &ComponentLoader<'_>,
    named: &[String],
    also: &[String],
    console: &Console,
) -> Result<(Vec<Loaded>, usize), Failure> {
    let mut wanted = wanted(loader, named, console).await?;
    let used = wanted.clone();
    let mut not_offered: Vec<Text> = Vec::new();
    if named.is_empty() {
        let (offered, idle) = wanted
            .into_iter()
            .partition::<Vec<_>, _>(|tool| tool.missing_grant().is_none());
        wanted = offered;
        let idle = idle.iter().filter_map(|tool| {
            let grant = tool.missing_grant()?;
            Some(text!("`{}` (--grant {})", tool.name, Own(grant)))
        });
        not_offered.extend(idle);
    }
    let mains = wanted.len();
    for name in also {
        if let Some(tool) = loader.settings.tools.get(name)
            && !wanted.iter().any(|known| known.name == *name)
        {
            wanted.push(tool.clone());
        }
    }
    check_flags(loader.settings, used.iter().chain(&wanted))?;
    let mut loaded = load_all(loader, &wanted).await?;
    if named.is_empty() {
        for component in &mut loaded[..mains] {
            not_offered.extend(withhold_idle(component));
        }
    }
    check_tools(&loaded[..mains], loader.environment)?;
    if !not_offered.is_empty() {
        let not_offered = Text::join(not_offered, ", ");
        // Several agents can have the same tools.
        console.note_once(text!("not offered without a grant: {}", not_offered));
    }
    Ok((loaded, mains))
}

/// Removes the tools that can do nothing without a grant, and says so.
fn withhold_idle(component: &mut Loaded) -> Vec<Text> {
    let settings = &component.settings;
    let mut idle: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    component.tools.retain(|tool| {
        let name = tool.spec().name.as_str();
        let missing = settings.missing_grant_of(name);
        if let Some(grant) = missing {
            idle.entry(grant).or_default().push(name.to_owned());
        }
        missing.is_none()
    });
    let name = &settings.name;
    idle.into_iter()
        .map(|(grant, tools)| match tools.as_slice() {
            [tool] => text!("`{}` (--grant {})", tool, Own(grant)),
            tools => text!("{} tools of `{}` (--grant {})", tools.len(), name, Own(grant)),
        })
        .collect()
}

/// Loads the components of these names alone, none of which belongs to the main agent.
pub(crate) async fn load_named(
    loader: &ComponentLoader<'_>,
    names: &[String],
) -> Result<(Vec<Loaded>, usize), Failure> {
    let settings = loader.settings.tools.values();
    let wanted: Vec<ToolSettings> = settings
        .filter(|tool| names.contains(&tool.name))
        .cloned()
        .collect();
    check_flags(loader.settings, &wanted)?;
    Ok((load_all(loader, &wanted).await?, 0))
}

/// Loads components in this order.
pub(crate) async fn load_all(
    loader: &ComponentLoader<'_>,
    wanted: &[ToolSettings],
) -> Result<Vec<Loaded>, Failure> {
    let mut loaded = Vec::new();
    for settings in wanted {
        loaded.push(loader.load(settings).await?);
    }
    Ok(loaded)
}

/// Refuses components with tools of one name, which cannot be offered together.
///
/// # Errors
/// Returns an error with the name, and the places of both components.
pub(crate) fn check_tools(loaded: &[Loaded], environment: &Environment) -> Result<(), Failure> {
    let mut owners = BTreeMap::new();
    for component in loaded {
        for tool in &component.tools {
            let name = &tool.spec().name;
            if let Some(other) = owners.insert(name.clone(), &component.settings) {
                let [one, other] = [other, &component.settings].map(|of| place(of, environment));
                return Err(Failure::new(Exit::Config, "the tools cannot be offered together")
                    .why(text!(
                        "two tools have the name `{}`: one of {}, one of {}",
                        name,
                        one,
                        other
                    ))
                    .hint("choose among them with --tool"));
            }
        }
    }
    Ok(())
}

/// Place of a component.
fn place(settings: &ToolSettings, environment: &Environment) -> Text {
    match &settings.component {
        ComponentSource::Shipped(_) => text!("the built-in component `{}`", settings.name),
        ComponentSource::File(path) => text!("`{}`", environment.shown(&path.value)),
    }
}

/// Returns the components that were named, or all enabled ones.
async fn wanted(
    loader: &ComponentLoader<'_>,
    named: &[String],
    console: &Console,
) -> Result<Vec<ToolSettings>, Failure> {
    let mut wanted: Vec<ToolSettings> = Vec::new();
    if named.is_empty() {
        for tool in loader.settings.tools.values().filter(|tool| tool.enabled.value) {
            if tool.is_of_project() {
                console.note(text!(
                    "the project defines the component `{}`; use --tool {} to offer it",
                    tool.name,
                    tool.name
                ));
            } else {
                wanted.push(tool.clone());
            }
        }
    }
    for name in named {
        let found = loader.find(name).await?;
        if let Some(tool) = &found.tool {
            return Err(Failure::new(
                Exit::Usage,
                text!("`--tool {}` names one tool of a component", name),
            )
            .why(text!(
                "`{}` is offered together with the other tools of `{}`",
                tool,
                found.settings.name
            ))
            .hint(text!(
                "offer the whole component: --tool {}",
                escape::shell(&component_of(&found.settings, name))
            )));
        }
        if !wanted.iter().any(|known| known.name == found.settings.name) {
            wanted.push(found.settings);
        }
    }
    Ok(wanted)
}

/// Refuses `--grant` and `--limit` flags for a component that is not in use.
///
/// # Errors
/// Returns an error with the flag and the nearest name.
pub(crate) fn check_flags<'a>(
    settings: &Settings,
    taking_part: impl IntoIterator<Item = &'a ToolSettings>,
) -> Result<(), Failure> {
    let names = taking_part.into_iter().map(|settings| settings.name.as_str());
    let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
    let overrides = &settings.overrides;
    let flags = overrides
        .grants
        .iter()
        .map(|flag| ("--grant", &flag.component))
        .chain(overrides.limits.iter().map(|flag| ("--limit", &flag.component)));
    for (flag, component) in flags {
        if let Some(component) = component
            && !names.contains(&component.as_str())
        {
            let failure = Failure::new(
                Exit::Usage,
                text!("`{} {}:…` names a component that is not in use", flag, component),
            )
            .why(match names.as_slice() {
                [] => "no components are in use".into(),
                names => text!("components in use: {}", names.join(", ")),
            });
            return Err(match nearest(component, &names).first() {
                _ if settings.mcp.contains_key(component) => failure.hint(text!(
                    "it is an MCP server; if it runs in a cell, {} in your configuration",
                    match flag {
                        "--grant" => text!("its grants are `[mcp.{}] grants`", component),
                        _ => text!("its limits are `[mcp.{}] limits`", component),
                    }
                )),
                Some(near) => failure.hint(text!("did you mean `{}:`?", near)),
                None => failure.hint("without a name in front it applies to every component"),
            });
        }
    }
    Ok(())
}

fn component_of(settings: &ToolSettings, written: &str) -> String {
    match (&settings.component, written.rsplit_once('#')) {
        (ComponentSource::File(_), Some((path, _))) => path.to_owned(),
        _ => settings.name.clone(),
    }
}
