//! Events of a streamed response.

use serde_json::{Value, json};

use super::responses::Answer;
use super::{V1, failure_of, response_error};
use crate::answer::Failure;
use crate::host::TurnEnd;

/// Stream of a response.
pub(super) struct Stream {
    answer: Answer,
    pub(super) text: String,
    /// Events that are not sent yet.
    pub(super) part: String,
    number: u64,
    pub(super) is_over: bool,
}

impl Stream {
    pub(super) fn new(answer: Answer) -> Self {
        let mut stream = Self {
            answer,
            text: String::new(),
            part: String::new(),
            number: 0,
            is_over: false,
        };
        for kind in ["response.created", "response.in_progress"] {
            let response = stream.answer.whole("in_progress", &[], None);
            stream.push(kind, json!({ "response": response }));
        }
        stream
    }

    fn push(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.number);
        self.number += 1;
        self.part.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }

    fn of_text(&self, mut event: Value) -> Value {
        event["item_id"] = json!(self.answer.message);
        event["output_index"] = json!(0);
        event["content_index"] = json!(0);
        event
    }

    fn open(&mut self) {
        let item = self.answer.said("", "in_progress");
        self.push(
            "response.output_item.added",
            json!({"output_index": 0, "item": item}),
        );
        let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
        let event = self.of_text(json!({ "part": part }));
        self.push("response.content_part.added", event);
    }

    pub(super) fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.text.is_empty() {
            self.open();
        }
        self.text.push_str(text);
        let event = self.of_text(json!({"delta": text, "logprobs": []}));
        self.push("response.output_text.delta", event);
    }

    /// Ends the message, which is the first item.
    fn end_of_text(&mut self, item: &Value) {
        let event = self.of_text(json!({"text": self.text, "logprobs": []}));
        self.push("response.output_text.done", event);
        let event = self.of_text(json!({ "part": item["content"][0] }));
        self.push("response.content_part.done", event);
        self.end_of_item(0, item);
    }

    fn end_of_item(&mut self, index: usize, item: &Value) {
        let event = json!({"output_index": index, "item": item});
        self.push("response.output_item.done", event);
    }

    pub(super) fn end(&mut self, v1: &V1, end: Result<TurnEnd, Failure>) {
        self.is_over = true;
        let (end, failure) = match end {
            Ok(end) => {
                let failure = failure_of(&end);
                (Some(end), failure)
            }
            Err(failure) => (None, Some(failure)),
        };
        let end = match (end, failure) {
            (Some(end), None) => end,
            (end, failure) => {
                let output = self.answer.cut_off(&self.text);
                if let [item] = output.as_slice() {
                    self.end_of_text(item);
                }
                let mut response = self.answer.whole("failed", &output, end.as_ref());
                response["error"] = failure.as_ref().map_or(Value::Null, response_error);
                return self.push("response.failed", json!({ "response": response }));
            }
        };
        let text = self.text.clone();
        let output = self.answer.output(v1, &text, &end);
        for (index, item) in output.iter().enumerate() {
            if item["type"] == "message" {
                if text.is_empty() {
                    self.open();
                }
                self.end_of_text(item);
            } else {
                let mut begun = item.clone();
                begun["arguments"] = json!("");
                begun["status"] = json!("in_progress");
                self.push(
                    "response.output_item.added",
                    json!({"output_index": index, "item": begun}),
                );
                let place = json!({"output_index": index, "item_id": item["id"]});
                let mut delta = place.clone();
                delta["delta"] = item["arguments"].clone();
                self.push("response.function_call_arguments.delta", delta);
                let mut done = place;
                done["arguments"] = item["arguments"].clone();
                done["name"] = item["name"].clone();
                self.push("response.function_call_arguments.done", done);
                self.end_of_item(index, item);
            }
        }
        let response = self.answer.ended(&output, &end);
        let kind = match response["status"] == "incomplete" {
            true => "response.incomplete",
            false => "response.completed",
        };
        self.push(kind, json!({ "response": response }));
    }
}
