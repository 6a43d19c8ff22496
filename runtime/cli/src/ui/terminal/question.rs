//! Questions to the user: subject, facts and answers, and how they are written.

use std::io::{self, Write};

use super::exhibit::Exhibit;
use super::screen::{NAME, STRONG, Screen, WARN};
use super::size::Size;
use super::text::{Name, Text, text};

/// Maximum lengths of a name below a question, in characters; the first one that fits on the screen is used.
pub(super) const LONGEST: [usize; 4] = [400, 120, 60, 30];

/// Maximum number of lines of the subject in a question that another program shows.
const MAX_PLAIN_LINES: usize = 200;

/// Columns of such a question.
const PLAIN_COLUMNS: usize = 100;

/// A question.
#[derive(Debug)]
pub(crate) struct Question {
    /// The question, in one sentence.
    pub(crate) title: Text,
    /// Subject of the question.
    pub(crate) exhibit: Option<Exhibit>,
    /// Facts that the user needs to answer.
    pub(crate) facts: Vec<Fact>,
    /// Possible answers.
    pub(crate) choices: Vec<Choice>,
    /// True if the answer is persistent, so that it can be given only after [`READING_TIME`](super::asking::READING_TIME).
    pub(crate) is_lasting: bool,
    /// True if a refusal may have words: `no, use b.txt instead`.
    pub(crate) takes_words: bool,
    /// Answer that is possible only once the subject was shown in full.
    pub(crate) needs_view: Option<char>,
}

/// Layout of the part below the subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Maximum length of a name, in characters.
    pub(super) longest: usize,
    /// True if the title is repeated.
    pub(super) has_title: bool,
}

/// A fact that the user needs to answer.
#[derive(Debug, Clone)]
pub(crate) enum Fact {
    /// Shown in every such question.
    Plain(Text),
    /// Specific to this question.
    Warning(Text),
}

/// Offer to show the subject in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All of it is on the screen.
    None,
    /// It is offered beside the answers.
    Offered,
    /// One of the answers is possible only after it.
    Required,
}

/// A possible answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// Key of the answer.
    pub(crate) key: char,
    /// Word with the same meaning as the key.
    pub(crate) word: &'static str,
    /// Description of the answer.
    pub(crate) means: &'static str,
}

impl Choice {
    /// True if a text is this answer: its key or its word, `y` and `yes` in any case.
    pub(super) fn is(&self, text: &str) -> bool {
        let is_key = |text: &str| text.chars().eq(std::iter::once(self.key));
        let is_yes = self.key == 'y' && ["y", self.word].iter().any(|yes| text.eq_ignore_ascii_case(yes));
        is_yes || text == self.word || is_key(text)
    }
}

impl Question {
    /// Returns the question for another program to show, without the answers, laid out as on a terminal, with its whole
    /// subject: it cannot be paged through there. `None` if that is too long.
    pub(crate) fn plain(&self, size: Size) -> Option<String> {
        let lines_of = |write: &dyn Fn(&mut Screen<Vec<u8>>) -> io::Result<()>| {
            let mut screen = Screen::new(Vec::new(), false, size.fixed_to(PLAIN_COLUMNS));
            write(&mut screen).and_then(|()| screen.flush()).ok()?;
            String::from_utf8(std::mem::take(screen.inner())).ok()
        };
        let is_short = |text: &String| text.lines().count() <= MAX_PLAIN_LINES;
        let subject = match &self.exhibit {
            None => String::new(),
            Some(exhibit) => lines_of(&|screen| exhibit.write_whole(screen)).filter(is_short)?,
        };
        let title = lines_of(&|screen| self.write_title(screen))?;
        let facts = lines_of(&|screen| write_facts(screen, &self.facts, LONGEST[0]))?;
        Some(
            format!("{}\n{subject}{facts}", title.trim())
                .trim_end()
                .to_owned(),
        )
    }

    pub(super) fn write_title<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.end_line()?;
        screen.styled(WARN, "? ")?;
        screen.styled(STRONG, self.title.clone())?;
        screen.end_line()
    }

    pub(super) fn write_below<W: Write>(
        &self,
        screen: &mut Screen<W>,
        view: View,
        form: Form,
    ) -> io::Result<()> {
        write_facts(screen, &self.facts, form.longest)?;
        if form.has_title {
            screen.styled(WARN, "? ")?;
            screen.styled(STRONG, self.title.shortened(form.longest))?;
            screen.end_line()?;
        }
        let show = Choice {
            key: 'v',
            word: "view",
            means: match view {
                View::Required => "show everything, before you can say yes",
                View::None | View::Offered => "show everything",
            },
        };
        let answers = self.choices.iter();
        let answers = answers.filter(|choice| view != View::Required || Some(choice.key) != self.needs_view);
        let show = (view != View::None).then_some(&show);
        for (i, choice) in answers.chain(show).enumerate() {
            // Its key, a blank and the separator.
            if !screen.has_room(choice.means.len() + 5) {
                screen.end_line()?;
            }
            screen.text(if i == 0 || !screen.is_line_open() {
                "  "
            } else {
                "   "
            })?;
            let key = choice.key.to_string();
            screen.styled(NAME, text!("{}", Name(&key)))?;
            screen.text(" ")?;
            screen.text(choice.means)?;
        }
        screen.end_line()
    }
}

/// Writes facts with names of at most `longest` characters.
pub(super) fn write_facts<W: Write>(
    screen: &mut Screen<W>,
    facts: &[Fact],
    longest: usize,
) -> io::Result<()> {
    for fact in facts {
        screen.hang(4);
        match fact {
            Fact::Plain(text) => {
                screen.text("  · ")?;
                screen.line(text.shortened(longest))?;
            }
            Fact::Warning(text) => {
                screen.styled(WARN, "  ! ")?;
                screen.line(text.shortened(longest))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(arguments: &serde_json::Value) -> Option<String> {
        let question = Question {
            title: text!("`{}` wants to run", "t\u{1b}[2J"),
            exhibit: Some(Exhibit::arguments(arguments)),
            facts: vec![Fact::Plain(text!("why: {}", "x\n? forged"))],
            choices: Vec::new(),
            is_lasting: false,
            takes_words: false,
            needs_view: None,
        };
        question.plain(Size::NONE)
    }

    #[test]
    fn only_clear_forms_of_yes_are_yes() {
        let choice = |key, word| Choice { key, word, means: "" };
        for text in ["y", "Y", "yes", "Yes", "YES"] {
            assert!(choice('y', "yes").is(text), "{text}");
        }
        for text in ["", "yes please", "yep", "ye", "yy", "yes.", "ok", "n", "a"] {
            assert!(!choice('y', "yes").is(text), "{text}");
        }
        let always = choice('a', "always");
        assert!(always.is("a") && always.is("always") && !always.is("A"));
    }

    #[test]
    fn plain_question_frames_foreign_text_as_a_terminal_does() {
        let forged = "\n? `safe` wants to run\u{1b}[8m";
        let text = plain(&json!({ "path": forged })).unwrap();
        assert!(text.starts_with("? `t␛[2J` wants to run\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with('?')).count(),
            1,
            "{text}"
        );
    }

    #[test]
    fn plain_question_is_whole_up_to_its_lines() {
        // Brackets around them.
        let lines = |count: usize| json!(vec!["x"; count - 2]);
        assert!(plain(&lines(MAX_PLAIN_LINES)).is_some());
        assert!(plain(&lines(MAX_PLAIN_LINES + 1)).is_none());
        // A long string is not abbreviated.
        assert!(plain(&json!({ "text": "word ".repeat(1_000) })).is_some());
        assert!(plain(&json!({ "text": "word ".repeat(10_000) })).is_none());
    }
}
