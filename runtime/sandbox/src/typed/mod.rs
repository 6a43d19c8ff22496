//! Components whose functions are tools: they export functions, or interfaces with functions, and not the interface of
//! tools.
//!
//! Each function is one tool. Its schema follows from the types of its parameters, and its arguments and results are
//! converted between JSON and the values of the component model. Its calls run in the same cells as all others.

mod call;
mod comments;
mod docs;
mod lift;
mod lower;
mod names;
mod number;
mod schema;
#[cfg(test)]
mod tests;
mod wit_type;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use toolcell_core::ToolName;
use toolcell_core::schema::MAX_SCHEMA_BYTES;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

pub(crate) use call::{FunctionCall, FunctionResult};

use crate::cell::failure;
use crate::cell::state::CellState;
use crate::error::LoadError;
use crate::load::definitions::{MAX_DESCRIPTION, MAX_TOOLS, Stored};
use comments::Comments;
use docs::Docs;
pub(crate) use wit_type::weight_of_names;
use wit_type::{MAX_NAME_BYTES, MAX_TYPE_PARTS, Room, Unsupported, WitType};
pub use words::NO_DESCRIPTION;

/// Maximum number of functions that are listed with the reason why they are no tools.
const MAX_LEFT_OUT: usize = 128;

/// Maximum number of parts of the types of all functions, and of bytes of the names in them: as 16 functions of the largest size
/// have. Describing and checking them takes time that no limit of a call bounds.
const MAX_PARTS: usize = 16 * MAX_TYPE_PARTS;
const MAX_ALL_NAME_BYTES: usize = 16 * MAX_NAME_BYTES;

/// Length of the marker of a description that is cut, in bytes.
const CUT_MARKER: usize = 40;

/// A component whose functions are tools, linked.
pub(crate) struct Functions {
    pub(crate) pre: InstancePre<CellState>,
    functions: Vec<Function>,
    left_out: Vec<LeftOut>,
}

/// A function of a component that is no tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name, after that of its interface if it is in one.
    pub function: String,
    /// Reason.
    pub reason: &'static str,
}

/// A function that is a tool.
pub(crate) struct Function {
    /// Name of the tool.
    name: String,
    /// Name of the export that contains it, if that is an interface.
    interface: Option<String>,
    function: String,
    index: ComponentExportIndex,
    parameters: Vec<(String, WitType)>,
    result: Option<Arc<WitType>>,
}

impl Functions {
    /// Finds the functions of a component.
    ///
    /// # Errors
    /// If there is none, or two would be tools of one name.
    pub(crate) fn of(
        component: &Component,
        pre: InstancePre<CellState>,
        exports: &[String],
    ) -> Result<Self, LoadError> {
        let mut found = Found {
            component,
            functions: Vec::new(),
            left_out: Vec::new(),
            beyond: 0,
            room: Room {
                parts: MAX_PARTS,
                name_bytes: MAX_ALL_NAME_BYTES,
            },
        };
        let engine = component.engine();
        for (name, item) in component.component_type().exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(ty) => found.add(None, name, &ty),
                ComponentItem::ComponentInstance(instance) => {
                    for (function, item) in instance.exports(engine) {
                        if let ComponentItem::ComponentFunc(ty) = item.ty {
                            found.add(Some(name), function, &ty);
                        }
                    }
                }
                _ => {}
            }
        }
        found.tell_apart();
        let Found {
            functions,
            left_out,
            beyond,
            ..
        } = found;
        if beyond > 0 {
            return Err(LoadError::ToolCount {
                count: functions.len() + beyond,
                limit: MAX_TOOLS,
            });
        }
        if functions.is_empty() {
            return Err(no_function(&left_out, exports));
        }
        let mut names: BTreeMap<&str, &Function> = BTreeMap::new();
        for function in &functions {
            if let Some(first) = names.insert(&function.name, function) {
                return Err(LoadError::SameToolName {
                    name: function.name.clone(),
                    functions: Box::new([first.full_name(), function.full_name()]),
                });
            }
        }
        Ok(Self {
            pre,
            functions,
            left_out,
        })
    }

    /// Returns the definitions of the tools, with the comments in the bytes of the component.
    pub(crate) fn define(&self, bytes: &[u8]) -> Vec<Stored> {
        let docs = Docs::of(bytes);
        let comments = Comments::of(self.pre.component(), &docs);
        self.functions
            .iter()
            .map(|function| function.define(&docs, &comments))
            .collect()
    }

    /// Returns the function with this tool name.
    pub(crate) fn get(&self, tool: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == tool)
    }

    /// Returns the tool names of the functions with this name, in any interface.
    pub(crate) fn tools_of(&self, function: &str) -> impl Iterator<Item = &str> {
        let named = self
            .functions
            .iter()
            .filter(move |known| known.function == function);
        named.map(|known| known.name.as_str())
    }

    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

impl Function {
    fn full_name(&self) -> String {
        names::full(self.interface.as_deref(), &self.function)
    }

    fn define(&self, docs: &Docs, comments: &Comments<'_>) -> Stored {
        let interface = self.interface.as_deref();
        let description = match docs.of_function(interface, &self.function) {
            Some(text) if text.len() > MAX_DESCRIPTION => {
                failure::cut(text.to_owned(), MAX_DESCRIPTION - CUT_MARKER)
            }
            Some(text) => text.to_owned(),
            None => words::describe(
                interface,
                &self.function,
                &self.parameters,
                self.result.as_deref(),
            ),
        };
        Stored::of_function(
            self.name.clone(),
            description,
            within_size(comments, |comments| {
                Some(schema::of_parameters(&self.parameters, comments))
            })
            .unwrap_or_default(),
            within_size(comments, |comments| {
                schema::of_result(self.result.as_deref(), comments)
            }),
        )
    }
}

/// Writes a schema with comments, or without them if it would be larger than a schema may be with them.
fn within_size(comments: &Comments<'_>, schema: impl Fn(&Comments<'_>) -> Option<Value>) -> Option<String> {
    let text = schema(comments)?.to_string();
    match text.len() <= MAX_SCHEMA_BYTES {
        true => Some(text),
        false => schema(&Comments::default()).map(|schema| schema.to_string()),
    }
}

/// Functions found so far.
struct Found<'a> {
    component: &'a Component,
    functions: Vec<Function>,
    left_out: Vec<LeftOut>,
    /// Number of functions beyond [`MAX_TOOLS`].
    beyond: usize,
    /// Rest of the limits for the types of all functions: a type of a few bytes can occur in each of them.
    room: Room,
}

impl Found<'_> {
    /// Gives the functions of interfaces that would be tools of one name a longer one, if it is not too long.
    fn tell_apart(&mut self) {
        let mut known = BTreeMap::new();
        for function in &self.functions {
            *known.entry(function.name.clone()).or_insert(0) += 1;
        }
        for function in &mut self.functions {
            let is_unique = known.get(&function.name) == Some(&1);
            let Some(interface) = function.interface.as_deref().filter(|_| !is_unique) else {
                continue;
            };
            let long = names::long_tool(interface, &function.function);
            if ToolName::new(long.as_str()).is_ok() {
                function.name = long;
            }
        }
    }

    fn add(&mut self, interface: Option<&str>, function: &str, ty: &ComponentFunc) {
        if self.functions.len() == MAX_TOOLS {
            self.beyond += 1;
            return;
        }
        match self.convert(interface, function, ty) {
            Ok(found) => self.functions.push(found),
            Err(_) if self.left_out.len() == MAX_LEFT_OUT => {}
            Err(Unsupported(reason)) => self.left_out.push(LeftOut {
                function: names::full(interface, function),
                reason,
            }),
        }
    }

    fn convert(
        &mut self,
        interface: Option<&str>,
        function: &str,
        ty: &ComponentFunc,
    ) -> Result<Function, Unsupported> {
        let unsupported = |reason| Err(Unsupported(reason));
        if function.starts_with('[') {
            return unsupported("it belongs to a resource, which exists only within one call");
        }
        if is_initialization(interface, function, ty) {
            return unsupported("it is called when the component is built");
        }
        let allowed = Room::of_one(self.room);
        let mut left = allowed;
        let types = types_of(ty, &mut left);
        self.room.parts -= allowed.parts - left.parts;
        self.room.name_bytes -= allowed.name_bytes - left.name_bytes;
        let (parameters, result) = types?;
        let name = names::tool(interface, function);
        if ToolName::new(name.as_str()).is_err() {
            return unsupported("its name is no name of a tool: at most 64 letters, digits, `_` and `-`");
        }
        schema::check(&parameters, result.as_ref())?;
        let instance = match interface {
            None => None,
            Some(name) => match self.component.get_export_index(None, name) {
                None => return unsupported("its interface cannot be called"),
                instance => instance,
            },
        };
        let Some(index) = self.component.get_export_index(instance.as_ref(), function) else {
            return unsupported("it cannot be called");
        };
        Ok(Function {
            name,
            interface: interface.map(str::to_owned),
            function: function.to_owned(),
            index,
            parameters,
            result: result.map(Arc::new),
        })
    }
}

/// Types of the parameters, by name, and of the result.
type Signature = (Vec<(String, WitType)>, Option<WitType>);

/// Returns the types of a function.
fn types_of(ty: &ComponentFunc, room: &mut Room) -> Result<Signature, Unsupported> {
    let parameters = (ty.params())
        .map(|(name, ty)| Ok((room.take_name(name)?, WitType::of(&ty, room)?)))
        .collect::<Result<_, _>>()?;
    let result = ty.results().next().map(|ty| WitType::of(&ty, room));
    Ok((parameters, result.transpose()?))
}

/// Returns `true` for a function that `componentize-qjs` or `componentize-py` calls to build the component, and leaves in
/// it.
fn is_initialization(interface: Option<&str>, function: &str, ty: &ComponentFunc) -> bool {
    let has = |wanted: &str| ty.params().any(|(name, _)| name == wanted);
    function == "init"
        && match interface {
            None => has("script") && has("entry-path"),
            Some(interface) => interface == "exports" && has("app-name"),
        }
}

fn no_function(left_out: &[LeftOut], exports: &[String]) -> LoadError {
    match left_out {
        [] => LoadError::NotATool {
            is_hook: false,
            exports: exports
                .iter()
                .map(|name| name.escape_debug().to_string())
                .collect(),
        },
        _ => LoadError::NoFunction {
            left_out: left_out.to_vec(),
        },
    }
}
