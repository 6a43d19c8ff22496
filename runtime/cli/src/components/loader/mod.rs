//! Component loader: reads a component, applies its policy, and returns its callable tools or its hook.

mod hooks;
mod inspect;
mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use toolcell_core::denial::PathDenial;
use toolcell_core::suggest::nearest;
use toolcell_core::{Policy, Secrets, Tool, ToolName};
use toolcell_sandbox::{
    Component, ComponentContext, ComponentKind, ContextError, Description, Digest, InvalidBinding, LoadError,
    Sandbox, TrustedComponent as _,
};

use crate::components::buckets;
use crate::components::keyring::Keyring;
use crate::components::sandbox;
use crate::components::secrets;
use crate::components::trust::Trust;
use crate::config::names::TakenNames;
use crate::config::{ComponentSource, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::scratch::overlay;
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

pub(crate) use hooks::LoadedHook;
pub(crate) use inspect::Inspected;
use source::Bytes;

/// Loads components for one command.
pub(crate) struct ComponentLoader<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) settings: &'a Settings,
    pub(crate) sandbox: Sandbox,
    secrets: Secrets,
    trust: Trust,
    /// Components loaded so far, by name and source: one that is searched for a tool is then called.
    loaded: Mutex<BTreeMap<ComponentKey, Component>>,
    /// Denials of changes to the components that the command names by their paths, which are in no configuration.
    named: Mutex<Vec<PathDenial>>,
}

/// Name of a component, and its file if it is not built in.
type ComponentKey = (String, Option<PathBuf>);

fn key(settings: &ToolSettings) -> ComponentKey {
    let file = match &settings.component {
        ComponentSource::Shipped(_) => None,
        ComponentSource::File(path) => Some(path.value.clone()),
    };
    (settings.name.clone(), file)
}

/// Loaded component with its policy.
pub(crate) struct Loaded {
    /// Settings of the component.
    pub(crate) settings: ToolSettings,
    /// The component.
    pub(crate) component: Component,
    /// Its tools under this policy.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Its resources and prompts under this policy, if they are served.
    pub(crate) context: ComponentContext,
}

impl Loaded {
    /// Returns what can be called: its tools, and those that read its resources and get its prompts.
    pub(crate) fn called(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        let reader = self.context.resources.iter().map(|resources| &resources.reader);
        let getter = self.context.prompts.iter().map(|prompts| &prompts.getter);
        self.tools.iter().chain(reader).chain(getter)
    }
}

/// Loaded program, ready to be started.
pub(crate) struct LoadedProgram {
    pub(crate) component: Component,
    pub(crate) policy: Arc<Policy>,
    pub(crate) secrets: Secrets,
}

impl<'a> ComponentLoader<'a> {
    /// Starts the sandbox.
    ///
    /// # Errors
    /// Returns an error if the engine does not start on this machine.
    pub(crate) fn open(
        environment: &'a Environment,
        settings: &'a Settings,
        console: &Console,
    ) -> Result<Self, Failure> {
        let limits = settings.buckets.iter();
        let limits = limits
            .map(|(name, limits)| (name.clone(), limits.value))
            .collect();
        let sandbox = sandbox::start(environment, limits, console)?;
        Self::asking(environment, settings, sandbox, console)
    }

    /// Creates a loader for a sandbox that is already running, which asks the user about components of projects.
    ///
    /// # Errors
    /// Returns an error if a secret has a value that is not valid as a secret.
    pub(crate) fn asking(
        environment: &'a Environment,
        settings: &'a Settings,
        sandbox: Sandbox,
        console: &Console,
    ) -> Result<Self, Failure> {
        let mut loader = Self::with(environment, settings, sandbox)?;
        loader.trust = Trust::new(environment, Some(console));
        Ok(loader)
    }

    /// Creates a loader for a sandbox that is already running. It does not ask the user.
    ///
    /// # Errors
    /// Returns an error if a secret has a value that is not valid as a secret.
    pub(crate) fn with(
        environment: &'a Environment,
        settings: &'a Settings,
        sandbox: Sandbox,
    ) -> Result<Self, Failure> {
        Ok(Self {
            environment,
            settings,
            sandbox,
            secrets: secrets::read(settings, environment)?,
            trust: Trust::new(environment, None),
            loaded: Mutex::default(),
            named: Mutex::default(),
        })
    }

    /// Denies changes to a component that the command names by its path.
    pub(super) fn deny_changes(&self, named: PathDenial) {
        self.named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(named);
    }

    /// Loads a component and applies its policy.
    ///
    /// # Errors
    /// Returns an error if it is disabled, cannot be loaded, or a grant is invalid.
    pub(crate) async fn load(&self, settings: &ToolSettings) -> Result<Loaded, Failure> {
        if !settings.is_usable() {
            return Err(
                Failure::new(Exit::Config, text!("the tool `{}` is disabled", settings.name))
                    .why(settings.enabled.origin.point_at())
                    .hint("set `enabled = true` there"),
            );
        }
        let settings = &settings.denying(&self.settings.deny);
        let policy = self.policy(settings)?;
        let component = self.component(settings).await?;
        check_only(settings, &component)?;
        let mut tools = component
            .tools_with_secrets(policy, &self.secrets_of(settings)?)
            .map_err(|e| unusable_secrets(&settings.name, e))?;
        tools.retain(|tool| settings.offers(tool.spec().name.as_str()));
        Ok(Loaded {
            settings: settings.clone(),
            component,
            tools,
            context: ComponentContext::default(),
        })
    }

    /// Adds the resources and prompts of a component, for clients that read them.
    ///
    /// # Errors
    /// Returns an error if a list of them is invalid.
    pub(crate) async fn add_context(&self, loaded: &mut Loaded) -> Result<(), Failure> {
        let settings = &loaded.settings;
        let policy = self.policy(settings)?;
        let secrets = self.secrets_of(settings)?;
        let (reader, getter) = (
            operation(&settings.name, "read_resource"),
            operation(&settings.name, "get_prompt"),
        );
        let context = loaded.component.context(reader, getter, &policy, &secrets).await;
        loaded.context = context.map_err(|error| match error {
            ContextError::Secrets(error) => unusable_secrets(&settings.name, error),
            ContextError::List(error) => cannot_load(loaded.component.label(), error),
            other => {
                Failure::new(Exit::Component, text!("`{}` cannot be served", settings.name)).because(other)
            }
        })?;
        Ok(())
    }

    /// Loads a program that is to run on, with its policy and its secrets.
    ///
    /// # Errors
    /// Returns an error if it cannot be loaded, or is no program.
    pub(crate) async fn program(&self, settings: &ToolSettings) -> Result<LoadedProgram, Failure> {
        let settings = &settings.denying(&self.settings.deny);
        let policy = self.policy(settings)?;
        let component = self.component(settings).await?;
        if component.kind() != ComponentKind::Program {
            let failure = Failure::new(Exit::Config, text!("`{}` is no program", component.label()));
            return Err(failure
                .why("it does not export `wasi:cli/run`")
                .hint("use a component that has tools of its own as `[tools.NAME]`"));
        }
        Ok(LoadedProgram {
            component,
            policy,
            secrets: self.secrets_of(settings)?,
        })
    }

    /// Builds the policy of a component, once all components of the command are found. With `--scratch`, its changes are redirected.
    fn policy(&self, settings: &ToolSettings) -> Result<Arc<Policy>, Failure> {
        let mut policy = settings.policy(self.settings, self.environment)?;
        if let Some(dir) = self.settings.scratch_of(settings) {
            let dir = self.environment.path(&dir.value, &self.environment.cwd);
            for grant in &mut policy.grants.dirs {
                overlay::divert(grant, &dir, self.environment)?;
            }
        }
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        policy.grants.denied.paths.extend(named.iter().cloned());
        if !policy.grants.buckets.is_empty() {
            buckets::check(self.environment)?;
        }
        Ok(Arc::new(policy))
    }

    fn secrets_of(&self, settings: &ToolSettings) -> Result<Secrets, Failure> {
        let keyring = Keyring::of_system();
        let names = settings.bindings.iter().map(|binding| binding.name.as_str());
        secrets::with_keyring(&self.secrets, self.settings, names, &keyring)
    }

    /// Loads a component, enabled or not.
    ///
    /// # Errors
    /// Returns an error if it cannot be loaded, or if it is from a project and untrusted or has tools with reserved
    /// names.
    pub(crate) async fn component(&self, settings: &ToolSettings) -> Result<Component, Failure> {
        let key = key(settings);
        let known = self
            .loaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        if let Some(component) = known {
            return Ok(component);
        }
        let (label, bytes) = self.bytes(settings)?;
        if let Bytes::Of(file) = &bytes {
            self.trust.check(settings, file, self.environment).await?;
        }
        let loaded = self.load_tools(settings, &label, &bytes).await;
        let component = loaded.map_err(|error| {
            let is_of_description = matches!(error, LoadError::NotAProgram | LoadError::TextTooLong { .. });
            let failure = cannot_load(&label, error);
            match &settings.description {
                Some(description) if is_of_description => failure.why(description.origin.point_at()),
                _ => failure,
            }
        })?;
        if settings.is_of_project() {
            self.check_names(settings, &component).await?;
        }
        self.loaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, component.clone());
        Ok(component)
    }

    /// Puts another component, or none, in the place of one that was loaded, and returns that. Without one, the next use loads
    /// it from its source.
    pub(crate) fn exchange(
        &self,
        settings: &ToolSettings,
        component: Option<Component>,
    ) -> Option<Component> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(settings);
        match component {
            Some(component) => loaded.insert(key, component),
            None => loaded.remove(&key),
        }
    }

    /// Returns the identity of a component and the definitions of its tools, enabled or not. Its code is loaded only if it
    /// was never loaded before.
    ///
    /// # Errors
    /// Same as [`ComponentLoader::component`].
    pub(crate) async fn describe(&self, settings: &ToolSettings) -> Result<Description, Failure> {
        if settings.is_of_project() || settings.description.is_some() {
            return Ok(self.component(settings).await?.description());
        }
        let (label, bytes) = self.bytes(settings)?;
        let described = match &bytes {
            Bytes::Shipped(shipped) => self.sandbox.describe_trusted(&label, *shipped).await,
            Bytes::Of(file) => self.sandbox.describe(&label, file).await,
        };
        described.map_err(|error| cannot_load(&label, error))
    }

    /// Returns the identity of a component of the user and the definitions of its tools, if it was loaded before: nothing is compiled,
    /// and nothing of it runs.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is refused.
    pub(crate) async fn describe_known(
        &self,
        settings: &ToolSettings,
    ) -> Result<Option<Description>, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        let described = self.sandbox.describe_known(&label, &bytes.read()).await;
        described.map_err(|error| cannot_load(&label, error))
    }

    /// True if a component may run: not from a project, or trusted. False if it cannot be read.
    pub(crate) fn is_trusted(&self, settings: &ToolSettings) -> bool {
        !settings.is_of_project()
            || (self.bytes(settings))
                .is_ok_and(|(_, bytes)| self.trust.is_trusted(settings, &bytes.read()).unwrap_or(false))
    }

    /// Returns the digest of a component.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub(crate) fn digest(settings: &ToolSettings, environment: &Environment) -> Result<Digest, Failure> {
        source::bytes(settings, environment).map(|(_, bytes)| match bytes {
            Bytes::Shipped(shipped) => shipped.digest(),
            Bytes::Of(file) => Digest::of(&file),
        })
    }

    /// Refuses a component with a tool whose name is already in use: rules, approvals and the model identify tools by
    /// name.
    ///
    /// # Errors
    /// Returns an error with the name and its owner.
    pub(crate) async fn check_names(
        &self,
        settings: &ToolSettings,
        component: &Component,
    ) -> Result<(), Failure> {
        let mut taken = TakenNames::of(self.settings);
        let user_components = self.settings.tools.values().filter(|tool| {
            !tool.is_of_project() && matches!(tool.component, ComponentSource::File(_)) && tool.is_usable()
        });
        for tool in user_components {
            // A component that cannot be loaded defines no tools. Its description changes no name.
            if let Ok((label, bytes)) = self.bytes(tool)
                && let Ok(described) = self.sandbox.describe(&label, &bytes.read()).await
            {
                let names = described.definitions().iter();
                taken.add_tools(tool, names.map(|spec| spec.name.as_str()));
            }
        }
        for spec in component.definitions() {
            if let Some(owner) = taken.taken_by(spec.name.as_str()) {
                return Err(Failure::new(
                    Exit::Denied,
                    text!("a tool of `{}` cannot be called `{}`", settings.name, spec.name),
                )
                .why(text!("the name belongs to {}", owner))
                .hint(match settings.is_of_project() {
                    true => "ask its author to rename it; outside of the project it can be used by its path",
                    false => "ask its author to rename it; alone it can be used by its path: --tool FILE",
                }));
            }
        }
        Ok(())
    }

    async fn load_tools(
        &self,
        settings: &ToolSettings,
        label: &str,
        bytes: &Bytes,
    ) -> Result<Component, LoadError> {
        let component = match bytes {
            Bytes::Shipped(shipped) => self.sandbox.load_trusted(label, *shipped).await?,
            Bytes::Of(file) => self.sandbox.load(label, file).await?,
        };
        match &settings.description {
            Some(description) if description.value == PROGRAM_HELP => {
                component.with_help_as_description().await
            }
            Some(description) => component.with_description(&description.value),
            None => Ok(component),
        }
    }

    fn bytes(&self, settings: &ToolSettings) -> Result<(String, Bytes), Failure> {
        source::bytes(settings, self.environment)
    }
}

/// Name of a tool that is called for something else of a component.
fn operation(component: &str, does: &str) -> ToolName {
    // Longer than any that differ in practice; two that do not are refused where they are served.
    let named = component
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    ToolName::new(format!("{does}_of_{}", named.collect::<String>()))
        .expect("it has the characters of a name")
}

/// Description in the configuration that stands for the output of the program when it is run with this argument.
const PROGRAM_HELP: &str = "--help";

/// Refuses an `only` list that names a tool the component does not have.
fn check_only(settings: &ToolSettings, component: &Component) -> Result<(), Failure> {
    let Some(only) = &settings.only else {
        return Ok(());
    };
    let names: Vec<&str> = component
        .definitions()
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    let Some(unknown) = only.value.iter().find(|name| !names.contains(&name.as_str())) else {
        return Ok(());
    };
    let failure = Failure::new(
        Exit::Config,
        text!(
            "`{}` has no tool `{}` that could be offered",
            settings.name,
            unknown
        ),
    )
    .why(only.origin.point_at());
    Err(match nearest(unknown, &names).first() {
        Some(near) => failure.hint(text!("did you mean `{}`?", near)),
        None => failure.hint(text!("it has {}", quoted(&names))),
    })
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn cannot_load(label: &str, error: LoadError) -> Failure {
    let hint = error.hint();
    let log = match &error {
        LoadError::Definitions { log, .. } => log.trim_end().to_owned(),
        _ => String::new(),
    };
    let failure = Failure::new(Exit::Component, text!("`{}` cannot be loaded", label)).because(error);
    let failure = match log.as_str() {
        "" => failure,
        log => failure.why(text!("it wrote: {}", Text::of_others(log))),
    };
    failure.hints(hint)
}

fn unusable_secrets(name: &str, error: InvalidBinding) -> Failure {
    Failure::new(Exit::Config, text!("the secrets of `{}` cannot be used", name))
        .because(error)
        .hint("`[secrets.NAME]` says where a value is: `env = \"VARIABLE\"`, `file = \"PATH\"` or `keyring = \"ACCOUNT\"`")
}

#[cfg(test)]
mod tests {
    use toolcell_core::denial::DeniedUse;
    use toolcell_sandbox::SandboxOptions;

    use super::*;
    use crate::config::{self, Overrides};

    #[tokio::test]
    async fn components_named_by_path_are_not_changed_by_tools() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let settings = config::load(&environment, Overrides::default()).unwrap();
        let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
        let loader = ComponentLoader::with(&environment, &settings, sandbox).unwrap();
        let named = loader.find("./a.wasm").await.unwrap();
        loader.find("sub/b.wasm#tool").await.unwrap();
        // For those and for every other one.
        for of in [&named.settings, &settings.tools["files"]] {
            let policy = loader.policy(of).unwrap();
            for name in ["a.wasm", "sub/b.wasm"] {
                let path = dir.path().join(name);
                let is_denied =
                    |denial: &&PathDenial| denial.host == path && denial.uses == DeniedUse::Change;
                assert_eq!(
                    policy.grants.denied.paths.iter().filter(is_denied).count(),
                    1,
                    "{name}"
                );
            }
        }
    }
}
