//! Text of the model on standard output: rendered Markdown on a terminal, otherwise as it is.

use std::io;

use clap::{Args, ValueEnum};

use crate::ui::markdown::{MarkdownStream, Ready};
use crate::ui::render::console::Streams;

/// Rendering of answers.
#[derive(Debug, Default, Args)]
pub(crate) struct MarkdownFlag {
    /// Render Markdown in answers: headings, emphasis, lists, tables, code, and links with their addresses. `auto` does so on
    /// a terminal [default: auto].
    #[arg(long = "markdown", value_name = "WHEN")]
    pub(crate) when: Option<Markdown>,
}

/// Outputs on which Markdown is rendered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Markdown {
    /// None: answers are shown as they are written.
    Never,
    /// Terminals.
    #[default]
    Auto,
    /// All, such as a pipe to a pager.
    Always,
}

/// State of the text of the model.
pub(crate) enum Answer {
    /// It is shown as it is written.
    Plain,
    /// It is rendered.
    Markdown(MarkdownStream),
    /// It is shown as it is written up to its end: a block is too long.
    Rest,
}

impl Answer {
    pub(crate) fn new(is_rendered: bool) -> Self {
        if is_rendered {
            Self::Markdown(MarkdownStream::default())
        } else {
            Self::Plain
        }
    }
}

impl Streams {
    /// Writes a piece of the model's text.
    pub(crate) fn answer(&mut self, text: &str) -> io::Result<()> {
        let is_open = self.is_line_open();
        let Answer::Markdown(markdown) = &mut self.answer else {
            return self.plain(text);
        };
        if !is_open {
            markdown.row_was_ended();
        }
        match markdown.push(text, self.out.width(), self.out.has_colour()) {
            Ok(ready) => self.ready(&ready),
            Err(ready) => {
                self.answer = Answer::Rest;
                self.ready(&ready)
            }
        }
    }

    fn ready(&mut self, ready: &Ready) -> io::Result<()> {
        if ready.rows.is_empty() {
            return Ok(());
        }
        if !ready.goes_on {
            self.end_open_line()?;
        }
        self.set_line_open(ready.is_open);
        self.out.rows(ready)
    }

    /// Writes a piece of foreign text as it is.
    pub(crate) fn plain(&mut self, text: &str) -> io::Result<()> {
        self.out.stream(text)?;
        let is_open = self.out.is_stream_open();
        self.set_line_open(is_open.unwrap_or(!text.ends_with('\n')));
        Ok(())
    }

    /// Ends the model's text, and the line.
    pub(crate) fn end_answer(&mut self) -> io::Result<()> {
        let is_open = self.is_line_open();
        match &mut self.answer {
            Answer::Plain => {}
            Answer::Markdown(markdown) => {
                if !is_open {
                    markdown.row_was_ended();
                }
                let ready = markdown.finish(self.out.width(), self.out.has_colour());
                self.ready(&ready)?;
            }
            Answer::Rest => self.answer = Answer::new(true),
        }
        self.out.end_stream()?;
        self.end_open_line()
    }
}
