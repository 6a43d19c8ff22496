//! `toolcell tool build`: makes a component of the sources of a tool.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use toolcell_core::ToolSpec;

use super::list::first_sentence;
use crate::authoring::compiler::{BUILD, BuildContext};
use crate::authoring::manifest::Manifest;
use crate::authoring::recipe;
use crate::components::loader::{ComponentLoader, Inspected};
use crate::components::tool_lint;
use crate::config::units::Bytes;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::wants::PackageManifest;
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{Own, Shown, text};

/// Make a component of a tool that `toolcell tool new` wrote, and check its definitions.
///
/// It runs the compiler of the language and what that runs, such as build scripts of packages: outside of a cell, like `make`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool build
  toolcell tool build roman --output tools/roman.wasm

{}", crate::exit::TABLE))]
pub(crate) struct Build {
    /// Directory of the tool, with `tool.toml`.
    #[arg(default_value = ".")]
    dir: String,

    /// File of the component, by default NAME.wasm in the directory of the tool.
    #[arg(long, short, value_name = "FILE")]
    output: Option<String>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Build {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let dir = environment.path(&self.dir, &environment.cwd);
        let dir = dir.canonicalize().map_err(|error| {
            Failure::new(Exit::Usage, text!("`{}` cannot be used", dir.display())).because(error)
        })?;
        let manifest = Manifest::read(&dir)?;
        refuse_link(&dir)?;
        let context = BuildContext {
            environment,
            console,
            dir: &dir,
            manifest: &manifest,
            interrupts: Interrupts::watch(console.clone()),
        };
        if !self.json {
            let language = Own(manifest.language.title());
            console.note(text!("building the tool `{}` in {} …", manifest.name, language));
        }
        let mut component = recipe::build(&context).await?;
        let package = match manifest.package() {
            Some(package) => package.add_to(&mut component),
            None => PackageManifest::read(&component).map(|_| ()),
        };
        package.map_err(|error| {
            let failure = context.failed().because(error);
            failure.hint("`version`, `license` and `wants` of tool.toml become this section; a linker can write it instead")
        })?;

        // What is broken never takes the place of what worked.
        let file = format!("{}.wasm", manifest.name);
        context.write(&file, &component)?;
        let built = dir.join(BUILD).join(&file);
        let inspected = inspect(&built, overrides, environment, console).await?;
        let output = match &self.output {
            Some(written) => environment.path(written, &environment.cwd),
            None => dir.join(&file),
        };
        toolcell_fs::replace(&output, &component, toolcell_fs::SHARED).map_err(|error| {
            Failure::new(Exit::Io, text!("could not write `{}`", output.display())).because(error)
        })?;
        self.show(&output, &inspected, environment, console)?;
        Ok(Exit::Ok)
    }

    fn show(
        &self,
        output: &Path,
        inspected: &Inspected,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        let identity = inspected.identity();
        let specs = || inspected.tools.iter().flat_map(|tools| tools.definitions());
        let findings = tool_lint::findings_in_component(specs().map(|spec| &**spec), &[]);
        if self.json {
            let object = json!({
                "component": output,
                "size": identity.size(),
                "digest": identity.digest().to_string(),
                "imports": identity.imports(),
                "tools": specs().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
                "warnings": findings,
            });
            print_line(console, &object)?;
            return Ok(());
        }
        let shown = environment.shown(output);
        console.write(|s| {
            s.out
                .line(text!("wrote {}, {}", Shown(&shown), Bytes(identity.size())))?;
            s.out.flush()
        })?;
        for spec in specs() {
            console.note(text!("  {}: {}", spec.name, first_sentence(&spec.description)));
            for parameter in undescribed(spec) {
                console.note(text!("warning: the parameter `{}` has no description", parameter));
            }
        }
        for finding in findings {
            console.note(text!("warning: {}", finding));
        }
        Ok(())
    }
}

/// Loads what was built, which runs only the function that describes its tools.
async fn inspect(
    built: &Path,
    overrides: Overrides,
    environment: &Environment,
    console: &Console,
) -> Result<Inspected, Failure> {
    let settings = config::load(environment, overrides)?;
    let loader = ComponentLoader::open(environment, &settings, console)?;
    let wanted = loader.find(&built.display().to_string()).await?;
    loader.inspect(&wanted.settings).await
}

/// Refuses a directory of intermediate files that leads elsewhere.
fn refuse_link(dir: &Path) -> Result<(), Failure> {
    let build: PathBuf = dir.join(BUILD);
    match build.symlink_metadata() {
        Ok(metadata) if !metadata.is_dir() => Err(Failure::new(
            Exit::Usage,
            text!("`{}` is not a directory", build.display()),
        )
        .hint("intermediate files are written there: remove it")),
        _ => Ok(()),
    }
}

/// Returns the parameters that the model has to guess.
fn undescribed(spec: &ToolSpec) -> Vec<String> {
    let properties = spec.input.as_value().get("properties");
    let parameters = properties
        .and_then(serde_json::Value::as_object)
        .into_iter()
        .flatten();
    parameters
        .filter(|(_, schema)| {
            schema.is_object() && schema.get("description").is_none() && schema.get("$ref").is_none()
        })
        .map(|(name, _)| name.clone())
        .collect()
}
