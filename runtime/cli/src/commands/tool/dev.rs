//! `toolcell tool dev`: tests a tool again each time that it changes.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::test::{Report, TestFlags};
use crate::authoring::compiler::BUILD;
use crate::authoring::manifest;
use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::terminal::{Shown, text};

/// Test a tool, and again each time that it or its cases change, until Ctrl-C.
///
/// A directory with a `tool.toml` is built first, as by `tool build`, and again each time that a source file changes; with
/// `--build` by another command.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool dev ./my.wasm
  toolcell tool dev .
  toolcell tool dev . --build 'cargo build --release --target wasm32-wasip2'

Watched are the component and its cases; of what is built the files of the directory, without hidden ones, components and
what builds write (`build`, `target`, `zig-out`, `node_modules`, `__pycache__`).

{}", crate::exit::TABLE))]
pub(crate) struct Dev {
    #[command(flatten)]
    flags: TestFlags,

    /// Command that builds the component instead of `tool build`, for `sh`, in the directory of the tool or else in the working directory.
    #[arg(long, value_name = "COMMAND")]
    build: Option<String>,
}

/// Interval between two looks at the files. A user does not notice it, and thousands of files take a few milliseconds.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of watched files. A larger directory is not that of one tool.
const MAX_FILES: usize = 20_000;

/// Maximum depth of watched directories.
const MAX_DEPTH: usize = 16;

/// Names of files and directories that builds write.
const BUILT: [&str; 7] = [
    BUILD,
    "target",
    "zig-out",
    "node_modules",
    "__pycache__",
    "Cargo.lock",
    "package-lock.json",
];

/// Watched files, each with time, size and number of its inode.
type Snapshot = BTreeMap<PathBuf, (i64, i64, u64, u64)>;

/// Files that are watched.
#[derive(Debug, Default)]
struct Watch {
    files: Vec<PathBuf>,
    /// Directories whose own files are watched.
    listed: Vec<PathBuf>,
    /// Directory whose sources are watched.
    tree: Option<PathBuf>,
}

impl Dev {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let cancel = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.end_next(cancel.clone());
        let directory = self.flags.directory(overrides.clone(), environment)?;
        let at = directory.as_ref().unwrap_or(&environment.cwd);
        // What a build writes is no change.
        let has_manifest = directory
            .as_ref()
            .is_some_and(|dir| dir.join(manifest::FILE).is_file());
        let is_built = self.build.is_some() || has_manifest;
        let named = match is_built {
            true => Vec::new(),
            false => self.flags.named_files(environment),
        };
        let listed = directory.as_deref().filter(|_| !is_built);
        let mut watch = Watch {
            files: named.clone(),
            listed: listed.map(TestFlags::places).unwrap_or_default(),
            tree: is_built.then(|| at.clone()),
        };
        let mut has_run = false;
        loop {
            // From before the run, so that no change during it is missed.
            let mut before = watch.snapshot();
            if self.build(at, is_built, environment, console, &cancel).await? {
                let show = |report: &Report<'_>| Ok(console.write(|s| report.print(s))?);
                let tested = self
                    .flags
                    .test(overrides.clone(), environment, console, &cancel, show);
                match Box::pin(tested).await {
                    Ok(tested) => {
                        let component = tested.component.filter(|_| !is_built);
                        let files = named.iter().cloned().chain(tested.cases).chain(component);
                        watch.files = files.collect();
                        watch.add_files(&mut before);
                    }
                    // No change of a file mends a wrong command.
                    Err(failure) if failure.exit == Exit::Usage && !has_run => return Err(failure),
                    Err(failure) => console.report(&failure),
                }
            }
            has_run = true;
            console.note("waiting for changes; Ctrl-C ends");
            let Some(changed) = watch.changed(&before, &cancel).await else {
                return Ok(Exit::Ok);
            };
            console.note(text!("changed: {}", Shown(&environment.shown(&changed))));
        }
    }

    /// Runs the build. Returns `false` if it failed or was cancelled.
    async fn build(
        &self,
        at: &Path,
        is_built: bool,
        environment: &Environment,
        console: &Console,
        cancel: &CancellationToken,
    ) -> Result<bool, Failure> {
        if !is_built {
            return Ok(true);
        }
        let shown = self.build.as_deref().unwrap_or("toolcell tool build .");
        let fail = || Failure::new(Exit::Failed, text!("the build `{}` could not be started", shown));
        let mut command = match (&self.build, &environment.program) {
            (Some(command), _) => {
                let mut shell = tokio::process::Command::new("sh");
                shell.args(["-c", command]);
                shell
            }
            (None, Some(program)) => {
                let mut own = tokio::process::Command::new(program);
                own.args(["tool", "build", "."]);
                own
            }
            (None, None) => return Err(fail().why("the path of this program is unknown")),
        };
        // Standard output has the reports alone.
        let errors = std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| fail().because(error))?;
        let mut child = command
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| fail().because(error))?;
        let ended = tokio::select! {
            ended = child.wait() => ended.map_err(|error| fail().because(error))?,
            () = cancel.cancelled() => return Ok(false),
        };
        if !ended.success() {
            console.note(text!("the build failed: {}", ended.to_string()));
        }
        Ok(ended.success() && !cancel.is_cancelled())
    }
}

impl Watch {
    /// Waits for a change, and returns the first changed file; `None` if cancelled.
    async fn changed(&self, before: &Snapshot, cancel: &CancellationToken) -> Option<PathBuf> {
        loop {
            if cancel.is_cancelled() {
                return None;
            }
            if let Some(path) = first_difference(before, &self.snapshot()) {
                return Some(path);
            }
            tokio::select! {
                () = cancel.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    /// Adds files that were not watched before.
    fn add_files(&self, snapshot: &mut Snapshot) {
        for file in &self.files {
            if !snapshot.contains_key(file) {
                add(snapshot, file);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut found = Snapshot::new();
        for file in &self.files {
            add(&mut found, file);
        }
        for dir in &self.listed {
            for path in entries(dir) {
                let ending = path.extension().and_then(|ending| ending.to_str());
                if matches!(ending, Some("wasm" | "toml" | "json")) {
                    add(&mut found, &path);
                }
            }
        }
        let mut waiting: Vec<(PathBuf, usize)> = self.tree.iter().map(|tree| (tree.clone(), 0)).collect();
        while let Some((dir, depth)) = waiting.pop() {
            for path in entries(&dir).into_iter().filter(|path| is_source(path)) {
                if found.len() >= MAX_FILES {
                    return found;
                }
                match std::fs::symlink_metadata(&path) {
                    Ok(meta) if meta.is_dir() && depth < MAX_DEPTH => waiting.push((path, depth + 1)),
                    Ok(meta) if meta.is_file() => add(&mut found, &path),
                    _ => {}
                }
            }
        }
        found
    }
}

/// The entries of a directory in order; none if it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let paths = entries
        .take(MAX_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths
}

/// True for what an author writes: not hidden, and not written by a build.
fn is_source(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let is_component = path.extension().is_some_and(|ending| ending == "wasm");
    !name.is_empty() && !name.starts_with('.') && !BUILT.contains(&name) && !is_component
}

fn add(snapshot: &mut Snapshot, file: &Path) {
    if let Ok(meta) = std::fs::metadata(file) {
        let stamp = (meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino());
        snapshot.insert(file.to_owned(), stamp);
    }
}

/// The first file that was added, removed or changed.
fn first_difference(before: &Snapshot, now: &Snapshot) -> Option<PathBuf> {
    let changed = now.iter().find(|(path, stamp)| before.get(*path) != Some(stamp));
    let removed = || before.iter().find(|(path, _)| !now.contains_key(*path));
    changed.or_else(removed).map(|(path, _)| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_a_source_is_seen_and_of_a_build_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("src/lib.rs", "one");
        let watch = Watch {
            tree: Some(dir.path().to_owned()),
            ..Watch::default()
        };
        let before = watch.snapshot();
        for built in [
            "target/a/x",
            "node_modules/x/y",
            "build/wit/tool.wit",
            "src/__pycache__/tool.pyc",
            ".git/index",
            "x.wasm",
            "Cargo.lock",
        ] {
            write(built, "built");
        }
        assert_eq!(first_difference(&before, &watch.snapshot()), None);
        write("src/lib.rs", "longer");
        let changed = first_difference(&before, &watch.snapshot());
        assert_eq!(changed, Some(dir.path().join("src/lib.rs")));
        std::fs::remove_file(dir.path().join("src/lib.rs")).unwrap();
        assert_eq!(first_difference(&before, &watch.snapshot()), changed);
        write("src/lib.rs", "one");
        write("src/new.rs", "");
        let before = watch.snapshot();
        std::fs::remove_file(dir.path().join("src/new.rs")).unwrap();
        assert!(first_difference(&before, &watch.snapshot()).is_some());
    }
}
