//! Components for tests, written in WebAssembly text: a tool whose whole behaviour is one function body.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod hoard;

use std::sync::{Arc, Mutex};

use serde_json::Value;
use toolcell_core::tool::{CallObserver, LogLine, LogSource, Progress};
use toolcell_core::{CallContext, CallResult, Policy, Receipt, Tool, ToolCall, ToolError, ToolName};
use toolcell_sandbox::{Component, Digest, LoadError, Sandbox, SandboxOptions, TrustedComponent};

/// A tool named `probe`, described by its differences from an echo.
///
/// The body of `run` has the locals `$id $id_len $name $name_len $args $args_len $ctx $ctx_len` and two free ones,
/// `$i` and `$j`, and returns a pointer made by `$text(ptr, len)`, `$answer(list, count, structured, structured_len)` or
/// `$error(case, ptr, len)`. Memory below 4096 is free for it, and all above 64 KiB, as far as it grows.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    /// Body of `run`.
    pub(crate) run: String,
    /// Body of `definitions`, before the list is returned.
    pub(crate) definitions: String,
    /// Top-level component items: imports, nested components, lowered functions.
    pub(crate) items: String,
    /// `(with …)` arguments of the core instance.
    pub(crate) with: String,
    /// Fields of the core module: imports first.
    pub(crate) module: String,
    /// Names of the tools.
    pub(crate) names: Vec<String>,
    pub(crate) description: String,
    pub(crate) input: String,
    pub(crate) output: Option<String>,
    /// Version of the exported interface.
    pub(crate) version: String,
    /// Initial pages of memory.
    pub(crate) pages: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            run: "(call $text (local.get $args) (local.get $args_len))".into(),
            definitions: String::new(),
            items: String::new(),
            with: String::new(),
            module: String::new(),
            names: vec!["probe".into()],
            description: "Answers with its arguments.".into(),
            input: r#"{"type":"object"}"#.into(),
            output: None,
            version: "0.1.0".into(),
            pages: 2,
        }
    }
}

/// Bytes at addresses, as data segments.
struct Data {
    bytes: Vec<u8>,
    base: u32,
}

impl Data {
    fn text(&mut self, text: &str) -> (u32, u32) {
        let at = self.base + self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        (at, text.len() as u32)
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("\\{b:02x}")).collect()
}

impl Probe {
    /// Creates a probe with another body.
    pub(crate) fn running(body: &str) -> Self {
        Self {
            run: body.into(),
            ..Self::default()
        }
    }

    /// Returns the component as bytes.
    pub(crate) fn build(&self) -> Vec<u8> {
        let text = self.text();
        wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    /// Returns the component as text.
    pub(crate) fn text(&self) -> String {
        let mut data = Data {
            bytes: Vec::new(),
            base: 4096,
        };
        let description = data.text(&self.description);
        let input = data.text(&self.input);
        let output = self.output.as_ref().map(|text| data.text(text));
        let mut records: Vec<u32> = Vec::new();
        for name in &self.names {
            let name = data.text(name);
            let (with_output, output) = output.map_or((0, (0, 0)), |o| (1, o));
            records.extend([
                name.0,
                name.1,
                0,
                0,
                0,
                description.0,
                description.1,
                input.0,
                input.1,
                with_output,
                output.0,
                output.1,
                0,
                0,
                0,
            ]);
        }
        let list = data.base + data.bytes.len() as u32;
        data.bytes.extend(records.iter().flat_map(|n| n.to_le_bytes()));
        let pair = data.base + data.bytes.len() as u32;
        let count = self.names.len() as u32;
        data.bytes
            .extend([list, count].iter().flat_map(|n| n.to_le_bytes()));
        assert!(
            data.bytes.len() < 60_000,
            "the definitions do not fit below 64 KiB"
        );

        let Self {
            run,
            definitions,
            items,
            with,
            module,
            version,
            pages,
            ..
        } = self;
        let segment = escaped(&data.bytes);
        format!(
            r#"(component
{TYPES}
(core module $libc-module
  (memory (export "memory") {pages})
  (global $next (mut i32) (i32.const 65536))
  (func (export "realloc") (param $old i32) (param $old_len i32) (param $align i32) (param $len i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get $len)))
    (loop $more
      (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
        (then
          (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
          (br $more))))
    (local.get $at)))
(core instance $libc (instantiate $libc-module))
(alias core export $libc "memory" (core memory $memory))
(alias core export $libc "realloc" (core func $realloc))
{items}
(core module $main-module
  (import "libc" "memory" (memory {pages}))
  (import "libc" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  {module}
  (data (i32.const 4096) "{segment}")
  (func $text (param $ptr i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 3968) (i32.const 0))
    (i32.store (i32.const 3972) (local.get $ptr))
    (i32.store (i32.const 3976) (local.get $len))
    (call $answer (i32.const 3968) (i32.const 1) (i32.const 0) (i32.const 0)))
  (func $answer (param $list i32) (param $count i32) (param $ptr i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 4032) (i32.const 0))
    (i32.store (i32.const 4036) (local.get $list))
    (i32.store (i32.const 4040) (local.get $count))
    (i32.store8 (i32.const 4044) (i32.ne (local.get $ptr) (i32.const 0)))
    (i32.store (i32.const 4048) (local.get $ptr))
    (i32.store (i32.const 4052) (local.get $len))
    (i32.const 4032))
  (func $error (param $case i32) (param $ptr i32) (param $len i32) (result i32)
    (i32.store8 (i32.const 4032) (i32.const 1))
    (i32.store8 (i32.const 4036) (local.get $case))
    (i32.store (i32.const 4040) (local.get $ptr))
    (i32.store (i32.const 4044) (local.get $len))
    (i32.const 4032))
  (func (export "definitions") (result i32)
    {definitions}
    (i32.const {pair}))
  (func (export "run")
    (param $id i32) (param $id_len i32) (param $name i32) (param $name_len i32)
    (param $args i32) (param $args_len i32) (param $ctx i32) (param $ctx_len i32) (result i32)
    (local $i i32) (local $j i32)
    {run}))
(core instance $main (instantiate $main-module (with "libc" (instance $libc)) {with}))
(type $definitions-type (func (result (list $definition))))
(type $run-type (func (param "call" $call) (result (result $output (error $tool-error)))))
(func $definitions (type $definitions-type) (canon lift (core func $main "definitions") (memory $memory)))
(func $run (type $run-type) (canon lift (core func $main "run") (memory $memory) (realloc (core func $realloc))))
{TOOLS}
(export "toolcell:tool/tools@{version}" (instance $tools)))"#
        )
    }
}

/// Types of the interface, imported as the component model requires for an export that uses them.
pub(crate) const TYPES: &str = r#"
(type $types-type (instance
  (type (;0;) (flags "read-only" "destructive" "idempotent" "open-world"))
  (export (;1;) "hints" (type (eq 0)))
  (type (;2;) (option string))
  (type (;3;) (tuple string string))
  (type (;4;) (list 3))
  (type (;5;) (record (field "name" string) (field "title" 2) (field "description" string) (field "input-schema" string) (field "output-schema" 2) (field "hints" 1) (field "annotations" 4)))
  (export (;6;) "definition" (type (eq 5)))
  (type (;7;) (record (field "id" string) (field "name" string) (field "arguments" string) (field "context" 4)))
  (export (;8;) "call" (type (eq 7)))
  (type (;9;) (list u8))
  (type (;10;) (record (field "media-type" string) (field "data" 9)))
  (export (;11;) "blob" (type (eq 10)))
  (type (;12;) (record (field "uri" string) (field "name" string) (field "media-type" 2)))
  (export (;13;) "link" (type (eq 12)))
  (type (;14;) (variant (case "text" string) (case "blob" 11) (case "link" 13)))
  (export (;15;) "content" (type (eq 14)))
  (type (;16;) (list 15))
  (type (;17;) (record (field "content" 16) (field "structured" 2)))
  (export (;18;) "output" (type (eq 17)))
  (type (;19;) (variant (case "invalid-arguments" string) (case "denied" string) (case "unavailable" string) (case "failed" string) (case "other" string)))
  (export (;20;) "tool-error" (type (eq 19)))))
(import "toolcell:tool/types@0.1.0" (instance $types (type $types-type)))
(alias export $types "hints" (type $hints))
(alias export $types "definition" (type $definition))
(alias export $types "call" (type $call))
(alias export $types "blob" (type $blob))
(alias export $types "link" (type $link))
(alias export $types "content" (type $content))
(alias export $types "output" (type $output))
(alias export $types "tool-error" (type $tool-error))
"#;

/// The exported interface, created by a component that only names the types.
const TOOLS: &str = r#"
(component $tools-component
  (type (;0;) (flags "read-only" "destructive" "idempotent" "open-world"))
  (import "hints" (type (;1;) (eq 0)))
  (type (;2;) (option string))
  (type (;3;) (tuple string string))
  (type (;4;) (list 3))
  (type (;5;) (record (field "name" string) (field "title" 2) (field "description" string) (field "input-schema" string) (field "output-schema" 2) (field "hints" 1) (field "annotations" 4)))
  (import "definition" (type (;6;) (eq 5)))
  (type (;7;) (record (field "id" string) (field "name" string) (field "arguments" string) (field "context" 4)))
  (import "call" (type (;8;) (eq 7)))
  (type (;9;) (list u8))
  (type (;10;) (record (field "media-type" string) (field "data" 9)))
  (import "blob" (type (;11;) (eq 10)))
  (type (;12;) (record (field "uri" string) (field "name" string) (field "media-type" 2)))
  (import "link" (type (;13;) (eq 12)))
  (type (;14;) (variant (case "text" string) (case "blob" 11) (case "link" 13)))
  (import "content" (type (;15;) (eq 14)))
  (type (;16;) (list 15))
  (type (;17;) (record (field "content" 16) (field "structured" 2)))
  (import "output" (type (;18;) (eq 17)))
  (type (;19;) (variant (case "invalid-arguments" string) (case "denied" string) (case "unavailable" string) (case "failed" string) (case "other" string)))
  (import "tool-error" (type (;20;) (eq 19)))
  (type (;21;) (list 6))
  (type (;22;) (func (result 21)))
  (import "import-definitions" (func (;0;) (type 22)))
  (type (;23;) (result 18 (error 20)))
  (type (;24;) (func (param "call" 8) (result 23)))
  (import "import-run" (func (;1;) (type 24)))
  (export (;25;) "definition" (type 6))
  (export (;26;) "call" (type 8))
  (export (;27;) "output" (type 18))
  (export (;28;) "tool-error" (type 20))
  (type (;29;) (list 25))
  (type (;30;) (func (result 29)))
  (export (;2;) "definitions" (func 0) (func (type 30)))
  (type (;31;) (result 27 (error 28)))
  (type (;32;) (func (param "call" 26) (result 31)))
  (export (;3;) "run" (func 1) (func (type 32))))
(instance $tools (instantiate $tools-component
  (with "import-definitions" (func $definitions))
  (with "import-run" (func $run))
  (with "hints" (type $hints))
  (with "definition" (type $definition))
  (with "call" (type $call))
  (with "blob" (type $blob))
  (with "link" (type $link))
  (with "content" (type $content))
  (with "output" (type $output))
  (with "tool-error" (type $tool-error))))
"#;

/// A component that is part of the program.
pub(crate) struct Own(Vec<u8>);

impl Own {
    pub(crate) fn leaked(bytes: Vec<u8>) -> &'static Self {
        Box::leak(Box::new(Self(bytes)))
    }
}

impl TrustedComponent for Own {
    fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.clone()
    }
}

/// Everything that an observer received.
#[derive(Default)]
pub(crate) struct RecordingObserver(Mutex<Observed>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) lines: Vec<LogLine>,
    pub(crate) progress: Vec<Progress>,
    pub(crate) receipts: Vec<Receipt>,
}

impl CallObserver for RecordingObserver {
    fn log(&self, line: LogLine) {
        self.0.lock().unwrap().lines.push(line);
    }

    fn progress(&self, progress: Progress) {
        self.0.lock().unwrap().progress.push(progress);
    }

    fn receipt(&self, receipt: Receipt) {
        self.0.lock().unwrap().receipts.push(receipt);
    }
}

impl RecordingObserver {
    pub(crate) fn observed(&self) -> Observed {
        self.0.lock().unwrap().clone()
    }
}

impl Observed {
    /// Returns the only receipt.
    pub(crate) fn receipt(&self) -> &Receipt {
        assert_eq!(self.receipts.len(), 1, "a call leaves exactly one receipt");
        &self.receipts[0]
    }

    /// Returns messages from one source.
    pub(crate) fn messages(&self, source: LogSource) -> Vec<&str> {
        let lines = self.lines.iter().filter(|l| l.source == source);
        lines.map(|l| l.message.as_str()).collect()
    }
}

/// Returns a context with a recording observer.
pub(crate) fn observed_context() -> (CallContext, Arc<RecordingObserver>) {
    let observer = Arc::new(RecordingObserver::default());
    let context = CallContext {
        observer: observer.clone(),
        ..CallContext::unobserved()
    };
    (context, observer)
}

/// Creates a sandbox without a cache and without optimisation, which compiles fastest.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions {
        slots: 64,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap()
}

pub(crate) async fn load(sandbox: &Sandbox, probe: &Probe) -> Result<Component, LoadError> {
    sandbox.load("probe.wasm", &probe.build()).await
}

/// Returns the only tool of a component.
pub(crate) fn only_tool(component: &Component, policy: Policy) -> Arc<dyn Tool> {
    let tools = component.tools(Arc::new(policy));
    assert_eq!(tools.len(), 1);
    tools.into_iter().next().unwrap()
}

pub(crate) fn call_of(arguments: Value) -> ToolCall {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object")
    };
    ToolCall {
        id: "call-1".into(),
        name: ToolName::new("probe").unwrap(),
        arguments,
    }
}

/// Calls a tool without arguments.
pub(crate) async fn call(tool: &dyn Tool) -> (Result<CallResult, ToolError>, Observed) {
    call_with(tool, serde_json::json!({})).await
}

/// Calls a tool. The receipt is among the observations.
pub(crate) async fn call_with(
    tool: &dyn Tool,
    arguments: Value,
) -> (Result<CallResult, ToolError>, Observed) {
    let (context, observer) = observed_context();
    let result = tool.call(call_of(arguments), context).await;
    ended(result, &observer)
}

/// Moves the receipt of a result to the observations.
pub(crate) fn ended(
    mut result: CallResult,
    observer: &RecordingObserver,
) -> (Result<CallResult, ToolError>, Observed) {
    let mut observed = observer.observed();
    observed.receipts.extend(result.receipt.take());
    (result.into_result(), observed)
}

/// Loads a probe and calls it once.
pub(crate) async fn run(probe: &Probe, policy: Policy) -> (Result<CallResult, ToolError>, Observed) {
    let component = load(&sandbox(), probe).await.unwrap();
    call(&*only_tool(&component, policy)).await
}
