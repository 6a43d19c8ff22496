//! Resources and prompts of a server, as tools: for each of both, one that lists and one that reads. They exist if the
//! server states the capability.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolcell_core::tool::CallObserver;
use toolcell_core::{Redactor, Tool, ToolError};

use super::definition::Definition;
use super::error::{ServerError, excerpt};
use super::link::Ask;
use super::server::McpServer;
use super::session::Session;
use super::tool::ServerTool;

/// Maximum number of entries that a list shows.
pub const MAX_ENTRIES: usize = 1_000;

/// Maximum size of a list that is shown, in bytes: some hundred tokens for each of the entries.
pub const MAX_LIST_BYTES: usize = 1 << 20;

/// Request that a tool makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call of a tool of the server.
    Call,
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
    /// Like `GetPrompt`, for a prompt that the user sends.
    UsePrompt,
}

/// A prompt of a server. All texts are of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptInfo {
    /// Its name on the server.
    pub name: String,
    /// Its description; can be empty.
    pub description: String,
    /// Names of its arguments, and whether they are required.
    pub arguments: Vec<(String, bool)>,
}

impl PromptInfo {
    fn of(entry: &Value, redactor: &Redactor) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(|text| excerpt(text, redactor));
        let arguments = entry["arguments"].as_array().into_iter().flatten();
        Some(Self {
            name: text(&entry["name"])?,
            description: text(&entry["description"]).unwrap_or_default(),
            arguments: arguments
                .take(MAX_ARGUMENTS)
                .filter_map(|argument| Some((text(&argument["name"])?, argument["required"] == true)))
                .collect(),
        })
    }
}

impl McpServer {
    /// Returns the tool that reads a resource by its `uri`; `None` if it is not offered.
    pub fn resource_reader(self: &Arc<Self>) -> Option<Arc<dyn Tool>> {
        self.looking(Kind::ReadResource, Kind::ReadResource)
    }

    /// Returns the tool that gets a prompt by its `name`, with `arguments`, as a message of the user; `None` if prompts are not
    /// offered.
    pub fn prompt_reader(self: &Arc<Self>) -> Option<Arc<dyn Tool>> {
        self.looking(Kind::GetPrompt, Kind::UsePrompt)
    }

    /// Returns the tool of one kind, as another one.
    fn looking(self: &Arc<Self>, kind: Kind, as_kind: Kind) -> Option<Arc<dyn Tool>> {
        let definition = self
            .definitions()
            .iter()
            .find(|definition| definition.kind == kind)?;
        let definition = Definition {
            kind: as_kind,
            ..definition.clone()
        };
        Some(Arc::new(ServerTool::new(self.clone(), definition)))
    }

    /// Lists the prompts of the server, at most [`MAX_ENTRIES`]. There are none if prompts are not offered.
    ///
    /// # Errors
    /// Fails if the server does not run, or answers with something else.
    pub async fn prompts(&self) -> Result<Vec<PromptInfo>, ToolError> {
        let definition = self.definitions().iter().find(|one| one.kind == Kind::GetPrompt);
        let Some(definition) = definition else {
            return Ok(Vec::new());
        };
        let limit = self.options.call_timeout;
        let mut prompts = Vec::new();
        let mut add = |entry: Value| {
            if prompts.len() < MAX_ENTRIES {
                prompts.extend(PromptInfo::of(&entry, &self.options.redactor));
            }
            Ok(())
        };
        self.list_prompts(definition, limit, &mut add).await?;
        Ok(prompts)
    }
}

/// Maximum number of arguments of a prompt that are known.
const MAX_ARGUMENTS: usize = 64;

/// Members of an entry that are shown.
const SHOWN: [&str; 8] = [
    "uri",
    "uriTemplate",
    "name",
    "title",
    "description",
    "mimeType",
    "size",
    "arguments",
];

/// Tools for what a server has beside its own, in the form in which it would list them.
pub(super) fn tools(capabilities: &Value) -> Vec<(Kind, Value)> {
    let tool = |kind, name: &str, description: &str, properties: Value, required: &[&str]| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        let tool = json!({ "name": name, "description": description, "inputSchema": schema });
        (kind, tool)
    };
    let mut tools = Vec::new();
    if capabilities["resources"].is_object() {
        tools.push(tool(
            Kind::ListResources,
            "list_resources",
            "Lists the resources of the server, one in each line as JSON, and templates for the URIs of others.",
            json!({}),
            &[],
        ));
        tools.push(tool(
            Kind::ReadResource,
            "read_resource",
            "Reads a resource of the server by its URI.",
            json!({ "uri": { "type": "string", "description": "URI as it is listed, or made from a template." } }),
            &["uri"],
        ));
    }
    if capabilities["prompts"].is_object() {
        tools.push(tool(
            Kind::ListPrompts,
            "list_prompts",
            "Lists the prompts of the server, one in each line as JSON.",
            json!({}),
            &[],
        ));
        tools.push(tool(
            Kind::GetPrompt,
            "get_prompt",
            "Returns the messages of a prompt of the server.",
            json!({
                "name": { "type": "string", "description": "Name as it is listed." },
                "arguments": {
                    "type": "object", "additionalProperties": { "type": "string" },
                    "description": "Its arguments by name.",
                },
            }),
            &["name"],
        ));
    }
    tools
}

impl Session {
    /// Makes the requests of a tool that is none of the server's own. Returns what they say as the result of a call.
    pub(super) async fn call_builtin(
        &self,
        kind: Kind,
        arguments: Map<String, Value>,
        limit: Duration,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Value, ServerError> {
        let (method, key) = match kind {
            Kind::ListResources => {
                let stopwatch = self.link.stopwatch();
                let mut lines = Lines::new(self.link.redactor());
                let mut add = |entry: Value| {
                    lines.add(&entry);
                    Ok(())
                };
                self.list("resources/list", "resources", limit, &mut add).await?;
                let left = limit.saturating_sub(stopwatch.elapsed());
                let templates = self.list("resources/templates/list", "resourceTemplates", left, &mut add);
                templates.await?;
                return Ok(lines.finish());
            }
            Kind::ListPrompts => {
                let mut lines = Lines::new(self.link.redactor());
                let mut add = |entry: Value| {
                    lines.add(&entry);
                    Ok(())
                };
                self.list("prompts/list", "prompts", limit, &mut add).await?;
                return Ok(lines.finish());
            }
            Kind::ReadResource => ("resources/read", "contents"),
            Kind::GetPrompt | Kind::UsePrompt | Kind::Call => ("prompts/get", "messages"),
        };
        let ask = Ask {
            observer: Some(observer),
            ..Ask::new(method, Value::Object(arguments), limit)
        };
        let mut result = self.ask(ask).await?;
        let Some(Value::Array(parts)) = result.get_mut(key).map(Value::take) else {
            return Err(ServerError::invalid(method, format!("has no list of {key}")));
        };
        let parts: Vec<Value> = match kind {
            Kind::ReadResource => (parts.into_iter())
                .map(|part| json!({ "type": "resource", "resource": part }))
                .collect(),
            _ => (parts.into_iter())
                .flat_map(|part| message(part, kind == Kind::UsePrompt, self.link.redactor()))
                .collect(),
        };
        Ok(json!({ "content": parts }))
    }
}

/// Entries of a list, one in each line. Those beyond [`MAX_ENTRIES`] or [`MAX_LIST_BYTES`] are counted.
struct Lines<'a> {
    redactor: &'a Redactor,
    lines: Vec<String>,
    bytes: usize,
    left_out: usize,
}

impl<'a> Lines<'a> {
    fn new(redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            lines: Vec::new(),
            bytes: 0,
            left_out: 0,
        }
    }

    fn add(&mut self, entry: &Value) {
        let line = (self.lines.len() < MAX_ENTRIES).then(|| line(entry, self.redactor));
        match line.filter(|line| self.bytes + line.len() <= MAX_LIST_BYTES) {
            Some(line) => {
                self.bytes += line.len();
                self.lines.push(line);
            }
            None => self.left_out += 1,
        }
    }

    /// The lines as the result of a call.
    fn finish(mut self) -> Value {
        if self.left_out > 0 {
            self.lines
                .push(format!("[{} more entries left out]", self.left_out));
        }
        if self.lines.is_empty() {
            self.lines.push("[the list is empty]".into());
        }
        json!({ "content": [{ "type": "text", "text": self.lines.join("\n") }] })
    }
}

fn line(entry: &Value, redactor: &Redactor) -> String {
    let shown = SHOWN.iter().filter_map(|key| {
        let value = match entry.get(key)? {
            Value::String(text) => json!(excerpt(text, redactor)),
            value => value.clone(),
        };
        Some(((*key).to_owned(), value))
    });
    Value::Object(shown.collect()).to_string()
}

/// A message of a prompt, as parts of a result. In a message of the user, only those of others say whose they are.
fn message(message: Value, is_of_user: bool, redactor: &Redactor) -> Vec<Value> {
    let role = message["role"].as_str().unwrap_or("message").to_owned();
    if is_of_user && role == "user" {
        return vec![message["content"].clone()];
    }
    let role = excerpt(&role, redactor);
    let label = |text: &str| json!({ "type": "text", "text": format!("{role}: {text}") });
    match &message["content"] {
        content if content["type"] == "text" => vec![label(content["text"].as_str().unwrap_or_default())],
        content => vec![label(""), content.clone()],
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::Content;

    use super::*;
    use crate::client::testing::{Does, Scripted, Seen, call_with, polite, result};

    /// A server with resources and prompts.
    fn scripted() -> Scripted {
        Scripted::new(|_, message| match message["method"].as_str() {
            Some("initialize") => vec![result(
                message,
                json!({"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "prompts": {}}}),
            )],
            Some("resources/list") => match message["params"]["cursor"].as_str() {
                None => vec![result(
                    message,
                    json!({"resources": [{"uri": "x:1", "name": "one", "odd": 1}], "nextCursor": "2"}),
                )],
                Some(_) => vec![result(
                    message,
                    json!({"resources": [{"uri": "x:2", "name": "y".repeat(2_000)}]}),
                )],
            },
            Some("prompts/list") => {
                let prompts = vec![json!({"name": "p"}); MAX_ENTRIES + 1];
                vec![result(message, json!({ "prompts": prompts }))]
            }
            Some("resources/read") => match message["params"]["uri"].as_str() {
                Some("x:1") => vec![result(
                    message,
                    json!({"contents": [{"uri": "x:1", "text": "first"}, {"uri": "x:1", "blob": "/wA=", "mimeType": "image/png"}]}),
                )],
                Some("x:odd") => vec![result(message, json!({"contents": 1}))],
                _ => vec![Does::Say(
                    json!({"id": message["id"], "error": {"code": -32002, "message": "not found"}}),
                )],
            },
            Some("prompts/get") => vec![result(
                message,
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": format!("Review {}.", message["params"]["arguments"]["file"])}}]}),
            )],
            _ => polite(message, &[]),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn list_that_is_shown_has_a_limited_size() {
        for (more, left_out) in [(0, false), (1, true)] {
            let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
                Some("initialize") => vec![result(
                    message,
                    json!({"protocolVersion": "2025-06-18", "capabilities": {"prompts": {}}}),
                )],
                // Two entries in two pages, which have this size together.
                Some("prompts/list") => {
                    let is_last = message["params"]["cursor"] == "2";
                    let size = MAX_LIST_BYTES / 2 + usize::from(is_last) * more;
                    let entry = json!({ "arguments": ["x".repeat(size - r#"{"arguments":[""]}"#.len())] });
                    let next = (!is_last).then_some("2");
                    vec![result(message, json!({ "prompts": [entry], "nextCursor": next }))]
                }
                _ => polite(message, &[]),
            });
            let server = scripted.start().await;
            let listed = call_with(&server, "_list_prompts", json!({}), Arc::default()).await;
            let Content::Text { text } = &listed.content[0] else {
                panic!("{:?}", listed.error)
            };
            assert_eq!(text.ends_with("\n[1 more entries left out]"), left_out);
            assert_eq!(text.lines().count(), 2);
            assert!(text.len() <= MAX_LIST_BYTES + 40);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn prompt_of_a_server_is_a_message_of_the_user() {
        let scripted = Scripted::new(|_, message| match message["method"].as_str() {
            Some("initialize") => vec![result(
                message,
                json!({"protocolVersion": "2025-06-18", "capabilities": {"prompts": {}}}),
            )],
            Some("prompts/list") => vec![result(
                message,
                json!({"prompts": [
                    {"name": "review", "description": "Reviews.", "arguments": [{"name": "file", "required": true}, {"name": "by"}, 7]},
                    {"title": "without a name"},
                    {"name": "many", "arguments": vec![json!({"name": "a"}); MAX_ARGUMENTS + 1]},
                    {"name": "x".repeat(2_000)},
                ]}),
            )],
            Some("prompts/get") => vec![result(
                message,
                json!({"messages": [
                    {"role": "user", "content": {"type": "text", "text": "Review it."}},
                    {"role": "assistant", "content": {"type": "text", "text": "Yes."}},
                ]}),
            )],
            _ => polite(message, &[("t", "For tests.")]),
        });
        let server = scripted.start().await;
        let prompts = server.prompts().await.unwrap();
        let review = PromptInfo {
            name: "review".into(),
            description: "Reviews.".into(),
            arguments: vec![("file".into(), true), ("by".into(), false)],
        };
        assert_eq!((&prompts[0], prompts.len()), (&review, 3));
        assert_eq!(prompts[1].arguments.len(), MAX_ARGUMENTS);
        assert!(prompts[2].name.len() < 1_100);
        let reader = server.prompt_reader().unwrap();
        let call = toolcell_core::ToolCall {
            id: "1".into(),
            name: reader.spec().name.clone(),
            arguments: Map::from_iter([("name".to_owned(), json!("review"))]),
        };
        let got = reader.call(call, toolcell_core::CallContext::unobserved()).await;
        assert_eq!(
            got.content,
            [Content::text("Review it."), Content::text("assistant: Yes.")]
        );
        assert!(server.resource_reader().is_none());
        // A server without prompts is not asked.
        let plain = Scripted::calls(|_, _| vec![]);
        let server = plain.start().await;
        assert_eq!(server.prompts().await.unwrap(), []);
        assert!(server.prompt_reader().is_none() && plain.received("prompts/list").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn resources_and_prompts_are_listed_and_read() {
        let scripted = scripted();
        let server = scripted.start().await;
        let look = async |tool: &str, arguments: Value| {
            let called = call_with(&server, tool, arguments, Arc::new(Seen::default())).await;
            called.into_result()
        };
        let text = |result: &toolcell_core::CallResult| match &result.content[0] {
            Content::Text { text } => text.clone(),
            other => panic!("{other:?}"),
        };
        let listed = text(&look("_list_resources", json!({})).await.unwrap());
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines[0], r#"{"name":"one","uri":"x:1"}"#);
        assert!(lines.len() == 2 && lines[1].len() < 1_100, "{listed}");
        let read = look("_read_resource", json!({"uri": "x:1"})).await.unwrap();
        assert_eq!(text(&read), "first");
        assert!(matches!(&read.content[1], Content::Blob(blob) if blob.data == [255, 0]));
        let prompts = text(&look("_list_prompts", json!({})).await.unwrap());
        assert_eq!(prompts.lines().count(), MAX_ENTRIES + 1);
        assert!(prompts.ends_with("[1 more entries left out]"));
        let prompt = look("_get_prompt", json!({"name": "p", "arguments": {"file": "a"}})).await;
        assert_eq!(text(&prompt.unwrap()), "user: Review \"a\".");
        for (uri, why) in [("x:odd", "has no list of contents"), ("x:gone", "not found")] {
            let error = look("_read_resource", json!({ "uri": uri })).await.unwrap_err();
            assert!(
                matches!(&error, ToolError::Failed { message } if message.contains(why)),
                "{error}"
            );
        }
    }
}
