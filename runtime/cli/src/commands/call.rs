//! `toolcell call`: calls one tool once.

use std::io::Read as _;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::json::MAX_ARGUMENT_BYTES;
use toolcell_core::{CallResult, Content, Receipt, Tool, ToolError};

use crate::components::call;
use crate::components::loader::ComponentLoader;
use crate::components::lock;
use crate::components::selection;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::scratch::pending::Scratch;
use crate::ui::escape;
use crate::ui::hints::AllowHints;
use crate::ui::interrupt::Interrupts;
use crate::ui::reason;
use crate::ui::render::json::print_line;
use crate::ui::render::{Console, content, receipt};
use crate::ui::terminal::{FAINT, Own, Text, text};

/// Call one tool once, without a model.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell call text_count '{{\"text\": \"one two three\"}}'
  toolcell call text_count '{{\"path\": \"README.md\"}}' --grant read=. --receipt
  toolcell call ./my.wasm#my_tool --json < arguments.json

{}", crate::exit::TABLE))]
pub(crate) struct Call {
    /// Tool name, component with one tool (`clock`, `./my.wasm`), or tool of a component (`./my.wasm#tool`).
    tool: String,

    /// Arguments, a JSON object. Read from standard input if missing or `-`.
    #[arg(value_name = "JSON")]
    arguments: Option<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Refuse the tool if it differs from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    /// Print a receipt: time, fuel, memory, files, hosts.
    #[arg(long)]
    receipt: bool,

    /// Print one JSON object: `content`, `structured`, `error`, `receipt`.
    #[arg(long)]
    json: bool,
}

impl Call {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let mut is_shown = false;
        let ended = self.call(overrides, environment, console, &mut is_shown).await;
        if let Err(failure) = &ended
            && self.json
            && !is_shown
            && failure.exit != Exit::Ok
        {
            let mut error = failure.to_json();
            error.insert("kind".into(), "not_started".into());
            error.insert("message".into(), failure.to_string().into());
            let object = json!({
                "tool": self.tool, "content": [], "structured": null, "error": error, "receipt": null,
            });
            // Standard error has it as well.
            let _ = print_line(console, &object);
        }
        ended
    }

    /// Runs the call. Sets `is_shown` once its result is written.
    async fn call(
        &self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
        is_shown: &mut bool,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let wanted = loader.find(&self.tool).await?;
        selection::check_flags(&settings, [&wanted.settings])?;
        let loaded = loader.load(&wanted.settings).await?;
        if self.locked {
            lock::check(std::slice::from_ref(&loaded), None, environment)?;
        }
        let tool = call::pick(&loaded, wanted.tool.as_deref())?;
        let text = self.read_arguments(environment, console)?;
        let cancel = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let result = {
            let _guard = interrupts.cancel_next(cancel.clone());
            call::execute(tool, &text, console, &cancel).await
        };
        *is_shown = true;
        self.show(tool, &result, console)?;
        let scratches = Scratch::of([&loaded.settings], &settings, environment)?;
        for scratch in scratches.iter().filter(|_| !self.json) {
            scratch.print_changes(console);
        }
        let hints = AllowHints::new([&loaded], environment);
        end(&self.tool, tool, result, &hints, console)
    }

    fn read_arguments(&self, environment: &Environment, console: &Console) -> Result<String, Failure> {
        match self.arguments.as_deref() {
            None | Some("-") => {
                let _reading = match environment.terminals.stdin {
                    true => {
                        console.note(text!(
                            "type the arguments, a JSON object, and end them with Ctrl-D; or give them: toolcell call {} '{}'",
                            escape::shell(&self.tool),
                            Own("{}")
                        ));
                        None
                    }
                    false => Some(console.activity("reading the arguments from standard input")),
                };
                let mut bytes = Vec::new();
                let limit = MAX_ARGUMENT_BYTES as u64 + 1;
                let fail = || Failure::new(Exit::Usage, "could not read the arguments from standard input");
                std::io::stdin()
                    .take(limit)
                    .read_to_end(&mut bytes)
                    .map_err(|e| fail().because(e))?;
                String::from_utf8(bytes).map_err(|e| fail().because(e))
            }
            Some(text) => match as_object(text) {
                None => Ok(text.to_owned()),
                Some(object) => Err(Failure::new(
                    Exit::Usage,
                    text!("the arguments `{}` are not a JSON object", text),
                )
                .hint(text!(
                    "toolcell call {} {}",
                    escape::shell(&self.tool),
                    escape::shell(&object)
                ))),
            },
        }
    }

    /// Writes the answer to standard output, and the receipt where it was asked for.
    fn show(&self, tool: &Arc<dyn Tool>, result: &CallResult, console: &Console) -> std::io::Result<()> {
        if self.json {
            // The error has the words that stand as the content of a failure.
            let content = match result.error {
                None => result.content.as_slice(),
                Some(_) => &[],
            };
            return print_line(
                console,
                &Printed {
                    content,
                    error: result.error.as_ref().map(error_object),
                    receipt: &result.receipt,
                    structured: &result.structured,
                    tool: tool.spec().name.as_str(),
                },
            );
        }
        console.write(|s| {
            if result.error.is_none() {
                match &result.structured {
                    Some(structured) if result.content.is_empty() => {
                        s.out.line(text!("{}", format!("{structured:#}")))?;
                    }
                    _ => content::write(&mut s.out, &result.content)?,
                }
                s.out.flush()?;
            }
            if let Some(receipt) = result.receipt.as_ref().filter(|_| self.receipt) {
                s.err.styled(FAINT, receipt::line(receipt))?;
                s.err.end_line()?;
            }
            Ok(())
        })
    }
}

/// Result as it is printed. Large values are not copied for it.
#[derive(Serialize)]
struct Printed<'a> {
    content: &'a [Content],
    error: Option<Value>,
    receipt: &'a Option<Receipt>,
    structured: &'a Option<Value>,
    tool: &'a str,
}

/// Returns the JSON object that `NAME=VALUE` stands for, or `None` if a text has another form.
fn as_object(text: &str) -> Option<String> {
    let (name, value) = text.split_once('=')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Some(json!({ name: value }).to_string())
}

/// Converts an error to JSON, with its kind and, for readers of a single field, its message.
fn error_object(error: &ToolError) -> Value {
    let mut object = serde_json::to_value(error).unwrap_or_else(|_| json!({ "kind": error.kind() }));
    if let Some(object) = object.as_object_mut() {
        object.insert("message".into(), error.to_string().into());
    }
    object
}

/// Returns the exit code, and prints the failure.
fn end(
    asked: &str,
    tool: &Arc<dyn Tool>,
    result: CallResult,
    hints: &AllowHints,
    console: &Console,
) -> Result<Exit, Failure> {
    let name = tool.spec().name.as_str();
    let has_run = result.receipt.is_some();
    let receipt = result.receipt.unwrap_or_default();
    let Some(error) = result.error else {
        for hint in hints.of(name, &receipt, None) {
            console.note(text!("an access of the tool was denied; {}", hint));
        }
        return Ok(Exit::Ok);
    };
    let denied =
        (receipt.denials.iter()).any(|denial| denial.allow_with.is_some() || denial.denied_by.is_some());
    let exit = match &error {
        ToolError::InvalidArguments { .. } | ToolError::UnknownTool { .. } => Exit::Usage,
        ToolError::Denied { .. } => Exit::Denied,
        // It reached a limit that its tool saw as an error.
        ToolError::Failed { .. } | ToolError::Unavailable { .. } | ToolError::Crashed { .. }
            if !denied && hints.is_beyond_quota(name, &receipt) =>
        {
            Exit::Limit
        }
        ToolError::Failed { .. } if denied => Exit::Denied,
        ToolError::Limit { .. } => Exit::Limit,
        ToolError::Cancelled => Exit::Cancelled,
        ToolError::Host { .. } => Exit::Internal,
        _ => Exit::Failed,
    };
    // Only a call that ran has words of the tool.
    let has_words_of_the_tool = has_run
        && matches!(
            error,
            ToolError::InvalidArguments { .. }
                | ToolError::Denied { .. }
                | ToolError::Unavailable { .. }
                | ToolError::Failed { .. }
        );
    let why = match has_words_of_the_tool {
        true => Text::of_others(error.to_string()),
        false => reason::of_tool(&error),
    };
    let mut failure = Failure::new(exit, text!("call to `{}` failed", name))
        .why(why)
        .hints(error.hint().map(str::to_owned))
        .hints(hints.of(name, &receipt, Some(&error)));
    if exit == Exit::Usage {
        failure = failure.hint(text!(
            "`toolcell tool inspect {}` shows its parameters",
            crate::ui::escape::shell(asked)
        ));
    }
    Err(failure)
}
