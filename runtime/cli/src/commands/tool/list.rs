//! `toolcell tool list`: all components with a name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use toolcell_core::Grant;
use toolcell_sandbox::Description;

use crate::commands::mcp;
use crate::components::loader::ComponentLoader;
use crate::components::lock;
use crate::config::{self, ComponentSource, McpSettings, Overrides, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::lock::LockedServer;
use crate::packages::keys::KeyRing;
use crate::packages::store::package_at;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{
    BAD, FAINT, GUTTER, NAME, Name, Own, STRONG, Screen, Shown, Text, WARN, inert_line, text,
};

/// List the built-in tools, and the tools, hooks and MCP servers of the configuration. No server is started: its tools are
/// those of `toolcell.lock`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell tool list
  toolcell tool list --json
  toolcell tool list --outdated")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    /// List only packages whose origin has another component now.
    #[arg(long)]
    outdated: bool,
}

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION: usize = 76;

impl List {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        if self.outdated {
            return Box::pin(super::package::print_outdated(self.json, environment, console)).await;
        }
        let settings = config::load(environment, overrides)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let locked = lock::servers(environment)?;
        let mut listed = Vec::new();
        let mut failures = Vec::new();
        for tool in settings.tools.values() {
            if !loader.is_trusted(tool) {
                listed.push((tool, None));
                continue;
            }
            match loader.describe(tool).await {
                Ok(component) => listed.push((tool, Some(component))),
                Err(failure) => {
                    listed.push((tool, None));
                    failures.push(failure);
                }
            }
        }
        let mut unusable = BTreeSet::new();
        for (name, hook) in settings
            .hooks
            .iter()
            .filter(|(_, hook)| hook.component.enabled.value)
        {
            if let Err(failure) = loader.hook(hook).await {
                unusable.insert(name);
                failures.push(failure);
            }
        }
        if self.json {
            let keys = KeyRing::known(environment);
            let mut array: Vec<_> = listed
                .iter()
                .map(|(tool, component)| {
                    let package = match &tool.component {
                        ComponentSource::Shipped(_) => None,
                        ComponentSource::File(file) => package_at(&tool.name, &file.value, environment),
                    };
                    json!({
                        "component": tool.name,
                        "source": source(tool, environment).plain(),
                        "package": package.map(|package| package.to_json(&keys)),
                        "enabled": tool.enabled.value,
                        "only": tool.only.as_ref().map(|only| &only.value),
                        "missing_grant": tool.missing_grant(),
                        "missing_grant_of_tools": missing_grants(tool, component.as_ref()),
                        "grants": grants(tool, component.as_ref(), true),
                        "unusable_grants": grants(tool, component.as_ref(), false),
                        "digest": component.as_ref().map(|component| component.identity().digest().to_string()),
                        "tools": component.as_ref().map(|component| component.definitions().to_vec()),
                    })
                })
                .collect();
            array.extend(settings.hooks.iter().map(|(name, hook)| {
                let of = &hook.component;
                json!({
                    "hook": name,
                    "source": source(of, environment).plain(),
                    "enabled": of.enabled.value,
                    "usable": of.enabled.value && !unusable.contains(name),
                    "grants": of.grants.iter().map(|line| line.grant.to_string()).collect::<Vec<_>>(),
                })
            }));
            array.extend(settings.mcp.values().map(|server| {
                let locked = locked.get(&server.name);
                json!({
                    "mcp": server.name,
                    "source": server.address(),
                    "enabled": server.enabled.value,
                    "locked": locked.map(|locked| locked.tools().map(|(name, _)| name).collect::<Vec<_>>()),
                })
            }));
            print_line(console, &array)?;
        } else {
            console.write(|s| {
                for (tool, component) in &listed {
                    s.out.styled(NAME, text!("{}", Name(&tool.name)))?;
                    s.out.styled(FAINT, text!("  {}", source(tool, environment)))?;
                    if !tool.enabled.value {
                        s.out.styled(BAD, "  off")?;
                    }
                    for grant in grants(tool, component.as_ref(), true) {
                        s.out.text(text!("  {}", Shown(&grant)))?;
                    }
                    for grant in grants(tool, component.as_ref(), false) {
                        s.out.styled(FAINT, text!("  cannot use {}", Shown(&grant)))?;
                    }
                    if let Some(grant) = tool.missing_grant() {
                        s.out
                            .styled(WARN, text!("  not offered without --grant {}", Own(grant)))?;
                    }
                    s.out.end_line()?;
                    // If none is offered, the line of the component says so.
                    let missing = match tool.missing_grant() {
                        Some(_) => BTreeMap::new(),
                        None => missing_grants(tool, component.as_ref()),
                    };
                    let specs = component.as_ref().map(|c| c.definitions()).unwrap_or_default();
                    let width = specs
                        .iter()
                        .map(|spec| spec.name.as_str().len())
                        .max()
                        .unwrap_or(0);
                    for spec in specs {
                        s.out.text("  ")?;
                        s.out.cell(STRONG, text!("{}", spec.name), width)?;
                        if !tool.offers(spec.name.as_str()) {
                            s.out.styled(BAD, "  off")?;
                        } else if let Some(grant) = missing.get(spec.name.as_str()) {
                            s.out
                                .styled(WARN, text!("  not offered without --grant {}", Own(grant)))?;
                        }
                        // Words of the component, which must not pass for the word before them.
                        let description = first_sentence(&spec.description);
                        s.out.line(text!("  {}{}", Own(GUTTER), description))?;
                    }
                }
                for (name, hook) in &settings.hooks {
                    let of = &hook.component;
                    s.out.styled(NAME, text!("{}", Name(name)))?;
                    s.out
                        .styled(FAINT, text!("  hook, {}", source(of, environment)))?;
                    if unusable.contains(name) {
                        s.out.styled(BAD, "  cannot be used as a hook")?;
                    }
                    if !of.enabled.value {
                        s.out.styled(BAD, "  off")?;
                    }
                    for line in &of.grants {
                        s.out.text(text!("  {}", Shown(&line.grant.to_string())))?;
                    }
                    s.out.end_line()?;
                }
                for server in settings.mcp.values() {
                    print_server(&mut s.out, server, locked.get(&server.name))?;
                }
                s.out.flush()
            })?;
        }
        match failures.into_iter().next() {
            None => Ok(Exit::Ok),
            Some(first) => Err(first),
        }
    }
}

/// Returns the grants and denials of a component that its imports can use, or those that they cannot. Without a component
/// its imports are unknown, and all are returned as usable.
fn grants(tool: &ToolSettings, component: Option<&Description>, usable: bool) -> Vec<String> {
    let is_usable = |grant: &Grant| component.is_none_or(|of| of.identity().can_use(grant));
    let lines = tool.grants.iter().map(|line| &line.grant);
    lines
        .filter(|grant| is_usable(grant) == usable)
        .map(ToString::to_string)
        .collect()
}

/// Returns the grants without which tools of a component can do nothing, by tool.
fn missing_grants<'a>(
    tool: &ToolSettings,
    component: Option<&'a Description>,
) -> BTreeMap<&'a str, &'static str> {
    let specs = component.map(Description::definitions).unwrap_or_default();
    let names = specs.iter().map(|spec| spec.name.as_str());
    names
        .filter_map(|name| Some((name, tool.missing_grant_of(name)?)))
        .collect()
}

/// Prints an MCP server with its tools, as far as they are known without starting it.
fn print_server<W: Write>(
    out: &mut Screen<W>,
    server: &McpSettings,
    locked: Option<&LockedServer>,
) -> io::Result<()> {
    out.styled(NAME, text!("{}", Name(&server.name)))?;
    let kind = Own(server.transport.kind());
    out.styled(
        FAINT,
        match server.transport.kind() {
            "cell" => "  MCP server in a cell of its own".into(),
            _ => text!("  MCP server over {}, not in a cell", kind),
        },
    )?;
    if !server.enabled.value {
        out.styled(BAD, "  off")?;
    }
    if let Some(problem) = mcp::list::problem(server) {
        out.styled(WARN, text!("  {}", problem))?;
    }
    if locked.is_none() {
        out.styled(
            FAINT,
            text!("  to see its tools: toolcell mcp test {}", server.name),
        )?;
    }
    out.end_line()?;
    let tools = || locked.into_iter().flat_map(LockedServer::tools);
    let width = tools().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, tool) in tools() {
        out.text("  ")?;
        out.cell(STRONG, text!("{}", Name(name)), width)?;
        // Words of the server, which must not pass for ours.
        out.line(text!("  {}{}", Own(GUTTER), first_sentence(tool.description())))?;
    }
    Ok(())
}

fn source(tool: &ToolSettings, environment: &Environment) -> Text {
    match &tool.component {
        ComponentSource::Shipped(_) => "built-in".into(),
        ComponentSource::File(path) if tool.is_of_project() => {
            let path = environment.shown(&path.value);
            text!("{} of this project, used only if named and trusted", Shown(&path))
        }
        ComponentSource::File(path) => text!("{}", Shown(&environment.shown(&path.value))),
    }
}

/// Returns the first sentence of a description, on one line.
pub(crate) fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line
        .split_once(". ")
        .map_or(line, |(first, _)| first)
        .trim_end_matches('.');
    let sentence = inert_line(sentence);
    let Some((end, _)) = sentence.char_indices().nth(MAX_DESCRIPTION) else {
        return sentence;
    };
    // A word is not cut, unless it is longer than half of the line.
    let cut = &sentence[..end];
    let is_whole = sentence[end..].starts_with(' ');
    let words = cut
        .rfind(' ')
        .filter(|at| !is_whole && cut[..*at].chars().count() > MAX_DESCRIPTION / 2);
    let cut = cut[..words.unwrap_or(end)].trim_end_matches([' ', ',', ';', ':', '-', '–', '—', '(']);
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_is_cut_between_words() {
        let fits = format!("{}.", "a".repeat(MAX_DESCRIPTION));
        assert_eq!(first_sentence(&fits), "a".repeat(MAX_DESCRIPTION));
        assert_eq!(
            first_sentence(&"a".repeat(MAX_DESCRIPTION + 1)),
            format!("{}…", "a".repeat(MAX_DESCRIPTION))
        );
        let words = format!("{}, {}", "a".repeat(70), "b".repeat(20));
        assert_eq!(first_sentence(&words), format!("{}…", "a".repeat(70)));
        let at_end = format!("{} {}", "a".repeat(MAX_DESCRIPTION), "b".repeat(20));
        assert_eq!(
            first_sentence(&at_end),
            format!("{}…", "a".repeat(MAX_DESCRIPTION))
        );
        assert_eq!(first_sentence("One. Two.\nThree"), "One");
    }
}
