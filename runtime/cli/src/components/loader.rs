//! From the name of a component to tools that can be called: bytes, sandbox, policy.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use toolcell_core::hook::HookOrder;
use toolcell_core::{Policy, Secrets, Tool};
use toolcell_fs::{Refusal, Rules};
use toolcell_sandbox::{
    CellHook, CompileCommand, CompileEvent, Compiler, Component, Digest, HookComponent, Identity,
    InvalidBinding, LoadError, Sandbox, SandboxOptions,
};

use crate::components::buckets::{self, Buckets};
use crate::components::builtin;
use crate::components::keyring::Keyring;
use crate::components::secrets;
use crate::components::trust::Trust;
use crate::config::names::TakenNames;
use crate::config::source::PROJECT;
use crate::config::user_files;
use crate::config::{ComponentSource, HookSettings, Origin, Settings, Sourced, ToolSettings};
use crate::environment::{COMPILE_CHILD, Environment};
use crate::error::{Exit, Failure};
use crate::scratch::overlay;
use crate::ui::render::Console;
use crate::ui::suggest::nearest;
use crate::ui::terminal::text;

/// Loads components for one run of the command line.
pub(crate) struct ComponentLoader<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) settings: &'a Settings,
    pub(crate) sandbox: Sandbox,
    secrets: Secrets,
    trust: Trust,
}

/// A component with its policy.
pub(crate) struct Loaded {
    /// What configuration says about it.
    pub(crate) settings: ToolSettings,
    /// The component.
    pub(crate) component: Component,
    /// Its tools under that policy.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
}

/// A hook with its policy.
pub(crate) struct LoadedHook {
    /// What configuration says about it.
    pub(crate) settings: HookSettings,
    /// The component.
    pub(crate) component: HookComponent,
    /// The hook under that policy, with the name, guard and order of its settings where they have them.
    pub(crate) hook: CellHook,
}

/// A component, whatever it is: tools, a hook, or both.
pub(crate) struct Inspected {
    /// Its tools.
    pub(crate) tools: Option<Component>,
    /// Its hook.
    pub(crate) hook: Option<HookComponent>,
}

impl Inspected {
    /// Which component it is.
    pub(crate) fn identity(&self) -> &Identity {
        match (&self.tools, &self.hook) {
            (Some(tools), _) => tools.identity(),
            (None, Some(hook)) => hook.identity(),
            (None, None) => unreachable!("a component without either is not loaded"),
        }
    }
}

/// What a person named: a component, and perhaps one of its tools.
pub(crate) struct Wanted {
    /// The component.
    pub(crate) settings: ToolSettings,
    /// The tool; `None` means the only one that it has.
    pub(crate) tool: Option<String>,
}

/// Largest component that is read from a file, in bytes; the sandbox accepts as much.
const MAX_COMPONENT_BYTES: u64 = 32 << 20;

/// Most components that are searched for a tool that is named without its component. Each is read and hashed, and
/// perhaps compiled.
const MAX_SEARCHED: usize = 100;

/// Cells at one time. One person does not run more, and reserving few makes the start fast.
const SLOTS: u32 = 64;

impl<'a> ComponentLoader<'a> {
    /// Starts the sandbox.
    ///
    /// # Errors
    /// When the engine does not start on this machine.
    pub(crate) fn open(
        environment: &'a Environment,
        settings: &'a Settings,
        console: &Console,
    ) -> Result<Self, Failure> {
        let mut toolbox = Self::with(environment, settings, sandbox(environment, console)?)?;
        toolbox.trust = Trust::new(environment, Some(console));
        Ok(toolbox)
    }

    /// Uses a sandbox that was started already. The user is asked nothing.
    ///
    /// # Errors
    /// When a secret has a value that cannot be kept secret.
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
        })
    }

    /// Finds what a person named: `NAME`, `NAME#TOOL`, `FILE.wasm`, `FILE.wasm#TOOL`, or the name of a tool. What a project
    /// brings is found as `project:NAME` alone.
    ///
    /// # Errors
    /// When there is no such tool, with the names that come near.
    pub(crate) async fn find(&self, text: &str) -> Result<Wanted, Failure> {
        let (component, tool) = match text.rsplit_once('#') {
            Some((component, tool)) => (component, Some(tool.to_owned())),
            None => (text, None),
        };
        if let Some(settings) = self.settings.tools.get(component) {
            return Ok(Wanted {
                settings: settings.clone(),
                tool,
            });
        }
        if is_path(component) && !component.starts_with(PROJECT) {
            return Ok(Wanted {
                settings: self.file(component),
                tool,
            });
        }
        if tool.is_none()
            && let Some(settings) = self.component_with_tool(text).await?
        {
            return Ok(Wanted {
                settings,
                tool: Some(text.to_owned()),
            });
        }
        Err(self.unknown(component).await)
    }

    /// The component that defines a tool of this name.
    async fn component_with_tool(&self, tool: &str) -> Result<Option<ToolSettings>, Failure> {
        for candidate in self.searched(tool) {
            let component = self.component(candidate).await?;
            if component
                .definitions()
                .iter()
                .any(|spec| spec.name.as_str() == tool)
            {
                return Ok(Some(candidate.clone()));
            }
        }
        Ok(None)
    }

    /// The components that are searched for a tool, at most [`MAX_SEARCHED`], because loading one can mean compiling it: what
    /// ships has its names before anything else, then those whose names the tool's name begins with, then the rest by name.
    fn searched(&self, tool: &str) -> Vec<&ToolSettings> {
        let tools = &self.settings.tools;
        let shipped = builtin::component_with_tool(tool).and_then(|name| tools.get(name));
        let begins = |(at, _): (usize, char)| tools.get(&tool[..at]);
        let named = tool.char_indices().chain([(tool.len(), ' ')]).filter_map(begins);
        let mut searched: Vec<&ToolSettings> = Vec::new();
        for candidate in shipped.into_iter().chain(named).chain(tools.values()) {
            let is_new = || !searched.iter().any(|known| known.name == candidate.name);
            if candidate.is_usable() && !candidate.is_of_project() && is_new() {
                searched.push(candidate);
            }
            if searched.len() == MAX_SEARCHED {
                break;
            }
        }
        searched
    }

    /// The names of the tools that are on offer; of components that cannot be loaded, and of those beyond [`MAX_SEARCHED`],
    /// there are none.
    pub(crate) async fn tool_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for candidate in self.searched("") {
            if let Ok(component) = self.component(candidate).await {
                names.extend(component.definitions().iter().map(|spec| spec.name.to_string()));
            }
        }
        names
    }

    async fn unknown(&self, name: &str) -> Failure {
        let of_project = format!("{PROJECT}{name}");
        if self.settings.tools.contains_key(&of_project) {
            return Failure::new(Exit::Usage, text!("there is no tool `{}`", name))
                .why("this project brings a component of that name, which is found by its origin only")
                .hint(text!("name it so: {}", of_project));
        }
        let mut names: Vec<String> = self.settings.tools.keys().cloned().collect();
        names.extend(self.tool_names().await);
        names.dedup();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest(name, &names);
        let mut failure = Failure::new(Exit::Usage, text!("there is no tool `{}`", name));
        if self.settings.tools.len() > MAX_SEARCHED {
            failure = failure
                .why(text!(
                    "of {} components {} were searched for it",
                    self.settings.tools.len(),
                    MAX_SEARCHED
                ))
                .hint(text!("name its component: COMPONENT#{}", name));
        }
        if near.is_empty() {
            failure.hint("`toolcell tool list` shows all tools; a component in a file is named by its path, such as `./my.wasm`")
        } else {
            let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
            failure.hint(text!("did you mean {}?", quoted.join(" or ")))
        }
    }

    /// A component that is named by its path.
    fn file(&self, written: &str) -> ToolSettings {
        let path = self.environment.path(written, &self.environment.cwd);
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("component");
        let mut settings =
            ToolSettings::new(stem, ComponentSource::File(Sourced::flag("TOOL", path.clone())));
        settings.apply(&self.settings.overrides, self.environment);
        settings
    }

    /// Loads a component and puts its policy in place.
    ///
    /// # Errors
    /// When it is switched off, cannot be loaded, or a grant cannot be given.
    pub(crate) async fn load(&self, settings: &ToolSettings) -> Result<Loaded, Failure> {
        if !settings.is_usable() {
            return Err(Failure::new(
                Exit::Config,
                text!("the tool `{}` is switched off", settings.name),
            )
            .why(settings.enabled.origin.point_at())
            .hint("set `enabled = true` there"));
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
        })
    }

    /// Loads every hook that is configured and switched on.
    ///
    /// # Errors
    /// When one cannot be loaded, or a grant cannot be given. A hook that is missing would let everything pass.
    pub(crate) async fn hooks(&self) -> Result<Vec<LoadedHook>, Failure> {
        let mut loaded = Vec::new();
        let hooks = self.settings.hooks.values();
        for settings in hooks.filter(|hook| hook.component.enabled.value) {
            loaded.push(self.hook(settings).await?);
        }
        Ok(loaded)
    }

    /// Loads a hook and puts its policy in place.
    ///
    /// # Errors
    /// As [`ComponentLoader::hooks`].
    pub(crate) async fn hook(&self, settings: &HookSettings) -> Result<LoadedHook, Failure> {
        let mut settings = settings.clone();
        settings.component = settings.component.denying(&self.settings.deny);
        let of = &settings.component;
        let policy = self.policy(of)?;
        let component = self.hook_component(of).await?;
        let hook = component
            .hook(policy, &self.secrets_of(of)?)
            .map_err(|e| unusable_secrets(&of.name, e))?;
        let claimed = component.spec();
        let names = |setting: &Option<Sourced<Vec<String>>>, claimed: &Vec<String>| {
            setting.as_ref().map_or(claimed, |names| &names.value).clone()
        };
        let order = HookOrder {
            priority: (settings.priority.as_ref()).map_or(claimed.order.priority, |p| p.value),
            before: names(&settings.before, &claimed.order.before),
            after: names(&settings.after, &claimed.order.after),
        };
        let guard = settings.guard.as_ref().map_or(claimed.guard, |guard| guard.value);
        let hook = hook
            .with_name(of.name.as_str())
            .with_guard(guard)
            .with_order(order);
        Ok(LoadedHook {
            settings,
            component,
            hook,
        })
    }

    /// Loads the component of a hook.
    async fn hook_component(&self, settings: &ToolSettings) -> Result<HookComponent, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        let loaded = self.sandbox.load_hook(&label, &bytes).await;
        loaded.map_err(|error| {
            let failure = cannot_load(&label, error);
            match &settings.component {
                ComponentSource::File(path) => failure.why(path.origin.point_at()),
                ComponentSource::Shipped(_) => failure,
            }
        })
    }

    /// Loads a component as whatever it is, also one of a project that is not trusted: to look at it is how trust begins,
    /// and what runs of it are its definitions, in a bare cell.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub(crate) async fn inspect(&self, settings: &ToolSettings) -> Result<Inspected, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        let tools = match self.load_tools(settings, &label, &bytes).await {
            Ok(tools) => Some(tools),
            Err(LoadError::NotATool { is_hook: true, .. }) => None,
            Err(error) => return Err(cannot_load(&label, error)),
        };
        let hook = if tools.as_ref().is_none_or(|tools| tools.identity().has_hook()) {
            let hook = self.sandbox.load_hook(&label, &bytes).await;
            Some(hook.map_err(|error| cannot_load(&label, error))?)
        } else {
            None
        };
        Ok(Inspected { tools, hook })
    }

    /// The policy of a component. With `--scratch` its changes go elsewhere.
    fn policy(&self, settings: &ToolSettings) -> Result<Arc<Policy>, Failure> {
        let mut policy = settings.policy(self.settings, self.environment)?;
        if let Some(dir) = self.settings.scratch_of(settings) {
            let dir = self.environment.path(&dir.value, &self.environment.cwd);
            for grant in &mut policy.grants.dirs {
                overlay::divert(grant, &dir, self.environment)?;
            }
        }
        if !policy.grants.buckets.is_empty() {
            buckets::check(self.environment)?;
        }
        Ok(Arc::new(policy))
    }

    fn secrets_of(&self, settings: &ToolSettings) -> Result<Secrets, Failure> {
        let keyring = Keyring::of_system();
        secrets::with_keyring(&self.secrets, self.settings, &settings.bindings, &keyring)
    }

    /// Loads a component, whether it is switched on or not.
    ///
    /// # Errors
    /// When it cannot be loaded, or comes from a project and is not trusted or has tools whose names are taken.
    pub(crate) async fn component(&self, settings: &ToolSettings) -> Result<Component, Failure> {
        let (label, bytes) = self.bytes(settings)?;
        self.trust.check(settings, &bytes, self.environment).await?;
        let loaded = self.load_tools(settings, &label, &bytes).await;
        let component = loaded.map_err(|error| cannot_load(&label, error))?;
        if settings.is_of_project() {
            self.check_names(settings, &component).await?;
        }
        Ok(component)
    }

    /// Whether a component may run: it is not of a project, or trusted. One that cannot be read is not.
    pub(crate) fn is_trusted(&self, settings: &ToolSettings) -> bool {
        !settings.is_of_project()
            || (self.bytes(settings))
                .is_ok_and(|(_, bytes)| self.trust.is_trusted(settings, &bytes).unwrap_or(false))
    }

    /// The digest of a component.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn digest(settings: &ToolSettings, environment: &Environment) -> Result<Digest, Failure> {
        bytes(settings, environment).map(|(_, bytes)| Digest::of(&bytes))
    }

    /// Refuses a component of a project with a tool whose name means something else: rules, approvals and the model know
    /// tools by their names.
    async fn check_names(&self, settings: &ToolSettings, component: &Component) -> Result<(), Failure> {
        let mut taken = TakenNames::of(self.settings);
        let persons = self.settings.tools.values().filter(|tool| {
            !tool.is_of_project() && matches!(tool.component, ComponentSource::File(_)) && tool.is_usable()
        });
        for tool in persons {
            // One that cannot be loaded has no tools that could be meant.
            if let Ok((label, bytes)) = self.bytes(tool)
                && let Ok(component) = self.load_tools(tool, &label, &bytes).await
            {
                let names = component.definitions().iter();
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
                .hint(
                    "ask its author for another name; without the project's file you can use it by its path",
                ));
            }
        }
        Ok(())
    }

    async fn load_tools(
        &self,
        settings: &ToolSettings,
        label: &str,
        bytes: &[u8],
    ) -> Result<Component, LoadError> {
        match &settings.component {
            ComponentSource::Shipped(_) => self.sandbox.load_trusted(label, bytes).await,
            ComponentSource::File(_) => self.sandbox.load(label, bytes).await,
        }
    }

    fn bytes(&self, settings: &ToolSettings) -> Result<(String, Cow<'static, [u8]>), Failure> {
        bytes(settings, self.environment)
    }

    /// Refuses grants and limits of the command line that are for a component which takes no part.
    ///
    /// # Errors
    /// Names the flag and what was perhaps meant.
    pub(crate) fn check_flags<'b>(
        &self,
        taking_part: impl IntoIterator<Item = &'b ToolSettings>,
    ) -> Result<(), Failure> {
        let names: Vec<&str> = taking_part
            .into_iter()
            .map(|settings| settings.name.as_str())
            .collect();
        let overrides = &self.settings.overrides;
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
                    text!("`{} {}:…` is for no component that takes part", flag, component),
                )
                .why(text!(
                    "{} here: {}",
                    if names.len() == 1 {
                        "there is one"
                    } else {
                        "they are"
                    },
                    names.join(", ")
                ));
                return Err(match nearest(component, &names).first() {
                    Some(near) => failure.hint(text!("did you mean `{}:`?", near)),
                    None => failure.hint("without a name in front it holds for every component"),
                });
            }
        }
        Ok(())
    }
}

/// What people call a component, and its bytes.
fn bytes(
    settings: &ToolSettings,
    environment: &Environment,
) -> Result<(String, Cow<'static, [u8]>), Failure> {
    Ok(match &settings.component {
        ComponentSource::Shipped(shipped) => (settings.name.clone(), shipped.bytes.into()),
        ComponentSource::File(path) => {
            let label = environment.shown(&path.value);
            let bytes = read_component(path, &label)?;
            (label, bytes.into())
        }
    })
}

/// Starts the sandbox with the person's cache.
pub(crate) fn sandbox(environment: &Environment, console: &Console) -> Result<Sandbox, Failure> {
    let activities = Mutex::new(BTreeMap::new());
    let shown = console.clone();
    let compiler = match &environment.program {
        // Components come from anybody: the compiler runs in a process of its own, with limits.
        Some(program) => Compiler::Child(CompileCommand {
            program: program.clone(),
            args: vec![COMPILE_CHILD.into()],
        }),
        None => Compiler::InProcess,
    };
    let options = SandboxOptions {
        compiler,
        cache_dir: environment.cache_dir.clone(),
        slots: SLOTS,
        buckets: Some(Arc::new(Buckets::new(environment))),
        max_component_bytes: MAX_COMPONENT_BYTES,
        on_compile: Some(Arc::new(move |event| {
            let mut activities = activities.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                CompileEvent::Started { label, .. } => {
                    activities.insert(label.to_owned(), shown.activity(text!("compiling {}", label)));
                }
                CompileEvent::Finished { label, .. } => {
                    activities.remove(label);
                }
                _ => {}
            }
        })),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::new(options).map_err(|e| {
        Failure::new(Exit::Internal, "the sandbox does not start on this machine")
            .because(e)
            .hint("`toolcell doctor` shows what is missing")
    })?;
    if let Some(error) = sandbox.cache_error() {
        console.note(text!("compiled code is not kept: {}", error));
    }
    Ok(sandbox)
}

/// Refuses a list of tools that names one which the component does not have.
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

/// Whether a text names a file and not a tool.
fn is_path(text: &str) -> bool {
    text.contains(['/', '\\'])
        || Path::new(text)
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("wasm"))
}

fn read_component(path: &Sourced<std::path::PathBuf>, label: &str) -> Result<Vec<u8>, Failure> {
    let fail = || {
        let failure = Failure::new(Exit::Component, text!("the component `{}` cannot be read", label));
        match &path.origin {
            Origin::File(..) => failure.why(path.origin.point_at()),
            _ => failure,
        }
    };
    toolcell_fs::read(&path.value, &Rules::named(MAX_COMPONENT_BYTES)).map_err(|error| {
        let hint = match error.refusal() {
            Some(Refusal::NotAFile(_)) => Some("name the `.wasm` file itself"),
            None if error.is_not_found() => {
                Some("check the path; relative paths start at the working directory")
            }
            _ => None,
        };
        user_files::because(fail(), error).hints(hint.map(str::to_owned))
    })
}

fn cannot_load(label: &str, error: LoadError) -> Failure {
    let hint = error.hint();
    Failure::new(Exit::Component, text!("`{}` cannot be loaded", label))
        .because(error)
        .hints(hint)
}

fn unusable_secrets(name: &str, error: InvalidBinding) -> Failure {
    Failure::new(Exit::Config, text!("the secrets of `{}` cannot be used", name))
        .because(error)
        .hint("`[secrets.NAME]` says where a value is: `env = \"VARIABLE\"`, `file = \"PATH\"` or `keyring = \"ACCOUNT\"`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    fn searched(components: &[String], tool: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let table = |name: &String| format!("[tools.{name}]\ncomponent = \"x\"\n");
        std::fs::write(&path, components.iter().map(table).collect::<String>()).unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
        let toolbox = ComponentLoader::with(&environment, &settings, sandbox).unwrap();
        let found = toolbox.searched(tool);
        found.iter().map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn a_tool_is_searched_in_few_components_however_many_there_are() {
        let many: Vec<String> = (0..25_000).map(|i| format!("t{i}")).collect();
        let all = searched(&many, "t20000_x");
        assert_eq!(all.len(), MAX_SEARCHED);
        assert_eq!(all[..3], ["t2", "t20", "t200"]);
        assert!(all.contains(&"t20000".to_owned()));
        assert_eq!(searched(&many, "text_count")[0], "text");
        // All of them where there are few: five that ship are switched on, and `memory` is there when it is named.
        let few: Vec<String> = (0..MAX_SEARCHED - 6).map(|i| format!("t{i}")).collect();
        assert_eq!(searched(&few, "x").len(), MAX_SEARCHED);
        assert_eq!(searched(&few[1..], "x").len(), MAX_SEARCHED - 1);
    }
}
