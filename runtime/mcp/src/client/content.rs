//! Results of calls, in our form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolcell_core::content::Link;
use toolcell_core::schema::Mismatch;
use toolcell_core::{Blob, CallResult, Content, Limit, Redactor, ToolError, ToolSpec};

use super::error::excerpt;

/// Maximum size of a result, in bytes: the default output limit of a call in a cell.
pub const MAX_RESULT_BYTES: usize = 4 << 20;

/// Maximum number of parts of a result.
const MAX_PARTS: usize = 1_000;

/// Converts the result of `tools/call`, from which secrets were removed.
///
/// # Errors
/// The failure that the server reports, or that of a result beyond its limits or unlike its schema.
pub(super) fn result(result: &Value, spec: &ToolSpec, limit: usize) -> Result<CallResult, ToolError> {
    let invalid = |what: &str| ToolError::Failed {
        message: format!("the result of the MCP server {what}"),
    };
    let parts = match result.get("content") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(parts)) => parts,
        Some(_) => return Err(invalid("has a content that is not a list")),
    };
    if parts.len() > MAX_PARTS {
        return Err(invalid(&format!(
            "has {} parts, more than {MAX_PARTS}",
            parts.len()
        )));
    }
    let structured = result
        .get("structuredContent")
        .filter(|value| !value.is_null())
        .cloned();
    let content: Vec<Content> = parts.iter().map(part).collect();
    let size: usize = content.iter().map(Content::byte_len).sum();
    if size > limit
        || structured
            .as_ref()
            .is_some_and(|value| value.to_string().len() > limit)
    {
        return Err(ToolError::Limit {
            limit: Limit::Output(limit as u64),
        });
    }
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return Err(ToolError::Failed {
            message: words(&content),
        });
    }
    match (&spec.output, &structured) {
        (Some(schema), Some(value)) => schema.validate(value).map_err(|mismatches| {
            invalid(&format!(
                "does not fit its output schema: {}",
                Mismatch::list(&mismatches)
            ))
        })?,
        (Some(_), None) => {
            return Err(invalid(
                "has no structured part, which its output schema describes",
            ));
        }
        (None, _) => {}
    }
    Ok(CallResult {
        content,
        structured,
        ..CallResult::default()
    })
}

/// The texts of a failure.
fn words(content: &[Content]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } => Some(text.as_str()),
        _ => None,
    });
    let words = texts.collect::<Vec<_>>().join("\n");
    match words.is_empty() {
        true => "the MCP server reports a failure without a reason".into(),
        false => words,
    }
}

fn part(part: &Value) -> Content {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // Of a result, whose secrets are removed.
    let short = |value: &Value| value.as_str().map(|text| excerpt(text, &Redactor::default()));
    let blob = |of: &Value, key: &str| {
        Some(Content::Blob(Blob {
            media_type: media_type(&of["mimeType"])
                .unwrap_or("application/octet-stream")
                .to_owned(),
            data: STANDARD.decode(of[key].as_str()?).ok()?,
        }))
    };
    let kind = part["type"].as_str().unwrap_or("");
    let converted = match kind {
        "text" => text(&part["text"]).map(Content::text),
        "image" | "audio" => blob(part, "data"),
        "resource" => {
            let resource = &part["resource"];
            text(&resource["text"])
                .map(Content::text)
                .or_else(|| blob(resource, "blob"))
        }
        "resource_link" => short(&part["uri"]).map(|uri| {
            Content::Link(Link {
                name: short(&part["name"]).unwrap_or_else(|| uri.clone()),
                media_type: media_type(&part["mimeType"]).map(str::to_owned),
                uri,
            })
        }),
        _ => None,
    };
    converted.unwrap_or_else(|| {
        let kind: String = kind
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(20)
            .collect();
        Content::text(format!("[a part of type `{kind}` left out: it cannot be read]"))
    })
}

/// A media type without parameters; providers are told nothing else.
fn media_type(value: &Value) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/.+-_".contains(c);
    value
        .as_str()
        .filter(|name| name.len() <= 100 && name.contains('/') && name.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolcell_core::{Schema, ToolName};

    use super::*;

    fn spec(output: Option<Value>) -> ToolSpec {
        ToolSpec {
            name: ToolName::new("srv_t").unwrap(),
            title: None,
            description: String::new(),
            input: Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap()),
            output: output.map(|schema| Arc::new(Schema::new(schema).unwrap())),
            hints: Default::default(),
            annotations: Default::default(),
        }
    }

    fn plain(value: &Value) -> Result<CallResult, ToolError> {
        result(value, &spec(None), MAX_RESULT_BYTES)
    }

    #[test]
    fn parts_keep_their_kind() {
        let image = json!({"type": "image", "data": "/wA=", "mimeType": "image/png"});
        let read = plain(&json!({"content": [
            {"type": "text", "text": "a"},
            image,
            {"type": "resource", "resource": {"uri": "x:y", "text": "b"}},
            {"type": "resource", "resource": {"uri": "x:y", "blob": "/wA="}},
            {"type": "resource_link", "uri": "x:y", "name": "n", "mimeType": "text/plain"},
        ]}))
        .unwrap();
        let blob = |media_type: &str| {
            Content::Blob(Blob {
                media_type: media_type.into(),
                data: vec![255, 0],
            })
        };
        let link = Link {
            uri: "x:y".into(),
            name: "n".into(),
            media_type: Some("text/plain".into()),
        };
        assert_eq!(
            read.content,
            [
                Content::text("a"),
                blob("image/png"),
                Content::text("b"),
                blob("application/octet-stream"),
                Content::Link(link),
            ]
        );
    }

    #[test]
    fn unreadable_parts_are_left_out_with_a_mark() {
        for part in [
            json!({"type": "image", "data": "*", "mimeType": "image/png"}),
            json!({"type": "text", "text": 1}),
            json!({"type": "hologram"}),
            json!({"type": "resource", "resource": []}),
            json!({"type": "resource_link"}),
            json!(7),
            json!(null),
        ] {
            let read = plain(&json!({ "content": [part] })).unwrap();
            match read.content.as_slice() {
                [Content::Text { text }] => assert!(text.contains("left out"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        let odd = json!({"content": [{"type": "audio", "data": "", "mimeType": "a/b\r\nX: y"}]});
        match &plain(&odd).unwrap().content[0] {
            Content::Blob(blob) => assert_eq!(blob.media_type, "application/octet-stream"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn result_is_kept_up_to_its_size_and_number_of_parts() {
        let texts = |count: usize, bytes: usize| {
            let part = json!({"type": "text", "text": "x".repeat(bytes)});
            plain(&json!({ "content": vec![part; count] }))
        };
        assert!(texts(1, MAX_RESULT_BYTES).is_ok());
        let limit = Limit::Output(MAX_RESULT_BYTES as u64);
        assert_eq!(texts(1, MAX_RESULT_BYTES + 1), Err(ToolError::Limit { limit }));
        assert!(texts(MAX_PARTS, 1).is_ok());
        assert!(texts(MAX_PARTS + 1, 1).is_err());
        let of = |bytes: usize| plain(&json!({"structuredContent": "x".repeat(bytes - 2)}));
        assert!(of(MAX_RESULT_BYTES).is_ok());
        assert_eq!(of(MAX_RESULT_BYTES + 1), Err(ToolError::Limit { limit }));
    }

    #[test]
    fn structured_result_fits_the_schema_of_the_tool() {
        let spec = spec(Some(json!({"type": "object", "required": ["n"]})));
        let of = |value: Value| result(&value, &spec, 1 << 10);
        assert_eq!(
            of(json!({"structuredContent": {"n": 1}})).unwrap().structured,
            Some(json!({"n": 1}))
        );
        for (value, reason) in [
            (json!({"structuredContent": {}}), "does not fit its output schema"),
            (
                json!({"structuredContent": [1]}),
                "does not fit its output schema",
            ),
            (json!({"content": []}), "has no structured part"),
            (json!({"content": {}}), "has a content that is not a list"),
        ] {
            let error = of(value).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn failure_of_a_server_is_an_error_of_the_call() {
        let failed = |content: Value| plain(&json!({"isError": true, "content": content})).unwrap_err();
        let two = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(
            failed(two),
            ToolError::Failed {
                message: "a\nb".into()
            }
        );
        assert!(failed(json!([])).to_string().contains("without a reason"));
    }
}
