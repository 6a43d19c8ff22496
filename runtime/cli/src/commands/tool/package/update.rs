//! `toolcell tool update` and `toolcell tool list --outdated`: compares packages with their origins.

use clap::Args;
use serde_json::{Value, json};
use toolcell_core::suggest::nearest;

use super::{
    Reviewed, check_owner, configuration_file, configured, fetch, open_configuration, open_store, publisher,
    review, unusable_store, unwritten, with_configuration,
};
use crate::components::loader::ComponentLoader;
use crate::config::{self, ComponentSource, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::packages::Signer;
use crate::packages::publisher::Publisher;
use crate::packages::reference::Reference;
use crate::packages::store::{Package, PackageStore};
use crate::scratch::diff;
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{NAME, Name, Own, Shown, text};

/// Compare a package with its origin, and replace it once you have accepted the differences.
///
/// Shows what would change in its tools, its imports and what it asks for. Nothing is replaced without `--accept`, with the digest that was shown: what a tag points to can change in between. `toolcell.lock` stays as it is.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool update roman
  toolcell tool update roman --accept sha256:DIGEST
  toolcell tool update roman --from ghcr.io/me/roman:2.0
  toolcell tool update roman --publisher them-2027

{}", crate::exit::TABLE))]
pub(crate) struct Update {
    /// Name of the package.
    name: String,

    /// Another reference, from now on.
    #[arg(long, value_name = "REF")]
    from: Option<String>,

    /// Key or identity of the publisher from now on, by its name: for a publisher that has another key.
    #[arg(long, value_name = "NAME")]
    publisher: Option<String>,

    /// Bundle of Sigstore, if it is not where it is looked for.
    #[arg(long, value_name = "FILE")]
    bundle: Option<String>,

    /// Replace the package by the component with this digest.
    #[arg(long, value_name = "DIGEST")]
    accept: Option<String>,

    /// Allow the host of the reference to have a private address, from now on.
    #[arg(long)]
    private: bool,
}

impl Update {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let mut settings = config::load(environment, overrides)?;
        // Its own names are not taken.
        let configured_tool = settings.tools.remove(&self.name);
        let fail = || Failure::new(Exit::Denied, text!("the tool `{}` was not updated", self.name));
        let package = {
            let store = open_store(environment, console).await?;
            let found = store
                .package(&self.name)
                .map_err(|error| unusable_store(error, environment))?;
            found.ok_or_else(|| unknown(&self.name, &store))?
        };
        check_owner(&package, "update", environment, fail)?;
        let from = self.from.as_ref().unwrap_or(&package.origin);
        let reference = Reference::parse(from, None, environment).map_err(|error| {
            Failure::new(Exit::Usage, text!("the reference `{}` cannot be used", from)).because(error)
        })?;
        let named = publisher(self.publisher.as_deref(), environment)?;
        let publisher = named.or_else(|| package.publisher.clone());
        // The permission is for the host that the user named with it.
        let is_private = self.private || (package.private && self.from.is_none());
        let bundle = self.bundle.as_deref();
        let bundle = bundle.map(|file| environment.path(file, &environment.cwd));
        let signer = Signer {
            publisher: publisher.as_ref(),
            bundle: bundle.as_deref(),
        };
        let fetched = fetch(&reference, is_private, signer, environment, console).await?;
        let origin = reference.to_string();
        let store = open_store(environment, console).await?;
        // It was not locked while the component was fetched.
        if store
            .package(&self.name)
            .map_err(|error| unusable_store(error, environment))?
            .as_ref()
            != Some(&package)
        {
            return Err(fail()
                .why("another command has changed or removed the package meanwhile")
                .hint("run the command again, if it is still a package: toolcell tool list"));
        }
        let is_accepted =
            |accepted: &String| *accepted == fetched.digest.to_string() || *accepted == fetched.digest.hex();
        if let Some(accepted) = &self.accept
            && !is_accepted(accepted)
            && fetched.digest == package.digest
        {
            return Err(fail()
                .why(text!("it is {} at its origin, as it is here", fetched.digest))
                .why("that is not what was accepted"));
        }
        if fetched.digest == package.digest && origin == package.origin && publisher == package.publisher {
            let path = store.path(package.digest);
            let is_configured = configured_tool.is_some_and(|tool| match &tool.component {
                ComponentSource::File(file) => file.value == path,
                ComponentSource::Shipped(_) => false,
            });
            if is_configured {
                let is_damaged = !store.has(package.digest);
                if is_damaged {
                    store
                        .write(&fetched)
                        .map_err(|error| unusable_store(error, environment))?;
                }
                if is_private != package.private {
                    let private = Package {
                        private: is_private,
                        ..package
                    };
                    store
                        .set(private)
                        .map_err(|error| unusable_store(error, environment))?;
                }
                console.note(if is_damaged {
                    text!(
                        "`{}` is up to date; its component was missing or damaged, and is back",
                        self.name
                    )
                } else {
                    text!("`{}` is up to date", self.name)
                });
                return Ok(Exit::Ok);
            }
        }
        let edited = open_configuration(environment, fail)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let path = store
            .write(&fetched)
            .map_err(|error| unusable_store(error, environment))?;
        let updated = async {
            let new = review(&self.name, path.clone(), &loader).await?;
            let old_path = store.path(package.digest);
            // Without the old component everything is new.
            let old = review(&self.name, old_path, &loader).await.ok();
            let old = old.as_ref().map_or_else(String::new, definitions);
            console.write(|s| {
                s.out.styled(NAME, text!("{}", Name(&self.name)))?;
                s.out.line(text!("  {}", Shown(&origin)))?;
                s.out.line(text!("  from {}", package.digest))?;
                s.out.line(text!("    to {}", fetched.digest))?;
                if publisher != package.publisher {
                    let shown = |publisher: &Option<Publisher>| match publisher {
                        Some(publisher) => text!("{}", Shown(&publisher.to_string())),
                        None => "no key".into(),
                    };
                    s.out.line(text!("  signed by {}", shown(&publisher)))?;
                    s.out.line(text!("  instead of {}", shown(&package.publisher)))?;
                }
                diff::unified(&mut s.out, &old, &definitions(&new))?;
                s.out.flush()
            })?;
            match &self.accept {
                None => {
                    return Err(fail().why("its differences are not accepted yet").hint(text!(
                        "to accept them: toolcell {}tool update {}{}{}{}{} --accept {}",
                        with_configuration(environment.named_config.as_deref(), environment),
                        self.name,
                        self.from
                            .as_ref()
                            .map(|from| format!(" --from {}", escape::shell(from)))
                            .unwrap_or_default(),
                        self.publisher
                            .as_ref()
                            .map(|name| format!(" --publisher {}", escape::shell(name)))
                            .unwrap_or_default(),
                        self.bundle
                            .as_ref()
                            .map(|file| format!(" --bundle {}", escape::shell_path(file)))
                            .unwrap_or_default(),
                        Own(if self.private { " --private" } else { "" }),
                        fetched.digest
                    )));
                }
                Some(accepted) if !is_accepted(accepted) => {
                    return Err(fail()
                        .why(text!(
                            "it is {} now, which is not what was accepted",
                            fetched.digest
                        ))
                        .hint("review the differences above"));
                }
                Some(_) => {}
            }
            let text = configured(&edited, &self.name, &path)
                .map_err(|why| fail().why(text!("`{}`: {}", edited.shown, why)))?;
            let replaced = Package {
                name: self.name.clone(),
                origin: origin.clone(),
                digest: fetched.digest,
                publisher: publisher.clone(),
                config: configuration_file(environment),
                private: is_private,
            };
            store
                .set(replaced)
                .map_err(|error| unusable_store(error, environment))?;
            if let Err(error) = edited.write(&text) {
                store
                    .set(package.clone())
                    .map_err(|error| unusable_store(error, environment))?;
                return Err(unwritten(fail(), error));
            }
            Ok(())
        };
        let updated = updated.await;
        store
            .collect_garbage()
            .map_err(|error| unusable_store(error, environment))?;
        updated?;
        console.note("updated; `toolcell lock` accepts it for `--locked`");
        Ok(Exit::Ok)
    }
}

/// Definitions, imports and requested grants of a package, for a comparison.
fn definitions(reviewed: &Reviewed) -> String {
    let identity = reviewed.inspected.identity();
    let imports: Vec<&str> = identity
        .imports()
        .iter()
        .map(|import| import.name.as_str())
        .collect();
    let tools = reviewed.inspected.tools.as_ref();
    let value: Value = json!({
        "author says": reviewed.manifest(),
        "imports": imports,
        "tools": tools.map(|tools| tools.definitions().to_vec()),
    });
    format!("{value:#}\n")
}

/// Error for a name that is not a package.
pub(super) fn unknown(name: &str, store: &PackageStore) -> Failure {
    let failure = Failure::new(Exit::Usage, text!("there is no package `{}`", name));
    let names = match store.packages() {
        Ok(packages) => packages
            .into_iter()
            .map(|package| package.name)
            .collect::<Vec<_>>(),
        Err(error) => return failure.because(error),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest(name, &names).first() {
        Some(near) => failure.hint(text!("did you mean `{}`?", near)),
        None => failure
            .hint("packages are what `toolcell tool add` has added; others are in your configuration alone"),
    }
}

/// Prints the packages whose origin has another component now, as lines or as one JSON array.
pub(in crate::commands::tool) async fn print_outdated(
    is_json: bool,
    environment: &Environment,
    console: &Console,
) -> Result<Exit, Failure> {
    let packages = open_store(environment, console)
        .await?
        .packages()
        .map_err(|error| unusable_store(error, environment))?;
    let mut outdated = Vec::new();
    let mut last_failure = None;
    for package in &packages {
        let compared = async {
            let reference = Reference::parse(&package.origin, None, environment).map_err(|error| {
                let what = text!("the origin of the package `{}` cannot be used", package.name);
                Failure::new(Exit::Config, what).because(error)
            })?;
            fetch(
                &reference,
                package.private,
                Signer {
                    publisher: package.publisher.as_ref(),
                    bundle: None,
                },
                environment,
                console,
            )
            .await
        };
        match compared.await {
            Ok(fetched) if fetched.digest == package.digest => {
                if !open_store(environment, console).await?.has(package.digest) {
                    let what = text!(
                        "the component of the package `{}` is missing or damaged",
                        package.name
                    );
                    let failure = Failure::new(Exit::Component, what)
                        .hint(text!("to fetch it again: toolcell tool update {}", package.name));
                    if let Some(earlier) = last_failure.replace(failure) {
                        console.report(&earlier);
                    }
                }
            }
            Ok(fetched) if is_json => outdated.push(json!({
                "component": package.name,
                "origin": package.origin,
                "digest": package.digest.to_string(),
                "available": fetched.digest.to_string(),
            })),
            Ok(fetched) => console.write(|s| {
                s.out.styled(NAME, text!("{}", Name(&package.name)))?;
                s.out
                    .line(text!("  {}  {}", Shown(&package.origin), fetched.digest))?;
                s.out.flush()
            })?,
            Err(failure) => {
                // The last one is reported as the failure of the command.
                if let Some(earlier) = last_failure.replace(failure) {
                    console.report(&earlier);
                }
            }
        }
    }
    if is_json {
        print_line(console, &outdated)?;
    }
    match last_failure {
        None => Ok(Exit::Ok),
        Some(failure) => Err(failure),
    }
}
