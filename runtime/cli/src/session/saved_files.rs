//! Pictures and other files in the answers of models and in results of tools, written to the directory of `--save`.
//!
//! Names are those of Toolcell: a number, and an extension by the media type. No word of a model or a tool is part of a path.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use toolcell_core::event::{Event, EventSink};
use toolcell_core::{Blob, Content};
use toolcell_fs::{FileError, OutputDirectory};

use crate::config::units::Bytes;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// Most that one turn saves. A loop that makes pictures does not fill the disk.
const PER_TURN: Most = Most {
    files: 100,
    bytes: 64 << 20,
};

/// Largest number in a name; the directory is full then.
const MAX_NUMBER: u32 = 99_999;

/// The flag `--save`.
#[derive(Debug, Default, Args)]
pub(crate) struct SaveFlag {
    /// Write pictures and other files in answers of the model and in results of tools to this directory, as new files
    /// `file-1.png` and so on; it is created if it does not exist. At most 100 files and 64 MiB per turn.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

/// Most files and bytes.
#[derive(Debug, Clone, Copy)]
struct Most {
    files: u32,
    bytes: u64,
}

/// Writer of the files of turns.
pub(crate) struct SavedFiles {
    directory: OutputDirectory,
    console: Console,
    most: Most,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of the next name.
    next: u32,
    /// Files of the turn, and their bytes.
    files: u32,
    bytes: u64,
    /// Files of the turn that were not saved because of the limits.
    left_out: u32,
    failure: Option<Failure>,
}

impl SaveFlag {
    /// Opens the directory, if there is one.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or opened.
    pub(crate) fn open(&self, console: &Console) -> Result<Option<SavedFiles>, Failure> {
        let Some(path) = &self.save else {
            return Ok(None);
        };
        let directory = OutputDirectory::open(path).map_err(|error| {
            Failure::new(
                Exit::Usage,
                text!("could not use `{}` for --save", path.display()),
            )
            .because(error)
            .hint("name a directory that you can write to, or a new one in such a directory")
        })?;
        console.saves_files();
        Ok(Some(SavedFiles::new(directory, console, PER_TURN)))
    }
}

impl SavedFiles {
    fn new(directory: OutputDirectory, console: &Console, most: Most) -> Self {
        Self {
            directory,
            console: console.clone(),
            most,
            state: Mutex::default(),
        }
    }

    /// Begins a turn, which has the whole of the limits.
    pub(crate) fn begin_turn(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.files, state.bytes, state.left_out) = (0, 0, 0);
    }

    /// Ends a turn: tells how many files were left out.
    ///
    /// # Errors
    /// Returns the first error of writing a file in this turn.
    pub(crate) fn end_turn(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.left_out > 0 {
            self.console.note(text!(
                "{} more files were not saved: --save writes at most {} files and {} per turn",
                state.left_out,
                self.most.files,
                Bytes(self.most.bytes)
            ));
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    fn of_event(&self, event: &Event, depth: usize) {
        /// Depth of agents as tools whose files are saved.
        const MAX_DEPTH: usize = 16;
        match event {
            Event::StepFinished { message, .. } => {
                for blob in message.files() {
                    self.save(blob, &text!("the answer"));
                }
            }
            Event::CallFinished { tool, result, .. } => {
                for part in &result.content {
                    if let Content::Blob(blob) = part {
                        self.save(blob, &text!("the result of `{}`", tool));
                    }
                }
            }
            Event::Nested { event, .. } if depth < MAX_DEPTH => self.of_event(event, depth + 1),
            _ => {}
        }
    }

    fn save(&self, blob: &Blob, origin: &Text) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = blob.data.len() as u64;
        if state.failure.is_some() {
            return;
        }
        if state.files >= self.most.files || state.bytes.saturating_add(bytes) > self.most.bytes {
            state.left_out = state.left_out.saturating_add(1);
            return;
        }
        match self.write(blob, &mut state.next) {
            Ok(path) => {
                state.files += 1;
                state.bytes += bytes;
                self.console.note(text!(
                    "saved `{}`, {}, from {}",
                    path.display(),
                    Bytes(bytes),
                    origin.clone()
                ));
            }
            Err(failure) => {
                state.failure = Some(failure);
            }
        }
    }

    /// Writes a new file under the first free name.
    fn write(&self, blob: &Blob, next: &mut u32) -> Result<PathBuf, Failure> {
        let extension = extension(&blob.media_type);
        while *next < MAX_NUMBER {
            *next += 1;
            let name = format!("file-{next}.{extension}");
            match self.directory.create(&name, &blob.data).map_err(failed)? {
                Some(path) => return Ok(path),
                // Of an earlier run, or of another program.
                None => continue,
            }
        }
        Err(Failure::new(Exit::Io, "could not save a file of the turn")
            .why(text!("the directory has files up to the number {}", MAX_NUMBER)))
    }
}

impl EventSink for SavedFiles {
    fn event(&self, event: &Event) {
        self.of_event(event, 0);
    }
}

fn failed(error: FileError) -> Failure {
    Failure::new(Exit::Io, "could not save a file of the turn").because(error)
}

/// Returns the extension of a media type. Unknown ones, and types whose files run as programs, get `bin`.
fn extension(media_type: &str) -> &'static str {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/avif" => "avif",
        "image/bmp" => "bmp",
        "image/tiff" => "tiff",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/csv" => "csv",
        "text/html" => "html",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "video/mp4" => "mp4",
        "video/webm" => "webm",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use toolcell_core::{CallResult, Message, Part};

    use super::*;

    fn console() -> Console {
        Console::new(&crate::environment::Environment::for_tests(
            std::path::Path::new("/"),
            &[],
        ))
    }

    fn blob(media_type: &str, bytes: usize) -> Blob {
        Blob {
            media_type: media_type.into(),
            data: vec![7; bytes],
        }
    }

    fn result(blobs: Vec<Blob>) -> Event {
        Event::CallFinished {
            id: "1".into(),
            tool: "chart".into(),
            result: CallResult {
                content: blobs.into_iter().map(Content::Blob).collect(),
                ..CallResult::default()
            },
        }
    }

    fn saved(path: &std::path::Path, files: u32, bytes: u64) -> SavedFiles {
        let directory = OutputDirectory::open(path).unwrap();
        SavedFiles::new(directory, &console(), Most { files, bytes })
    }

    fn names(path: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_of_results_and_answers_at_any_depth_are_saved() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file-2.png"), "kept").unwrap();
        let files = saved(root.path(), 10, 1_000);
        files.event(&result(vec![blob("image/png", 1), blob("image/png", 2)]));
        files.event(&Event::Nested {
            id: "2".into(),
            event: Box::new(result(vec![blob("application/pdf", 3)])),
        });
        files.event(&Event::StepFinished {
            step: 1,
            message: Message::Assistant {
                parts: vec![Part::File {
                    blob: blob("x/../../y", 4),
                    opaque: serde_json::Value::Null,
                }],
            },
            stop: toolcell_core::provider::StopReason::Complete,
            usage: None,
        });
        files.end_turn().unwrap();
        let expected = [
            "file-1.png",
            "file-2.png",
            "file-3.png",
            "file-4.pdf",
            "file-5.bin",
        ];
        assert_eq!(names(root.path()), expected);
        assert_eq!(fs::read(root.path().join("file-2.png")).unwrap(), b"kept");
        assert_eq!(fs::read(root.path().join("file-3.png")).unwrap(), [7, 7]);
    }

    #[test]
    fn number_and_size_per_turn_are_limited_on_both_sides() {
        let root = tempfile::tempdir().unwrap();
        let files = saved(root.path(), 2, 10);
        files.event(&result(vec![blob("image/png", 10), blob("image/png", 1)]));
        assert_eq!(names(root.path()).len(), 1, "no byte more");
        files.begin_turn();
        files.event(&result(vec![
            blob("image/png", 1),
            blob("image/png", 9),
            blob("image/png", 0),
        ]));
        assert_eq!(names(root.path()).len(), 3, "no file more");
        files.end_turn().unwrap();
    }

    #[test]
    fn failure_to_write_is_told_once_at_the_end_of_the_turn() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("out");
        let files = saved(&path, 2, 10);
        fs::remove_dir(&path).unwrap();
        files.event(&result(vec![blob("image/png", 1), blob("image/png", 1)]));
        assert_eq!(files.end_turn().unwrap_err().exit, Exit::Io);
        assert!(files.end_turn().is_ok());
    }

    #[test]
    fn extension_follows_the_media_type_alone() {
        for (media_type, expected) in [
            ("image/png", "png"),
            ("IMAGE/JPEG; q=1", "jpg"),
            ("application/x-sh", "bin"),
            ("../../etc/passwd", "bin"),
            ("", "bin"),
        ] {
            assert_eq!(extension(media_type), expected);
        }
    }
}
