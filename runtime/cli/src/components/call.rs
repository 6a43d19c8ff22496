//! A single call of a tool outside of the loop.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use toolcell_core::json::parse_object;
use toolcell_core::suggest::nearest;
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, Progress};
use toolcell_core::{CallContext, CallResult, Receipt, Tool, ToolCall, ToolError};

use crate::components::loader::Loaded;
use crate::error::{Exit, Failure};
use crate::ui::render::{Activity, Console, calls};
use crate::ui::terminal::text;

/// Returns the tool of a component by its name, or that of its function; without one its only tool, or that with the name of
/// the component.
pub(crate) fn pick<'a>(loaded: &'a Loaded, name: Option<&str>) -> Result<&'a Arc<dyn Tool>, Failure> {
    let names: Vec<&str> = loaded
        .tools
        .iter()
        .map(|tool| tool.spec().name.as_str())
        .collect();
    let component = &loaded.settings.name;
    let list = || {
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    let name = name.or_else(|| {
        let is_named_so = || loaded.settings.offers(component) && defines(loaded, component);
        (loaded.tools.len() > 1 && is_named_so()).then_some(component.as_str())
    });
    // The name of a function without that of its interface.
    let name = match (
        name,
        loaded
            .component
            .tools_of_function(name.unwrap_or_default())
            .as_slice(),
    ) {
        (Some(name), [only]) if !defines(loaded, name) => Some(*only),
        _ => name,
    };
    match (name, loaded.tools.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(
            Failure::new(Exit::Usage, text!("`{}` has {} tools", component, names.len()))
                .hint(text!("name one of {}", list())),
        ),
        (Some(name), _) if !loaded.settings.offers(name) && defines(loaded, name) => {
            let only = loaded.settings.only.as_ref();
            let failure = Failure::new(Exit::Config, text!("the tool `{}` is not offered", name));
            let failure = only
                .into_iter()
                .fold(failure, |failure, only| failure.why(only.origin.point_at()));
            Err(failure.hint("add it there, or remove the list"))
        }
        (Some(name), tools) => tools
            .iter()
            .find(|tool| tool.spec().name.as_str() == name)
            .ok_or_else(|| {
                let failure = Failure::new(
                    Exit::Usage,
                    text!("the component `{}` has no tool `{}`", component, name),
                );
                match nearest(name, &names).first() {
                    Some(near) => failure.hint(text!("did you mean `{}`?", near)),
                    None => failure.hint(text!("it has {}", list())),
                }
            }),
    }
}

fn defines(loaded: &Loaded, name: &str) -> bool {
    let mut definitions = loaded.component.definitions().iter();
    definitions.any(|spec| spec.name.as_str() == name)
}

/// Checks the arguments against the schema of the tool.
///
/// # Errors
/// [`ToolError::InvalidArguments`] with the reason.
pub(crate) fn parse_arguments(tool: &dyn Tool, text: &str) -> Result<Map<String, Value>, ToolError> {
    let mut arguments = parse_object(text).map_err(|e| ToolError::invalid(e.to_string()))?;
    tool.spec().replace_aliases(&mut arguments)?;
    let arguments = Value::Object(arguments);
    tool.spec().input.check_arguments(&arguments)?;
    match arguments {
        Value::Object(arguments) => Ok(arguments),
        _ => unreachable!("it was made from an object"),
    }
}

/// Checks the arguments, a JSON object, and runs the call until it ends or is cancelled.
pub(crate) async fn execute(
    tool: &Arc<dyn Tool>,
    arguments: &str,
    console: &Console,
    cancel: &CancellationToken,
) -> CallResult {
    let arguments = match parse_arguments(tool.as_ref(), arguments) {
        Ok(arguments) => arguments,
        Err(error) => return CallResult::refused(error),
    };
    let name = &tool.spec().name;
    let watcher = Arc::new(ConsoleObserver {
        console: console.clone(),
        activity: Mutex::new(Some(console.activity(text!("running {}", name)))),
        receipt: Mutex::default(),
    });
    let call = ToolCall {
        id: "call-1".into(),
        name: name.clone(),
        arguments,
    };
    let cx = CallContext {
        values: std::collections::BTreeMap::new(),
        observer: watcher.clone(),
    };
    tracing::debug!(tool = %name, "the call starts");
    let running = tool.call(call, cx);
    let mut result = tokio::select! {
        // The call first: one that was cancelled before it began would leave no receipt.
        biased;
        result = running => result,
        () = cancel.cancelled() => CallResult::failed(ToolError::Cancelled),
    };
    *watcher.activity.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let mut dropped = watcher.receipt.lock().unwrap_or_else(PoisonError::into_inner);
    result.receipt = result.receipt.or_else(|| dropped.take());
    drop(dropped);
    result
}

/// Shows logs and progress of the call on the console, and keeps the receipt of a call that was cancelled.
struct ConsoleObserver {
    console: Console,
    activity: Mutex<Option<Activity>>,
    receipt: Mutex<Option<Receipt>>,
}

impl CallObserver for ConsoleObserver {
    fn log(&self, line: LogLine) {
        if line.level >= LogLevel::Info {
            let _ = calls::log(&self.console, None, &line);
        }
    }

    fn progress(&self, progress: Progress) {
        let of = progress
            .total
            .map(|total| format!("/{total}"))
            .unwrap_or_default();
        let what = progress.message.as_deref().unwrap_or("running");
        let mut activity = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(activity) = activity.as_mut() {
            activity.relabel(text!("{} {}{}", what, progress.done, of));
        }
    }

    fn receipt(&self, receipt: Receipt) {
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = Some(receipt);
    }
}
