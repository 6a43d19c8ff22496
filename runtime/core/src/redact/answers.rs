//! Redaction of results, errors and receipts.

use super::Redactor;
use crate::content::Content;
use crate::error::ToolError;
use crate::receipt::{BucketTouched, Denial, FileTouched, Receipt};
use crate::tool::CallResult;

impl Redactor {
    /// Redacts a result: texts, the bytes of blobs, links, structured data, the error and the receipt.
    pub fn result(&self, result: &mut CallResult) {
        if self.is_empty() {
            return;
        }
        // All fields by name, so that a new one cannot be forgotten here.
        let CallResult {
            content,
            structured,
            error,
            receipt,
            not_run: _,
        } = result;
        content.iter_mut().for_each(|content| self.content(content));
        structured.iter_mut().for_each(|structured| self.json(structured));
        error.iter_mut().for_each(|error| self.error(error));
        receipt.iter_mut().for_each(|receipt| self.receipt(receipt));
    }

    /// Redacts one part of a result.
    pub fn content(&self, content: &mut Content) {
        match content {
            Content::Text { text } => self.string(text),
            Content::Blob(blob) => {
                self.string(&mut blob.media_type);
                blob.data = self.bytes(&blob.data).into_owned();
            }
            Content::Link(link) => {
                self.string(&mut link.uri);
                self.string(&mut link.name);
                link.media_type.iter_mut().for_each(|text| self.string(text));
            }
        }
    }

    /// Redacts an error.
    pub fn error(&self, error: &mut ToolError) {
        match error {
            ToolError::InvalidArguments { message }
            | ToolError::Unavailable { message }
            | ToolError::Failed { message }
            | ToolError::Host { message } => self.string(message),
            ToolError::Crashed { cause, output } => {
                self.string(cause);
                output.iter_mut().for_each(|text| self.string(text));
            }
            ToolError::Denied { message, hint } => {
                self.string(message);
                hint.iter_mut().for_each(|text| self.string(text));
            }
            ToolError::UnknownTool { name, near } => {
                self.string(name);
                near.iter_mut().for_each(|text| self.string(text));
            }
            ToolError::Limit { .. } | ToolError::Cancelled => {}
        }
    }

    /// Redacts all texts of a receipt.
    pub fn receipt(&self, receipt: &mut Receipt) {
        // Exhaustive destructuring, so that a new field cannot be forgotten.
        let Receipt {
            fuel: _,
            wall_us: _,
            cpu_us: _,
            peak_memory: _,
            peak_host_memory: _,
            bytes_in: _,
            bytes_out: _,
            log_bytes: _,
            hosts,
            files,
            buckets,
            denials,
            omitted: _,
            server,
            agent: _,
            needed_memory: _,
            server_in_cell: _,
        } = receipt;
        server.iter_mut().for_each(|server| self.string(server));
        hosts.iter_mut().for_each(|host| self.string(host));
        for FileTouched { path, write: _ } in files {
            self.string(path);
        }
        for BucketTouched { bucket, write: _ } in buckets {
            self.string(bucket);
        }
        for Denial {
            what,
            target,
            allow_with,
            denied_by,
            needed: _,
        } in denials
        {
            self.string(what);
            self.string(target);
            allow_with.iter_mut().for_each(|text| self.string(text));
            denied_by.iter_mut().for_each(|text| self.string(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::{Blob, Link};

    const SECRET: &str = "hunter2-hunter2";

    #[test]
    fn no_part_of_a_result_error_or_receipt_keeps_a_secret() {
        let redactor = Redactor::new([("p", SECRET)]);
        let text = || format!("a {SECRET} b");
        let mut output = CallResult {
            content: vec![
                Content::text(text()),
                Content::Blob(Blob {
                    media_type: text(),
                    data: [&[0xff], SECRET.as_bytes()].concat(),
                }),
                Content::Link(Link {
                    uri: text(),
                    name: text(),
                    media_type: Some(text()),
                }),
            ],
            structured: Some(json!({ "k": [text()] })),
            error: Some(ToolError::invalid(text())),
            receipt: Some(Receipt {
                hosts: vec![text()],
                ..Receipt::default()
            }),
            not_run: false,
        };
        redactor.result(&mut output);
        let shown = format!("{output:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        assert_eq!(shown.matches("[redacted:p]").count(), 8, "{shown}");
        let Content::Blob(blob) = &output.content[1] else {
            panic!("{shown}")
        };
        assert_eq!(blob.data, [&[0xff], b"[redacted:p]".as_slice()].concat());

        let message = text();
        for mut error in [
            ToolError::invalid(message.clone()),
            ToolError::denied(message.clone(), Some(message.clone())),
            ToolError::UnknownTool {
                name: message.clone(),
                near: vec![message.clone()],
            },
            ToolError::Unavailable {
                message: message.clone(),
            },
            ToolError::Failed {
                message: message.clone(),
            },
            ToolError::Crashed {
                cause: message.clone(),
                output: Some(message.clone()),
            },
            ToolError::Host { message },
        ] {
            redactor.error(&mut error);
            let shown = format!("{error:?}");
            assert!(
                !shown.contains(SECRET) && shown.contains("[redacted:p]"),
                "{shown}"
            );
        }

        let mut receipt = Receipt::default();
        receipt.note_host(text());
        receipt.note_file(text(), true);
        receipt.note_bucket(&text(), true);
        receipt.note_denial(Denial {
            what: text(),
            target: text(),
            allow_with: Some(text()),
            denied_by: Some(text()),
            needed: 0,
        });
        redactor.receipt(&mut receipt);
        let shown = format!("{receipt:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        assert_eq!(shown.matches("[redacted:p]").count(), 7, "{shown}");
    }

    #[test]
    fn beginning_is_redacted_and_ends_before_what_may_be_secret() {
        let redactor = Redactor::new([("p", SECRET)]);
        let text = format!("a {SECRET} b");
        let whole = redactor.text(&text).into_owned();
        assert_eq!(redactor.beginning(&text, text.len()), whole);
        assert_eq!(redactor.beginning(&text, text.len() + 1), whole);
        // A secret could begin with the last letter of the first one.
        assert_eq!(redactor.beginning(&text, text.len() - 1), "a [redacted:p]");
        // A part of the secret.
        assert_eq!(redactor.beginning(&text, text.len() - 3), "a ");
    }

    #[test]
    fn search_that_is_given_up_leaves_the_rest_out() {
        let (redactor, awaited) = Redactor::new([("p", SECRET)]).while_awaited();
        let text = format!("{}{SECRET}", "x".repeat(1 << 16));
        let shown = redactor.text(&text);
        assert!(shown.ends_with("x[redacted:p]") && shown.len() > 1 << 16);
        drop(awaited);
        let mut result = CallResult::text(text.as_str());
        redactor.result(&mut result);
        assert_eq!(result, CallResult::text(""));
        // Clones of the redactor without the mark go on.
        let whole = Redactor::new([("p", SECRET)]);
        assert!(whole.text(&text).ends_with("[redacted:p]"));
    }
}
