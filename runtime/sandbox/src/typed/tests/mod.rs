mod arguments;
mod component;
mod concurrent;
mod limits;
mod round_trip;
mod schema;

use indexmap::IndexSet;
use serde_json::Value;
use toolcell_core::{CallContext, CallResult, Policy, Tool, ToolCall, ToolError};

use super::wit_type::WitType;
use crate::{Component, LoadError, Sandbox, SandboxOptions};

/// Core module of an echo of one list, in memory that the host has filled.
const ECHO: &str = r#"
(core module $m
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 1024))
  (func (export "realloc") (param $old i32) (param $old_len i32) (param $align i32) (param $len i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get $len)))
    (loop $more
      (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
        (then
          (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
          (br $more))))
    (local.get $at))
  (func (export "echo") (param $at i32) (param $len i32) (result i32)
    (i32.store (i32.const 16) (local.get $at))
    (i32.store (i32.const 20) (local.get $len))
    (i32.const 16)))
(core instance $i (instantiate $m))
"#;

/// Returns a component with the function `echo`, which returns its parameter `v`, a list of this type.
fn echo_of(ty: &WitType) -> String {
    let mut definitions = Definitions::default();
    let item = definitions.define(ty);
    format!(
        r#"(component {ECHO} {}
(type $all (list {item}))
(type $type (func (param "v" $all) (result $all)))
(func $echo (type $type) (canon lift (core func $i "echo") (memory $i "memory") (realloc (func $i "realloc"))))
(export "echo" (func $echo)))"#,
        definitions.text
    )
}

/// Types of a component as text; those with names are exported, as the component model requires.
#[derive(Default)]
struct Definitions {
    text: String,
    count: usize,
}

impl Definitions {
    /// Defines a type, and returns its name.
    fn define(&mut self, ty: &WitType) -> String {
        let names = |names: &IndexSet<String>| -> String {
            names.iter().map(|name| format!(" \"{name}\"")).collect()
        };
        let definition = match ty {
            WitType::Bool => return "bool".into(),
            WitType::S8 => return "s8".into(),
            WitType::S16 => return "s16".into(),
            WitType::S32 => return "s32".into(),
            WitType::S64 => return "s64".into(),
            WitType::U8 => return "u8".into(),
            WitType::U16 => return "u16".into(),
            WitType::U32 => return "u32".into(),
            WitType::U64 => return "u64".into(),
            WitType::F32 => return "f32".into(),
            WitType::F64 => return "f64".into(),
            WitType::Char => return "char".into(),
            WitType::String => return "string".into(),
            WitType::Bytes => "(list u8)".into(),
            WitType::List(item) => format!("(list {})", self.define(item)),
            WitType::FixedList(item, length) => format!("(list {} {length})", self.define(item)),
            WitType::Map(key, item) => format!("(map {} {})", self.define(key), self.define(item)),
            WitType::Option(ty) => format!("(option {})", self.define(ty)),
            WitType::Tuple(types) => {
                let types: Vec<String> = types.iter().map(|ty| self.define(ty)).collect();
                format!("(tuple {})", types.join(" "))
            }
            WitType::Record(fields) => {
                let fields: Vec<String> = (fields.iter())
                    .map(|(name, ty)| format!("(field \"{name}\" {})", self.define(ty)))
                    .collect();
                format!("(record {})", fields.join(" "))
            }
            WitType::Variant(cases) => {
                let cases: Vec<String> = (cases.iter())
                    .map(|(name, ty)| {
                        let ty = ty.as_ref().map(|ty| self.define(ty)).unwrap_or_default();
                        format!("(case \"{name}\" {ty})")
                    })
                    .collect();
                format!("(variant {})", cases.join(" "))
            }
            WitType::Result(ok, err) => {
                let ok = ok.as_ref().map(|ty| self.define(ty)).unwrap_or_default();
                let err = err.as_ref().map(|ty| format!("(error {})", self.define(ty)));
                format!("(result {ok} {})", err.unwrap_or_default())
            }
            WitType::Enum(cases) => format!("(enum{})", names(cases)),
            WitType::Flags(flags) => format!("(flags{})", names(flags)),
        };
        self.count += 1;
        let n = self.count;
        let is_named = matches!(
            ty,
            WitType::Record(_) | WitType::Variant(_) | WitType::Enum(_) | WitType::Flags(_)
        );
        self.text += &match is_named {
            true => format!("(type $d{n} {definition}) (export $t{n} \"t{n}\" (type $d{n}))\n"),
            false => format!("(type $t{n} {definition})\n"),
        };
        format!("$t{n}")
    }
}

fn sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions {
        slots: 8,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap()
}

async fn load(sandbox: &Sandbox, text: &str) -> Result<Component, LoadError> {
    let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    sandbox.load("x.wasm", &bytes).await
}

async fn call(component: &Component, policy: Policy, name: &str, arguments: Value) -> CallResult {
    let tools = component.tools(policy);
    let tool = tools.iter().find(|tool| tool.spec().name.as_str() == name);
    let tool = tool.unwrap_or_else(|| panic!("there is no tool `{name}`"));
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments,
    };
    tool.call(call, CallContext::unobserved()).await
}

/// Calls `echo` of a new component, and returns its structured result.
async fn echo(ty: &WitType, policy: Policy, value: Value) -> Result<Value, ToolError> {
    let component = load(&sandbox(), &echo_of(ty)).await.unwrap();
    let result = call(&component, policy, "echo", serde_json::json!({ "v": value })).await;
    let result = result.into_result()?;
    Ok(result.structured.unwrap()["result"].clone())
}

fn named(names: &[&str]) -> IndexSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn field(name: &str, ty: WitType) -> (String, WitType) {
    (name.to_owned(), ty)
}

fn option(ty: WitType) -> WitType {
    WitType::Option(Box::new(ty))
}

fn list(ty: WitType) -> WitType {
    WitType::List(Box::new(ty))
}
