//! Components whose files change while they are served: loaded aside, checked, and offered instead of the old ones.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::clients::Clients;
use super::directories::{Directories, Listing, Reader};
use super::offer::{Findings, Offer};
use crate::components::loader::{ComponentLoader, LoadedHook};
use crate::components::stamp::Stamp;
use crate::components::{lock, tool_lint};
use crate::config::{ComponentSource, ToolSettings};
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Time between two looks at the files. One that changed is loaded when it is the same at the next look: it is written
/// completely then.
const LOOK: Duration = Duration::from_millis(500);

/// Time between two looks at the directories whose files are offered. Each lists them, in a cell.
const LOOK_AT_DIRECTORIES: Duration = Duration::from_secs(2);

/// Part of the time in which directories are listed, at most: large ones are listed less often.
const MAX_LISTING_SHARE: u32 = 20;

/// Maximum number of messages about changes that are printed. A client that does not read standard error must not block
/// calls when the pipe is full.
const MAX_TOLD: usize = 256;

/// Components that are watched.
pub(super) struct Reload<'a> {
    loader: ComponentLoader<'a>,
    wanted: Vec<ToolSettings>,
    directories: Option<Directories>,
    /// What lists the directories, and their files at the last look.
    listed: Option<(Reader, Listing)>,
    /// Time of the next look at them.
    listing_due: Instant,
    /// Hooks, which stay as they are.
    hooks: Vec<LoadedHook>,
    files: Vec<Watched>,
    lock: Watched,
    is_locked: bool,
    console: &'a Console,
    /// Number of messages that were printed.
    told: usize,
}

/// File of a component, or the lock file.
struct Watched {
    path: PathBuf,
    /// Index of its component.
    component: usize,
    /// State that was loaded or refused.
    known: Option<Stamp>,
    /// State at the last look.
    last: Option<Stamp>,
    /// True if `known` was refused.
    is_refused: bool,
}

impl Watched {
    fn new(path: PathBuf, component: usize) -> Self {
        let now = Stamp::of(&path);
        Self {
            path,
            component,
            known: now,
            last: now,
            is_refused: false,
        }
    }

    /// True once for each new state of the file that lasts from one look to the next. A file that is missing is about to be
    /// written.
    fn has_changed(&mut self) -> bool {
        let now = Stamp::of(&self.path);
        let before = std::mem::replace(&mut self.last, now);
        let is_new = now.is_some() && now == before && now != self.known;
        if is_new {
            self.known = now;
        }
        is_new
    }
}

impl<'a> Reload<'a> {
    /// Loads components, and begins to watch their files.
    pub(super) async fn begin(
        loader: ComponentLoader<'a>,
        wanted: Vec<ToolSettings>,
        directories: Option<Directories>,
        is_locked: bool,
        console: &'a Console,
    ) -> Result<(Self, Offer), Failure> {
        // Before they are read, so that no change is missed.
        let files = wanted.iter().enumerate().filter_map(|(index, settings)| {
            let ComponentSource::File(path) = &settings.component else {
                return None;
            };
            Some(Watched::new(path.value.clone(), index))
        });
        let files = files.collect();
        let lock = Watched::new(loader.environment.cwd.join(lock::FILE), 0);
        let hooks = loader.hooks().await?;
        let (offer, findings) =
            Offer::components(&loader, &wanted, directories.as_ref(), &hooks, is_locked).await?;
        let mut offer = offer.tells_updates();
        tool_lint::warn(
            findings.iter().map(|(name, found)| (name.as_str(), &found[..])),
            console,
        );
        let listed = offer.directories.take();
        for shown in listed.iter().flat_map(|(_, listing)| &listing.incomplete) {
            console.note(text!(
                "not all files of `{}` are in the list of resources; clients can read the others by their URIs",
                shown
            ));
        }
        let reload = Self {
            loader,
            wanted,
            directories,
            listed,
            listing_due: Instant::now() + LOOK_AT_DIRECTORIES,
            hooks,
            files,
            lock,
            is_locked,
            console,
            told: 0,
        };
        Ok((reload, offer))
    }

    /// Loads components again whenever their files change.
    pub(super) async fn watch(&mut self, clients: &Clients<'_>) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look_at_directories_if_due(clients).await;
            let is_unlocked = self.lock.has_changed();
            let files = self.files.iter_mut().enumerate();
            let changed: Vec<usize> = files
                .filter_map(|(index, file)| file.has_changed().then_some(index))
                .collect();
            if changed.is_empty() && !is_unlocked {
                continue;
            }
            // What was refused may fit the new lock, or beside what has changed.
            let due: Vec<usize> = (0..self.files.len())
                .filter(|index| changed.contains(index) || self.files[*index].is_refused)
                .collect();
            if let [_, _, ..] = due[..]
                && let Ok(mut findings) = self.load(&due, clients).await
            {
                for index in due {
                    let name = self.settings(index).name.clone();
                    self.files[index].is_refused = false;
                    let found = findings.remove(&name).unwrap_or_default();
                    self.tell(&name, Ok(found));
                }
                continue;
            }
            // Each that fits the others as they are.
            for index in due {
                let name = self.settings(index).name.clone();
                let loaded = self.load(&[index], clients).await;
                self.files[index].is_refused = loaded.is_err();
                if loaded.is_ok() || is_unlocked || changed.contains(&index) {
                    let found = loaded.map(|mut findings| findings.remove(&name).unwrap_or_default());
                    self.tell(&name, found);
                }
            }
        }
    }

    /// Lists directories anew whenever it is time, and nothing else. Ends at once without any.
    pub(super) async fn watch_directories(&mut self, clients: &Clients<'_>) {
        while self.directories.is_some() {
            tokio::time::sleep(LOOK).await;
            self.look_at_directories_if_due(clients).await;
        }
    }

    async fn look_at_directories_if_due(&mut self, clients: &Clients<'_>) {
        let begun = Instant::now();
        if begun >= self.listing_due {
            self.look_at_directories(clients).await;
            self.listing_due = Instant::now() + pause_after(begun.elapsed());
        }
    }

    /// Lists the directories again, and tells clients what has changed. One that cannot be listed, such as while it is replaced,
    /// stays as it was.
    async fn look_at_directories(&mut self, clients: &Clients<'_>) {
        let (Some(directories), Some((reader, known))) = (&self.directories, &self.listed) else {
            return;
        };
        let Ok(now) = directories.list(reader).await else {
            return;
        };
        if now == *known {
            return;
        }
        let changes = directories.changes(known, &now);
        // Loads nothing else: components whose files have changed are loaded by themselves.
        if changes.is_of_list && self.replace(clients).await.is_err() {
            return;
        }
        clients.updated(|_, uri| changes.uris.contains(uri));
        if let Some((_, known)) = &mut self.listed {
            *known = now;
        }
    }

    /// Settings of the component of a file.
    fn settings(&self, file: usize) -> &ToolSettings {
        &self.wanted[self.files[file].component]
    }

    /// Tells the user what became of a change.
    fn tell(&mut self, name: &str, loaded: Result<Vec<String>, Failure>) {
        let notes = match loaded {
            Ok(findings) => {
                let findings = findings.into_iter().map(|finding| text!("warning: {}", finding));
                let loaded = text!("the component `{}` changed, and was loaded again", name);
                std::iter::once(loaded).chain(findings).collect()
            }
            Err(failure) => vec![text!(
                "warning: the component `{}` changed, and its tools stay as they were: {}",
                name,
                failure.to_string()
            )],
        };
        for note in notes {
            if self.told < MAX_TOLD {
                self.told += 1;
                self.console.note(note);
            }
        }
    }

    /// Loads components aside, and offers them if all fit. Returns the lint findings by component.
    async fn load(&self, files: &[usize], clients: &Clients<'_>) -> Result<Findings, Failure> {
        let files = files.iter().map(|file| self.settings(*file));
        let old: Vec<_> = files
            .map(|settings| (settings, self.loader.exchange(settings, None)))
            .collect();
        let replaced = self.replace(clients).await;
        match &replaced {
            Ok(_) => {
                let is_of = |name: &str| old.iter().any(|(settings, _)| settings.name == name);
                clients.updated(|source, _| source.is_some_and(is_of));
            }
            Err(_) => {
                for (settings, old) in old {
                    self.loader.exchange(settings, old);
                }
            }
        }
        replaced
    }

    async fn replace(&self, clients: &Clients<'_>) -> Result<Findings, Failure> {
        let offer = Offer::components(
            &self.loader,
            &self.wanted,
            self.directories.as_ref(),
            &self.hooks,
            self.is_locked,
        );
        let (offer, findings) = Box::pin(offer).await?;
        let loaded = clients.replace(offer.tells_updates());
        loaded.map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
        Ok(findings)
    }
}

/// Returns the time until the next look at the directories, after one that took this time.
fn pause_after(look: Duration) -> Duration {
    LOOK_AT_DIRECTORIES.max(look.saturating_mul(MAX_LISTING_SHARE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_listed_for_a_part_of_the_time_only() {
        for (look, pause) in [
            (0, 2_000),
            (1, 2_000),
            (105, 2_000),
            (106, 2_014),
            (3_000, 57_000),
        ] {
            let pause_of_look = pause_after(Duration::from_millis(look));
            assert_eq!(pause_of_look, Duration::from_millis(pause), "{look}");
        }
    }

    #[test]
    fn file_has_changed_when_its_new_state_lasts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.wasm");
        std::fs::write(&path, "1").unwrap();
        let mut watched = Watched::new(path.clone(), 0);
        assert!(!watched.has_changed());
        std::fs::write(&path, "22").unwrap();
        assert!(!watched.has_changed());
        std::fs::write(&path, "333").unwrap();
        assert!(!watched.has_changed());
        assert!(watched.has_changed());
        assert!(!watched.has_changed());
        std::fs::remove_file(&path).unwrap();
        assert!(!watched.has_changed() && !watched.has_changed());
        // Another file in its place, as builds make it.
        std::fs::write(dir.path().join("y"), "333").unwrap();
        std::fs::rename(dir.path().join("y"), &path).unwrap();
        assert!(!watched.has_changed());
        assert!(watched.has_changed());
    }
}
