//! Results of calls, in the form of each version.

use std::borrow::Cow;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use toolcell_core::{Blob, CallResult, Content, Receipt};

use crate::message::{self, RequestId};
use crate::server::context::{self, Form};
use crate::server::outbox::compact_json::CompactJson;
use crate::version::Version;

/// Key of the call's receipt in the `_meta` of its result.
pub const RECEIPT_KEY: &str = "io.github.toolcell/receipt";

/// Result of `tools/call`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallToolResult<'a> {
    content: Vec<Part<'a>>,
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    #[serde(rename = "_meta", skip_serializing_if = "Meta::is_empty")]
    meta: Meta<'a>,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(
        rename = "io.github.toolcell/receipt",
        skip_serializing_if = "Option::is_none"
    )]
    receipt: Option<Receipt>,
    #[serde(
        rename = "io.modelcontextprotocol/serverInfo",
        skip_serializing_if = "Option::is_none"
    )]
    server: Option<&'a Value>,
}

impl Meta<'_> {
    fn is_empty(&self) -> bool {
        self.receipt.is_none() && self.server.is_none()
    }
}

/// Part of the content.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Part<'a> {
    Text {
        text: PartText<'a>,
    },
    Image {
        data: String,
        mime_type: &'a str,
    },
    Audio {
        data: String,
        mime_type: &'a str,
    },
    ResourceLink {
        uri: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a str>,
    },
    Resource {
        resource: Bytes<'a>,
    },
}

/// Text of a part.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum PartText<'a> {
    Own(Cow<'a, str>),
    Json(&'a CompactJson),
}

/// Bytes that are neither an image nor audio: a resource without an address of its own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bytes<'a> {
    uri: String,
    mime_type: &'a str,
    blob: String,
}

/// Result of a call that is not sent yet, without the memory of a parsed value.
pub(crate) struct Unsent {
    result: CallResult,
    form: Form,
    /// Structured result as JSON, and whether it is an object.
    structured: Option<(CompactJson, bool)>,
}

impl Unsent {
    pub(crate) fn new(mut result: CallResult, form: Form) -> Self {
        if !matches!(form, Form::Tool) {
            let structured = None;
            return Self {
                result,
                form,
                structured,
            };
        }
        let structured = result.structured.take().filter(|_| result.error.is_none());
        Self {
            structured: structured.map(|value| (CompactJson::of(&value), value.is_object())),
            result,
            form,
        }
    }

    /// Writes the response. `server` describes the server, for versions without sessions.
    ///
    /// # Errors
    /// Fails if the output does.
    pub(crate) fn write(
        &self,
        output: &mut impl io::Write,
        id: &RequestId,
        server: &Value,
        version: Version,
    ) -> io::Result<()> {
        if !matches!(self.form, Form::Tool) {
            let response = context::response(&self.result, &self.form, server, version);
            return response.write(output, id);
        }
        let structured = self.structured.as_ref();
        let result = CallToolResult::new(&self.result, structured.map(|(json, _)| json), server, version);
        let is_allowed =
            |is_object: bool| version.is_stateless() || (version >= Version::V2025_06_18 && is_object);
        match structured {
            Some((json, is_object)) if is_allowed(*is_object) => {
                message::write_response_with(output, id, ("structuredContent", json), &result)
            }
            _ => message::write_response(output, id, &result),
        }
    }
}

impl<'a> CallToolResult<'a> {
    /// Converts a result; its structured part is also its text if it has no other.
    fn new(
        result: &'a CallResult,
        structured: Option<&'a CompactJson>,
        server: &'a Value,
        version: Version,
    ) -> Self {
        let mut content: Vec<Part<'a>> = (result.content.iter().enumerate())
            .map(|(index, content)| part(content, index, version))
            .collect();
        if let Some(json) = structured.filter(|_| content.is_empty()) {
            content.push(Part::Text {
                text: PartText::Json(json),
            });
        }
        Self {
            content,
            is_error: result.error.is_some(),
            result_type: version.is_stateless().then_some("complete"),
            meta: Meta {
                receipt: result.receipt.as_ref().map(for_client),
                server: Some(server).filter(|_| version.is_stateless()),
            },
        }
    }
}

/// Removes text for the user only, such as the grant that would allow a denied access. A client may show `_meta` to its model.
pub(super) fn for_client(receipt: &Receipt) -> Receipt {
    let mut receipt = receipt.clone();
    for denial in &mut receipt.denials {
        denial.allow_with = None;
        denial.denied_by = None;
    }
    receipt
}

pub(super) fn part(content: &Content, index: usize, version: Version) -> Part<'_> {
    match content {
        Content::Text { text } => Part::Text {
            text: PartText::Own(text.as_str().into()),
        },
        Content::Blob(blob) => of_blob(blob, index, version),
        Content::Link(link) if version >= Version::V2025_06_18 => Part::ResourceLink {
            uri: &link.uri,
            name: &link.name,
            mime_type: link.media_type.as_deref(),
        },
        Content::Link(link) => Part::Text {
            text: PartText::Own(format!("{}: {}", link.name, link.uri).into()),
        },
    }
}

fn of_blob(blob: &Blob, index: usize, version: Version) -> Part<'_> {
    let data = STANDARD.encode(&blob.data);
    let mime_type = blob.media_type.as_str();
    match mime_type.split('/').next() {
        Some("image") => Part::Image { data, mime_type },
        Some("audio") if version >= Version::V2025_03_26 => Part::Audio { data, mime_type },
        _ => Part::Resource {
            resource: Bytes {
                uri: format!("toolcell:result/{index}"),
                mime_type,
                blob: data,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_core::receipt::Denial;
    use toolcell_core::{Link, ToolError};

    use super::*;

    fn shown(result: &CallResult, version: Version) -> Value {
        let unsent = Unsent::new(result.clone(), Form::Tool);
        let mut line = Vec::new();
        let (id, server) = (RequestId::Number(1), json!({"name": "s"}));
        unsent.write(&mut line, &id, &server, version).unwrap();
        let mut message: Value = serde_json::from_slice(&line).unwrap();
        message["result"].take()
    }

    fn blob(media_type: &str) -> Content {
        Content::Blob(Blob {
            media_type: media_type.into(),
            data: vec![255],
        })
    }

    #[test]
    fn content_has_the_types_of_each_version() {
        let link = Content::Link(Link {
            uri: "file:///a".into(),
            name: "a".into(),
            media_type: None,
        });
        let result = CallResult {
            content: vec![
                Content::text("t"),
                blob("image/png"),
                blob("audio/wav"),
                blob("application/pdf"),
                link,
            ],
            ..CallResult::default()
        };
        let types = |version| -> Vec<String> {
            let shown = shown(&result, version);
            let parts = shown["content"].as_array().unwrap();
            parts
                .iter()
                .map(|part| part["type"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            types(Version::V2024_11_05),
            ["text", "image", "resource", "resource", "text"]
        );
        assert_eq!(
            types(Version::V2025_03_26),
            ["text", "image", "audio", "resource", "text"]
        );
        for version in [Version::V2025_06_18, Version::V2025_11_25, Version::V2026_07_28] {
            assert_eq!(
                types(version),
                ["text", "image", "audio", "resource", "resource_link"]
            );
        }
        let shown = shown(&result, Version::V2026_07_28);
        assert_eq!(
            shown["content"][1],
            json!({"type": "image", "data": "/w==", "mimeType": "image/png"})
        );
        assert_eq!(shown["content"][3]["resource"]["blob"], "/w==");
        assert_eq!(
            shown["content"][4],
            json!({"type": "resource_link", "uri": "file:///a", "name": "a"})
        );
    }

    #[test]
    fn structured_result_is_any_value_only_since_2026() {
        let result = |value: Value| CallResult {
            structured: Some(value),
            ..CallResult::default()
        };
        for (version, object, list) in [
            (Version::V2025_03_26, Value::Null, Value::Null),
            (Version::V2025_06_18, json!({"a": 1}), Value::Null),
            (Version::V2026_07_28, json!({"a": 1}), json!([1])),
        ] {
            let of_object = shown(&result(json!({"a": 1})), version);
            assert_eq!(of_object["structuredContent"], object, "{version:?}");
            assert_eq!(
                of_object["content"],
                json!([{"type": "text", "text": "{\"a\":1}"}])
            );
            let of_list = shown(&result(json!([1])), version);
            assert_eq!(of_list["structuredContent"], list, "{version:?}");
            assert_eq!(of_list["content"][0]["text"], "[1]");
        }
    }

    #[test]
    fn receipt_tells_the_client_no_configuration_line() {
        let denial = Denial {
            what: "http".into(),
            target: "example.com:443".into(),
            allow_with: Some("http=example.com".into()),
            denied_by: Some("deny-http=*".into()),
            needed: 0,
        };
        let receipt = Receipt {
            fuel: 7,
            denials: vec![denial],
            ..Receipt::default()
        };
        let error = ToolError::denied("no", Some("add http=example.com".into()));
        let result = CallResult::failed(error).with_receipt(receipt);
        let shown = shown(&result, Version::V2025_11_25);
        assert_eq!(shown["isError"], true);
        assert_eq!(shown["_meta"][RECEIPT_KEY]["fuel"], 7);
        assert_eq!(
            shown["_meta"][RECEIPT_KEY]["denials"],
            json!([{"what": "http", "target": "example.com:443"}])
        );
        assert!(!shown.to_string().contains("http=example.com"));
    }
}
