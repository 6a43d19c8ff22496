//! Messages of OpenAI clients as messages of a conversation.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolcell_core::message::CallRequest;
use toolcell_core::{Blob, Content, Message, Part};

use super::MAX_NAME;
use crate::answer::{Failure, excerpt};

/// Media types of pictures.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Conversation of a request.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    /// Texts of system and developer messages.
    pub(super) instructions: String,
    /// Calls, by their identifiers.
    calls: HashMap<String, Called>,
    /// First reason for which a provider would not take the calls and results.
    wrong: Option<String>,
}

/// Call of the conversation.
#[derive(Debug)]
struct Called {
    name: String,
    has_result: bool,
}

impl Conversation {
    pub(super) fn instruct(&mut self, text: &str) {
        if !self.instructions.is_empty() {
            self.instructions.push_str("\n\n");
        }
        self.instructions.push_str(text);
    }

    /// Adds a message with a role and content.
    pub(super) fn say(&mut self, role: &str, content: Value) -> Result<(), Failure> {
        match role {
            "system" | "developer" => {
                let text = text_of(content)?;
                self.instruct(&text);
            }
            "user" if content.is_null() => {
                return Err(Failure::invalid("a message of the user has no `content`"));
            }
            "user" => self.messages.push(Message::User {
                content: contents(content)?,
            }),
            "assistant" => {
                let text = text_of(content)?;
                if !text.is_empty() {
                    self.part(Part::text(text));
                }
            }
            role => {
                return Err(Failure::invalid(format!(
                    "a message has the unknown role `{}`",
                    excerpt(role, MAX_NAME)
                )));
            }
        }
        Ok(())
    }

    /// Adds a part to the answer of the model.
    pub(super) fn part(&mut self, part: Part) {
        match self.messages.last_mut() {
            Some(Message::Assistant { parts }) => parts.push(part),
            _ => self.messages.push(Message::Assistant { parts: vec![part] }),
        }
    }

    pub(super) fn call(&mut self, id: &str, name: &str, arguments: &str) {
        let call = Called {
            name: name.to_owned(),
            has_result: false,
        };
        if self.calls.insert(id.to_owned(), call).is_some() {
            self.note(format!(
                "two calls have the identifier `{}`",
                excerpt(id, MAX_NAME)
            ));
        }
        self.part(Part::Call(CallRequest {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            opaque: Value::Null,
        }));
    }

    fn note(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// Checks that each result is the only one of a call before it, and that no two calls have one identifier.
    ///
    /// # Errors
    /// A result would never be read, or no provider would take the conversation. `param` is the member that has it.
    pub(super) fn check_results(&self, param: &str) -> Result<(), Failure> {
        match &self.wrong {
            Some(wrong) => Err(Failure::invalid(wrong.as_str()).param(param)),
            None => Ok(()),
        }
    }

    pub(super) fn result(&mut self, id: &str, text: String) {
        let shown = || excerpt(id, MAX_NAME);
        let (name, wrong) = match self.calls.get_mut(id) {
            None => (
                String::new(),
                Some(format!("the result of `{}` is of no call before it", shown())),
            ),
            Some(call) => {
                let is_second = std::mem::replace(&mut call.has_result, true);
                let wrong = is_second.then(|| format!("the call `{}` has two results", shown()));
                (call.name.clone(), wrong)
            }
        };
        if let Some(wrong) = wrong {
            self.note(wrong);
        }
        self.messages.push(Message::Tool {
            call_id: id.to_owned(),
            name,
            content: vec![Content::text(text)],
            is_error: false,
        });
    }
}

/// Returns the text of a content: a string, or parts.
pub(super) fn text_of(content: Value) -> Result<String, Failure> {
    if let Value::String(text) = content {
        return Ok(text);
    }
    let mut all = String::new();
    for part in contents(content)? {
        match part {
            Content::Text { text } => all.push_str(&text),
            _ => return Err(Failure::invalid("only a message of the user has pictures")),
        }
    }
    Ok(all)
}

/// Reads a content, which is freed part by part: there may be no room for two of it.
fn contents(content: Value) -> Result<Vec<Content>, Failure> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Content::text(text)]),
        Value::Array(parts) => parts.into_iter().map(part).collect(),
        _ => Err(Failure::invalid(
            "the content of a message is a string or an array of parts",
        )),
    }
}

fn part(part: Value) -> Result<Content, Failure> {
    let kind = part["type"].as_str().unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" | "refusal" => {
            let text = part["text"].as_str().or(part["refusal"].as_str());
            let text = text.ok_or_else(|| Failure::invalid("a part has no text"))?;
            Ok(Content::text(text))
        }
        "image_url" | "input_image" => {
            let url = part["image_url"]["url"].as_str().or(part["image_url"].as_str());
            let (media_type, data) = url
                .and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"))
                .ok_or_else(|| {
                    Failure::invalid("a picture is a `data:` URL in Base64; no other URL is fetched")
                })?;
            // Parameters of the type say nothing about a picture.
            let media_type = media_type.split(';').next().unwrap_or_default().trim();
            let media_type = media_type.to_ascii_lowercase();
            if !PICTURES.contains(&media_type.as_str()) {
                let name = excerpt(&media_type, MAX_NAME);
                return Err(Failure::invalid(format!(
                    "a picture is of type PNG, JPEG, GIF or WebP, not `{name}`"
                )));
            }
            let data = STANDARD.decode(data);
            let data = data.map_err(|_| Failure::invalid("a picture is not Base64"))?;
            Ok(Content::Blob(Blob { media_type, data }))
        }
        kind => Err(Failure::invalid(format!(
            "a part has the unknown type `{}`",
            excerpt(kind, MAX_NAME)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_is_a_text_or_parts_and_no_url_is_fetched() {
        let mut conversation = Conversation::default();
        conversation.say("system", json!("Be brief.")).unwrap();
        let picture = json!({"type": "image_url", "image_url": {"url": "data:Image/PNG;a=b;base64,AAAA"}});
        conversation
            .say("user", json!([{"type": "text", "text": "hi"}, picture]))
            .unwrap();
        assert_eq!(conversation.instructions, "Be brief.");
        let [Message::User { content }] = conversation.messages.as_slice() else {
            panic!("{conversation:?}");
        };
        assert_eq!(content.len(), 2);
        assert!(matches!(&content[1], Content::Blob(blob) if blob.media_type == "image/png"));
        for wrong in [
            json!([{"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}}]),
            json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}]),
            json!([{"type": "image_url", "image_url": {"url": "data:text/html;base64,AAAA"}}]),
            json!([{"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}]),
            json!([{"type": "file"}]),
            json!([1]),
            json!(1),
        ] {
            conversation.say("user", wrong).unwrap_err();
        }
        conversation.say("robot", json!("x")).unwrap_err();
    }

    #[test]
    fn call_has_one_identifier_and_one_result_after_it() {
        let of = |steps: &[(&str, bool)]| {
            let mut conversation = Conversation::default();
            for (id, is_call) in steps {
                match is_call {
                    true => conversation.call(id, "weather", "{}"),
                    false => conversation.result(id, "rain".into()),
                }
            }
            let checked = conversation.check_results("input");
            checked.map_err(|failure| (failure.message, failure.param.unwrap().into_string()))
        };
        let (call, result) = (("a", true), ("a", false));
        assert_eq!(of(&[call, result]), Ok(()));
        assert_eq!(of(&[call, ("b", true), ("b", false), result]), Ok(()));
        for (steps, told) in [
            (
                &[call, ("b", false)][..],
                "the result of `b` is of no call before it",
            ),
            (&[result, call], "the result of `a` is of no call before it"),
            (&[call, result, result], "the call `a` has two results"),
            (&[call, call, result], "two calls have the identifier `a`"),
        ] {
            assert_eq!(of(steps), Err((told.to_owned(), "input".to_owned())));
        }
    }
}
