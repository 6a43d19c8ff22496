//! Which components a command offers: those that flags name, or all that are switched on.

use crate::components::loader::{ComponentLoader, Loaded};
use crate::config::{ComponentSource, ToolSettings};
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Loads the components that were named, or all that are switched on.
pub(crate) async fn load(
    toolbox: &ComponentLoader<'_>,
    named: &[String],
    console: &Console,
) -> Result<Vec<Loaded>, Failure> {
    Ok(load_with(toolbox, named, &[], console).await?.0)
}

/// The same, and after them those of `also` that are not among them; with the number of those before.
pub(crate) async fn load_with(
    toolbox: &ComponentLoader<'_>,
    named: &[String],
    also: &[String],
    console: &Console,
) -> Result<(Vec<Loaded>, usize), Failure> {
    let mut wanted: Vec<ToolSettings> = Vec::new();
    if named.is_empty() {
        for tool in toolbox.settings.tools.values().filter(|tool| tool.enabled.value) {
            if tool.is_of_project() {
                console.note(text!(
                    "this project brings the component `{}`; offer it with --tool {}",
                    tool.name,
                    tool.name
                ));
            } else {
                wanted.push(tool.clone());
            }
        }
    }
    for name in named {
        let found = toolbox.find(name).await?;
        if let Some(tool) = &found.tool {
            return Err(Failure::new(
                Exit::Usage,
                text!("`--tool {}` names one tool of a component", name),
            )
            .why(text!(
                "`{}` comes with everything else in `{}`",
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
    let mains = wanted.len();
    for name in also {
        if let Some(tool) = toolbox.settings.tools.get(name)
            && !wanted.iter().any(|known| known.name == *name)
        {
            wanted.push(tool.clone());
        }
    }
    toolbox.check_flags(&wanted)?;
    let mut loaded = Vec::new();
    for settings in &wanted {
        loaded.push(toolbox.load(settings).await?);
    }
    Ok((loaded, mains))
}

fn component_of(settings: &ToolSettings, written: &str) -> String {
    match (&settings.component, written.rsplit_once('#')) {
        (ComponentSource::File(_), Some((path, _))) => path.to_owned(),
        _ => settings.name.clone(),
    }
}
