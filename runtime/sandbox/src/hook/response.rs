//! Responses of a hook at each point: validated, limited, and redacted.

use serde_json::{Map, Value};
use toolcell_core::event::NoticeLevel;
use toolcell_core::hook::{CallAnswer, Effects, Example, HookVerdict, Notice, PromptAnswer};
use toolcell_core::json::{kind_of, parse_object, parse_value};
use toolcell_core::{Content, Redactor};

use super::{MAX_NOTICES, MAX_PROMPT, MAX_TEXT, MAX_VALUES};
use crate::bindings::hooks;
use crate::cell::failure::cut;
use crate::tool::{content_len, to_core};

/// A response in the types of the WIT interface.
pub(crate) trait HookResponse {
    /// Result in the types of `toolcell_core`.
    type Answer: Default + Send;

    /// Returns the size of the response, for the output limit and the receipt.
    fn bytes(&self) -> usize;

    /// Returns the texts that are parsed as JSON.
    fn json_texts(&self) -> Vec<&str>;

    /// Validates and redacts the response.
    ///
    /// # Errors
    /// Reason of the rejection.
    fn validate(self, redactor: &Redactor) -> Result<Self::Answer, String>;

    /// Returns notices, values and receipt of a result.
    fn effects(answer: &mut Self::Answer) -> &mut Effects;
}

impl HookResponse for hooks::PromptAnswer {
    type Answer = PromptAnswer;

    fn bytes(&self) -> usize {
        prompt_len(self) + reason_len(&self.verdict) + self.effects.bytes()
    }

    fn json_texts(&self) -> Vec<&str> {
        let arguments = self.examples.iter().map(|example| example.arguments.as_str());
        arguments.chain(self.effects.json_texts()).collect()
    }

    fn validate(self, redactor: &Redactor) -> Result<PromptAnswer, String> {
        let bytes = prompt_len(&self);
        if bytes > MAX_PROMPT {
            return Err(format!(
                "it adds {bytes} bytes to the conversation, more than the limit of {MAX_PROMPT}"
            ));
        }
        let texts = |texts: Vec<String>| -> Vec<String> {
            texts.into_iter().map(|text| clean(text, redactor)).collect()
        };
        let example = |example: hooks::Example| {
            Ok(Example {
                says: clean(example.says, redactor),
                tool: clean(example.tool, redactor),
                arguments: object(&example.arguments, "the arguments of an example", redactor)?,
            })
        };
        let content = |content| {
            let mut content: Content = to_core(content);
            redactor.content(&mut content);
            content
        };
        Ok(PromptAnswer {
            verdict: verdict(self.verdict, redactor),
            message: self
                .message
                .map(|message| message.into_iter().map(content).collect()),
            context: texts(self.context),
            instructions: texts(self.instructions),
            examples: self
                .examples
                .into_iter()
                .map(example)
                .collect::<Result<_, String>>()?,
            effects: self.effects.validate(redactor)?,
        })
    }

    fn effects(answer: &mut PromptAnswer) -> &mut Effects {
        &mut answer.effects
    }
}

impl HookResponse for hooks::CallAnswer {
    type Answer = CallAnswer;

    fn bytes(&self) -> usize {
        self.arguments.as_ref().map_or(0, String::len) + reason_len(&self.verdict) + self.effects.bytes()
    }

    fn json_texts(&self) -> Vec<&str> {
        let arguments = self.arguments.as_deref().into_iter();
        arguments.chain(self.effects.json_texts()).collect()
    }

    fn validate(self, redactor: &Redactor) -> Result<CallAnswer, String> {
        let arguments = self
            .arguments
            .map(|text| object(&text, "the arguments", redactor))
            .transpose()?;
        Ok(CallAnswer {
            verdict: verdict(self.verdict, redactor),
            arguments,
            effects: self.effects.validate(redactor)?,
        })
    }

    fn effects(answer: &mut CallAnswer) -> &mut Effects {
        &mut answer.effects
    }
}

impl HookResponse for hooks::Effects {
    type Answer = Effects;

    fn bytes(&self) -> usize {
        let pairs = self.values.iter().chain(&self.other);
        let pairs: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        let notices: usize = self.notices.iter().map(|notice| notice.text.len()).sum();
        pairs + notices
    }

    fn json_texts(&self) -> Vec<&str> {
        self.values.iter().map(|(_, value)| value.as_str()).collect()
    }

    fn validate(self, redactor: &Redactor) -> Result<Effects, String> {
        let mut room = MAX_VALUES;
        let mut values = Map::new();
        for (name, text) in self.values {
            room = room
                .checked_sub(name.len() + text.len())
                .ok_or_else(|| format!("it leaves more than {MAX_VALUES} bytes of values for later hooks"))?;
            let mut value = parse_value(&text)
                .map_err(|e| format!("the value `{}` is not valid JSON: {e}", shown(&name, redactor)))?;
            redactor.json(&mut value);
            values.insert(clean(name, redactor), value);
        }
        let dropped = self.notices.len().saturating_sub(MAX_NOTICES);
        let mut notices: Vec<Notice> = (self.notices.into_iter().take(MAX_NOTICES))
            .map(|notice| Notice {
                level: level(notice.level),
                text: clean_text(notice.text, redactor),
            })
            .collect();
        if dropped > 0 {
            notices.push(Notice {
                level: NoticeLevel::Warning,
                text: format!("{dropped} more notices were dropped"),
            });
        }
        Ok(Effects {
            notices,
            values,
            receipt: None,
        })
    }

    fn effects(answer: &mut Effects) -> &mut Effects {
        answer
    }
}

/// Redacts a text for the user or the model and truncates it to [`MAX_TEXT`]. Redaction comes first, because half a
/// secret would not be found afterwards.
pub(crate) fn clean_text(text: String, redactor: &Redactor) -> String {
    cut(clean(text, redactor), MAX_TEXT)
}

pub(super) fn clean(mut text: String, redactor: &Redactor) -> String {
    redactor.string(&mut text);
    text
}

/// Returns a name chosen by the guest, for an error.
fn shown(name: &str, redactor: &Redactor) -> String {
    cut(clean(name.to_owned(), redactor), 64)
        .escape_debug()
        .to_string()
}

fn object(text: &str, what: &str, redactor: &Redactor) -> Result<Map<String, Value>, String> {
    let object = parse_object(text).map_err(|e| format!("{what}: {e}"))?;
    let mut value = Value::Object(object);
    redactor.json(&mut value);
    match value {
        Value::Object(object) => Ok(object),
        other => Err(format!("{what}: {} is not an object", kind_of(&other))),
    }
}

pub(super) fn verdict(verdict: hooks::Verdict, redactor: &Redactor) -> HookVerdict {
    match verdict {
        hooks::Verdict::Proceed => HookVerdict::Proceed,
        hooks::Verdict::Cancel(reason) => HookVerdict::Cancel {
            reason: clean_text(reason, redactor),
        },
        hooks::Verdict::Abort(reason) => HookVerdict::Abort {
            reason: clean_text(reason, redactor),
        },
    }
}

fn level(level: hooks::NoticeLevel) -> NoticeLevel {
    match level {
        hooks::NoticeLevel::Info => NoticeLevel::Info,
        hooks::NoticeLevel::Warning => NoticeLevel::Warning,
        hooks::NoticeLevel::Error => NoticeLevel::Error,
    }
}

pub(super) fn reason_len(verdict: &hooks::Verdict) -> usize {
    match verdict {
        hooks::Verdict::Proceed => 0,
        hooks::Verdict::Cancel(reason) | hooks::Verdict::Abort(reason) => reason.len(),
    }
}

/// Returns the number of bytes that a result adds to the conversation.
fn prompt_len(answer: &hooks::PromptAnswer) -> usize {
    let message: usize = answer.message.iter().flatten().map(content_len).sum();
    let texts: usize = answer
        .context
        .iter()
        .chain(&answer.instructions)
        .map(String::len)
        .sum();
    let examples = answer.examples.iter();
    let examples: usize = examples
        .map(|e| e.says.len() + e.tool.len() + e.arguments.len())
        .sum();
    message + texts + examples
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "hunter2-hunter2";

    fn effects() -> hooks::Effects {
        hooks::Effects {
            notices: Vec::new(),
            values: Vec::new(),
            other: Vec::new(),
        }
    }

    fn prompt_answer() -> hooks::PromptAnswer {
        hooks::PromptAnswer {
            verdict: hooks::Verdict::Proceed,
            message: None,
            context: Vec::new(),
            instructions: Vec::new(),
            examples: Vec::new(),
            effects: effects(),
        }
    }

    fn notice(text: &str) -> hooks::Notice {
        hooks::Notice {
            level: hooks::NoticeLevel::Info,
            text: text.into(),
        }
    }

    #[test]
    fn response_beyond_each_limit_is_refused_or_truncated() {
        let redactor = Redactor::new([]);
        let context = |bytes: usize| hooks::PromptAnswer {
            context: vec!["x".repeat(bytes)],
            ..prompt_answer()
        };
        assert!(context(MAX_PROMPT).validate(&redactor).is_ok());
        let error = context(MAX_PROMPT + 1).validate(&redactor).unwrap_err();
        assert!(error.contains("adds 262145 bytes to the conversation"), "{error}");

        let values = |bytes: usize| hooks::Effects {
            values: vec![("v".into(), format!("\"{}\"", "x".repeat(bytes - 3)))],
            ..effects()
        };
        assert!(values(MAX_VALUES).validate(&redactor).is_ok());
        assert!(values(MAX_VALUES + 1).validate(&redactor).is_err());

        let notices = |count: usize| hooks::Effects {
            notices: (0..count).map(|_| notice("n")).collect(),
            ..effects()
        };
        let last = |count| {
            notices(count)
                .validate(&redactor)
                .unwrap()
                .notices
                .pop()
                .unwrap()
                .text
        };
        assert_eq!(last(MAX_NOTICES), "n");
        assert_eq!(last(MAX_NOTICES + 2), "2 more notices were dropped");
        assert_eq!(clean_text("x".repeat(MAX_TEXT), &redactor).len(), MAX_TEXT);
        assert!(clean_text("x".repeat(MAX_TEXT + 1), &redactor).ends_with("[1 bytes cut]"));
    }

    #[test]
    fn invalid_json_in_a_response_is_rejected() {
        let redactor = Redactor::new([]);
        let call = |arguments: &str| hooks::CallAnswer {
            verdict: hooks::Verdict::Proceed,
            arguments: Some(arguments.into()),
            effects: effects(),
        };
        assert_eq!(
            call(r#"{"a":1}"#).validate(&redactor).unwrap().arguments,
            json!({"a": 1}).as_object().cloned()
        );
        for bad in ["{", "[1]", r#"{"a":1,"a":2}"#] {
            let error = call(bad).validate(&redactor).unwrap_err();
            assert!(error.starts_with("the arguments: "), "{bad}: {error}");
        }
        let value = hooks::Effects {
            values: vec![("\u{1b}[2J".into(), "nope".into())],
            ..effects()
        };
        let error = value.validate(&redactor).unwrap_err();
        assert!(
            error.starts_with(r"the value `\u{1b}[2J` is not valid JSON"),
            "{error}"
        );
    }

    #[test]
    fn no_part_of_a_hook_response_keeps_a_secret() {
        let redactor = Redactor::new([("p", SECRET)]);
        let text = || format!("a {SECRET} b");
        let json = || json!({ "k": text() }).to_string();
        let answer = hooks::PromptAnswer {
            verdict: hooks::Verdict::Cancel(text()),
            message: Some(vec![crate::bindings::Content::Text(text())]),
            context: vec![text()],
            instructions: vec![text()],
            examples: vec![hooks::Example {
                says: text(),
                tool: text(),
                arguments: json(),
            }],
            effects: hooks::Effects {
                notices: vec![notice(&text())],
                values: vec![(text(), json())],
                other: Vec::new(),
            },
        };
        let shown = format!("{:?}", answer.validate(&redactor).unwrap());
        assert!(!shown.contains(SECRET), "{shown}");
        assert_eq!(shown.matches("[redacted:p]").count(), 10, "{shown}");
        let call = hooks::CallAnswer {
            verdict: hooks::Verdict::Abort(text()),
            arguments: Some(json()),
            effects: effects(),
        };
        let shown = format!("{:?}", call.validate(&redactor).unwrap());
        assert!(!shown.contains(SECRET), "{shown}");
    }

    #[test]
    fn size_of_a_response_counts_each_of_its_texts() {
        let text = |bytes: usize| "x".repeat(bytes);
        let mut effects = effects();
        effects.values = vec![(text(1), text(2))];
        effects.other = vec![(text(4), text(8))];
        effects.notices = vec![notice(&text(16))];
        assert_eq!(effects.bytes(), 0x1f);

        let call = hooks::CallAnswer {
            verdict: hooks::Verdict::Cancel(text(0x20)),
            arguments: Some(text(0x40)),
            effects: effects.clone(),
        };
        assert_eq!(call.bytes(), 0x7f);

        let prompt = hooks::PromptAnswer {
            verdict: hooks::Verdict::Abort(text(0x20)),
            message: Some(vec![
                crate::bindings::Content::Text(text(0x40)),
                crate::bindings::Content::Text(text(0x80)),
            ]),
            context: vec![text(0x100)],
            instructions: vec![text(0x200)],
            examples: vec![hooks::Example {
                says: text(0x400),
                tool: text(0x800),
                arguments: text(0x1000),
            }],
            effects,
        };
        assert_eq!(prompt.bytes(), 0x1fff);
        assert_eq!(prompt_answer().bytes(), 0);
    }

    #[test]
    fn examples_count_towards_the_limit_of_the_conversation() {
        let example = |extra: usize| hooks::PromptAnswer {
            examples: vec![hooks::Example {
                says: "x".repeat(MAX_PROMPT / 2),
                tool: "t".into(),
                arguments: format!("{{{}}}", " ".repeat(MAX_PROMPT / 2 - 3 + extra)),
            }],
            ..prompt_answer()
        };
        let redactor = Redactor::new([]);
        assert!(example(0).validate(&redactor).is_ok());
        assert!(example(1).validate(&redactor).is_err());
    }
}
