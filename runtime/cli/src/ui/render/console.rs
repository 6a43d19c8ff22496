//! Output streams: data on standard output, everything else on standard error, with a progress line for long
//! operations.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use unicode_segmentation::UnicodeSegmentation as _;

use super::held::{Held, Holding, Stream};
use super::turn::streamed::{Answer, Markdown};
use crate::ui::terminal::{
    Asking, FAINT, HANG, NAME, Screen, Silence, Size, Text, Width, inert_line, text, wants_colour,
};

/// Delay before the progress line appears.
const DELAY: Duration = Duration::from_millis(500);

/// Interval of the spinner.
const TICK: Duration = Duration::from_millis(90);

const PICTURES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Maximum width of a progress label, in columns, so that it fits on one line.
const MAX_LABEL: usize = 48;

/// Width of the rest of the progress line: spinner, blanks, ellipsis, seconds.
const AROUND_LABEL: usize = 14;

/// Output streams of the process. Clones share them.
#[derive(Clone)]
pub(crate) struct Console {
    streams: Arc<Mutex<Streams>>,
    asking: Arc<Questions>,
    /// Notes that are not repeated.
    noted: Arc<Mutex<BTreeSet<String>>>,
}

/// State of questions to the user.
struct Questions {
    /// Held while a question is open, so that questions do not overlap.
    turn: Mutex<()>,
    /// Input typed during questions that answered none, for the next prompt.
    typed: Mutex<String>,
    /// True if a prompt follows questions.
    keeps_typed: AtomicBool,
    held: Held,
    size: Size,
    colour: bool,
    is_dumb: bool,
    /// True if keys would be echoed between the output.
    is_typed_between: bool,
}

/// The streams, under an exclusive lock.
pub(crate) struct Streams {
    /// Standard output.
    pub(crate) out: Screen<Holding>,
    /// Standard error.
    pub(crate) err: Screen<Holding>,
    animates: bool,
    activities: Vec<ActivityState>,
    next: u64,
    drawn: bool,
    /// True if the last line on the terminal is unfinished, so that nothing may be drawn on it.
    line_open: bool,
    thread_runs: bool,
    /// Number of open questions, during which nothing is drawn.
    pauses: u32,
    pub(super) answer: Answer,
    /// True if files of the model are written to a directory.
    pub(super) saves_files: bool,
}

struct ActivityState {
    id: u64,
    label: Text,
    since: Instant,
}

/// A running operation shown on the progress line. Dropping it removes the line.
pub(crate) struct Activity {
    console: Console,
    id: u64,
}

impl Console {
    /// Creates the console of this process.
    pub(crate) fn new(environment: &Environment) -> Self {
        let terminals = environment.terminals;
        let held = Held::default();
        let is_dumb = environment.var("TERM") == Some("dumb");
        let asking = Questions {
            turn: Mutex::default(),
            typed: Mutex::default(),
            keeps_typed: AtomicBool::new(false),
            held: held.clone(),
            size: Size::of_error(environment),
            colour: wants_colour(environment, terminals.stderr),
            is_dumb,
            is_typed_between: terminals.stdin && (terminals.stdout || terminals.stderr),
        };
        let streams = Streams {
            out: Screen::new(
                held.stream(Stream::Output, terminals.stdout),
                wants_colour(environment, terminals.stdout),
                Size::of_output(environment),
            ),
            err: Screen::new(
                held.stream(Stream::Error, terminals.stderr),
                wants_colour(environment, terminals.stderr),
                Size::of_error(environment),
            ),
            animates: terminals.stderr && !is_dumb,
            activities: Vec::new(),
            next: 0,
            drawn: false,
            line_open: false,
            thread_runs: false,
            pauses: 0,
            answer: Answer::new(terminals.stdout),
            saves_files: false,
        };
        Self {
            streams: Arc::new(Mutex::new(streams)),
            asking: Arc::new(asking),
            noted: Arc::default(),
        }
    }

    /// Runs a question while all other output is held. `is_withdrawn` is true once the answer is no longer awaited.
    ///
    /// # Errors
    /// Returns an error if there is no terminal.
    pub(crate) fn ask<T>(
        &self,
        is_withdrawn: &dyn Fn() -> bool,
        ask: impl FnOnce(&mut Asking<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let questions = &self.asking;
        let _turn = questions.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _pause = self.pause()?;
        let keeps_typed = questions.keeps_typed.load(Ordering::Relaxed);
        let mut asking = Asking::open(
            questions.size,
            questions.colour,
            questions.is_dumb,
            keeps_typed,
            is_withdrawn,
        )?;
        let answer = ask(&mut asking);
        let typed = asking.close();
        questions
            .typed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(&typed);
        answer
    }

    /// Announces that a prompt follows questions and calls [`take_typed`](Self::take_typed).
    pub(crate) fn keep_typed(&self) {
        self.asking.keeps_typed.store(true, Ordering::Relaxed);
    }

    /// Returns and clears the input typed during questions that answered none of them.
    pub(crate) fn take_typed(&self) -> String {
        std::mem::take(&mut *self.asking.typed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does not echo keys until the returned value is dropped: they would stand in the middle of the output. The next prompt,
    /// or the shell, gets them.
    pub(crate) fn silence(&self) -> Option<Silence> {
        (self.asking.is_typed_between).then(Silence::begin).flatten()
    }

    /// Writes to the streams under the lock.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Streams) -> io::Result<T>) -> io::Result<T> {
        let mut streams = self.lock();
        streams.erase();
        write(&mut streams)
    }

    /// Writes a line for the user to standard error. Errors are ignored: standard error may be closed.
    pub(crate) fn note(&self, text: impl Into<Text>) {
        let _ = self.write(|streams| {
            let _ = streams.end_open_line();
            streams.err.message(FAINT, &text.into(), HANG)
        });
    }

    /// Writes a line as [`Console::note`], unless it was written so before.
    pub(crate) fn note_once(&self, text: impl Into<Text>) {
        let text = text.into();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.insert(text.plain()) {
            self.note(text);
        }
    }

    /// Sets when answers are rendered as Markdown.
    pub(crate) fn render_markdown(&self, when: Option<Markdown>) {
        let mut streams = self.lock();
        let is_rendered = match when.unwrap_or_default() {
            Markdown::Never => false,
            Markdown::Auto => streams.out.size().is_some(),
            Markdown::Always => true,
        };
        streams.answer = Answer::new(is_rendered);
    }

    /// Notes that files of the model are written to a directory, which is told for each.
    pub(crate) fn saves_files(&self) {
        self.lock().saves_files = true;
    }

    /// Prints the error of a command, if it has one, and returns the exit code.
    pub(crate) fn finish(&self, ended: Result<Exit, Failure>) -> Exit {
        match ended {
            Ok(exit) => exit,
            Err(failure) => {
                if failure.exit != Exit::Ok {
                    self.report(&failure);
                }
                failure.exit
            }
        }
    }

    /// Prints a failure after which the command goes on.
    pub(crate) fn warn(&self, failure: &Failure) {
        let _ = self.write(|streams| {
            let _ = streams.end_open_line();
            failure.print_warning(&mut streams.err)
        });
    }

    /// Prints a failure.
    pub(crate) fn report(&self, failure: &Failure) {
        let _ = self.write(|streams| {
            // It may be this output that failed.
            let _ = streams.end_open_line();
            failure.print(&mut streams.err)
        });
    }

    /// Shows a progress line once the operation takes longer than half a second.
    pub(crate) fn activity(&self, label: impl Into<Text>) -> Activity {
        let mut streams = self.lock();
        let id = streams.next;
        streams.next += 1;
        streams.activities.push(ActivityState {
            id,
            label: label.into(),
            since: Instant::now(),
        });
        if streams.animates && !streams.thread_runs {
            streams.thread_runs = true;
            let console = Arc::downgrade(&self.streams);
            thread::spawn(move || animate(&console));
        }
        Activity {
            console: self.clone(),
            id,
        }
    }

    /// Stops the progress line and holds output.
    fn pause(&self) -> io::Result<Pause> {
        let mut streams = self.lock();
        streams.erase();
        streams.end_open_line()?;
        streams.err.end_open_line()?;
        streams.out.flush()?;
        streams.pauses += 1;
        self.asking.held.hold();
        Ok(Pause(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// Sets if the last line on the terminal is unfinished.
    pub(crate) fn set_line_open(&mut self, open: bool) {
        self.line_open = open;
    }

    /// True if the last line on the terminal is unfinished.
    pub(crate) fn is_line_open(&self) -> bool {
        self.line_open
    }

    /// Finishes a line that streamed text left open.
    pub(crate) fn end_open_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.line_open) {
            self.out.end_line()?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = self.err.erase_line();
        }
    }

    fn draw(&mut self, picture: &'static str) {
        let Some(going) = self.activities.last() else {
            return self.erase();
        };
        let lasts = going.since.elapsed();
        if self.line_open || self.pauses > 0 || lasts < DELAY {
            return;
        }
        let label = Text::foreign(short(&going.label, self.err.width()));
        let seconds = if lasts.as_secs() > 0 {
            text!(" {} s", lasts.as_secs())
        } else {
            "".into()
        };
        let _ = self
            .err
            .erase_line()
            .and_then(|()| self.err.styled(NAME, picture))
            .and_then(|()| self.err.text(" "))
            .and_then(|()| self.err.text(label))
            .and_then(|()| self.err.styled(FAINT, seconds))
            .and_then(|()| self.err.flush());
        self.drawn = true;
    }
}

fn animate(console: &Weak<Mutex<Streams>>) {
    for picture in PICTURES.iter().cycle() {
        thread::sleep(TICK);
        let Some(streams) = console.upgrade() else {
            return;
        };
        let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.activities.is_empty() {
            streams.erase();
            streams.thread_runs = false;
            return;
        }
        streams.draw(picture);
    }
}

/// Truncates a label to one line of the terminal, so that erasing the line erases all of it.
fn short(label: &Text, width: Width) -> String {
    let most = MAX_LABEL.min(width.columns.unwrap_or(usize::MAX).saturating_sub(AROUND_LABEL));
    let mut shown = String::new();
    let mut taken = 0;
    let label = inert_line(&label.plain());
    for glyph in label.graphemes(true) {
        taken += width.of_text(glyph);
        if taken > most {
            shown.push('…');
            break;
        }
        shown.push_str(glyph);
    }
    shown
}

impl Activity {
    /// Replaces the label without resetting the time.
    pub(crate) fn relabel(&self, label: impl Into<Text>) {
        let mut streams = self.console.lock();
        if let Some(going) = streams.activities.iter_mut().find(|going| going.id == self.id) {
            going.label = label.into();
        }
    }
}

/// While held, only a question is drawn or written.
struct Pause(Console);

impl Drop for Pause {
    fn drop(&mut self) {
        let mut streams = self.0.lock();
        streams.pauses -= 1;
        let dropped = self.0.asking.held.release().unwrap_or(0);
        if dropped > 0 {
            let note = text!("{} bytes of output during the question were dropped", dropped);
            let _ = streams
                .err
                .styled(FAINT, note)
                .and_then(|()| streams.err.end_line());
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let mut streams = self.console.lock();
        streams.activities.retain(|going| going.id != self.id);
        streams.erase();
    }
}
