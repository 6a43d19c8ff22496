//! Definitions of a component's tools: read once, validated, cached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolcell_core::schema::{PatternTotal, SchemaError};
use toolcell_core::tool::{CallObserver, Hints, LogLine, LogSource};
use toolcell_core::{Limits, Policy, Schema, ToolName, ToolSpec};
use wasmtime::Store;

use crate::bindings::{self, Definition, Provider, ProviderPre};
use crate::cell::GuestCall;
use crate::cell::state::CellState;
use crate::error::LoadError;

/// Maximum number of tools in one component. More would fill the context of a model before its first token.
pub(crate) const MAX_TOOLS: usize = 128;

/// Maximum size of a description, in bytes: about 2,500 tokens.
pub(crate) const MAX_DESCRIPTION: usize = 10 << 10;

/// Maximum size of a title, in bytes.
const MAX_TITLE: usize = 256;

/// Maximum size of all annotations of a tool, in bytes.
const MAX_ANNOTATIONS: usize = 16 << 10;

/// Maximum size of what a component logs while it defines its tools, in bytes; its author reads it if that fails.
const MAX_LOG: u64 = 8 << 10;

/// Policy of the cell in which definitions are read: nothing granted, low limits. Fuel and time suffice for an
/// interpreter to start.
pub(crate) fn bare_policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: 1_000_000_000,
            wall_ms: 10_000,
            log: MAX_LOG,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// What a component logs while it defines its tools.
#[derive(Debug, Default)]
pub(crate) struct DefinitionLog(Mutex<String>);

impl DefinitionLog {
    /// Returns the lines, at most [`MAX_LOG`] bytes and a line end for each.
    pub(crate) fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl CallObserver for DefinitionLog {
    fn log(&self, line: LogLine) {
        if matches!(line.source, LogSource::Host | LogSource::Backtrace) {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&line.message);
        lines.push('\n');
    }
}

/// One definition as stored in the cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    name: String,
    title: Option<String>,
    description: String,
    input: String,
    output: Option<String>,
    hints: Hints,
    annotations: Vec<(String, String)>,
}

/// Reads the definitions of a guest.
pub(crate) struct Ask;

impl GuestCall for Ask {
    type World = ProviderPre<CellState>;
    type Done = Vec<Stored>;

    async fn call_guest(
        self,
        guest: &Provider,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Vec<Stored>> {
        let definitions = guest.toolcell_tool_tools().call_definitions(store).await?;
        Ok(definitions.into_iter().map(Stored::from).collect())
    }

    fn bytes_out(done: &Vec<Stored>) -> u64 {
        done.iter().map(Stored::byte_len).sum()
    }
}

impl Stored {
    /// Returns the definition of a function that is a tool.
    pub(crate) fn of_function(
        name: String,
        description: String,
        input: String,
        output: Option<String>,
    ) -> Self {
        Self {
            name,
            title: None,
            description,
            input,
            output,
            hints: Hints::default(),
            annotations: Vec::new(),
        }
    }

    fn byte_len(&self) -> u64 {
        let annotations: usize = (self.annotations.iter()).map(|(n, v)| n.len() + v.len()).sum();
        (self.name.len()
            + self.title.as_ref().map_or(0, String::len)
            + self.description.len()
            + self.input.len()
            + self.output.as_ref().map_or(0, String::len)
            + annotations) as u64
    }
}

impl From<Definition> for Stored {
    fn from(definition: Definition) -> Self {
        let has = |hint| definition.hints.contains(hint);
        Self {
            hints: Hints {
                read_only: has(bindings::Hints::READ_ONLY),
                destructive: has(bindings::Hints::DESTRUCTIVE),
                idempotent: has(bindings::Hints::IDEMPOTENT),
                open_world: has(bindings::Hints::OPEN_WORLD),
            },
            name: definition.name,
            title: definition.title,
            description: definition.description,
            input: definition.input_schema,
            output: definition.output_schema,
            annotations: definition.annotations,
        }
    }
}

/// Converts definitions that passed [`check`] under the same rules, without checking them again.
pub(crate) fn checked(stored: Vec<Stored>) -> Result<Vec<Arc<ToolSpec>>, LoadError> {
    stored
        .into_iter()
        .map(|definition| {
            let parse = |text: &str, _: &mut PatternTotal| Schema::parse_checked(text);
            convert(definition, parse, parse, &mut PatternTotal::default()).map(Arc::new)
        })
        .collect()
}

/// Validates the definitions of one component.
pub(crate) fn check(stored: Vec<Stored>) -> Result<Vec<Arc<ToolSpec>>, LoadError> {
    if stored.is_empty() || stored.len() > MAX_TOOLS {
        return Err(LoadError::ToolCount {
            count: stored.len(),
            limit: MAX_TOOLS,
        });
    }
    let mut names = BTreeSet::new();
    let mut specs = Vec::with_capacity(stored.len());
    let mut patterns = PatternTotal::default();
    for definition in stored {
        let spec = check_one(definition, &mut patterns)?;
        if !names.insert(spec.name.clone()) {
            return Err(LoadError::DuplicateTool {
                name: spec.name.into(),
            });
        }
        specs.push(Arc::new(spec));
    }
    Ok(specs)
}

/// Checks the length of a description.
pub(crate) fn check_description(tool: &str, description: &str) -> Result<(), LoadError> {
    match description.len() {
        size if size > MAX_DESCRIPTION => Err(LoadError::TextTooLong {
            tool: tool.to_owned(),
            field: "description",
            size,
            limit: MAX_DESCRIPTION,
        }),
        _ => Ok(()),
    }
}

fn check_one(definition: Stored, patterns: &mut PatternTotal) -> Result<ToolSpec, LoadError> {
    let name = &definition.name;
    let at_most = |field, text: &str, limit| {
        if text.len() > limit {
            Err(LoadError::TextTooLong {
                tool: name.clone(),
                field,
                size: text.len(),
                limit,
            })
        } else {
            Ok(())
        }
    };
    ToolName::new(name.clone()).map_err(LoadError::ToolName)?;
    check_description(name, &definition.description)?;
    at_most(
        "title",
        definition.title.as_deref().unwrap_or_default(),
        MAX_TITLE,
    )?;
    convert(
        definition,
        Schema::for_arguments_within,
        Schema::parse_within,
        patterns,
    )
}

/// Parser of a schema whose patterns count together with others.
type Parse = fn(&str, &mut PatternTotal) -> Result<Schema, SchemaError>;

/// Converts a definition, with these parsers of its schemas.
fn convert(
    definition: Stored,
    input: Parse,
    output: Parse,
    patterns: &mut PatternTotal,
) -> Result<ToolSpec, LoadError> {
    let name = ToolName::new(definition.name).map_err(LoadError::ToolName)?;
    let schema_error = |which| {
        let tool = name.to_string();
        move |source| LoadError::Schema { tool, which, source }
    };
    let input = input(&definition.input, patterns).map_err(schema_error("input"))?;
    let output = definition
        .output
        .as_deref()
        .map(|text| output(text, patterns))
        .transpose()
        .map_err(schema_error("output"))?;
    let mut annotations = BTreeMap::new();
    let mut room = MAX_ANNOTATIONS;
    for (key, text) in definition.annotations {
        let size = key.len() + text.len();
        room = room.checked_sub(size).ok_or_else(|| LoadError::TextTooLong {
            tool: name.to_string(),
            field: "list of annotations",
            size: MAX_ANNOTATIONS - room + size,
            limit: MAX_ANNOTATIONS,
        })?;
        let value = toolcell_core::json::parse_value(&text).map_err(|source| LoadError::Annotation {
            tool: name.to_string(),
            annotation: crate::cell::failure::cut(key.clone(), 64),
            source,
        })?;
        annotations.insert(key, value);
    }
    Ok(ToolSpec {
        name,
        title: definition.title,
        description: definition.description,
        input: Arc::new(input),
        output: output.map(Arc::new),
        hints: definition.hints,
        annotations,
    })
}

#[cfg(test)]
mod tests {
    use toolcell_core::schema::{MAX_PATTERN_SIZE, MAX_TOTAL_PATTERN_SIZE};

    use super::*;

    fn tool(name: &str) -> Stored {
        Stored {
            name: name.into(),
            title: None,
            description: "Does it.".into(),
            input: r#"{"type":"object"}"#.into(),
            output: None,
            hints: Hints::default(),
            annotations: Vec::new(),
        }
    }

    #[test]
    fn number_of_tools_is_limited() {
        let some = |n: usize| check((0..n).map(|i| tool(&format!("t{i}"))).collect());
        assert!(some(0).is_err());
        assert!(some(1).is_ok());
        assert!(some(MAX_TOOLS).is_ok());
        assert!(some(MAX_TOOLS + 1).is_err());
    }

    #[test]
    fn invalid_definition_is_rejected_with_the_name_of_the_tool() {
        let annotated = |value: &str| Stored {
            annotations: vec![("x".into(), value.into())],
            ..tool("a")
        };
        for (stored, message) in [
            (vec![tool("a"), tool("a")], "defines `a` twice"),
            (vec![tool("a b")], "invalid tool name `a b`"),
            (
                vec![Stored {
                    input: "{".into(),
                    ..tool("a")
                }],
                "input schema of the tool `a`",
            ),
            (
                vec![Stored {
                    output: Some(r#"{"type":"objekt"}"#.into()),
                    ..tool("a")
                }],
                "output schema of the tool `a`",
            ),
            (
                vec![Stored {
                    description: "x".repeat(MAX_DESCRIPTION + 1),
                    ..tool("a")
                }],
                "the description of the tool `a` is too long: 10241 bytes",
            ),
            (
                vec![Stored {
                    title: Some("x".repeat(MAX_TITLE + 1)),
                    ..tool("a")
                }],
                "the title of the tool `a`",
            ),
            (vec![annotated("{")], "the annotation `x` of the tool `a`"),
            (
                vec![annotated(&format!("\"{}\"", "x".repeat(MAX_ANNOTATIONS)))],
                "the list of annotations of the tool `a` is too long: 16387 bytes exceed the limit of 16384",
            ),
        ] {
            let error = check(stored).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let longest = Stored {
            description: "x".repeat(MAX_DESCRIPTION),
            title: Some("x".repeat(MAX_TITLE)),
            ..annotated(&format!("\"{}\"", "x".repeat(MAX_ANNOTATIONS - 3)))
        };
        assert!(check(vec![longest]).is_ok());
    }

    #[test]
    fn patterns_of_all_tools_have_a_total_size() {
        let with = |number: usize, states: usize| Stored {
            input: format!(r#"{{"type":"object","properties":{{"a":{{"pattern":"[ab]{{{states}}}"}}}}}}"#),
            ..tool(&format!("t{number}"))
        };
        let count = MAX_TOTAL_PATTERN_SIZE / MAX_PATTERN_SIZE;
        let all = |last: Option<Stored>| {
            let full = (0..count).map(|number| with(number, MAX_PATTERN_SIZE));
            check(full.chain(last).collect())
        };
        assert_eq!(all(None).unwrap().len(), count);
        let error = all(Some(with(count, 1))).unwrap_err().to_string();
        assert!(error.contains("input schema of the tool `t5`"), "{error}");
        assert!(matches!(
            all(Some(with(count, 1))).unwrap_err(),
            LoadError::Schema { source: SchemaError::TotalTooLarge(size), .. } if size == MAX_TOTAL_PATTERN_SIZE + 1
        ));
    }

    #[test]
    fn size_of_definitions_counts_each_of_their_texts() {
        let text = |bytes: usize| "x".repeat(bytes);
        let definition = Stored {
            name: text(1),
            title: Some(text(2)),
            description: text(4),
            input: text(8),
            output: Some(text(0x10)),
            hints: Hints::default(),
            annotations: vec![(text(0x20), text(0x40))],
        };
        assert_eq!(Ask::bytes_out(&vec![definition.clone()]), 0x7f);
        assert_eq!(Ask::bytes_out(&vec![definition.clone(), definition]), 2 * 0x7f);
    }

    #[test]
    fn definitions_are_read_without_grants_and_within_low_limits() {
        let policy = bare_policy();
        assert_eq!(policy.grants, toolcell_core::Grants::default());
        let (bare, normal) = (policy.limits, Limits::default());
        assert_eq!(
            (bare.fuel, bare.wall_ms, bare.log),
            (1_000_000_000, 10_000, MAX_LOG)
        );
        assert!(bare.fuel < normal.fuel && bare.wall_ms < normal.wall_ms);
    }
}
