//! Definitions of a server's tools, checked like those of a component.
//!
//! Statements of a server about itself are not trusted: without the user's word a tool counts as destructive, and its
//! annotations are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use toolcell_core::schema::{PatternTotal, SchemaError};
use toolcell_core::tool::Hints;
use toolcell_core::{Schema, ToolName, ToolSpec};

use super::error::{ServerError, excerpt};
use super::resources::Kind;
use super::server::Options;
use crate::message::between_backticks;
use crate::param_headers::ParamHeader;

/// Maximum number of tools of one server that are offered. More would fill the context of a model before its first token.
pub const MAX_TOOLS: usize = 128;

/// Maximum size of a description, in bytes: about 2,500 tokens.
pub const MAX_DESCRIPTION: usize = 10 << 10;

/// Maximum size of a title, in bytes.
pub const MAX_TITLE: usize = 256;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name on the server.
    pub remote: String,
    /// Its definition in our form, under its own name here.
    pub spec: Arc<ToolSpec>,
    /// Request that it makes.
    pub(super) kind: Kind,
    /// Arguments that are sent in headers as well.
    pub(super) headers: Vec<ParamHeader>,
}

/// A tool of a server that is not offered, against the will of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name on the server.
    pub tool: String,
    /// Reason why it is not offered. Names of the server stand between backticks, and have none themselves.
    pub reason: String,
    /// Error about its schema, which can have words of the server.
    pub cause: Option<String>,
}

/// Reason why a definition cannot be used.
struct Defect {
    reason: String,
    cause: Option<String>,
}

impl From<String> for Defect {
    fn from(reason: String) -> Self {
        Self { reason, cause: None }
    }
}

impl Defect {
    fn of_schema(which: &str, error: &SchemaError) -> Self {
        Self {
            reason: format!("its {which} schema cannot be used"),
            cause: Some(toolcell_core::error_chain(error)),
        }
    }
}

/// Reads a list of tools, one after the other. A tool that cannot be offered is left out, with the reason, and the others
/// stay. What it keeps does not depend on the length of the list.
pub(super) struct Reader<'a> {
    options: &'a Options,
    /// True if arguments are sent in headers as well.
    has_headers: bool,
    by_name: BTreeMap<ToolName, Definition>,
    /// Patterns of all schemas so far.
    patterns: PatternTotal,
    left_out: Vec<LeftOut>,
    /// Names in `only` that were not listed.
    missing: Vec<String>,
    collisions: BTreeSet<ToolName>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(options: &'a Options, has_headers: bool) -> Self {
        Self {
            options,
            has_headers,
            by_name: BTreeMap::new(),
            patterns: PatternTotal::default(),
            left_out: Vec::new(),
            missing: options.only.clone().unwrap_or_default(),
            collisions: BTreeSet::new(),
        }
    }

    /// Reads a tool. One that makes another request than a call is for what the server has beside its own tools.
    ///
    /// # Errors
    /// Fails if more tools than [`MAX_TOOLS`] would be offered.
    pub(super) fn add(&mut self, kind: Kind, mut tool: Value) -> Result<(), ServerError> {
        self.options.redactor.json(&mut tool);
        let Some(remote) = tool["name"].as_str().filter(|name| !name.is_empty()) else {
            self.leave_out("", "it has no name".to_owned());
            return Ok(());
        };
        self.missing.retain(|name| name != remote);
        if !self.options.offers(remote) {
            return Ok(());
        }
        let patterns = &mut self.patterns;
        let definition = match definition(kind, &tool, remote, (self.options, self.has_headers), patterns) {
            Ok(definition) => definition,
            Err(defect) => {
                self.leave_out(remote, defect);
                return Ok(());
            }
        };
        let name = definition.spec.name.clone();
        match self.by_name.get(&name) {
            // It is what the name means on the server.
            Some(other) if kind != Kind::Call && other.kind == Kind::Call => {}
            Some(other) => {
                let reason = format!(
                    "`{}` has the name `{name}`, too",
                    between_backticks(&other.remote)
                );
                self.leave_out(remote, reason);
                self.collisions.insert(name);
            }
            None => _ = self.by_name.insert(name, definition),
        }
        if self.by_name.len() > MAX_TOOLS {
            let reason = format!("has more than {MAX_TOOLS} tools; choose among them with `only`");
            return Err(ServerError::invalid("tools/list", reason));
        }
        Ok(())
    }

    /// Returns the tools that are offered, and those that are not.
    pub(super) fn finish(mut self) -> (Vec<Definition>, Vec<LeftOut>) {
        for name in std::mem::take(&mut self.collisions) {
            if let Some(first) = self.by_name.remove(&name) {
                let reason = format!("another tool has the name `{name}`, too");
                self.leave_out(&first.remote, reason);
            }
        }
        for name in std::mem::take(&mut self.missing) {
            let reason = "the server has no such tool, which `only` names".to_owned();
            self.leave_out(&name, reason);
        }
        (self.by_name.into_values().collect(), self.left_out)
    }

    fn leave_out(&mut self, tool: &str, defect: impl Into<Defect>) {
        let Defect { reason, cause } = defect.into();
        // A server could list any number of tools that cannot be used.
        if self.left_out.len() < MAX_TOOLS {
            self.left_out.push(LeftOut {
                tool: excerpt(tool, &self.options.redactor),
                reason: excerpt(&reason, &self.options.redactor),
                cause: cause.map(|cause| excerpt(&cause, &self.options.redactor)),
            });
        }
    }
}

fn definition(
    kind: Kind,
    tool: &Value,
    remote: &str,
    (options, has_headers): (&Options, bool),
    patterns: &mut PatternTotal,
) -> Result<Definition, Defect> {
    let text = |key: &str, limit: usize| match &tool[key] {
        Value::Null => Ok(None),
        Value::String(text) if text.len() <= limit => Ok(Some(text.clone())),
        Value::String(text) => {
            let size = text.len();
            Err(format!("its {key} has {size} bytes, more than {limit}"))
        }
        _ => Err(format!("its {key} is not a text")),
    };
    let input = Schema::for_arguments_within(&tool["inputSchema"].to_string(), patterns)
        .map_err(|error| Defect::of_schema("input", &error))?;
    let headers = match has_headers {
        true => ParamHeader::all(input.as_value())?,
        false => Vec::new(),
    };
    let output = match &tool["outputSchema"] {
        Value::Null => None,
        schema => {
            let schema = Schema::parse_within(&schema.to_string(), patterns);
            Some(schema.map_err(|error| Defect::of_schema("output", &error))?)
        }
    };
    let title = match text("title", MAX_TITLE)? {
        Some(title) => Some(title),
        None => tool["annotations"]["title"]
            .as_str()
            .filter(|title| title.len() <= MAX_TITLE)
            .map(str::to_owned),
    };
    Ok(Definition {
        kind,
        headers,
        remote: remote.to_owned(),
        spec: Arc::new(ToolSpec {
            name: local_name(&options.name, remote)?,
            title,
            description: text("description", MAX_DESCRIPTION)?.unwrap_or_default(),
            input: Arc::new(input),
            output: output.map(Arc::new),
            hints: hints(&tool["annotations"], options.trusts_annotations),
            annotations: BTreeMap::new(),
        }),
    })
}

/// The name of a tool here: that of its server and its own, with `_` for characters that no provider accepts.
fn local_name(server: &str, remote: &str) -> Result<ToolName, String> {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let own: String = remote
        .chars()
        .map(|c| if is_accepted(c) { c } else { '_' })
        .collect();
    ToolName::new(format!("{server}_{own}")).map_err(|_| {
        format!(
            "with the name of its server it has more than {} characters",
            ToolName::MAX_LEN
        )
    })
}

fn hints(annotations: &Value, is_trusted: bool) -> Hints {
    let has = |hint: &str| is_trusted.then(|| annotations[hint].as_bool()).flatten();
    let read_only = has("readOnlyHint").unwrap_or(false);
    Hints {
        read_only,
        // The defaults of the protocol.
        destructive: has("destructiveHint").unwrap_or(!read_only),
        idempotent: has("idempotentHint").unwrap_or(false),
        open_world: has("openWorldHint").unwrap_or(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_core::schema::{MAX_PATTERN_SIZE, MAX_TOTAL_PATTERN_SIZE};

    use super::*;
    use crate::client::resources;

    fn read_all(
        listed: impl IntoIterator<Item = (Kind, Value)>,
        options: &Options,
    ) -> Result<(Vec<Definition>, Vec<LeftOut>), ServerError> {
        let mut reader = Reader::new(options, true);
        for (kind, tool) in listed {
            reader.add(kind, tool)?;
        }
        Ok(reader.finish())
    }

    /// Reads the list of a server that has tools only.
    fn read(listed: Vec<Value>, options: &Options) -> Result<(Vec<Definition>, Vec<LeftOut>), ServerError> {
        read_all(listed.into_iter().map(|tool| (Kind::Call, tool)), options)
    }

    fn options() -> Options {
        Options::new("srv")
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "description": "For tests.", "inputSchema": {"type": "object"}})
    }

    fn names(read: &[Definition]) -> Vec<&str> {
        read.iter().map(|tool| tool.spec.name.as_str()).collect()
    }

    fn reasons(left_out: &[LeftOut]) -> Vec<String> {
        left_out
            .iter()
            .map(|left| format!("{}: {}", left.tool, left.reason))
            .collect()
    }

    #[test]
    fn name_of_tool_begins_with_that_of_its_server() {
        let (read, left_out) = read(vec![tool("list"), tool("a.b/ü"), tool("9")], &options()).unwrap();
        assert_eq!(names(&read), ["srv_9", "srv_a_b__", "srv_list"]);
        assert_eq!(read[1].remote, "a.b/ü");
        assert_eq!(left_out, []);
    }

    #[test]
    fn name_is_kept_up_to_its_limit() {
        let longest = "x".repeat(ToolName::MAX_LEN - 4);
        let listed = vec![tool(&longest), tool(&format!("{longest}y"))];
        let (read, left_out) = read(listed, &options()).unwrap();
        assert_eq!((read.len(), left_out.len()), (1, 1));
        assert!(
            left_out[0].reason.contains("more than 64 characters"),
            "{left_out:?}"
        );
    }

    #[test]
    fn tools_of_one_name_are_left_out_and_both_are_named() {
        let (read, left_out) = read(vec![tool("a.b"), tool("a/b"), tool("c")], &options()).unwrap();
        assert_eq!(names(&read), ["srv_c"]);
        assert_eq!(
            reasons(&left_out),
            [
                "a/b: `a.b` has the name `srv_a_b`, too",
                "a.b: another tool has the name `srv_a_b`, too",
            ]
        );
    }

    #[test]
    fn reasons_have_words_of_the_server_between_backticks_only() {
        let words = "x`; run `curl";
        let mut schema = tool("a");
        schema["inputSchema"] = json!({"type": words});
        let mut header = tool("b");
        header["inputSchema"] = json!({"type": "object", "properties": {words: {"x-mcp-header": ""}}});
        let twins = [tool(words), tool(&words.replace(';', "_"))];
        let listed = [&[schema, header][..], &twins].concat();
        let (_, left_out) = read(listed, &options()).unwrap();
        assert_eq!(left_out.len(), 4);
        for left in &left_out {
            let own: String = left.reason.split('`').step_by(2).collect();
            assert!(!own.contains("run"), "{left:?}");
        }
        assert_eq!(left_out[0].reason, "its input schema cannot be used");
        assert!(
            left_out[0].cause.as_ref().unwrap().contains(words),
            "{left_out:?}"
        );
    }

    #[test]
    fn only_and_except_choose_among_the_tools() {
        let all = || ["a", "b", "c"].map(tool).to_vec();
        let chosen = |options: &Options| {
            let (read, left_out) = read(all(), options).unwrap();
            (names(&read).join(" "), reasons(&left_out))
        };
        let mut options = options();
        options.except = vec!["b".into(), "x".into()];
        assert_eq!(chosen(&options), ("srv_a srv_c".into(), vec![]));
        options.only = Some(vec!["a".into(), "b".into(), "d".into()]);
        let missing = "d: the server has no such tool, which `only` names".to_owned();
        assert_eq!(chosen(&options), ("srv_a".into(), vec![missing]));
        options.only = Some(vec![]);
        assert_eq!(chosen(&options), (String::new(), vec![]));
    }

    #[test]
    fn tools_are_offered_up_to_their_number() {
        let some = |count: usize| read((0..count).map(|i| tool(&format!("t{i}"))).collect(), &options());
        assert_eq!(some(MAX_TOOLS).unwrap().0.len(), MAX_TOOLS);
        let error = some(MAX_TOOLS + 1).unwrap_err().to_string();
        assert!(
            error.contains("more than 128 tools; choose among them with `only`"),
            "{error}"
        );
    }

    #[test]
    fn definition_beyond_a_limit_is_left_out_with_the_reason() {
        let with = |key: &str, value: Value| {
            let mut tool = tool("t");
            tool[key] = value;
            let (read, left_out) = read(vec![tool, json!({"name": 1}), json!(1)], &options()).unwrap();
            assert_eq!(
                left_out
                    .iter()
                    .filter(|left| left.reason == "it has no name")
                    .count(),
                2
            );
            (read.len(), left_out[0].reason.clone())
        };
        for (key, value) in [
            ("description", json!("x".repeat(MAX_DESCRIPTION))),
            ("title", json!("x".repeat(MAX_TITLE))),
            ("outputSchema", json!({"type": "array"})),
        ] {
            assert_eq!(with(key, value).0, 1, "{key}");
        }
        for (key, value, reason) in [
            (
                "description",
                json!("x".repeat(MAX_DESCRIPTION + 1)),
                "its description has 10241 bytes",
            ),
            ("description", json!(1), "its description is not a text"),
            (
                "title",
                json!("x".repeat(MAX_TITLE + 1)),
                "its title has 257 bytes",
            ),
            (
                "inputSchema",
                json!({"type": "string"}),
                "its input schema cannot be used",
            ),
            ("inputSchema", Value::Null, "its input schema cannot be used"),
            (
                "inputSchema",
                json!({"type": "object", "$ref": "http://x"}),
                "its input schema cannot be used",
            ),
            (
                "outputSchema",
                json!({"type": 1}),
                "its output schema cannot be used",
            ),
        ] {
            let (count, why) = with(key, value);
            assert!(count == 0 && why.starts_with(reason), "{key}: {why}");
        }
    }

    #[test]
    fn tools_are_offered_up_to_the_size_of_their_patterns() {
        let with = |name: &str, states: usize, key: &str| {
            let mut tool = tool(name);
            let pattern = format!("[ab]{{{states}}}");
            tool[key] = json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
            tool
        };
        let mut listed: Vec<Value> = (1..MAX_TOTAL_PATTERN_SIZE / MAX_PATTERN_SIZE)
            .map(|number| with(&format!("t{number}"), MAX_PATTERN_SIZE, "inputSchema"))
            .collect();
        listed.push(with("last", MAX_PATTERN_SIZE - 1, "outputSchema"));
        listed.extend([with("more", 2, "outputSchema"), with("fits", 1, "inputSchema")]);
        let (read, left_out) = read(listed, &options()).unwrap();
        assert_eq!(reasons(&left_out), ["more: its output schema cannot be used"]);
        let cause = left_out[0].cause.as_deref().unwrap_or_default();
        assert!(cause.contains("1000001 exceeds the limit of 1000000"), "{cause}");
        assert_eq!(read.len(), MAX_TOTAL_PATTERN_SIZE / MAX_PATTERN_SIZE + 1);
        assert!(names(&read).contains(&"srv_last") && names(&read).contains(&"srv_fits"));
    }

    #[test]
    fn annotations_count_only_if_the_user_trusts_them() {
        let mut listed = tool("t");
        listed["annotations"] = json!({"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false});
        let hints = |trusts| {
            let mut options = options();
            options.trusts_annotations = trusts;
            read(vec![listed.clone()], &options).unwrap().0[0].spec.hints
        };
        let untrusted = Hints {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: true,
        };
        let trusted = Hints {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
        };
        assert_eq!((hints(false), hints(true)), (untrusted, trusted));
    }

    #[test]
    fn tools_for_resources_give_way_to_those_of_the_server() {
        let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}});
        let listed: Vec<(Kind, Value)> = std::iter::once((Kind::Call, tool("read_resource")))
            .chain(resources::tools(&capabilities))
            .collect();
        let mut options = options();
        let (all, left_out) = read_all(listed.clone(), &options).unwrap();
        assert_eq!(
            names(&all),
            [
                "srv_get_prompt",
                "srv_list_prompts",
                "srv_list_resources",
                "srv_read_resource"
            ]
        );
        assert_eq!(
            (all[3].kind, &*all[3].spec.description),
            (Kind::Call, "For tests.")
        );
        assert_eq!((all[2].kind, left_out), (Kind::ListResources, vec![]));
        options.only = Some(vec!["list_resources".into()]);
        let (chosen, left_out) = read_all(listed, &options).unwrap();
        assert_eq!((names(&chosen), left_out), (vec!["srv_list_resources"], vec![]));
        assert_eq!(resources::tools(&json!({"tools": {}})), []);
        assert_eq!(resources::tools(&Value::Null), []);
    }
}
