//! Components that projects bring: which of them the user has trusted, and the question whether to.
//!
//! A repository that was cloned brings code by its `toolcell.toml`. None of it runs before the user has seen where it comes
//! from and trusts it; what is trusted is the digest of its bytes, so that other bytes are asked about again. The list lies in
//! the user's own state directory, and no project, tool or model can add to it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolcell_sandbox::Digest;

use crate::config::user_files;
use crate::config::{ComponentSource, Origin, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Choice, Fact, Question, Text, text};

/// Name of the file, in the state directory.
const FILE: &str = "trusted.json";

/// A component that the user trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trusted {
    /// Digest of its bytes, which alone decides.
    pub(crate) digest: String,
    /// Its name when it was trusted.
    pub(crate) component: String,
    /// Where it was then.
    pub(crate) path: String,
}

/// What the user trusts, and how they are asked.
pub(crate) struct Trust {
    file: Option<PathBuf>,
    /// Where to ask; `None` where nobody is asked.
    console: Option<Console>,
    /// One question at a time, and none twice.
    asked: Mutex<Vec<String>>,
}

/// Where the list lies; `None` where the user has no state directory.
pub(crate) fn file(environment: &Environment) -> Option<PathBuf> {
    environment.state_dir.as_ref().map(|dir| dir.join(FILE))
}

/// Reads the list.
///
/// # Errors
/// When the file cannot be used.
pub(crate) fn read(file: &Path) -> Result<Vec<Trusted>, Failure> {
    user_files::read_list(file).map_err(|error| unusable(file).because(error))
}

/// Writes the list.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(file: &Path, all: &[Trusted]) -> Result<(), Failure> {
    user_files::write_list(file, all).map_err(|error| unusable(file).because(error))
}

fn unusable(file: &Path) -> Failure {
    Failure::new(
        Exit::Config,
        text!(
            "the list of trusted components `{}` cannot be used",
            file.display()
        ),
    )
    .hint("delete it, and you will be asked again for everything")
}

impl Trusted {
    /// The entry for a component with these bytes.
    pub(crate) fn new(settings: &ToolSettings, digest: &Digest, environment: &Environment) -> Self {
        Self {
            digest: digest.to_string(),
            component: settings.name.clone(),
            path: match &settings.component {
                ComponentSource::File(path) => real(&path.value).display().to_string(),
                ComponentSource::Shipped(_) => environment.shown(Path::new("")),
            },
        }
    }
}

/// Adds a component to the list.
///
/// # Errors
/// When there is no place for the list, or it cannot be written.
pub(crate) fn add(trusted: Trusted, environment: &Environment) -> Result<(), Failure> {
    let file = file(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "nothing can be trusted for longer").why("there is no home directory")
    })?;
    let mut all = read(&file)?;
    all.retain(|known| known.digest != trusted.digest);
    all.push(trusted);
    write(&file, &all)
}

impl Trust {
    /// What the user trusts. `console` is where they are asked about everything else.
    pub(crate) fn new(environment: &Environment, console: Option<&Console>) -> Self {
        let terminals = environment.terminals;
        Self {
            file: file(environment),
            console: console.filter(|_| terminals.stdin && terminals.stderr).cloned(),
            asked: Mutex::default(),
        }
    }

    /// Whether a component may run: it does not come from a project, or its bytes are trusted.
    ///
    /// # Errors
    /// When the list cannot be used.
    pub(crate) fn is_trusted(&self, settings: &ToolSettings, bytes: &[u8]) -> Result<bool, Failure> {
        if !settings.is_of_project() {
            return Ok(true);
        }
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let digest = Digest::of(bytes).to_string();
        Ok(read(file)?.iter().any(|known| known.digest == digest))
    }

    /// Makes sure that a component may run, and asks the user where that is not known yet.
    ///
    /// # Errors
    /// When it is not trusted; says where it comes from.
    pub(crate) async fn check(
        &self,
        settings: &ToolSettings,
        bytes: &[u8],
        environment: &Environment,
    ) -> Result<(), Failure> {
        if self.is_trusted(settings, bytes)? {
            return Ok(());
        }
        let digest = Digest::of(bytes);
        if let Some(console) = &self.console {
            let is_new = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                let digest = digest.to_string();
                let is_new = !asked.contains(&digest);
                asked.push(digest);
                is_new
            };
            if is_new && ask(console, settings, &digest, environment).await {
                return add(Trusted::new(settings, &digest, environment), environment);
            }
        }
        Err(not_trusted(settings, &digest, environment))
    }
}

/// Why a component of a project does not run, and what the user can do.
fn not_trusted(settings: &ToolSettings, digest: &Digest, environment: &Environment) -> Failure {
    let name = crate::ui::escape::shell(&settings.name);
    let mut failure = Failure::new(
        Exit::Denied,
        text!(
            "the component `{}` comes from this project and is not trusted",
            settings.name
        ),
    );
    if let ComponentSource::File(path) = &settings.component {
        failure = failure
            .why(text!(
                "its file is `{}`, {}",
                environment.shown(&real(&path.value)),
                digest
            ))
            .why(path.origin.point_at());
    }
    failure
        .hint(text!("look at it: toolcell tool inspect {}", name))
        .hint(text!("to let it run: toolcell tool trust {}", name))
}

/// Says where a component comes from, and asks whether it may run. Everything but `y` is no.
async fn ask(console: &Console, settings: &ToolSettings, digest: &Digest, environment: &Environment) -> bool {
    let ComponentSource::File(path) = &settings.component else {
        return false;
    };
    let grants = settings.grants.iter().map(|line| text!("`{}`", line.grant));
    let grants = match settings.grants.len() {
        0 => "none".into(),
        _ => Text::join(grants, ", "),
    };
    let question = Question {
        title: text!(
            "trust `{}`, a component of this project that has never run here?",
            settings.name
        ),
        exhibit: None,
        facts: vec![
            Fact::Plain(text!("file: `{}`", environment.shown(&real(&path.value)))),
            Fact::Plain(text!("digest: {}", digest)),
            Fact::Plain(text!("named in {}", place(&path.origin))),
            Fact::Plain(text!("grants: {}", grants)),
        ],
        choices: vec![
            Choice {
                key: 'y',
                word: "yes",
                means: "trust this file from now on",
            },
            Choice {
                key: 'n',
                word: "no",
                means: "no",
            },
        ],
        is_lasting: true,
    };
    let console = console.clone();
    let asked =
        tokio::task::spawn_blocking(move || console.ask(&|| false, |asking| asking.choose(&question)));
    matches!(asked.await, Ok(Ok(Answer::Key('y'))))
}

/// File and line.
fn place(origin: &Origin) -> String {
    match origin {
        Origin::File(source, span) => {
            let (line, _) = source.position(span.start);
            format!("{}, line {line}", source.shown)
        }
        other => other.to_string(),
    }
}

/// A path without symbolic links: a project can lead elsewhere with one.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_trusted_is_kept_once_and_by_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        assert!(add(trusted("a", "1"), &environment).is_err());
        environment.state_dir = Some(dir.path().join("state"));
        for (component, digest) in [("a", "1"), ("b", "2"), ("c", "1")] {
            add(trusted(component, digest), &environment).unwrap();
        }
        let all = read(&file(&environment).unwrap()).unwrap();
        assert_eq!(all, [trusted("b", "2"), trusted("c", "1")]);
    }

    fn trusted(component: &str, digest: &str) -> Trusted {
        Trusted {
            digest: digest.into(),
            component: component.into(),
            path: "/x.wasm".into(),
        }
    }
}
