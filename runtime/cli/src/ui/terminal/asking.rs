//! Asking the user at a terminal.
//!
//! The subject is shown above, behind the gutter and in a bounded number of lines; below it, in Toolcell's words, the
//! question, the access of the tool, and the meaning of the answers. All of it fits on the screen at once, so that no
//! part can scroll out, and no other output is written meanwhile. It is redrawn when the terminal is resized.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Stderr, Write as _};
use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use super::exhibit::{self, Exhibit};
use super::foreign::layout::MIN_COLUMNS;
use super::keyboard::{Keyboard, resumptions};
use super::question::{Choice, Form, LONGEST, Question, View};
use super::refusal;
use super::screen::{FAINT, STRONG, Screen, WARN};
use super::size::Size;
use super::text::{Name, Text, text};
use super::typed::{KeyReader, LineObserver, MAX_TYPED, Pace, Typed, as_text};

/// Time before a question with a persistent answer can be answered.
pub(crate) const READING_TIME: Duration = Duration::from_secs(1);

/// Minimum number of lines of the subject, on a terminal of any height.
const MIN_LINES: usize = 4;

/// Key of the answer no.
const REFUSAL: char = 'n';

/// Maximum number of attempts; after them the answer is no.
const ATTEMPTS: usize = 5;

/// Result of drawing a question.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    /// Offer to show the parts of the subject that are omitted.
    view: View,
    /// True if the question is visible next to the answers.
    fits: bool,
}

/// Kind of prompt.
#[derive(Debug, Clone, Copy)]
enum Prompt {
    /// Prompt for an answer, such as this key.
    Answer(char),
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
    /// True if some of it was set aside: early, or a burst. Further keys of it may come, so that not even a refusal counts
    /// without digits.
    has_strays: bool,
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
            has_strays: false,
        })
    }

    /// Shows the question and waits for an answer.
    pub(crate) fn choose(&mut self, question: &Question) -> io::Result<Answer> {
        let mut attempts = 0;
        let mut is_seen = question.needs_view.is_none();
        // Of a refusal without its digits, which may be earlier input.
        let mut unproven_words = None;
        let first = question.choices.first().map_or(REFUSAL, |choice| choice.key);
        while attempts < ATTEMPTS {
            attempts += 1;
            let Drawn { view, fits } = self.draw(question, is_seen)?;
            let reading = if question.is_lasting {
                READING_TIME
            } else {
                Duration::ZERO
            };
            let prompt = match (fits, view) {
                (false, _) => Prompt::Refusal,
                (true, View::Required) => Prompt::Answer('v'),
                (true, _) => Prompt::Answer(first),
            };
            let (typed, digits) = self.typed(prompt, reading)?;
            match typed {
                Typed::Line(line) => {
                    let answer = match &digits {
                        Some(digits) => refusal::without_digits(line.trim(), digits),
                        None => Some(line.trim().into()),
                    };
                    let answer = answer.as_deref();
                    let is_no = refusal::is_bare(answer.unwrap_or_default())
                        || (!self.has_strays && refusal::is_bare(line.trim()));
                    if is_no && question.choices.iter().any(|choice| choice.key == REFUSAL) {
                        return Ok(unproven_words.map_or(Answer::Key(REFUSAL), Answer::Words));
                    }
                    let words_of = |line| refusal::words(line).filter(|_| question.takes_words);
                    let words = answer.and_then(words_of);
                    let without_digits = words_of(line.trim()).filter(|_| words.is_none());
                    if let Some(words) = words.or(without_digits.filter(|_| !self.has_strays)) {
                        return Ok(Answer::Words(as_text(words.as_bytes())));
                    }
                    if let Some(words) = without_digits {
                        unproven_words = Some(as_text(words.as_bytes()));
                        self.err
                            .line("  n and the digits of the next prompt refuse with these words")?;
                        continue;
                    }
                    let is_chosen = |choice: &&Choice| answer.is_some_and(|answer| choice.is(answer));
                    let chosen = question.choices.iter().find(is_chosen);
                    let is_possible = |choice: &&Choice| {
                        let is_unseen = view == View::Required && Some(choice.key) == question.needs_view;
                        choice.key == REFUSAL || (fits && !is_unseen)
                    };
                    if let Some(choice) = chosen.filter(is_possible) {
                        return Ok(Answer::Key(choice.key));
                    }
                    let can_view = view != View::None;
                    if let (true, Some("v" | "view"), Some(exhibit)) = (can_view, answer, &question.exhibit) {
                        is_seen |= self.page(exhibit)?;
                        attempts = 0;
                    } else {
                        let line = line.trim();
                        let would_be =
                            refusal::is_bare(line) || question.choices.iter().any(|choice| choice.is(line));
                        self.err.line(match would_be && digits.is_some() && answer.is_none() {
                            true => "  this is not one of the answers without the digits of its prompt, which are needed because keys were typed early",
                            false => "  this is not one of the answers",
                        })?;
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

    /// Prompts for a line of text, with a label before it.
    pub(crate) fn line(&mut self, question: Text, label: &'static str) -> io::Result<Answer> {
        for _ in 0..ATTEMPTS {
            self.err.line(question.clone())?;
            match self.typed(Prompt::Text(label), Duration::ZERO)?.0 {
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
            (self.needs_digits, self.has_strays) = (true, true);
            set_aside(&mut self.aside, self.keeps_typed, &before);
        }
        if let Some(end) = end {
            return Ok((end, None));
        }
        let digits = self.needs_digits.then(digits);
        let (prompt, pace) = match (prompt, &digits) {
            (Prompt::Answer(_), None) => (answer_prompt(None), Pace::KeyByKey),
            (Prompt::Refusal, None) => (text!("  {}, Enter: ", Name("n")), Pace::KeyByKey),
            (Prompt::Refusal, Some(digits)) => (text!("  n{}, Enter: ", Name(digits)), Pace::Line),
            (Prompt::Answer(key), Some(digits)) => (answer_prompt(Some((key, digits))), Pace::Line),
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
        (self.needs_digits, self.has_strays) = (true, true);
        set_aside(&mut self.aside, self.keeps_typed, pasted);
        note_aside(&mut self.err, self.keeps_typed)
    }

    /// Draws the question.
    fn draw(&mut self, question: &Question, is_seen: bool) -> io::Result<Drawn> {
        let (columns, rows) = self.size.now().unwrap_or((80, 24));
        let title = self.lines(columns, |screen| question.write_title(screen))?;
        let last = self.last_lines(columns)?;
        let (below, form) = self.fitting(
            question,
            columns,
            rows.saturating_sub(title.len() + MIN_LINES + last),
        )?;
        // The title, and the lines below including the prompt.
        let room = rows
            .saturating_sub(title.len() + below.len() + last)
            .max(MIN_LINES);
        let (shown, has_more) = match &question.exhibit {
            Some(exhibit) => self.subject(exhibit, columns, room)?,
            None => (Vec::new(), false),
        };
        let view = match (has_more, is_seen) {
            (false, _) => View::None,
            (true, true) => View::Offered,
            (true, false) => View::Required,
        };
        let below = self.lines(columns, |screen| question.write_below(screen, view, form))?;
        let needed = below.len() + last;
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
        Ok(Drawn { view, fits })
    }

    /// Returns the number of lines below the answers: of the longest prompt, and of the note about keys typed before it, which
    /// may be written once the question is drawn.
    fn last_lines(&self, columns: usize) -> io::Result<usize> {
        let lines = self.lines(columns, |screen| {
            screen.line(aside_note(self.keeps_typed))?;
            screen.line(answer_prompt(Some(('y', "00"))))
        })?;
        Ok(lines.len())
    }

    /// Returns the lines of the subject, in the longest form that fits into `room` lines, or with lines omitted, and true if
    /// part of it is omitted.
    fn subject(&self, exhibit: &Exhibit, columns: usize, room: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let mut shown = Vec::new();
        for form in exhibit::FORMS {
            let mut is_whole = true;
            shown = self.lines(columns, |screen| {
                is_whole = exhibit.write(screen, form)?;
                Ok(())
            })?;
            if shown.len() <= room {
                return Ok((shown, !is_whole));
            }
        }
        // The number of lines omitted changes no more than the length of a digit of its own line.
        let gap = |left_out| self.lines(columns, |screen| screen.line(exhibit.gap_of_lines(left_out)));
        let kept = room.saturating_sub(gap(shown.len())?.len()).max(2);
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let left_out = shown.len() - head - tail;
        shown.splice(head..head + left_out, gap(left_out)?);
        Ok((shown, true))
    }

    /// Returns the lines below the subject, in at most `room` lines if possible: names are shortened, and on a short
    /// terminal the title is repeated, so that the question is visible next to the answers.
    fn fitting(&self, question: &Question, columns: usize, room: usize) -> io::Result<(Vec<Vec<u8>>, Form)> {
        let longest = LONGEST.map(|longest| Form {
            longest,
            has_title: false,
        });
        for form in longest {
            let below = self.lines(columns, |screen| {
                question.write_below(screen, View::Offered, form)
            })?;
            if below.len() <= room {
                return Ok((below, form));
            }
        }
        let form = Form {
            longest: LONGEST[LONGEST.len() - 1],
            has_title: true,
        };
        let below = self.lines(columns, |screen| {
            question.write_below(screen, View::Offered, form)
        })?;
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

    /// Shows the full subject, one screen at a time; returns true if its end was reached.
    fn page(&mut self, exhibit: &Exhibit) -> io::Result<bool> {
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
                return Ok(true);
            }
            match self.typed(Prompt::Text("  Enter or q: "), Duration::ZERO)?.0 {
                Typed::Line(line) if line.trim() == "q" => return Ok(false),
                Typed::Line(_) => at = end,
                Typed::Pasted(pasted) => self.set_aside_pasted(&pasted)?,
                Typed::Redraw => at = 0,
                Typed::End | Typed::Withdrawn => return Ok(false),
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
    screen.styled(FAINT, aside_note(is_kept))?;
    screen.end_line()?;
    screen.flush()
}

fn aside_note(is_kept: bool) -> &'static str {
    if is_kept {
        "  keys from before the prompt, or several at once, are not an answer; they are kept for the next message"
    } else {
        "  keys from before the prompt, or several at once, are not an answer; they are discarded"
    }
}

/// Prompt for an answer, which must end with digits if there are any; an answer is shown as an example.
fn answer_prompt(example: Option<(char, &str)>) -> Text {
    match example {
        None => "  your answer, then Enter: ".into(),
        Some((key, digits)) => text!(
            "  your answer and {} ({}{}), then Enter: ",
            Name(digits),
            key,
            Name(digits)
        ),
    }
}
