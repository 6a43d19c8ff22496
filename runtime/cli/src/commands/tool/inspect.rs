//! `toolcell tool inspect`: tools, hook, imports and grants of a component.

use std::io;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use toolcell_core::tool::{Hints, ToolSpec};
use toolcell_core::{Grant, HookPoint, HookSpec};
use toolcell_sandbox::{Ability, Component, ComponentKind, HookComponent, Identity, LeftOut};

use crate::components::loader::{ComponentLoader, Inspected};
use crate::components::selection;
use crate::components::tool_lint;
use crate::config::units::Bytes;
use crate::config::{self, ComponentSource, Overrides, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::packages::keys::KeyRing;
use crate::packages::store::{Package, package_at};
use crate::packages::wants::PackageManifest;
use crate::ui::render::Console;
use crate::ui::render::console::Streams;
use crate::ui::render::held::Holding;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{
    BAD, FAINT, GOOD, GUTTER, NAME, Name, Own, STRONG, Screen, Shown, Text, WARN, text,
};

/// Show what a component can do: its tools or its hook points, the meaning of its imports, its size and digest.
///
/// Only the function that describes its tools is run, in a cell without grants.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool inspect text
  toolcell tool inspect ./my.wasm --grant read=.
  toolcell tool inspect ./my.wasm --json

{}", crate::exit::TABLE))]
pub(crate) struct Inspect {
    /// Component by its name, file or directory, or one of its tools.
    #[arg(value_name = "NAME|FILE")]
    tool: String,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Print one JSON object, also if it cannot be loaded.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let inspected = self.inspect(overrides, environment, console).await;
        if let Err(failure) = &inspected
            && self.json
        {
            // Standard error has it as well.
            let _ = print_line(
                console,
                &json!({ "component": self.tool, "error": failure.to_json() }),
            );
        }
        inspected
    }

    async fn inspect(
        &self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let wanted = match (settings.hooks.get(&self.tool), settings.tools.get(&self.tool)) {
            (Some(hook), None) => hook.component.clone(),
            _ => loader.find(&self.tool).await?.settings,
        };
        selection::check_flags(&settings, [&wanted])?;
        let wanted = wanted.denying(&settings.deny);
        let inspected = loader.inspect(&wanted).await?;
        let others = match &wanted.component {
            ComponentSource::File(_) => loader.tool_names().await,
            // Built-in components need no lint, and reading the tool names of the others could mean compiling them.
            ComponentSource::Shipped(_) => Vec::new(),
        };
        let report = Report::new(&wanted, &inspected, &others, environment);
        if self.json {
            print_line(console, &report.json(environment))?;
        } else {
            console.write(|s| report.print(s))?;
        }
        Ok(Exit::Ok)
    }
}

/// Facts about a component that are shown.
pub(super) struct Report<'a> {
    settings: &'a ToolSettings,
    inspected: &'a Inspected,
    source: String,
    /// Package that it is, with its origin and publisher.
    package: Option<Package>,
    grants: Vec<String>,
    denied: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        settings: &'a ToolSettings,
        inspected: &'a Inspected,
        others: &[String],
        environment: &Environment,
    ) -> Self {
        let (denied, grants): (Vec<_>, Vec<_>) =
            (settings.grants.iter().map(|line| &line.grant)).partition(|grant| grant.is_denial());
        let written = |grants: Vec<&Grant>| grants.into_iter().map(ToString::to_string).collect();
        let (denied, grants): (Vec<String>, Vec<String>) = (written(denied), written(grants));
        let mut warnings = useless_grants(settings, inspected.identity());
        if let Err(error) = &inspected.manifest {
            warnings.push(Text::foreign(format!("{error:#}")).inert());
        }
        let specs = inspected.tools.iter().flat_map(Component::definitions);
        warnings.extend(tool_lint::findings_in_component(
            specs.map(|spec| &**spec),
            others,
        ));
        Self {
            settings,
            inspected,
            package: match &settings.component {
                ComponentSource::Shipped(_) => None,
                ComponentSource::File(path) => package_at(&settings.name, &path.value, environment),
            },
            source: match &settings.component {
                ComponentSource::Shipped(_) => "built in".into(),
                ComponentSource::File(path) => environment.shown(&path.value),
            },
            grants,
            denied,
            warnings,
        }
    }

    fn tools(&self) -> &[Arc<ToolSpec>] {
        self.inspected.tools.as_ref().map_or(&[], Component::definitions)
    }

    fn kind(&self) -> Option<ComponentKind> {
        self.inspected.tools.as_ref().map(Component::kind)
    }

    fn left_out(&self) -> &[LeftOut] {
        self.inspected.tools.as_ref().map_or(&[], Component::left_out)
    }

    fn hook(&self) -> Option<&HookSpec> {
        self.inspected.hook.as_ref().map(HookComponent::spec)
    }

    fn manifest(&self) -> Option<&PackageManifest> {
        self.inspected.manifest.as_ref().ok()?.as_ref()
    }

    fn can(&self) -> Vec<&'static str> {
        let mut abilities = self.inspected.identity().abilities();
        // Every other import needs streams; they have no meaning of their own.
        abilities.retain(|ability| *ability != Ability::Plumbing);
        let is_program = self.kind() == Some(ComponentKind::Program);
        let sentence = |ability| match ability {
            Ability::Stdio if is_program => {
                "can read standard input and write to the streams that are its result"
            }
            ability => ability.sentence(),
        };
        abilities.into_iter().map(sentence).collect()
    }

    fn cannot(&self) -> Vec<&'static str> {
        let abilities = self.inspected.identity().abilities();
        Ability::TELLING
            .into_iter()
            .filter(|ability| !abilities.contains(ability))
            .filter_map(Ability::absent_sentence)
            .collect()
    }

    fn json(&self, environment: &Environment) -> Value {
        let identity = self.inspected.identity();
        let mut json = json!({
            "component": self.settings.name,
            "source": self.source,
            "digest": identity.digest().to_string(),
            "size": identity.size(),
            "imports": identity.imports(),
            "can": self.can(),
            "cannot": self.cannot(),
            "grants": self.grants,
            "denied": self.denied,
            "limits": self.settings.limits.limits,
            "warnings": self.warnings,
            "kind": self.kind(),
            "tools": self.tools(),
            "left_out": self.left_out(),
            "manifest": self.manifest(),
        });
        if let Some(hook) = self.hook() {
            json["hook"] = json!(hook);
        }
        if let Some(package) = &self.package {
            json["package"] = package.to_json(&KeyRing::known(environment));
        }
        json
    }

    /// Prints what it is, what it can touch, and its tools.
    pub(super) fn print(&self, s: &mut Streams) -> io::Result<()> {
        let out = &mut s.out;
        let identity = self.inspected.identity();
        out.styled(NAME, text!("{}", Name(&self.settings.name)))?;
        out.line(text!("  {}, {}", Shown(&self.source), Bytes(identity.size())))?;
        out.styled(FAINT, text!("{}", identity.digest()))?;
        out.end_line()?;
        if let Some(package) = &self.package {
            out.line(text!("package {}", Shown(&package.origin)))?;
            match &package.publisher {
                Some(publisher) => {
                    out.line(text!(
                        "signed by {}, as each update must be",
                        publisher.to_string()
                    ))?;
                }
                None => out.line("not bound to a key: an update shows its differences")?,
            }
        }

        out.end_line()?;
        for sentence in self.can() {
            out.styled(GOOD, "  + ")?;
            out.line(sentence)?;
        }
        for sentence in self.cannot() {
            out.styled(FAINT, "  - ")?;
            out.line(sentence)?;
        }

        out.end_line()?;
        if self.grants.is_empty() {
            out.line("nothing is granted to it")?;
        } else {
            out.line("granted to it")?;
            for grant in &self.grants {
                out.line(text!("    {}", grant))?;
            }
        }
        if !self.denied.is_empty() {
            out.line("denied to it, whatever is granted")?;
            for line in &self.denied {
                out.line(text!("    {}", line))?;
            }
        }
        for warning in &self.warnings {
            out.styled(WARN, "  ! ")?;
            out.line(warning.clone())?;
        }
        if self.kind() == Some(ComponentKind::Functions) {
            out.end_line()?;
            out.line("each function of it is a tool")?;
            for left_out in self.left_out() {
                let function = Shown(&left_out.function);
                out.line(text!("    except {}: {}", function, Own(left_out.reason)))?;
            }
        }
        if self.kind() == Some(ComponentKind::Program) {
            out.end_line()?;
            out.line("it is a program; the tool runs it with arguments and standard input")?;
        }
        if let Some(hook) = self.hook() {
            out.end_line()?;
            print_hook(out, hook)?;
        }
        for spec in self.tools() {
            out.end_line()?;
            print_tool(out, spec, self.settings.offers(spec.name.as_str()))?;
        }
        if let Some(manifest) = self.manifest() {
            print_manifest(out, manifest)?;
        }
        out.flush()
    }
}

/// Prints what the author of a component calls it, and which grants it asks for.
fn print_manifest(out: &mut Screen<Holding>, manifest: &PackageManifest) -> io::Result<()> {
    out.end_line()?;
    for (what, told) in [
        ("name", &manifest.name),
        ("version", &manifest.version),
        ("license", &manifest.license),
    ] {
        if let Some(told) = told {
            out.styled(FAINT, text!("its author says, {}: ", Own(what)))?;
            out.line(text!("{}{}", Own(GUTTER), told.escape_debug().to_string()))?;
        }
    }
    if !manifest.wants.is_empty() {
        out.styled(STRONG, "it asks for these grants, which it does not get by this")?;
        out.end_line()?;
    }
    for want in &manifest.wants {
        let (grant, reason) = (want.grant.to_string(), want.reason.escape_debug().to_string());
        out.line(text!("    {}  {}{}", Shown(&grant), Own(GUTTER), reason))?;
    }
    Ok(())
}

fn print_hook(out: &mut Screen<Holding>, hook: &HookSpec) -> io::Result<()> {
    out.styled(STRONG, text!("{}", Name(&hook.name)))?;
    out.styled(FAINT, "  is a hook")?;
    if hook.guard {
        out.styled(FAINT, ", says it is a guard")?;
    }
    out.end_line()?;
    out.line(text!("  {}{}", Own(GUTTER), hook.description))?;
    for point in &hook.points {
        out.text("    ")?;
        out.cell(NAME, text!("{}", Name(point.as_str())), 15)?;
        out.styled(FAINT, access_at(*point))?;
        out.end_line()?;
    }
    Ok(())
}

/// Describes the data and actions available to a hook at a hook point.
fn access_at(point: HookPoint) -> &'static str {
    match point {
        HookPoint::BeforePrompt => "reads every prompt; can change it, add to it, or end the turn",
        HookPoint::BeforeCall => "reads every call; can change its arguments, refuse it, or end the turn",
        HookPoint::AfterCall => "reads the result of every call",
        HookPoint::BeforeSummary => "selects the messages to summarise",
        HookPoint::AfterSummary => "selects the replacement of summarised messages",
        HookPoint::AfterTurn => "reads the answer of every turn",
        HookPoint::OnError => "reads errors",
    }
}

fn print_tool(out: &mut Screen<Holding>, spec: &ToolSpec, is_offered: bool) -> io::Result<()> {
    out.styled(STRONG, text!("{}", spec.name))?;
    if !is_offered {
        out.styled(BAD, "  off")?;
    }
    let claims = claims(spec.hints);
    if !claims.is_empty() {
        let claims = Text::join(claims.into_iter().map(Text::from), ", ");
        out.styled(FAINT, text!("  says it is {}", claims))?;
    }
    out.end_line()?;
    if let Some(title) = &spec.title {
        out.line(text!("  {}{}", Own(GUTTER), one_line(title)))?;
    }
    out.line(text!("  {}{}", Own(GUTTER), spec.description))?;
    let schema = spec.input.as_value();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let parameters = schema.get("properties").and_then(Value::as_object);
    let width = parameters
        .map(|all| all.keys().map(|name| name.chars().count()).max().unwrap_or(0))
        .unwrap_or(0)
        .min(24);
    for (name, parameter) in parameters.into_iter().flatten() {
        out.text("    ")?;
        out.cell(NAME, text!("{}", Name(name)), width + 2)?;
        out.text(kind(parameter))?;
        if required.contains(&name.as_str()) {
            out.styled(BAD, " required")?;
        }
        if let Some(description) = parameter.get("description").and_then(Value::as_str) {
            out.styled(FAINT, text!("  {}{}", Own(GUTTER), one_line(description)))?;
        }
        out.end_line()?;
    }
    Ok(())
}

/// Returns a text of several lines in one.
fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" ")
}

/// Returns the properties that the author claims.
fn claims(hints: Hints) -> Vec<&'static str> {
    [
        (hints.read_only, "read-only"),
        (hints.destructive, "destructive"),
        (hints.idempotent, "idempotent"),
        (hints.open_world, "open-world"),
    ]
    .into_iter()
    .filter_map(|(claimed, word)| claimed.then_some(word))
    .collect()
}

/// The type of a parameter in a few words: `string`, `integer or null`, `"a" | "b"`.
fn kind(schema: &Value) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        return values.join(" | ");
    }
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        let kinds: Vec<String> = branches.iter().map(kind).collect();
        return kinds.join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => match schema.get("items") {
            Some(items @ Value::Object(_)) => format!("array of {}", kind(items)),
            _ => "array".into(),
        },
        Some(Value::String(name)) if name == "string" && schema.get("contentEncoding").is_some() => {
            "string in base64".into()
        }
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        _ if schema.get("oneOf").is_some() => "object with a tag".into(),
        _ => "value".into(),
    }
}

/// Grants of a kind that the component has no import for.
fn useless_grants(settings: &ToolSettings, component: &Identity) -> Vec<String> {
    settings
        .grants
        .iter()
        .filter_map(|line| {
            let what = match &line.grant {
                Grant::Dir { .. } => "files",
                Grant::Env { .. } => "environment variables",
                Grant::Http(_) => "HTTP",
                Grant::Bucket(_) => "buckets",
                Grant::Deny { .. } | Grant::DenyHttp(_) | Grant::DenyBucket { .. } => return None,
            };
            (!component.can_use(&line.grant)).then(|| {
                text!(
                    "the grant `{}` has no effect: the component has no imports for {}",
                    line.grant,
                    Own(what)
                )
                .inert()
            })
        })
        .collect()
}
