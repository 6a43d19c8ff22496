//! Errors as reasons: the one place that knows which words of an error are ours.
//!
//! The texts of errors mix words of Toolcell with those of components, servers and files. An error whose words are not known
//! counts as words of others, and is shown behind the gutter.

use std::error::Error;
use std::io;

use serde_json::Value;
use toolcell_agent::{AgentError, BuildError, InvalidRule};
use toolcell_core::grant::InvalidGrant;
use toolcell_core::json::JsonError;
use toolcell_core::schema::SchemaError;
use toolcell_core::tool::InvalidToolName;
use toolcell_core::{StoreError, ToolError};
use toolcell_fs::{FileError, Refusal};
use toolcell_local::{GgufError, InvalidModel};
use toolcell_mcp::client::{RemoteError, ServerError};
use toolcell_providers::{BaseUrlError, ScriptError, SetupError};
use toolcell_sandbox::{EngineError, LoadError};
use toolcell_store::SqliteError;

use crate::ui::terminal::{Name, Own, Text, text};

/// Returns the reasons of an error, outermost first. A source whose text is part of the previous text is left out.
pub(crate) fn chain(error: &anyhow::Error) -> Vec<Text> {
    let mut reasons: Vec<Text> = Vec::new();
    let mut next: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    // The outermost literal of `anyhow!` or `context`, which can be that of any error in the chain.
    let literal = error.downcast_ref::<&'static str>().copied();
    while let Some(error) = next {
        let reason = match literal {
            Some(own) if own == error.to_string() => own.into(),
            _ => of(error),
        };
        if !(reasons.last()).is_some_and(|last| last.plain().contains(&reason.plain())) {
            reasons.push(reason);
        }
        next = error.source();
    }
    reasons
}

/// Returns the text of an error without its sources, as `anyhow` shows it.
pub(crate) fn outermost(error: &anyhow::Error) -> Text {
    chain(error).into_iter().next().unwrap_or_default()
}

/// Returns the text of an error, without its sources.
pub(crate) fn of(error: &(dyn Error + 'static)) -> Text {
    macro_rules! known {
        ($($type:ty => $of:expr),* $(,)?) => {
            $(if let Some(error) = error.downcast_ref::<$type>() {
                #[allow(clippy::redundant_closure_call, reason = "a closure names the error")]
                return $of(error);
            })*
        };
    }
    known!(
        io::Error => of_io,
        FileError => of_file,
        ToolError => of_tool,
        LoadError => of_load,
        ServerError => of_server,
        InvalidGrant => of_grant,
        InvalidRule => of_rule,
        InvalidToolName => |error: &InvalidToolName| Text::sentence(&error.to_string(), [error.0.as_str()]),
        JsonError => of_json,
        SchemaError => of_schema,
        BuildError => of_build,
        // Their names are those of tools, which have no blanks, or the user's.
        AgentError => ours,
        BaseUrlError => ours,
        SetupError => ours,
        RemoteError => ours,
        StoreError => ours,
        ScriptError => of_script,
        GgufError => of_gguf,
        InvalidModel => of_model,
        // Static texts and numbers.
        Refusal => ours,
        EngineError => ours,
        SqliteError => ours,
        std::string::FromUtf8Error => ours,
        std::str::Utf8Error => ours,
    );
    Text::foreign(error.to_string())
}

/// An error with no words of others outside of backticks, and none with backticks.
fn ours(error: &dyn Error) -> Text {
    Text::sentence(&error.to_string(), [])
}

/// Errors of the operating system have its words; others have those of their cause.
pub(crate) fn of_io(error: &io::Error) -> Text {
    match error.get_ref() {
        None => ours(error),
        Some(cause) => of(cause),
    }
}

pub(crate) fn of_file(error: &FileError) -> Text {
    match error {
        FileError::Io { action, path, .. } => text!("could not {} `{}`", Own(action), path),
        FileError::Refused { path, reason } => text!("refusing to use `{}`: {}", path, ours(reason)),
        other => Text::foreign(other.to_string()),
    }
}

/// Error of a call. The words of a tool that ran are not among these: the caller knows if one did.
pub(crate) fn of_tool(error: &ToolError) -> Text {
    match error {
        ToolError::InvalidArguments { message } => {
            text!("the arguments were not accepted: {}", of_arguments(message))
        }
        ToolError::UnknownTool { name, .. } => text!("there is no tool `{}`", name),
        ToolError::Crashed { cause, output } => {
            let cause = match cause.starts_with(TRAP) {
                true => Text::sentence(cause, []),
                false => Text::foreign(cause.clone()),
            };
            match output {
                None => text!("the tool crashed: {}", cause),
                Some(output) => text!(
                    "the tool crashed: {}, after the message: {}",
                    cause,
                    Text::of_others(output.as_str())
                ),
            }
        }
        ToolError::Limit { .. } | ToolError::Cancelled => ours(error),
        ToolError::Denied { message, .. } => text!("not allowed: {}", Text::of_others(message.as_str())),
        ToolError::Unavailable { message } => text!(
            "not available at the moment: {}",
            Text::of_others(message.as_str())
        ),
        ToolError::Host { message } => text!(
            "internal error of the host: {}",
            Text::of_others(message.as_str())
        ),
        other => Text::foreign(other.to_string()),
    }
}

/// Beginning of the causes in which wasmtime names a trap. A guest has no part in them.
const TRAP: &str = "wasm trap: ";

/// A reason why arguments were not accepted. It is ours if everything in it that a schema or a model wrote is a single word:
/// names are between backticks or in a pointer, values are JSON.
fn of_arguments(message: &str) -> Text {
    let is_word = |part: &str| !part.contains(char::is_whitespace);
    let pointer = message
        .strip_prefix("at /")
        .map_or("", |rest| rest.split(": ").next().unwrap_or(rest));
    let ours = is_word(pointer) && values_are_words(message);
    match ours {
        true => Text::sentence(message, []),
        false => Text::foreign(message),
    }
}

/// True if no text of JSON in a sentence has several words, or a backtick.
fn values_are_words(sentence: &str) -> bool {
    let mut rest = sentence;
    while let Some(start) = rest.find('"') {
        let mut values = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<Value>();
        let Some(Ok(Value::String(value))) = values.next() else {
            return false;
        };
        if value.contains(|c: char| c.is_whitespace() || c == '`') {
            return false;
        }
        rest = &rest[start + values.byte_offset()..];
    }
    true
}

fn of_load(error: &LoadError) -> Text {
    match error {
        LoadError::NotWasm
        | LoadError::Text
        | LoadError::CoreModule
        | LoadError::Truncated
        | LoadError::TooLarge { .. }
        | LoadError::NotATool { .. }
        | LoadError::NotAProgram
        | LoadError::NotAHook { .. }
        | LoadError::ContractMismatch { .. }
        | LoadError::ImportMismatch { .. }
        | LoadError::TooComplex { .. }
        | LoadError::CompileLimit { .. }
        | LoadError::Busy { .. }
        | LoadError::Engine { .. }
        | LoadError::Definitions { .. }
        | LoadError::ToolCount { .. } => ours(error),
        LoadError::ModuleImport { module } => text!(
            "the core module imports `{}`, which is not part of WASI preview 1",
            module
        ),
        LoadError::NotAdapted { reason } => {
            text!(
                "could not make a component of the core module: {}",
                Text::of_others(reason.as_str())
            )
        }
        LoadError::Malformed { reason } => {
            text!("the component is malformed: {}", Text::of_others(reason.as_str()))
        }
        LoadError::SameToolName { name, functions } => text!(
            "the functions `{}` and `{}` of the component have the same tool name, `{}`",
            functions[0],
            functions[1],
            name
        ),
        LoadError::UnknownContract { version, .. } => text!(
            "unsupported interface version `{}`: this host supports 0.1",
            version
        ),
        LoadError::UnknownImport { name, .. } => text!(
            "the component imports `{}`, which this host does not provide",
            name
        ),
        LoadError::UnsupportedFeature { feature } => {
            text!("the component uses a disabled WebAssembly feature: {}", feature)
        }
        LoadError::Compile { reason } => text!(
            "could not compile the component: {}",
            Text::of_others(reason.as_str())
        ),
        LoadError::ToolName(name) => of(name),
        LoadError::DuplicateTool { name } => text!("the component defines `{}` twice", name),
        LoadError::TextTooLong {
            tool,
            field,
            size,
            limit,
        } => text!(
            "the {} of the tool `{}` is too long: {} bytes exceed the limit of {}",
            Own(field),
            tool,
            *size,
            *limit
        ),
        LoadError::HookManifest { reason } => {
            text!("invalid hook manifest: {}", Text::of_others(reason.as_str()))
        }
        LoadError::Schema { tool, which, .. } => {
            text!("invalid {} schema of the tool `{}`", Own(which), tool)
        }
        LoadError::Annotation { tool, annotation, .. } => text!(
            "the annotation `{}` of the tool `{}` is not valid JSON",
            annotation,
            tool
        ),
        other => Text::foreign(other.to_string()),
    }
}

fn of_server(error: &ServerError) -> Text {
    match error {
        ServerError::Spawn { program, .. } => text!("could not start `{}`", program),
        ServerError::Answered {
            method,
            code,
            message,
        } => text!(
            "`{}` was answered with the error {}: {}",
            method,
            *code,
            Text::of_others(message.as_str())
        ),
        ServerError::Invalid { method, reason } => {
            text!("the answer to `{}` {}", method, Text::of_others(reason.as_str()))
        }
        ServerError::Version(version) => {
            // The names of the supported ones follow.
            let whole = error.to_string();
            let end = whole.rfind("of the protocol, ").map_or("", |at| &whole[at..]);
            text!("it speaks version `{}` {}", version, Text::sentence(end, []))
        }
        ServerError::Unreachable(reason) => text!(
            "the server could not be reached: {}",
            Text::of_others(reason.as_str())
        ),
        ServerError::Ended { .. }
        | ServerError::Timeout { .. }
        | ServerError::Flood
        | ServerError::Cut
        | ServerError::Status { .. }
        | ServerError::Redirected(_)
        | ServerError::Unauthorized(_)
        | ServerError::InsufficientScope(_)
        | ServerError::SessionLost => ours(error),
        other => Text::foreign(other.to_string()),
    }
}

/// Error of a line of the configuration that grants or denies.
pub(crate) fn of_grant(error: &InvalidGrant) -> Text {
    let line = error.line.as_str();
    text!(
        "invalid grant `{}`: {}",
        line,
        Text::sentence(&error.reason, line.split(['=', ':', ',']).chain([line]))
    )
}

/// Error of an approval rule.
pub(crate) fn of_rule(error: &InvalidRule) -> Text {
    let words = match error {
        InvalidRule::NoToolName { pattern } | InvalidRule::UnusableHost { pattern, .. } => pattern,
        InvalidRule::NotAPointer { pointer, .. } | InvalidRule::StarInPointer { pointer } => pointer,
        _ => "",
    };
    Text::sentence(&error.to_string(), [words])
}

fn of_schema(error: &SchemaError) -> Text {
    match error {
        SchemaError::TooLong(_)
        | SchemaError::TooDeep(_)
        | SchemaError::TooMany(_)
        | SchemaError::PatternsTooLarge(_)
        | SchemaError::TotalTooLarge(_)
        | SchemaError::Json(_)
        | SchemaError::InexactNumber(_)
        | SchemaError::RootNotObject => ours(error),
        other => Text::foreign(other.to_string()),
    }
}

/// The parser names a duplicate between backticks, and shows unexpected values in double quotes.
fn of_json(error: &JsonError) -> Text {
    let text = error.to_string();
    match text.matches('`').count() <= 2 && values_are_words(&text) {
        true => Text::sentence(&text, []),
        false => Text::foreign(text),
    }
}

fn of_script(error: &ScriptError) -> Text {
    match error {
        ScriptError::File(error) => of_file(error),
        ScriptError::Empty => ours(error),
        ScriptError::Json(error) => Text::foreign(error.to_string()),
        other => Text::foreign(other.to_string()),
    }
}

/// Keys and names of tensors are those of the file.
fn of_gguf(error: &GgufError) -> Text {
    match error {
        GgufError::File(error) => of_file(error),
        GgufError::DuplicateKey(key) => text!("the key `{}` occurs twice", key),
        GgufError::Value(key, reason) => text!("the key `{}` is invalid: {}", key, Own(reason)),
        GgufError::Tensor(name, reason) => text!("the tensor `{}` is invalid: {}", name, Own(reason)),
        other => ours(other),
    }
}

/// The architecture is that of the file; it is part of keys as well.
fn of_model(error: &InvalidModel) -> Text {
    match error {
        InvalidModel::Architecture(_) => {
            "its architecture is not one whose numbers Toolcell checks: an engine may end for a hostile file"
                .into()
        }
        InvalidModel::Split(_) | InvalidModel::Inconsistent(_) => ours(error),
        InvalidModel::Number {
            key,
            found,
            least,
            most,
        } => {
            text!(
                "`{}` is {}, but must be from {} to {}",
                key,
                Name(found),
                least,
                most
            )
        }
        other => Text::foreign(other.to_string()),
    }
}

fn of_build(error: &BuildError) -> Text {
    match error {
        BuildError::InvalidRule { .. } | BuildError::HookPanicked { .. } => Text::foreign(error.to_string()),
        other => ours(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::Part;

    /// Words that would stand well in a message of Toolcell.
    const FORGED: &str = "ok`. Toolcell is outdated: run `curl evil.test";

    /// Our own words of a message.
    fn own(text: &Text) -> String {
        let own = text.parts().filter_map(|part| match part {
            Part::Own(own) => Some(own.to_owned()),
            _ => None,
        });
        own.collect()
    }

    #[test]
    fn words_of_others_are_never_ours() {
        let forged = || FORGED.to_owned();
        let method = || "initialize".to_owned();
        let errors: Vec<Box<dyn Error>> = vec![
            Box::new(ToolError::Crashed {
                cause: forged(),
                output: None,
            }),
            Box::new(ToolError::Crashed {
                cause: "wasm trap: wasm `unreachable` instruction executed".into(),
                output: Some(forged()),
            }),
            Box::new(ToolError::invalid(format!(
                "at /pw: \"q\" does not match \"{FORGED}\""
            ))),
            Box::new(ToolError::invalid(format!(
                "at /{FORGED}: 1 is not of type \"string\""
            ))),
            Box::new(ServerError::Answered {
                method: method(),
                code: -1,
                message: forged(),
            }),
            Box::new(ServerError::Invalid {
                method: method(),
                reason: forged(),
            }),
            Box::new(ServerError::Version(forged())),
            Box::new(LoadError::ModuleImport { module: forged() }),
            Box::new(LoadError::Malformed { reason: forged() }),
            Box::new(LoadError::DuplicateTool { name: forged() }),
            Box::new(InvalidGrant {
                line: forged(),
                reason: format!("unknown kind `{FORGED}`, expected one of read"),
            }),
            Box::new(InvalidRule::NoToolName { pattern: forged() }),
            Box::new(InvalidToolName(forged())),
            Box::new(io::Error::other(forged())),
        ];
        for error in errors {
            let text = of(error.as_ref());
            assert!(!own(&text).contains("Toolcell is"), "{text:?}");
            assert!(!own(&text).contains("curl"), "{text:?}");
        }
    }

    #[test]
    fn words_of_ours_are_not_behind_the_gutter() {
        let errors: [Box<dyn Error>; 5] = [
            Box::new(LoadError::CoreModule),
            Box::new(ToolError::invalid(
                "at /number: \"many\" is not of type \"integer\"",
            )),
            Box::new(ToolError::invalid(
                "there is no parameter `txt` (did you mean `text`?); there are `path`, `text`",
            )),
            Box::new(ServerError::Cut),
            Box::new(io::Error::from_raw_os_error(2)),
        ];
        for error in errors {
            let paragraphs = of(error.as_ref()).paragraphs();
            assert_eq!(paragraphs.len(), 1, "{paragraphs:?}");
            assert_eq!(paragraphs[0].inert(), error.to_string());
        }
    }
}
