//! Standard output for data, standard error for everything else, and a line about what takes long.

use std::io::{self, Stderr, Stdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::environment::Environment;
use crate::report::Failure;
use crate::terminal::{FAINT, NAME, Screen, inert_line, wants_colour};

/// What takes less is not worth a word.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(90);

const PICTURES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Longest description of what is going on, in characters, so that it never needs a second line.
const MAX_LABEL: usize = 48;

/// Both output streams of the process. Clones write to the same.
#[derive(Clone)]
pub(crate) struct Console(Arc<Mutex<Streams>>);

/// The streams, while nobody else writes.
pub(crate) struct Streams {
    /// Standard output.
    pub(crate) out: Screen<Stdout>,
    /// Standard error.
    pub(crate) err: Screen<Stderr>,
    animates: bool,
    activities: Vec<Going>,
    next: u64,
    drawn: bool,
    /// Whether a line on the terminal is not ended, so that nothing may be drawn on it.
    line_open: bool,
    thread_runs: bool,
    /// How many want nothing to be drawn, because a person is being asked.
    pauses: u32,
}

struct Going {
    id: u64,
    label: String,
    since: Instant,
}

/// Something that is going on; dropping it ends it.
pub(crate) struct Activity {
    console: Console,
    id: u64,
}

impl Console {
    /// The console of this process.
    pub(crate) fn new(environment: &Environment) -> Self {
        let terminals = environment.terminals;
        Self(Arc::new(Mutex::new(Streams {
            out: Screen::new(io::stdout(), wants_colour(environment, terminals.stdout)),
            err: Screen::new(io::stderr(), wants_colour(environment, terminals.stderr)),
            animates: terminals.stderr && environment.var("TERM") != Some("dumb"),
            activities: Vec::new(),
            next: 0,
            drawn: false,
            line_open: false,
            thread_runs: false,
            pauses: 0,
        })))
    }

    /// Writes, without anything in between.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut Streams) -> io::Result<T>) -> io::Result<T> {
        let mut streams = self.lock();
        streams.erase();
        write(&mut streams)
    }

    /// Writes a line for the person to standard error. Where that is closed nobody listens, and nothing fails.
    pub(crate) fn note(&self, text: &str) {
        let _ = self.write(|streams| {
            streams.end_open_line()?;
            streams.err.styled(FAINT, text)?;
            streams.err.end_line()
        });
    }

    /// Tells a failure.
    pub(crate) fn tell(&self, failure: &Failure) {
        let _ = self.write(|streams| {
            streams.end_open_line()?;
            failure.print(&mut streams.err)
        });
    }

    /// Shows that something is going on, once it takes longer than half a second.
    pub(crate) fn activity(&self, label: &str) -> Activity {
        let mut streams = self.lock();
        let id = streams.next;
        streams.next += 1;
        streams.activities.push(Going {
            id,
            label: short(label),
            since: Instant::now(),
        });
        if streams.animates && !streams.thread_runs {
            streams.thread_runs = true;
            let console = Arc::downgrade(&self.0);
            thread::spawn(move || animate(&console));
        }
        Activity {
            console: self.clone(),
            id,
        }
    }

    /// Stops drawing what is going on.
    pub(crate) fn pause(&self) -> Pause {
        let mut streams = self.lock();
        streams.erase();
        streams.pauses += 1;
        Pause(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Streams {
    /// Says whether the last line on the terminal is still open.
    pub(crate) fn set_line_open(&mut self, open: bool) {
        self.line_open = open;
    }

    /// Ends a line that streamed text left open.
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

    fn draw(&mut self, picture: &str) {
        let Some(going) = self.activities.last() else {
            return self.erase();
        };
        let lasts = going.since.elapsed();
        if self.line_open || self.pauses > 0 || lasts < PATIENCE {
            return;
        }
        let text = format!(" {} ", going.label);
        let seconds = format!("{} s", lasts.as_secs());
        let _ = self
            .err
            .erase_line()
            .and_then(|()| self.err.styled(NAME, picture))
            .and_then(|()| self.err.text(&text))
            .and_then(|()| {
                self.err
                    .styled(FAINT, if lasts.as_secs() > 0 { &seconds } else { "" })
            })
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

/// A label on one short line.
fn short(label: &str) -> String {
    let mut label = inert_line(label);
    if let Some((end, _)) = label.char_indices().nth(MAX_LABEL) {
        label.truncate(end);
        label.push('…');
    }
    label
}

impl Activity {
    /// Describes it anew; its time goes on.
    pub(crate) fn relabel(&self, label: &str) {
        let mut streams = self.console.lock();
        if let Some(going) = streams.activities.iter_mut().find(|going| going.id == self.id) {
            going.label = short(label);
        }
    }
}

/// While it lives, nothing is drawn that was not asked for.
pub(crate) struct Pause(Console);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().pauses -= 1;
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let mut streams = self.console.lock();
        streams.activities.retain(|going| going.id != self.id);
        streams.erase();
    }
}
