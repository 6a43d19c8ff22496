//! Provider `local`: a model in a file on this machine.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_core::Provider;
use toolcell_local::ChildCommand;

use crate::config::ProviderSettings;
use crate::environment::{Environment, TEMPLATE_CHILD};
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// Returns the directory of models.
pub(crate) fn models_dir(environment: &Environment) -> Option<PathBuf> {
    Some(environment.data_dir.as_ref()?.join("models"))
}

/// Returns the file that a user named, or that of this name in the directory of models if only that exists.
pub(crate) fn file(named: &str, environment: &Environment) -> PathBuf {
    let path = environment.path(named, &environment.cwd);
    let is_name = !named.contains('/');
    match models_dir(environment).map(|dir| dir.join(named)) {
        Some(listed) if is_name && !path.exists() && listed.exists() => listed,
        _ => path,
    }
}

/// Returns the command that starts a process for a chat template.
///
/// # Errors
/// Returns an error if the path of this program is unknown.
pub(crate) fn templates(environment: &Environment) -> Result<ChildCommand, Failure> {
    let program = environment.program.clone().ok_or_else(|| {
        Failure::new(Exit::Config, "the chat template of a model cannot be run")
            .why("the path of this program is unknown")
    })?;
    Ok(ChildCommand {
        program,
        args: vec![TEMPLATE_CHILD.into()],
    })
}

/// Sets up the model, without starting its engine. `note` describes the memory that it will take.
///
/// # Errors
/// Returns an error if no file is named, if the file cannot be used, or if this build has no engine.
pub(super) fn local(
    settings: &ProviderSettings,
    environment: &Environment,
) -> Result<(Arc<dyn Provider>, Text), Failure> {
    let model = settings.model.as_ref().ok_or_else(|| {
        Failure::new(Exit::Config, "provider `local` needs a file").hint(
            "name one with --model FILE.gguf; `toolcell model list` shows those in the directory of models",
        )
    })?;
    open(file(&model.value, environment), settings, environment)
}

#[cfg(not(feature = "local"))]
fn open(
    path: PathBuf,
    _: &ProviderSettings,
    environment: &Environment,
) -> Result<(Arc<dyn Provider>, Text), Failure> {
    Err(
        Failure::new(Exit::Config, "this build of Toolcell has no engine for local models")
            .why(text!("the model `{}` needs one", environment.shown(&path)))
            .hint(
                "install a build that has it, in a checkout: cargo install --path runtime/cli --features local (it needs cmake, a C++ compiler and libclang)",
            ),
    )
}

#[cfg(feature = "local")]
fn open(
    path: PathBuf,
    settings: &ProviderSettings,
    environment: &Environment,
) -> Result<(Arc<dyn Provider>, Text), Failure> {
    use toolcell_local::engine::{LocalModel, LocalOptions};

    use crate::config::units::{Bytes, Count};
    use crate::environment::ENGINE_CHILD;

    let program = environment.program.clone().ok_or_else(|| {
        Failure::new(Exit::Config, "the engine of local models cannot be started")
            .why("the path of this program is unknown")
    })?;
    let options = LocalOptions {
        context: settings.num_ctx.as_ref().map(|tokens| tokens.value.0),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        command: ChildCommand {
            program,
            args: vec![ENGINE_CHILD.into()],
        },
        templates: templates(environment)?,
        shares_beginnings: !environment
            .client
            .as_ref()
            .is_some_and(|client| client.has_others),
        path: path.clone(),
    };
    let model: LocalModel = running::model(options).map_err(|error| {
        Failure::new(
            Exit::Config,
            text!("the model `{}` cannot be used", environment.shown(&path)),
        )
        .because(error)
        .hint(text!(
            "see `toolcell model inspect {}`",
            crate::ui::escape::shell(&environment.shown(&path))
        ))
    })?;
    let note = match model.memory() {
        Some(memory) => text!(
            ", about {} of memory with {} tokens of context",
            Bytes(memory.total()),
            Count(model.context())
        ),
        None => Text::from(""),
    };
    Ok((Arc::new(model), note))
}

/// Models of this process. All sessions share the engine of a file.
#[cfg(feature = "local")]
mod running {
    use std::sync::{Mutex, PoisonError};
    use std::time::SystemTime;

    use toolcell_local::LocalError;
    use toolcell_local::engine::{LocalModel, LocalOptions};

    /// Maximum number of models: each takes the memory of its weights.
    const MAX_MODELS: usize = 4;

    struct Running {
        options: LocalOptions,
        modified: Option<SystemTime>,
        model: LocalModel,
    }

    static MODELS: Mutex<Vec<Running>> = Mutex::new(Vec::new());

    /// Returns the model of a file. One that is changed since is another model.
    pub(super) fn model(options: LocalOptions) -> Result<LocalModel, LocalError> {
        let modified = std::fs::metadata(&options.path)
            .and_then(|file| file.modified())
            .ok();
        let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = models
            .iter()
            .find(|running| running.options == options && running.modified == modified);
        if let Some(known) = known {
            return Ok(known.model.clone());
        }
        let model = LocalModel::open(options.clone())?;
        if models.len() == MAX_MODELS {
            // Its engine ends with its last session.
            models.remove(0);
        }
        models.push(Running {
            options,
            modified,
            model: model.clone(),
        });
        Ok(model)
    }
}
