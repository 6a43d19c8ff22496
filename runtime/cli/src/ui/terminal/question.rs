//! A question to the user.
//!
//! What it is about stands above, behind the gutter and in a bounded number of lines; below it, in words of Toolcell, what
//! is asked, what it can reach, and what the answers mean. All of it fits on the screen at once, so that no part of it can
//! be scrolled out, and while it stands there nothing else is written. When the terminal is resized it is drawn anew.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Stderr, Write};
use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use super::exhibit::Exhibit;
use super::keyboard::{Keyboard, resumptions};
use super::screen::{FAINT, NAME, STRONG, Screen, WARN};
use super::size::Size;
use super::text::{Name, Text, text};
use super::typed::{KeyReader, MAX_TYPED, Pace, Typed, Watch, as_text};

/// Time for which a question stands on the screen before it can be answered, where the answer holds for longer than once.
pub(crate) const READING_TIME: Duration = Duration::from_secs(1);

/// Fewest lines for what a question is about, on however low a terminal.
const MIN_LINES: usize = 4;

/// Most characters of a name in what stands below a question, the first of these with which all of it fits on the screen.
const LONGEST: [usize; 4] = [400, 120, 60, 30];

/// How often a question is asked again before no answer is no.
const ATTEMPTS: usize = 5;

/// A question.
#[derive(Debug)]
pub(crate) struct Question {
    /// What is asked, in one sentence.
    pub(crate) title: Text,
    /// What it is about.
    pub(crate) exhibit: Option<Exhibit>,
    /// What the user should know to answer.
    pub(crate) facts: Vec<Fact>,
    /// What can be answered.
    pub(crate) choices: Vec<Choice>,
    /// Whether the answer holds for longer than once, so that it can be given only after [`READING_TIME`].
    pub(crate) is_lasting: bool,
}

/// How what stands below a question is written.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Most characters of a name.
    longest: usize,
    /// Whether the title stands there once more.
    has_title: bool,
}

/// Something that the user should know to answer.
#[derive(Debug)]
pub(crate) enum Fact {
    /// For every such question.
    Plain(Text),
    /// Only for this one.
    Warning(Text),
}

/// One answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// The key.
    pub(crate) key: char,
    /// Another word for it.
    pub(crate) word: &'static str,
    /// What it means.
    pub(crate) means: &'static str,
}

/// What is prompted for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// One of the answers to a question.
    Answer,
    /// Text that decides nothing, with this prompt.
    Text(&'static str),
}

/// What the user said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One of the keys.
    Key(char),
    /// A line of text.
    Line(String),
    /// Nothing that is an answer, or the end of input.
    Nothing,
}

/// The terminal while questions are asked.
///
/// Once anything was typed that is no answer, further keys may belong to it. From then on an answer has to contain digits
/// that appear with the prompt, so that it cannot have been typed, copied or scripted before.
pub(crate) struct Asking<'a> {
    err: Screen<Stderr>,
    size: Size,
    keys: KeyReader<Keyboard>,
    is_withdrawn: &'a dyn Fn() -> bool,
    /// What was typed and is no answer.
    aside: String,
    /// Whether a prompt follows at which it appears again.
    keeps_typed: bool,
    /// Whether something was typed that is no answer.
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
    echoed: Vec<char>,
}

impl Watch for Waiting<'_> {
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
        let room = self.drawn.map_or(0, |(columns, _)| columns / 2);
        let shown = match c {
            // What does not fit is not shown; the line holds it.
            Some(c) => {
                self.echoed.push(c);
                if self.echoed.len() < room {
                    super::inert_line(&c.to_string())
                } else {
                    String::new()
                }
            }
            None if self.echoed.len() >= room => {
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
    /// Takes the terminal over. `is_withdrawn` says when nobody waits for an answer any more, and `keeps_typed` whether a
    /// prompt follows for what is typed and is no answer.
    ///
    /// # Errors
    /// When standard input is no terminal.
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

    /// Asks, and waits for one of the answers.
    pub(crate) fn choose(&mut self, question: &Question) -> io::Result<Answer> {
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            attempts += 1;
            let has_more = self.draw(question)?;
            let reading = if question.is_lasting {
                READING_TIME
            } else {
                Duration::ZERO
            };
            let (typed, digits) = self.typed(Wanted::Answer, reading)?;
            match typed {
                Typed::Line(line) => {
                    let answer = match &digits {
                        Some(digits) => line.trim().strip_suffix(digits.as_str()),
                        None => Some(line.trim()),
                    };
                    let is_chosen = |choice: &&Choice| {
                        answer.is_some_and(|answer| {
                            answer == choice.word || answer.chars().eq(std::iter::once(choice.key))
                        })
                    };
                    if let Some(choice) = question.choices.iter().find(is_chosen) {
                        return Ok(Answer::Key(choice.key));
                    }
                    if let (true, Some("v"), Some(exhibit)) = (has_more, answer, &question.exhibit) {
                        self.page(exhibit)?;
                        attempts = 0;
                    } else {
                        self.err.line("  this is none of the answers")?;
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

    /// Asks for a line of text.
    pub(crate) fn line(&mut self, question: Text) -> io::Result<Answer> {
        for _ in 0..ATTEMPTS {
            self.err.line(question.clone())?;
            match self
                .typed(Wanted::Text("  pattern, then Enter: "), Duration::ZERO)?
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

    /// Says something between two questions.
    pub(crate) fn say(&mut self, text: impl Into<Text>) -> io::Result<()> {
        self.err.line(text)
    }

    /// Gives the terminal back. Returns what was typed and is no answer, where a prompt follows for it.
    pub(crate) fn close(self) -> String {
        self.aside
    }

    /// Sets aside what was typed before, prompts, and waits for a line. Returns the digits that an answer has to end with.
    fn typed(&mut self, wanted: Wanted, reading: Duration) -> io::Result<(Typed, Option<String>)> {
        self.err.flush()?;
        let mut waiting = Waiting {
            is_withdrawn: self.is_withdrawn,
            size: self.size,
            drawn: self.size.now(),
            resumptions: resumptions(),
            screen: &mut self.err,
            keeps_typed: self.keeps_typed,
            is_early: false,
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
        let (prompt, pace) = match (wanted, &digits) {
            (Wanted::Answer, None) => (Text::from("  your answer, then Enter: "), Pace::KeyByKey),
            (Wanted::Answer, Some(digits)) => (
                text!(
                    "  your answer and {} (y{}), then Enter: ",
                    Name(digits),
                    Name(digits)
                ),
                Pace::Line,
            ),
            (Wanted::Text(prompt), _) => (prompt.into(), Pace::Line),
        };
        waiting.screen.styled(STRONG, prompt)?;
        waiting.screen.flush()?;
        let typed = self.keys.line(pace, &mut waiting);
        self.err.end_line()?;
        self.err.flush()?;
        Ok((typed, digits))
    }

    /// Sets aside what came at once.
    fn set_aside_pasted(&mut self, pasted: &str) -> io::Result<()> {
        self.needs_digits = true;
        set_aside(&mut self.aside, self.keeps_typed, pasted);
        note_aside(&mut self.err, self.keeps_typed)
    }

    /// Draws the question. Whether something of what it is about is left out.
    fn draw(&mut self, question: &Question) -> io::Result<bool> {
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
            // The title, and the lines below with that of the prompt.
            let room = rows.saturating_sub(title.len() + below.len() + 1).max(MIN_LINES);
            is_cut = shown.len() > room;
            if is_cut {
                let (head, tail) = ((room - 1) * 2 / 3, (room - 1) / 3);
                let left_out = shown.len() - head - tail;
                let gap = self.lines(columns, |screen| {
                    screen.line(text!("  ├─ {} lines are left out here", left_out))
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
        self.err.end_open_line()?;
        let out = self.err.inner();
        for line in title.iter().chain(&shown).chain(&below) {
            out.write_all(line)?;
        }
        out.flush()?;
        Ok(has_more)
    }

    /// What stands below, in at most so many lines if that is possible: names in it are shortened, and on a terminal too
    /// low for all of it the title stands there once more, so that what is asked is seen with the answers.
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

    /// The physical lines of what is written.
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

    /// Shows all of what a question is about, a screen at a time.
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
                "  lines {} to {} of {}; Enter shows more, q goes back to the question",
                at + 1,
                end,
                lines.len()
            );
            self.err.styled(FAINT, message)?;
            self.err.end_line()?;
            if end >= lines.len() {
                return Ok(());
            }
            match self.typed(Wanted::Text("  Enter or q: "), Duration::ZERO)?.0 {
                Typed::Line(line) if line.trim() == "q" => return Ok(()),
                Typed::Line(_) => at = end,
                Typed::Pasted(pasted) => self.set_aside_pasted(&pasted)?,
                Typed::Redraw => at = 0,
                Typed::End | Typed::Withdrawn => return Ok(()),
            }
        }
    }
}

/// Two digits that nobody can know before they appear.
fn digits() -> String {
    let random = RandomState::new().build_hasher().finish();
    (10 + random % 90).to_string()
}

/// Sets text aside for the next prompt, if there is one.
fn set_aside(aside: &mut String, is_kept: bool, text: &str) {
    let text = as_text(text.as_bytes());
    if is_kept && !text.trim().is_empty() && aside.len() + text.len() <= MAX_TYPED {
        aside.push_str(&text);
    }
}

/// Says what becomes of keys that are no answer.
fn note_aside(screen: &mut Screen<Stderr>, is_kept: bool) -> io::Result<()> {
    screen.end_open_line()?;
    screen.styled(
        FAINT,
        if is_kept {
            "  keys from before the prompt, or several at once, are no answer; they are kept for the next message"
        } else {
            "  keys from before the prompt, or several at once, are no answer; they are discarded"
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
            means: "show all of it",
        };
        for (i, choice) in self.choices.iter().chain(has_more.then_some(&view)).enumerate() {
            // Its key, a blank and what is between two of them.
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
