//! Exports of a component with tools.

use serde_json::Value;

use crate::generated::tool::exports::toolcell::tool::tools as wire;
use crate::generated::tool::toolcell::tool::types;
use crate::{Arguments, Content, Context, Definition, ErrorKind, Hints, Output, Tool, ToolError, show};

/// Exports tools as a component, in the order in which the model gets them. Once per crate.
///
/// ```
/// # use toolcell_sdk::tool;
/// /// Answers yes.
/// #[tool]
/// fn yes() -> &'static str {
///     "yes"
/// }
///
/// /// Answers no.
/// #[tool]
/// fn no() -> &'static str {
///     "no"
/// }
///
/// toolcell_sdk::export!(yes, no);
/// # fn main() {}
/// ```
///
/// Two tools with the same name do not compile:
///
/// ```compile_fail
/// # use toolcell_sdk::tool;
/// # /// Answers yes.
/// # #[tool]
/// # fn yes() -> &'static str {
/// #     "yes"
/// # }
/// toolcell_sdk::export!(yes, yes);
/// # fn main() {}
/// ```
///
/// Neither does a second `export!`, nor a function without the attribute:
///
/// ```compile_fail
/// fn yes() -> &'static str {
///     "yes"
/// }
/// toolcell_sdk::export!(yes);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($($($part:ident)::+),+ $(,)?) => {
        $crate::__export_tools!($($crate::__entry!([$($part)+] $($part)+)),+);
    };
    ($($tool:ty),+ $(,)?) => {
        $crate::__export_tools!($($crate::__private::Entry::of::<$tool>()),+);
    };
}

/// Entry of the tool with this path, whose last part is looked for in `[]`.
///
/// A function without the attribute has no type of its name, and the import brings none: then the type is the one in
/// `__without_attribute`, whose error says what to do.
#[doc(hidden)]
#[macro_export]
macro_rules! __entry {
    ([$name:ident] $($path:ident)+) => {{
        mod __without_attribute {
            #[allow(non_camel_case_types, dead_code)]
            pub struct $name {}
        }
        #[allow(dead_code)]
        type __Tool = __without_attribute::$name;
        {
            #[allow(unused_imports)]
            use $($path)::+ as __Tool;
            $crate::__private::Entry::of::<__Tool>()
        }
    }};
    ([$_first:ident $($rest:ident)+] $($path:ident)+) => {
        $crate::__entry!([$($rest)+] $($path)+)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_tools {
    ($($entry:expr),+) => {
        #[allow(unsafe_code, non_local_definitions)]
        const _: () = {
            // Defined in the root of the crate, where a second one is an error.
            #[doc(hidden)]
            #[macro_export]
            macro_rules! one_export_has_to_list_all_tools {
                () => {};
            }

            const TOOLS: &[$crate::__private::Entry] = &[$($entry),+];
            $crate::__private::assert_distinct_names(TOOLS);

            struct Component;

            impl $crate::generated::tool::exports::toolcell::tool::tools::Guest for Component {
                fn definitions() -> ::std::vec::Vec<$crate::generated::tool::exports::toolcell::tool::tools::Definition> {
                    $crate::__private::definitions(TOOLS)
                }

                fn run(
                    call: $crate::generated::tool::exports::toolcell::tool::tools::Call,
                ) -> ::std::result::Result<
                    $crate::generated::tool::exports::toolcell::tool::tools::Output,
                    $crate::generated::tool::exports::toolcell::tool::tools::ToolError,
                > {
                    $crate::__private::run(TOOLS, call)
                }
            }

            #[cfg(target_family = "wasm")]
            $crate::generated::tool::__export_provider!(Component with_types_in $crate::generated::tool);
        };
    };
}

/// Tool of a component.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    name: &'static str,
    definition: fn() -> Definition,
    call: fn(Arguments, &Context) -> Result<Output, ToolError>,
}

impl Entry {
    /// Creates the entry of a tool.
    pub const fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            definition: T::definition,
            call: T::call,
        }
    }
}

/// Fails compilation if two tools have the same name.
pub const fn assert_distinct_names(tools: &[Entry]) {
    let mut i = 0;
    while i < tools.len() {
        let mut j = 0;
        while j < i {
            assert!(
                !same(tools[i].name.as_bytes(), tools[j].name.as_bytes()),
                "two tools have the same name"
            );
            j += 1;
        }
        i += 1;
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Export `definitions`.
pub fn definitions(tools: &[Entry]) -> Vec<wire::Definition> {
    tools.iter().map(|tool| (tool.definition)().into()).collect()
}

/// Export `run`.
///
/// # Errors
/// The tool's error, or an invalid call.
pub fn run(tools: &[Entry], call: wire::Call) -> Result<wire::Output, wire::ToolError> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        return Err(ToolError::invalid(format_args!(
            "this component has no tool {}",
            show::quoted(&call.name)
        ))
        .into());
    };
    let arguments = Arguments::parse(&call.arguments)?;
    let output = (tool.call)(arguments, &Context::received(call.id, call.context))?;
    Ok(output.into())
}

impl From<Definition> for wire::Definition {
    fn from(definition: Definition) -> Self {
        Self {
            name: definition.name.into(),
            title: definition.title.map(Into::into),
            description: definition.description,
            input_schema: definition.input_schema.to_string(),
            output_schema: definition.output_schema.map(|schema| schema.to_string()),
            hints: definition.hints.into(),
            annotations: annotations(definition.aliases),
        }
    }
}

/// Annotations of a definition: its aliases as a JSON object, which the host reads.
fn annotations(aliases: &[(&str, &str)]) -> Vec<(String, String)> {
    if aliases.is_empty() {
        return Vec::new();
    }
    let aliases = aliases
        .iter()
        .map(|(alias, name)| ((*alias).to_owned(), Value::from(*name)));
    vec![("aliases".to_owned(), Value::Object(aliases.collect()).to_string())]
}

impl From<Hints> for types::Hints {
    fn from(hints: Hints) -> Self {
        let mut flags = Self::empty();
        flags.set(Self::READ_ONLY, hints.read_only);
        flags.set(Self::DESTRUCTIVE, hints.destructive);
        flags.set(Self::IDEMPOTENT, hints.idempotent);
        flags.set(Self::OPEN_WORLD, hints.open_world);
        flags
    }
}

impl From<Output> for wire::Output {
    fn from(output: Output) -> Self {
        Self {
            content: output.content.into_iter().map(Into::into).collect(),
            structured: output.structured.map(|value| value.to_string()),
        }
    }
}

impl From<Content> for types::Content {
    fn from(content: Content) -> Self {
        match content {
            Content::Text(text) => Self::Text(text),
            Content::Blob { media_type, data } => Self::Blob(types::Blob { media_type, data }),
            Content::Link {
                uri,
                name,
                media_type,
            } => Self::Link(types::Link {
                uri,
                name,
                media_type,
            }),
        }
    }
}

impl From<ToolError> for wire::ToolError {
    fn from(error: ToolError) -> Self {
        let message = show::cut(error.message(), show::MAX_MESSAGE).into_owned();
        match error.kind() {
            ErrorKind::InvalidArguments => Self::InvalidArguments(message),
            ErrorKind::Denied => Self::Denied(message),
            ErrorKind::Unavailable => Self::Unavailable(message),
            ErrorKind::Failed => Self::Failed(message),
        }
    }
}
