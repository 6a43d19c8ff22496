//! Text of an answer, whose steps and lines of Toolcell are paragraphs of their own.

/// Text in paragraphs.
#[derive(Default)]
pub(in crate::v1) struct Text {
    text: String,
    /// True if a paragraph ends before the next text.
    needs_break: bool,
}

impl Text {
    /// Adds text to the paragraph.
    pub(in crate::v1) fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.needs_break) && !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }

    /// Ends the paragraph.
    pub(in crate::v1) fn end_paragraph(&mut self) {
        self.needs_break = true;
    }

    /// Adds text as a paragraph.
    pub(in crate::v1) fn paragraph(&mut self, text: &str) {
        self.end_paragraph();
        self.push(text);
        self.end_paragraph();
    }

    pub(in crate::v1) fn as_str(&self) -> &str {
        &self.text
    }

    pub(in crate::v1) fn into_string(self) -> String {
        self.text
    }
}
