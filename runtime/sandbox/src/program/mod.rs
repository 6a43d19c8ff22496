//! Programs: components that export `wasi:cli/run`, such as those of `cargo build --target wasm32-wasip2`, in WASI 0.2 or 0.3.
//!
//! A program is one tool. It is given arguments and a standard input, and its result is the exit code with both streams.

pub(crate) mod capture;
pub(crate) mod service;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use semver::Version;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolcell_core::tool::{Hints, ToolSpec};
use toolcell_core::{Blob, CallResult, Content, Schema, ToolError, ToolName};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, Type};
use wasmtime::{Engine, Error, Store};
use wasmtime_wasi::I32Exit;

use crate::bindings::{is_compatible, split_version};
use crate::cell::state::CellState;
use crate::cell::{GuestCall, LinkedWorld};
use crate::load::imports::{WASI, WASI_ASYNC};
use crate::program::capture::StreamText;

/// Interface of a program, without its version.
const RUN: &str = "wasi:cli/run";

/// Maximum length of one stream in the error of a program that failed, in bytes. Of standard error the end is kept, of
/// standard output the beginning.
pub(crate) const MAX_IN_ERROR: usize = 7 << 10;

/// Media type of a stream that is not text.
const BINARY: &str = "application/octet-stream";

/// Maximum length of the marker of a stream that is cut, in bytes.
const MARKER: usize = 40;

/// Returns `true` if one of these exports makes the component a program.
pub(crate) fn is_among(exports: &[String]) -> bool {
    run_of(exports).is_some()
}

/// Returns the export that runs a program. Of programs for both versions, that of WASI 0.2 can be a stub of the toolchain.
fn run_of(exports: &[String]) -> Option<&String> {
    let find = |ours: &Version| {
        exports.iter().find(|export| match split_version(export) {
            (RUN, Some(version)) => is_compatible(&version, ours),
            _ => false,
        })
    };
    find(&WASI_ASYNC).or_else(|| find(&WASI))
}

/// A program, linked.
#[derive(Clone)]
pub(crate) struct Program {
    pre: InstancePre<CellState>,
    run: ComponentExportIndex,
}

impl Program {
    /// Finds the function that runs a program.
    ///
    /// # Errors
    /// If it has other parameters or another result.
    pub(crate) fn new(pre: InstancePre<CellState>, exports: &[String]) -> wasmtime::Result<Self> {
        let component = pre.component();
        let interface = run_of(exports).and_then(|export| component.get_export_index(None, export));
        let found = interface.and_then(|interface| component.get_export(Some(&interface), "run"));
        let Some((ComponentItem::ComponentFunc(ty), run)) = found else {
            return Err(Error::msg(format!("`{RUN}` has no function `run`")));
        };
        let is_status = |ty: Type| match ty {
            Type::Result(status) => status.ok().is_none() && status.err().is_none(),
            _ => false,
        };
        if ty.params().len() != 0 || !ty.results().map(is_status).eq([true]) {
            return Err(Error::msg(format!("`run` of `{RUN}` has another type")));
        }
        Ok(Self { pre, run })
    }

    /// Runs an instance to its end, and returns its exit code.
    async fn run(guest: &ProgramInstance, store: &mut Store<CellState>) -> wasmtime::Result<i32> {
        let run = (guest.instance).get_typed_func::<(), (Result<(), ()>,)>(&mut *store, guest.run)?;
        match run.call_async(&mut *store, ()).await {
            Ok((Ok(()),)) => Ok(0),
            Ok((Err(()),)) => Ok(1),
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => Ok(exit.0),
                None => Err(error),
            },
        }
    }
}

/// An instance of a program.
pub(crate) struct ProgramInstance {
    instance: Instance,
    run: ComponentExportIndex,
}

/// Returns the definition of a program. Its name is made of the label of the component, such as its file name.
pub(crate) fn spec(label: &str) -> Arc<ToolSpec> {
    let file = label.rsplit(['/', '\\']).next().unwrap_or(label);
    let stem = [".wasm", ".wat"]
        .iter()
        .find_map(|ending| file.strip_suffix(ending));
    let stem = stem.unwrap_or(file);
    let name = name(stem);
    let input = json!({
        "type": "object",
        "properties": {
            "args": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Arguments of the program, one string for each. No shell interprets them.",
            },
            "stdin": { "type": "string", "description": "Standard input of the program." },
        },
        "additionalProperties": false,
    });
    let bytes_of = |stream| {
        json!({
            "type": "string",
            "contentEncoding": "base64",
            "description": format!("The bytes of `{stream}`, if they are not UTF-8."),
        })
    };
    let output = json!({
        "type": "object",
        "properties": {
            "exit_code": { "type": "integer" },
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "stdout_base64": bytes_of("stdout"),
            "stderr_base64": bytes_of("stderr"),
        },
        "required": ["exit_code", "stdout", "stderr"],
        "additionalProperties": false,
    });
    let schema = |value| Arc::new(Schema::new(value).expect("the schema is valid, as a test states"));
    Arc::new(ToolSpec {
        description: format!(
            "Runs the program `{name}` with arguments and standard input, and returns its output. It sees only the files \
             that the user has granted."
        ),
        name,
        title: None,
        input: schema(input),
        output: Some(schema(output)),
        hints: Hints::default(),
        annotations: std::collections::BTreeMap::new(),
    })
}

/// Returns a tool name with the characters of `stem` that it can have.
fn name(stem: &str) -> ToolName {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut name: String = stem
        .chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "run_");
    }
    name.truncate(ToolName::MAX_LEN);
    ToolName::new(name).expect("it has only characters of a tool name")
}

impl LinkedWorld for Program {
    type Guest = ProgramInstance;

    fn engine(&self) -> &Engine {
        self.pre.engine()
    }

    async fn instantiate(&self, store: &mut Store<CellState>) -> wasmtime::Result<ProgramInstance> {
        Ok(ProgramInstance {
            instance: self.pre.instantiate_async(store).await?,
            run: self.run,
        })
    }
}

/// Arguments of the tool.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arguments {
    args: Vec<String>,
    stdin: String,
}

/// Runs a program.
pub(crate) struct ProgramCall {
    name: String,
    arguments: Map<String, Value>,
    /// Maximum size of both streams together, in bytes.
    output: u64,
}

/// Outcome of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramResult {
    code: i32,
    stdout: StreamText,
    stderr: StreamText,
}

impl ProgramCall {
    pub(crate) fn new(name: &ToolName, arguments: Map<String, Value>, output: u64) -> Self {
        Self {
            name: name.to_string(),
            arguments,
            output,
        }
    }
}

impl ProgramCall {
    /// Runs a program with `--help`, to get at most `most` bytes of text.
    pub(crate) fn for_help(name: &ToolName, most: usize) -> Self {
        let arguments = Map::from_iter([("args".to_owned(), json!(["--help"]))]);
        Self::new(name, arguments, most.saturating_sub(MARKER) as u64)
    }
}

impl GuestCall for ProgramCall {
    type World = Program;
    type Done = ProgramResult;

    fn prepare(&mut self, state: &mut CellState) -> Result<(), ToolError> {
        let arguments = Value::Object(std::mem::take(&mut self.arguments));
        let arguments: Arguments =
            serde_json::from_value(arguments).map_err(|error| ToolError::invalid(error.to_string()))?;
        if let Some(index) = arguments.args.iter().position(|text| text.contains('\0')) {
            return Err(ToolError::invalid(format!(
                "args[{index}]: an argument of a program has no NUL character"
            )));
        }
        let mut args = arguments.args;
        args.insert(0, std::mem::take(&mut self.name));
        let started = state.start_program(args, Bytes::from(arguments.stdin), self.output);
        started.map_err(|refused| refused.into_error())
    }

    async fn call_guest(
        self,
        guest: &ProgramInstance,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<ProgramResult> {
        let code = Program::run(guest, store).await?;
        let (stdout, stderr) = store.data().output.take_capture(self.output);
        Ok(ProgramResult { code, stdout, stderr })
    }

    fn bytes_out(done: &ProgramResult) -> u64 {
        (done.stdout.len() + done.stderr.len()) as u64
    }
}

impl ProgramResult {
    /// Returns what a program wrote about its use, whatever its exit code: on standard output, or else on standard error.
    pub(crate) fn into_help(self) -> String {
        let (stdout, stderr) = (self.stdout.marked(), self.stderr.marked());
        let text = match stdout.trim().is_empty() {
            true => stderr,
            false => stdout,
        };
        text.trim().to_owned()
    }

    /// Returns the result of the call. A program that ends with a code other than 0 has failed.
    pub(crate) fn into_result(self) -> CallResult {
        let Self { code, stdout, stderr } = self;
        let mut structured = Map::from_iter([("exit_code".to_owned(), json!(code))]);
        for (name, stream) in [("stdout", &stdout), ("stderr", &stderr)] {
            structured.insert(name.to_owned(), stream.clone().marked().into());
            if let Some(bytes) = &stream.bytes {
                structured.insert(format!("{name}_base64"), STANDARD.encode(bytes).into());
            }
        }
        let structured = Some(Value::Object(structured));
        if code != 0 {
            let message = format!(
                "the program ended with exit code {code}{}",
                streams(&stdout.told(), &stderr.told())
            );
            return CallResult {
                structured,
                ..CallResult::failed(ToolError::Failed { message })
            };
        }
        let mut content = Vec::new();
        add(&mut content, stdout, "");
        add(&mut content, stderr, "standard error:\n");
        CallResult {
            content,
            structured,
            ..CallResult::default()
        }
    }
}

/// Adds a stream to the content of a result, after its title: as a text, or as bytes if it is none.
fn add(content: &mut Vec<Content>, stream: StreamText, title: &str) {
    if let Some(bytes) = stream.binary() {
        let blob = Blob {
            media_type: BINARY.into(),
            data: bytes.to_vec(),
        };
        if !title.is_empty() {
            content.push(Content::text(title.trim_end()));
        }
        content.push(Content::Blob(blob));
        let missing = stream.marked();
        if !missing.is_empty() {
            content.push(Content::text(missing.trim_start()));
        }
        return;
    }
    let text = stream.marked();
    if !text.is_empty() {
        content.push(Content::text(format!("{title}{text}")));
    }
}

/// Returns what a program that failed wrote, for its error: the end of standard error, then the beginning of standard output, each
/// after a line end and its name.
fn streams(stdout: &str, stderr: &str) -> String {
    let mut text = String::new();
    if !stderr.is_empty() {
        let from = stderr.ceil_char_boundary(stderr.len().saturating_sub(MAX_IN_ERROR));
        let missing = match from {
            0 => String::new(),
            from => format!("[{from} bytes cut] "),
        };
        text.push_str(&format!(
            "\nstandard error:\n{missing}{}",
            stderr[from..].trim_end()
        ));
    }
    let output = crate::cell::failure::cut(stdout.to_owned(), MAX_IN_ERROR);
    if !output.is_empty() {
        text.push_str(&format!("\nstandard output:\n{}", output.trim_end()));
    }
    text
}
