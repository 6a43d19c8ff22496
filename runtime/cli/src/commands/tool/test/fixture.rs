//! Environment of a test call: a new directory with planted files, planted answers, empty buckets, and no grant of the user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use toolcell_core::tool::{CallObserver, LogLine};
use toolcell_core::{
    BoxFuture, Bucket, CallContext, CallResult, Grant, KeyValueError, KeyValueStore, Policy, Receipt, Tool,
    ToolCall, ToolError,
};

use super::Subject;
use super::cases::Case;
use super::expectation::short;
use super::planted_http::{PlantedNetwork, Requested};
use crate::components::buckets::Buckets;
use crate::components::call;
use crate::config::settings::GrantLine;
use crate::config::{self, Origin, Overrides, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Maximum number of lines of a call that are kept. One is enough for a finding.
const MAX_LINES: usize = 16;

/// Origin of the grants of a case, for messages.
const ORIGIN: Origin = Origin::Flag("grants");

/// Fixtures of all calls of one run. The directory is removed on drop.
pub(super) struct Fixtures {
    /// Directory of the run, without links in its path.
    root: PathBuf,
    _directory: TempDir,
    environment: Environment,
    /// Settings without any configuration.
    defaults: Box<Settings>,
    network: Arc<PlantedNetwork>,
    buckets: Arc<PlantedBuckets>,
    /// Number of calls so far.
    calls: Mutex<u64>,
}

/// Buckets of the current call, which begin empty.
pub(super) struct PlantedBuckets(Mutex<Arc<Buckets>>);

/// Outcome of a test call.
pub(super) struct Ran {
    pub(super) result: CallResult,
    /// First lines that the tool logged or wrote.
    pub(super) lines: Vec<LogLine>,
    pub(super) requested: Requested,
    /// Files whose contents after the call differ from those expected, with the reason.
    pub(super) wrong_files: Vec<String>,
}

impl KeyValueStore for PlantedBuckets {
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move { current.open(bucket).await })
    }
}

impl Fixtures {
    /// Creates the directory of a run.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(super) fn new(environment: &Environment) -> Result<Self, Failure> {
        let directory = TempDir::with_prefix("toolcell-test-").map_err(unusable)?;
        let root = directory.path().canonicalize().map_err(unusable)?;
        let network = PlantedNetwork::new()
            .map_err(|error| Failure::new(Exit::Internal, "could not prepare the tests").because(error))?;
        let environment = environment.isolated(&root, &root.join("data"));
        // No file of a project is looked for above the home directory.
        let mut bare = environment.clone();
        bare.home = Some(root.clone());
        let defaults = Box::new(config::load(&bare, Overrides::default())?);
        Ok(Self {
            buckets: Arc::new(PlantedBuckets(Mutex::new(Arc::new(Buckets::new(
                &environment,
                BTreeMap::new(),
            ))))),
            root,
            _directory: directory,
            environment,
            defaults,
            network: Arc::new(network),
            calls: Mutex::new(0),
        })
    }

    /// The network for the sandbox.
    pub(super) fn network(&self) -> Arc<PlantedNetwork> {
        self.network.clone()
    }

    /// The buckets for the sandbox.
    pub(super) fn buckets(&self) -> Arc<PlantedBuckets> {
        self.buckets.clone()
    }

    /// Calls a tool in a new fixture of this case.
    ///
    /// # Errors
    /// Returns an error if the fixture cannot be created or a grant cannot be used.
    pub(super) async fn call(
        &self,
        subject: &Subject,
        tool: &str,
        case: &Case,
        cancel: &CancellationToken,
    ) -> Result<Ran, Failure> {
        let (dir, environment) = self.next()?;
        plant(&dir, case).map_err(unusable)?;
        let policy = self.policy(subject, case, &environment)?;
        let tools = subject.component.tools(policy);
        let tool = tools
            .iter()
            .find(|candidate| candidate.spec().name.as_str() == tool)
            .ok_or_else(|| Failure::new(Exit::Internal, text!("the tool `{}` is gone", tool)))?;
        self.network.plant(&case.answers);
        let (result, lines) = execute(tool, &case.arguments, cancel).await;
        let requested = self.network.take();
        let wrong_files = wrong_files(&dir, &case.expected.files);
        // Calls that write much should not fill the disk together.
        let _ = std::fs::remove_dir_all(&dir);
        Ok(Ran {
            result,
            lines,
            requested,
            wrong_files,
        })
    }

    /// Creates the directories of the next call, and replaces the buckets.
    fn next(&self) -> Result<(PathBuf, Environment), Failure> {
        let number = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            *calls += 1;
            *calls
        };
        let dir = self.root.join(format!("{number}/work"));
        std::fs::create_dir_all(&dir).map_err(unusable)?;
        let data = self.root.join(format!("{number}/data"));
        let environment = self.environment.isolated(&dir, &data);
        *self.buckets.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Buckets::new(&environment, BTreeMap::new()));
        Ok((dir, environment))
    }

    fn policy(&self, subject: &Subject, case: &Case, environment: &Environment) -> Result<Policy, Failure> {
        let mut settings =
            ToolSettings::new(subject.settings.name.as_str(), subject.settings.component.clone());
        settings.grants = (case.grants.iter())
            .map(|grant| GrantLine {
                grant: grant.clone(),
                base: environment.cwd.clone(),
                origin: ORIGIN,
            })
            .collect();
        for limit in &case.limits {
            limit.set(&mut settings.limits.limits);
        }
        settings.policy(&self.defaults, environment)
    }
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::new(Exit::Io, "could not create the files of a test").because(error)
}

/// Writes the files of a case, and creates the directories that it grants.
fn plant(dir: &Path, case: &Case) -> std::io::Result<()> {
    for grant in &case.grants {
        if let Grant::Dir { host, .. } = grant {
            std::fs::create_dir_all(dir.join(host))?;
        }
    }
    for (path, content) in &case.files {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        toolcell_fs::replace(&path, content.as_bytes(), toolcell_fs::PRIVATE)?;
    }
    Ok(())
}

/// Compares files with what they should contain after the call.
fn wrong_files(dir: &Path, expected: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, content) in expected {
        let rules = toolcell_fs::Rules::own(super::cases::MAX_BYTES);
        // The tool may have made a directory a link to somewhere else.
        let parent = dir.join(path).parent().map(Path::canonicalize);
        if parent.is_some_and(|parent| parent.is_ok_and(|parent| !parent.starts_with(dir))) {
            wrong.push(format!("{} is behind a link", path.display()));
            continue;
        }
        match toolcell_fs::read_text(&dir.join(path), &rules) {
            Ok(found) if found == *content => {}
            Ok(found) => wrong.push(format!(
                "{} contains {:?}, expected {:?}",
                path.display(),
                short(&found),
                short(content)
            )),
            Err(error) if error.is_not_found() => wrong.push(format!("{} does not exist", path.display())),
            Err(error) => wrong.push(format!("{} cannot be read: {error}", path.display())),
        }
    }
    wrong
}

/// Checks the arguments as for every call, and runs it until it ends or is cancelled.
async fn execute(
    tool: &Arc<dyn Tool>,
    arguments: &serde_json::Map<String, Value>,
    cancel: &CancellationToken,
) -> (CallResult, Vec<LogLine>) {
    let arguments = Value::Object(arguments.clone()).to_string();
    let arguments = match call::parse_arguments(tool.as_ref(), &arguments) {
        Ok(arguments) => arguments,
        Err(error) => return (CallResult::refused(error), Vec::new()),
    };
    let observer = Arc::new(Recorder::default());
    let call = ToolCall {
        id: "call-1".into(),
        name: tool.spec().name.clone(),
        arguments,
    };
    let cx = CallContext {
        values: BTreeMap::new(),
        observer: observer.clone(),
    };
    let running = tool.call(call, cx);
    let mut result = tokio::select! {
        // The call first: one that was cancelled before it began would leave no receipt.
        biased;
        result = running => result,
        () = cancel.cancelled() => CallResult::failed(ToolError::Cancelled),
    };
    let mut dropped = observer.receipt.lock().unwrap_or_else(PoisonError::into_inner);
    result.receipt = result.receipt.or_else(|| dropped.take());
    drop(dropped);
    let lines = std::mem::take(&mut *observer.lines.lock().unwrap_or_else(PoisonError::into_inner));
    (result, lines)
}

/// Keeps the first lines of a call, and the receipt of one that was cancelled.
#[derive(Default)]
struct Recorder {
    lines: Mutex<Vec<LogLine>>,
    receipt: Mutex<Option<Receipt>>,
}

impl CallObserver for Recorder {
    fn log(&self, line: LogLine) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            lines.push(line);
        }
    }

    fn receipt(&self, receipt: Receipt) {
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = Some(receipt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_after_a_call_are_not_read_through_links() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "mine").unwrap();
        let planted = tempfile::tempdir().unwrap();
        let dir = planted.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("real")).unwrap();
        std::fs::write(dir.join("real/file"), "content").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.join("linked")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), dir.join("link")).unwrap();
        let wrong = |path: &str, content: &str| {
            wrong_files(&dir, &BTreeMap::from([(path.into(), content.into())])).join(", ")
        };
        assert_eq!(wrong("real/file", "content"), "");
        assert!(wrong("real/file", "other").contains("contains \"content\""));
        assert!(wrong("real/gone", "").contains("does not exist"));
        assert!(wrong("gone/file", "").contains("does not exist"));
        for path in ["linked/secret", "link"] {
            let told = wrong(path, "other");
            assert!(!told.is_empty() && !told.contains("mine"), "{told}");
        }
    }
}
