//! Conversions between the hook API and the WIT contract.

use serde_json::{Map, Value};

use super::{Call, CallReport, Example, Failure, NoticeLevel, Prompt, Turn, Verdict};
use crate::generated::hook::exports::toolcell::tool::hooks as contract;
use crate::generated::tool::toolcell::tool::types;
use crate::{Content, Result, ResultExt as _};

pub(super) fn turn(asked: contract::Turn) -> Turn {
    let values = asked.values.into_iter().filter_map(|(name, json)| {
        // Invalid JSON in a value is an error of the host, not a reason to fail.
        Some((name, serde_json::from_str(&json).ok()?))
    });
    Turn {
        session: asked.session,
        values: values.collect(),
        ..Turn::default()
    }
}

pub(super) fn effects(turn: Turn) -> contract::Effects {
    let notices = turn.notices.into_iter();
    let notices = notices.map(|(level, text)| contract::Notice {
        level: match level {
            NoticeLevel::Info => contract::NoticeLevel::Info,
            NoticeLevel::Warning => contract::NoticeLevel::Warning,
            NoticeLevel::Error => contract::NoticeLevel::Error,
        },
        text,
    });
    let values = turn.left.into_iter();
    contract::Effects {
        notices: notices.collect(),
        values: values.map(|(name, value)| (name, value.to_string())).collect(),
        other: Vec::new(),
    }
}

pub(super) fn verdict(verdict: Verdict) -> contract::Verdict {
    match verdict {
        Verdict::Proceed => contract::Verdict::Proceed,
        Verdict::Cancel(reason) => contract::Verdict::Cancel(reason),
        Verdict::Abort(reason) => contract::Verdict::Abort(reason),
    }
}

pub(super) fn prompt(asked: contract::Prompt) -> Prompt {
    Prompt {
        message: contents(asked.message),
        original: contents(asked.original),
        tokens: asked.tokens,
        token_limit: asked.token_limit,
        ..Prompt::default()
    }
}

pub(super) fn prompt_answer(
    decided: Verdict,
    draft: Prompt,
    was: &[Content],
    turn: Turn,
) -> contract::PromptAnswer {
    let changed = draft.message != was;
    let example = |example: Example| contract::Example {
        says: example.says,
        tool: example.tool,
        arguments: Value::Object(example.arguments).to_string(),
    };
    contract::PromptAnswer {
        verdict: verdict(decided),
        message: changed.then(|| draft.message.into_iter().map(Into::into).collect()),
        context: draft.context,
        instructions: draft.instructions,
        examples: draft.examples.into_iter().map(example).collect(),
        effects: effects(turn),
    }
}

pub(super) fn call(asked: contract::PendingCall) -> Result<Call> {
    let places = asked.context.iter().find(|(name, _)| name == "places");
    let places = places.map(|(_, json)| serde_json::from_str(json)).transpose();
    Ok(Call {
        id: asked.id,
        tool: asked.tool,
        arguments: object(&asked.arguments)?,
        // A hook that guards must not take unreadable places for none.
        places: places
            .context("the places of the call are unreadable")?
            .unwrap_or_default(),
    })
}

pub(super) fn changed_arguments(now: Map<String, Value>, was: &Map<String, Value>) -> Option<String> {
    (now != *was).then(|| Value::Object(now).to_string())
}

pub(super) fn call_report(asked: contract::FinishedCall) -> Result<CallReport> {
    let receipt = asked.receipt.as_deref().map(serde_json::from_str);
    Ok(CallReport {
        id: asked.id,
        tool: asked.tool,
        arguments: object(&asked.arguments)?,
        content: contents(asked.content),
        error: asked.error.map(|failure| Failure {
            kind: failure.kind,
            message: failure.message,
        }),
        receipt: receipt.transpose().context("the receipt is not valid JSON")?,
        duration_ms: asked.duration_ms,
    })
}

fn object(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).context("the arguments are not a JSON object")
}

pub(super) fn contents(contents: Vec<types::Content>) -> Vec<Content> {
    contents.into_iter().map(Into::into).collect()
}

impl From<types::Content> for Content {
    fn from(content: types::Content) -> Self {
        match content {
            types::Content::Text(text) => Self::Text(text),
            types::Content::Blob(types::Blob { media_type, data }) => Self::Blob { media_type, data },
            types::Content::Link(types::Link {
                uri,
                name,
                media_type,
            }) => Self::Link {
                uri,
                name,
                media_type,
            },
        }
    }
}
