//! Questions to the user.
//!
//! The subject is shown above, behind the gutter and in a bounded number of lines; below it, in Toolcell's words, the
//! question, the access of the tool, and the meaning of the answers. All of it fits on the screen at once, so that no
//! part can scroll out, and no other output is written meanwhile. It is redrawn when the terminal is resized.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Stderr, Write};
use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use super::exhibit::Exhibit;
use super::foreign::layout::MIN_COLUMNS;
use super::keyboard::{Keyboard, resumptions};
use super::refusal;
use super::screen::{FAINT, NAME, STRONG, Screen, WARN};
use super::size::Size;
use super::text::{Name, Text, text};
use super::typed::{KeyReader, LineObserver, MAX_TYPED, Pace, Typed, as_text};

/// Time before a question with a persistent answer can be answered.
pub(crate) const READING_TIME: Duration = Duration::from_secs(1);

/// Minimum number of lines of the subject, on a terminal of any height.
const MIN_LINES: usize = 4;

/// Maximum lengths of a name below a question, in characters; the first one that fits on the screen is used.
const LONGEST: [usize; 4] = [400, 120, 60, 30];

/// Key of the answer no.
const REFUSAL: char = 'n';

/// Maximum number of attempts; after them the answer is no.
const ATTEMPTS: usize = 5;

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
    /// True if the answer is persistent, so that it can be given only after [`READING_TIME`].
    pub(crate) is_lasting: bool,
    /// True if a refusal may have words: `no, use b.txt instead`.
    pub(crate) takes_words: bool,
}

/// Layout of the part below the subject.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Maximum length of a name, in characters.
    longest: usize,
    /// True if the title is repeated.
    has_title: bool,
}

/// A fact that the user needs to answer.
#[derive(Debug)]
pub(crate) enum Fact {
    /// Shown in every such question.
    Plain(Text),
    /// Specific to this question.
    Warning(Text),
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

/// Result of drawing a question.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    /// True if part of the subject is omitted.
    has_more: bool,
    /// True if the question is visible next to the answers.
    fits: bool,
}

/// Kind of prompt.
#[derive(Debug, Clone, Copy)]
enum Prompt {
    /// Prompt for an answer.
    Answer,
    /// Prompt for a refusal, the only answer to a question that does not fit on the screen.
    Refusal,
    /// Prompt for text that decides nothing, with this label.
    Text(&'static str),
}

/// Input of the user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One of the keys.
    Key(char),
    /// A refusal with words.
    Words(String),
    /// A line of text.
    Line(String),
    /// No valid answer, or the end of input.
    Nothing,
}

/// The terminal during questions.
///
/// After input that is not an answer, further keys may belong to that input. From then on, an answer must contain
/// digits that are shown with the prompt, so that it cannot have been typed, copied or scripted before.
pub(crate) struct Asking<'a> {
    err: Screen<Stderr>,
    size: Size,
    keys: KeyReader<Keyboard>,
    is_withdrawn: &'a dyn Fn() -> bool,
    /// Input that was not an answer.
    aside: String,
    /// True if a later prompt shows this input again.
    keeps_typed: bool,
    /// True if there was input that was not an answer.
    needs_digits: bool,
}

struct Waiting<'a> {
    is_withdrawn: &'a dyn Fn() -> bool,
    size: Size,
    drawn: Option<(usize, usize)>,
    resumptions: u64,
    screen: &'a mut Screen<Stderr>,
    keeps_typed: bool,
    is_early: bool,
    /// Columns after the prompt, in which typed characters are shown.
    room: usize,
    echoed: Vec<char>,
}

impl Waiting<'_> {
    /// Columns of the typed characters.
    fn width(&self) -> usize {
        self.echoed.iter().filter_map(|c| c.width()).sum()
    }
}

impl LineObserver for Waiting<'_> {
    fn ends(&mut self) -> Option<Typed> {
        if (self.is_withdrawn)() {
            return Some(Typed::Withdrawn);
        }
        let is_same = self.size.now() == self.drawn && resumptions() == self.resumptions;
        (!is_same).then_some(Typed::Redraw)
    }

    fn early(&mut self) {
        self.is_early = true;
        let _ = note_aside(self.screen, self.keeps_typed);
    }

    fn echo(&mut self, c: Option<char>) {
        let shown = match c {
            // Characters beyond the end of the line are not shown, but are part of the input.
            Some(c) => {
                self.echoed.push(c);
                if self.width() < self.room {
                    super::inert_line(&c.to_string())
                } else {
                    String::new()
                }
            }
            None if self.width() >= self.room => {
                self.echoed.pop();
                String::new()
            }
            None => {
                let width = self.echoed.pop().and_then(|c| c.width()).unwrap_or(0);
                "\u{8} \u{8}".repeat(width)
            }
        };
        let out = self.screen.inner();
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
    }
}

impl<'a> Asking<'a> {
    /// Takes over the terminal. `is_withdrawn` is true once the answer is no longer awaited, and `keeps_typed` is true
    /// if a later prompt takes input that was not an answer.
    ///
    /// # Errors
    /// Returns an error if standard input is not a terminal.
    pub(crate) fn open(
        size: Size,
        colour: bool,
        is_dumb: bool,
        keeps_typed: bool,
        is_withdrawn: &'a dyn Fn() -> bool,
    ) -> io::Result<Self> {
        Ok(Self {
            err: Screen::new(io::stderr(), colour, size),
            size,
            keys: KeyReader::new(Keyboard::open(!is_dumb)?),
            is_withdrawn,
            aside: String::new(),
            keeps_typed,
            needs_digits: false,
        })
    }

    /// Shows the question and waits for an answer.
    pub(crate) fn choose(&mut self, question: &Question) -> io::Result<Answer> {
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            attempts += 1;
            let Drawn { has_more, fits } = self.draw(question)?;
            let reading = if question.is_lasting {
                READING_TIME
            } else {
                Duration::ZERO
            };
            let prompt = if fits { Prompt::Answer } else { Prompt::Refusal };
            let (typed, digits) = self.typed(prompt, reading)?;
            match typed {
                Typed::Line(line) => {
                    let answer = match &digits {
                        Some(digits) => line.trim().strip_suffix(digits.as_str()),
                        None => Some(line.trim()),
                    };
                    if let Some(words) = answer.and_then(refusal::words).filter(|_| question.takes_words) {
                        return Ok(Answer::Words(as_text(words.as_bytes())));
                    }
                    let is_chosen = |choice: &&Choice| {
                        answer.is_some_and(|answer| {
                            answer == choice.word || answer.chars().eq(std::iter::once(choice.key))
                        })
                    };
                    let chosen = question.choices.iter().find(is_chosen);
                    if let Some(choice) = chosen.filter(|choice| fits || choice.key == REFUSAL) {
                        return Ok(Answer::Key(choice.key));
                    }
                    if let (true, Some("v"), Some(exhibit)) = (has_more, answer, &question.exhibit) {
                        self.page(exhibit)?;
                        attempts = 0;
                    } else {
                        self.err.line("  this is not one of the answers")?;
                        self.needs_digits = true;
                    }
                }
                Typed::Pasted(pasted) => self.set_aside_pasted(&pasted)?,
                Typed::Redraw => attempts -= 1,
                Typed::End | Typed::Withdrawn => return Ok(Answer::Nothing),
            }
        }
        Ok(Answer::Nothing)
    }

    /// Prompts for a line of text.
    pub(crate) fn line(&mut self, question: Text) -> io::Result<Answer> {
        for _ in 0..ATTEMPTS {
            self.err.line(question.clone())?;
            match self
                .typed(Prompt::Text("  pattern, then Enter: "), Duration::ZERO)?
                .0
            {
                Typed::Line(line) => return Ok(Answer::Line(line)),
                Typed::Pasted(pasted) => self.set_aside_pasted(&pasted)?,
                Typed::Redraw => {}
                Typed::End | Typed::Withdrawn => return Ok(Answer::Nothing),
            }
        }
        Ok(Answer::Nothing)
    }

    /// Writes a line between two questions.
    pub(crate) fn say(&mut self, text: impl Into<Text>) -> io::Result<()> {
        self.err.line(text)
    }

    /// Releases the terminal. Returns input that was not an answer, if a later prompt takes it.
    pub(crate) fn close(self) -> String {
        self.aside
    }

    /// Sets earlier input aside, prompts, and waits for a line. Returns the digits that an answer must end with.
    fn typed(&mut self, prompt: Prompt, reading: Duration) -> io::Result<(Typed, Option<String>)> {
        self.err.flush()?;
        let mut waiting = Waiting {
            is_withdrawn: self.is_withdrawn,
            size: self.size,
            drawn: self.size.now(),
            resumptions: resumptions(),
            screen: &mut self.err,
            keeps_typed: self.keeps_typed,
            is_early: false,
            room: 0,
            echoed: Vec::new(),
        };
        let (before, end) = self.keys.drain(reading, &mut waiting);
        if waiting.is_early {
            self.needs_digits = true;
            set_aside(&mut self.aside, self.keeps_typed, &before);
        }
        if let Some(end) = end {
            return Ok((end, None));
        }
        let digits = self.needs_digits.then(digits);
        let (prompt, pace) = match (prompt, &digits) {
            (Prompt::Answer, None) => (Text::from("  your answer, then Enter: "), Pace::KeyByKey),
            (Prompt::Refusal, None) => (text!("  {}, Enter: ", Name("n")), Pace::KeyByKey),
            (Prompt::Refusal, Some(digits)) => (text!("  n{}, Enter: ", Name(digits)), Pace::Line),
            (Prompt::Answer, Some(digits)) => (
                text!(
                    "  your answer and {} (y{}), then Enter: ",
                    Name(digits),
                    Name(digits)
                ),
                Pace::Line,
            ),
            (Prompt::Text(prompt), _) => (prompt.into(), Pace::Line),
        };
        let columns = waiting.drawn.map_or(0, |(columns, _)| columns).max(1);
        waiting.room = columns - prompt.plain().chars().count() % columns;
        waiting.screen.styled(STRONG, prompt)?;
        waiting.screen.flush()?;
        let typed = self.keys.line(pace, &mut waiting);
        self.err.end_line()?;
        self.err.flush()?;
        Ok((typed, digits))
    }

    /// Sets a paste aside.
    fn set_aside_pasted(&mut self, pasted: &str) -> io::Result<()> {
        self.needs_digits = true;
        set_aside(&mut self.aside, self.keeps_typed, pasted);
        note_aside(&mut self.err, self.keeps_typed)
    }

    /// Draws the question.
    fn draw(&mut self, question: &Question) -> io::Result<Drawn> {
        let (columns, rows) = self.size.now().unwrap_or((80, 24));
        let title = self.lines(columns, |screen| question.write_title(screen))?;
        let (below, form) = self.fitting(
            question,
            columns,
            rows.saturating_sub(title.len() + MIN_LINES + 1),
        )?;
        let mut shown = Vec::new();
        let mut is_cut = false;
        if let Some(exhibit) = &question.exhibit {
            shown = self.lines(columns, |screen| exhibit.write(screen))?;
            // The title, and the lines below including the prompt.
            let room = rows.saturating_sub(title.len() + below.len() + 1).max(MIN_LINES);
            is_cut = shown.len() > room;
            if is_cut {
                let (head, tail) = ((room - 1) * 2 / 3, (room - 1) / 3);
                let left_out = shown.len() - head - tail;
                let gap = self.lines(columns, |screen| {
                    screen.line(text!("  ├─ {} lines omitted", left_out))
                })?;
                shown.splice(head..head + left_out, gap);
            }
        }
        let has_more = is_cut
            || question
                .exhibit
                .as_ref()
                .is_some_and(|exhibit| !exhibit.is_whole());
        let below = self.lines(columns, |screen| question.write_below(screen, has_more, form))?;
        let needed = below.len() + 1;
        self.err.end_open_line()?;
        let out = self.err.inner();
        for line in title.iter().chain(&shown).chain(&below) {
            out.write_all(line)?;
        }
        out.flush()?;
        let fits = columns >= MIN_COLUMNS && (!form.has_title || needed <= rows);
        if !fits {
            let small = text!(
                "  too small a terminal, {} columns by {} rows; enlarge it, or refuse",
                columns,
                rows
            );
            self.err.styled(WARN, small)?;
            self.err.end_line()?;
        }
        Ok(Drawn { has_more, fits })
    }

    /// Returns the lines below the subject, in at most `room` lines if possible: names are shortened, and on a short
    /// terminal the title is repeated, so that the question is visible next to the answers.
    fn fitting(&self, question: &Question, columns: usize, room: usize) -> io::Result<(Vec<Vec<u8>>, Form)> {
        let longest = LONGEST.map(|longest| Form {
            longest,
            has_title: false,
        });
        for form in longest {
            let below = self.lines(columns, |screen| question.write_below(screen, true, form))?;
            if below.len() <= room {
                return Ok((below, form));
            }
        }
        let form = Form {
            longest: LONGEST[LONGEST.len() - 1],
            has_title: true,
        };
        let below = self.lines(columns, |screen| question.write_below(screen, true, form))?;
        Ok((below, form))
    }

    /// Returns the physical lines of the written text.
    fn lines(
        &self,
        columns: usize,
        write: impl FnOnce(&mut Screen<Vec<u8>>) -> io::Result<()>,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut screen = Screen::new(Vec::new(), self.err.has_colour(), self.size.fixed_to(columns));
        write(&mut screen)?;
        let bytes = std::mem::take(screen.inner());
        Ok(bytes
            .split_inclusive(|b| *b == b'\n')
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Shows the full subject, one screen at a time.
    fn page(&mut self, exhibit: &Exhibit) -> io::Result<()> {
        let mut at = 0;
        loop {
            let (columns, rows) = self.size.now().unwrap_or((80, 24));
            let lines = self.lines(columns, |screen| exhibit.write_whole(screen))?;
            let end = (at + rows.saturating_sub(3).max(1)).min(lines.len());
            let out = self.err.inner();
            for line in lines.get(at..end).unwrap_or_default() {
                out.write_all(line)?;
            }
            let message = text!(
                "  lines {} to {} of {}; Enter shows more, q returns to the question",
                at + 1,
                end,
                lines.len()
            );
            self.err.styled(FAINT, message)?;
            self.err.end_line()?;
            if end >= lines.len() {
                return Ok(());
            }
            match self.typed(Prompt::Text("  Enter or q: "), Duration::ZERO)?.0 {
                Typed::Line(line) if line.trim() == "q" => return Ok(()),
                Typed::Line(_) => at = end,
                Typed::Pasted(pasted) => self.set_aside_pasted(&pasted)?,
                Typed::Redraw => at = 0,
                Typed::End | Typed::Withdrawn => return Ok(()),
            }
        }
    }
}

/// Returns two digits that cannot be known before they are shown.
fn digits() -> String {
    let random = RandomState::new().build_hasher().finish();
    (10 + random % 90).to_string()
}

/// Sets input aside for a later prompt, if there is one.
fn set_aside(aside: &mut String, is_kept: bool, text: &str) {
    let text = as_text(text.as_bytes());
    if is_kept && !text.trim().is_empty() && aside.len() + text.len() <= MAX_TYPED {
        aside.push_str(&text);
    }
}

/// Explains what happens to input that is not an answer.
fn note_aside(screen: &mut Screen<Stderr>, is_kept: bool) -> io::Result<()> {
    screen.end_open_line()?;
    screen.styled(
        FAINT,
        if is_kept {
            "  keys from before the prompt, or several at once, are not an answer; they are kept for the next message"
        } else {
            "  keys from before the prompt, or several at once, are not an answer; they are discarded"
        },
    )?;
    screen.end_line()?;
    screen.flush()
}

impl Question {
    fn write_title<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.end_line()?;
        screen.styled(WARN, "? ")?;
        screen.styled(STRONG, self.title.clone())?;
        screen.end_line()
    }

    fn write_below<W: Write>(&self, screen: &mut Screen<W>, has_more: bool, form: Form) -> io::Result<()> {
        for fact in &self.facts {
            screen.hang(4);
            match fact {
                Fact::Plain(text) => {
                    screen.text("  · ")?;
                    screen.line(text.shortened(form.longest))?;
                }
                Fact::Warning(text) => {
                    screen.styled(WARN, "  ! ")?;
                    screen.line(text.shortened(form.longest))?;
                }
            }
        }
        if form.has_title {
            screen.styled(WARN, "? ")?;
            screen.styled(STRONG, self.title.shortened(form.longest))?;
            screen.end_line()?;
        }
        let view = Choice {
            key: 'v',
            word: "view",
            means: "show everything",
        };
        for (i, choice) in self.choices.iter().chain(has_more.then_some(&view)).enumerate() {
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
