//! Answers to calls in the form of their method: results of tools, contents of resources, messages of prompts.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use toolcell_core::{CallResult, Content, PromptMessage, ToolError};

use super::not_found;
use crate::message::{self, RequestId, RpcError};
use crate::server::catalog::cacheable;
use crate::server::result::{RECEIPT_KEY, for_client, part};
use crate::version::Version;

/// Form of the answer to a call.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// Result of a tool, in which also its errors are.
    Tool,
    /// Contents of a resource.
    Resource {
        uri: String,
        /// That of its texts.
        media_type: Option<String>,
    },
    /// Messages of a prompt.
    Prompt { description: Option<String> },
}

/// Answer to a call that read a resource or got a prompt. Its errors are those of the protocol.
pub(crate) struct Response(Result<Map<String, Value>, RpcError>);

impl Response {
    /// Writes the answer.
    ///
    /// # Errors
    /// Fails if the output does.
    pub(crate) fn write(&self, output: &mut impl io::Write, id: &RequestId) -> io::Result<()> {
        match &self.0 {
            Ok(body) => message::write_response(output, id, body),
            Err(error) => output.write_all(&message::error(Some(id), error)),
        }
    }
}

/// Returns the answer to a call.
pub(crate) fn response(result: &CallResult, form: &Form, server: &Value, version: Version) -> Response {
    Response(match body(result, form, version) {
        Ok(mut body) => {
            let mut meta = Map::new();
            if let Some(receipt) = &result.receipt {
                meta.insert(RECEIPT_KEY.into(), json!(for_client(receipt)));
            }
            if version.is_stateless() {
                meta.insert("io.modelcontextprotocol/serverInfo".into(), server.clone());
                body.insert("resultType".into(), "complete".into());
            }
            if !meta.is_empty() {
                body.insert("_meta".into(), Value::Object(meta));
            }
            Ok(body)
        }
        Err(mut error) => {
            if let Some(receipt) = &result.receipt {
                let data = error.data.get_or_insert_with(|| json!({}));
                data[RECEIPT_KEY] = json!(for_client(receipt));
            }
            Err(error)
        }
    })
}

fn body(result: &CallResult, form: &Form, version: Version) -> Result<Map<String, Value>, RpcError> {
    let mut body = Map::new();
    match (form, &result.error) {
        (Form::Resource { uri, .. }, Some(ToolError::InvalidArguments { .. })) => {
            return Err(not_found(uri, version.is_stateless()));
        }
        (_, Some(error @ ToolError::InvalidArguments { .. })) => {
            return Err(RpcError::invalid_params(error.for_model()));
        }
        (_, Some(error)) => return Err(RpcError::failed(error.for_model())),
        (Form::Resource { uri, media_type }, None) => {
            let contents = result.content.iter();
            let contents = contents.map(|content| contents_of(content, uri, media_type.as_deref()));
            body.insert("contents".into(), contents.collect());
            if version.is_stateless() {
                // It may be another one the next time.
                cacheable(&mut body);
                body.insert("ttlMs".into(), 0.into());
            }
        }
        (Form::Prompt { description }, None) => {
            let Some(roles) = PromptMessage::roles(result) else {
                return Err(RpcError::failed("the messages of the prompt were cut".into()));
            };
            let messages = roles.iter().zip(&result.content).enumerate();
            let messages = messages.map(|(index, (role, content))| {
                json!({ "role": role.as_str(), "content": part(content, index, version) })
            });
            body.insert("messages".into(), messages.collect());
            if let Some(description) = description {
                body.insert("description".into(), description.as_str().into());
            }
        }
        (Form::Tool, None) => {}
    }
    Ok(body)
}

/// One part of the contents of a resource.
fn contents_of(content: &Content, uri: &str, media_type: Option<&str>) -> Value {
    let mut contents = json!({ "uri": uri });
    let media_type = match content {
        Content::Text { text } => {
            contents["text"] = text.as_str().into();
            media_type
        }
        Content::Link(link) => {
            contents["text"] = format!("{}: {}", link.name, link.uri).into();
            None
        }
        Content::Blob(blob) => {
            contents["blob"] = STANDARD.encode(&blob.data).into();
            Some(blob.media_type.as_str())
        }
    };
    if let Some(media_type) = media_type {
        contents["mimeType"] = media_type.into();
    }
    contents
}
