//! Trust in components that a project defines.
//!
//! A cloned repository can define components in its `toolcell.toml`. None of them runs before the user has seen its
//! origin and trusts it. Trust is bound to the digest of the bytes, so a changed component needs a new decision. The
//! list is a file in the user's state directory, which no project, tool or model can write to.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolcell_sandbox::Digest;

use crate::config::user_files;
use crate::config::{ComponentSource, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::{Answer, Choice, Fact, Question, Shown, Text, text};

/// Name of the trust list in the state directory.
const FILE: &str = "trusted.json";

/// Trusted component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trusted {
    /// Digest of its bytes. Trust depends on the digest alone.
    pub(crate) digest: String,
    /// Name when it was trusted.
    pub(crate) component: String,
    /// Path when it was trusted.
    pub(crate) path: String,
}

/// Trust list, and the console for new decisions.
pub(crate) struct Trust {
    file: Option<PathBuf>,
    /// Console to ask on; `None` for a non-interactive process.
    console: Option<Console>,
    /// Console that announces a component that is trusted from elsewhere.
    notes: Option<Console>,
    /// Digests already asked about. The lock serializes questions.
    asked: Mutex<Vec<String>>,
}

/// Returns the path of the list, or `None` without a state directory.
pub(crate) fn file(environment: &Environment) -> Option<PathBuf> {
    environment.state_dir.as_ref().map(|dir| dir.join(FILE))
}

/// Reads the list.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub(crate) fn read(file: &Path) -> Result<Vec<Trusted>, Failure> {
    user_files::read_list(file).map_err(|error| unusable(file).because(error))
}

/// Writes the list.
///
/// # Errors
/// Returns an error if the file cannot be written.
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
    .hint("delete it to be asked again about every component")
}

impl Trusted {
    /// Creates the entry for a component with this digest.
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
/// Returns an error if there is no state directory or the list cannot be written.
pub(crate) fn add(trusted: Trusted, environment: &Environment) -> Result<(), Failure> {
    let file = file(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "trust cannot be saved").why("there is no home directory")
    })?;
    let mut all = read(&file)?;
    all.retain(|known| (&known.digest, &known.path) != (&trusted.digest, &trusted.path));
    all.push(trusted);
    write(&file, &all)
}

impl Trust {
    /// Creates the trust of this user. `console` is used to ask about components that are not in the list.
    pub(crate) fn new(environment: &Environment, console: Option<&Console>) -> Self {
        let terminals = environment.terminals;
        Self {
            file: file(environment),
            console: console.filter(|_| terminals.can_ask()).cloned(),
            notes: console.cloned(),
            asked: Mutex::default(),
        }
    }

    /// True if a component may run: it is not from a project, or its bytes are trusted.
    ///
    /// # Errors
    /// Returns an error if the list cannot be used.
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

    /// Checks that a component may run, and asks the user if it is not trusted yet.
    ///
    /// # Errors
    /// Returns an error with the origin of the component if it is not trusted.
    pub(crate) async fn check(
        &self,
        settings: &ToolSettings,
        bytes: &[u8],
        environment: &Environment,
    ) -> Result<(), Failure> {
        if !settings.is_of_project() {
            return Ok(());
        }
        let digest = Digest::of(bytes);
        let here = Trusted::new(settings, &digest, environment);
        let known = match &self.file {
            Some(file) => read(file)?,
            None => Vec::new(),
        };
        let same: Vec<&Trusted> = known.iter().filter(|known| known.digest == here.digest).collect();
        if let Some(first) = same.first() {
            if same.iter().all(|known| known.path != here.path) {
                if let Some(notes) = &self.notes {
                    notes.note(text!(
                        "the component `{}` of this project (`{}`) is the one that you trusted as `{}` (`{}`)",
                        here.component,
                        here.path,
                        first.component,
                        first.path
                    ));
                }
                // Without a list that can be written, it is announced each time.
                let _ = add(here, environment);
            }
            return Ok(());
        }
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

/// Creates the failure for an untrusted project component.
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
        .hint(text!("to review it: toolcell tool inspect {}", name))
        .hint(text!("to trust it: toolcell tool trust {}", name))
}

/// Shows the origin of a component and asks whether it may run. Any answer but `y` means no.
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
            Fact::Plain(text!("named in {}", Shown(&path.origin.to_string()))),
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
        takes_words: false,
        needs_view: None,
        is_lasting: true,
    };
    let console = console.clone();
    let asked =
        tokio::task::spawn_blocking(move || console.ask(&|| false, |asking| asking.choose(&question)));
    matches!(asked.await, Ok(Ok(Answer::Key('y'))))
}

/// Resolves symbolic links: a project could use one to point elsewhere.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::config::source::{Layer, Source};
    use crate::config::{Origin, Sourced};

    #[test]
    fn trusted_component_is_kept_once_by_digest() {
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

    /// Settings of a component that the file of a layer defines.
    fn defined_by(layer: Layer) -> ToolSettings {
        let source = Source {
            layer,
            path: "/c.toml".into(),
            shown: "c.toml".into(),
            text: "component = \"x.wasm\"".into(),
            line_starts: OnceLock::new(),
        };
        let path = Sourced {
            value: "/x.wasm".into(),
            origin: Origin::File(Arc::new(source), 0..9),
        };
        ToolSettings::new("x", ComponentSource::File(path))
    }

    #[tokio::test]
    async fn project_component_runs_only_with_its_trusted_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment::for_tests(dir.path(), &[]);
        let (of_user, of_project) = (defined_by(Layer::User), defined_by(Layer::Project));
        let nowhere = Trust::new(&environment, None);
        assert!(nowhere.is_trusted(&of_user, b"a").unwrap());
        assert!(!nowhere.is_trusted(&of_project, b"a").unwrap());

        environment.state_dir = Some(dir.path().join("state"));
        let trust = Trust::new(&environment, None);
        let known = Trusted::new(&of_project, &Digest::of(b"a"), &environment);
        assert_eq!(known.path, "/x.wasm");
        add(known, &environment).unwrap();
        for (settings, bytes, is_trusted) in [
            (&of_user, b"b", true),
            (&of_project, b"a", true),
            (&of_project, b"b", false),
        ] {
            assert_eq!(trust.is_trusted(settings, bytes).unwrap(), is_trusted);
            let checked = trust.check(settings, bytes, &environment).await;
            assert_eq!(checked.is_ok(), is_trusted);
        }
        let refused = trust.check(&of_project, b"b", &environment).await.unwrap_err();
        assert_eq!(refused.exit, Exit::Denied);
    }
}
