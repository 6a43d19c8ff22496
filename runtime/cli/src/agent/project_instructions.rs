//! Instructions of a project: its file `AGENTS.md`.
//!
//! A cloned repository can contain any text. It reaches the model only after the user has seen it and accepted it. The
//! decision is bound to the digest of the bytes, so a changed file needs a new one, and is kept in the user's state
//! directory, which no project, tool or model can write to.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toolcell_fs::Rules;
use toolcell_sandbox::Digest;

use crate::config::file::ProjectInstructions;
use crate::config::layers::PROJECT_FILE;
use crate::config::{Settings, user_files};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::terminal::foreign::escape::inert;
use crate::ui::terminal::{Answer, Choice, Exhibit, Fact, Question, Text, text};

/// Name of the file in a project.
pub(crate) const FILE: &str = "AGENTS.md";

/// Maximum size of the file, in bytes: about 16,000 tokens, which are part of every request.
const MAX_BYTES: u64 = 64 << 10;

/// Name of the list of decisions in the state directory.
const LIST: &str = "project_instructions.json";

/// Entries that mark the root of a project.
const ROOT_MARKS: [&str; 2] = [PROJECT_FILE, ".git"];

/// Text that a project offers as instructions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    /// Path without symbolic links.
    path: PathBuf,
    digest: String,
    /// Text as the user is shown it, with nothing hidden.
    pub(crate) text: String,
}

/// Decision of the user about a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decided {
    /// Digest of its bytes. The decision depends on the digest alone.
    pub(crate) digest: String,
    /// Path when it was decided.
    pub(crate) path: String,
    /// True if the text is used.
    pub(crate) is_used: bool,
}

/// Returns the file of the project, if there is one with a text.
///
/// It is the nearest one between the working directory and the root of the project, which has a `toolcell.toml` or
/// `.git`; without a root, the one in the working directory.
///
/// # Errors
/// Returns an error if the file cannot be used: a link could point anywhere, and a file of another user is not of this
/// project.
pub(crate) fn find(environment: &Environment) -> Result<Option<Offered>, Failure> {
    for path in candidates(environment) {
        let fail = || {
            let shown = environment.shown(&path);
            let failure = Failure::new(
                Exit::Config,
                text!("the instructions in `{}` cannot be used", shown),
            );
            failure.hint("to work without them: --project-instructions off")
        };
        let text = match toolcell_fs::read_text(&path, &Rules::found(MAX_BYTES)) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(user_files::because(fail(), error)),
        };
        return Ok((!text.trim().is_empty()).then(|| Offered {
            digest: Digest::of(text.as_bytes()).to_string(),
            text: inert(text.trim_end()),
            path,
        }));
    }
    Ok(None)
}

/// Returns the paths at which the file is looked for, in order.
fn candidates(environment: &Environment) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for dir in environment.cwd.ancestors() {
        dirs.push(dir.join(FILE));
        if ROOT_MARKS
            .iter()
            .any(|mark| dir.join(mark).symlink_metadata().is_ok())
        {
            return dirs;
        }
        if environment.home.as_deref() == Some(dir) {
            break;
        }
    }
    dirs.truncate(1);
    dirs
}

/// Returns the text of the project that the user accepts as instructions, and asks about one that is new.
///
/// # Errors
/// Returns an error if the list of decisions cannot be used.
pub(crate) async fn accepted(
    settings: &Settings,
    environment: &Environment,
    console: &Console,
) -> Result<Option<Offered>, Failure> {
    let mode = settings.project_instructions.value;
    if mode == ProjectInstructions::Off {
        return Ok(None);
    }
    let offered = match find(environment) {
        Ok(Some(offered)) => offered,
        Ok(None) => return Ok(None),
        Err(failure) => {
            console.warn(&failure);
            return Ok(None);
        }
    };
    let shown = environment.shown(&offered.path);
    let is_attended = environment.terminals.can_ask();
    if !is_attended && mode == ProjectInstructions::Ask {
        console.note(text!(
            "`{}` is not used, because no user can be asked; `--project-instructions accepted` uses it once you have accepted it",
            shown
        ));
        return Ok(None);
    }
    let decided = read(environment)?;
    let known = decided.iter().find(|known| known.digest == offered.digest);
    let is_used = match known {
        Some(known) => known.is_used,
        None if !is_attended => {
            console.note(text!(
                "`{}` is not used, because you have not accepted it; to do so: toolcell instructions accept",
                shown
            ));
            return Ok(None);
        }
        None => match ask(console, &offered, &shown, is_changed(&decided, &offered)).await {
            Some(is_used) => {
                decide(&offered, is_used, environment)?;
                is_used
            }
            None => false,
        },
    };
    if is_used {
        console.note(text!("the model reads `{}` of the project", shown));
    }
    Ok(is_used.then_some(offered))
}

/// Shows the text and asks whether it is used. Returns `None` without an answer.
async fn ask(console: &Console, offered: &Offered, shown: &str, is_changed: bool) -> Option<bool> {
    let (console, question) = (console.clone(), question(offered, shown, is_changed));
    let asked = tokio::task::spawn_blocking(move || answer(&console, &question)).await;
    asked.ok().flatten()
}

/// Shows the text at the terminal, asks whether it is used, and saves the answer. Returns `None` without an answer.
///
/// # Errors
/// Returns an error if the list of decisions cannot be used.
pub(crate) fn decide_at_terminal(
    offered: &Offered,
    environment: &Environment,
    console: &Console,
) -> Result<Option<bool>, Failure> {
    let is_changed = is_changed(&read(environment)?, offered);
    let shown = environment.shown(&offered.path);
    let is_used = answer(console, &question(offered, &shown, is_changed));
    if let Some(is_used) = is_used {
        decide(offered, is_used, environment)?;
    }
    Ok(is_used)
}

/// True if the user decided about another text of this file, and not about this one.
fn is_changed(decided: &[Decided], offered: &Offered) -> bool {
    let is_known = decided.iter().any(|known| known.digest == offered.digest);
    !is_known && decided.iter().any(|known| known.path == offered.shown_path())
}

fn question(offered: &Offered, shown: &str, is_changed: bool) -> Question {
    let changed = Fact::Warning("it is not the text about which you decided before".into());
    let facts = [
        Fact::Plain(text!("file: `{}`", offered.shown_path())),
        Fact::Plain(text!("digest: {}", offered.digest)),
        Fact::Plain(
            "the model reads it in every request, as the project's words; yours take precedence, and it grants no access"
                .into(),
        ),
    ];
    Question {
        title: text!("use this text of the project, `{}`, as instructions?", shown),
        exhibit: Some(Exhibit::text(&offered.text)),
        facts: is_changed.then_some(changed).into_iter().chain(facts).collect(),
        choices: vec![
            Choice {
                key: 'y',
                word: "yes",
                means: "use this text from now on",
            },
            Choice {
                key: 'n',
                word: "no",
                means: "do not use it, and do not ask again",
            },
        ],
        is_lasting: true,
        takes_words: false,
        needs_view: Some('y'),
    }
}

fn answer(console: &Console, question: &Question) -> Option<bool> {
    match console.ask(&|| false, |asking| asking.choose(question)) {
        Ok(Answer::Key(key)) => Some(key == 'y'),
        _ => None,
    }
}

impl Offered {
    /// Returns the path as text.
    pub(crate) fn shown_path(&self) -> String {
        self.path.display().to_string()
    }

    #[cfg(test)]
    pub(crate) fn for_tests(text: &str) -> Self {
        Self {
            path: FILE.into(),
            digest: String::new(),
            text: text.to_owned(),
        }
    }

    /// Returns the digest of the bytes.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

/// Saves a decision.
///
/// # Errors
/// Returns an error if there is no state directory or the list cannot be written.
pub(crate) fn decide(offered: &Offered, is_used: bool, environment: &Environment) -> Result<(), Failure> {
    let mut all = read(environment)?;
    all.retain(|known| known.digest != offered.digest);
    all.push(Decided {
        digest: offered.digest.clone(),
        path: offered.shown_path(),
        is_used,
    });
    write(&all, environment)
}

/// Reads the list of decisions.
///
/// # Errors
/// Returns an error if the list cannot be used.
pub(crate) fn read(environment: &Environment) -> Result<Vec<Decided>, Failure> {
    match list(environment) {
        Some(file) => user_files::read_list(&file).map_err(|error| unusable(&file).because(error)),
        None => Ok(Vec::new()),
    }
}

/// Writes the list of decisions.
///
/// # Errors
/// Returns an error if there is no state directory or the list cannot be written.
pub(crate) fn write(all: &[Decided], environment: &Environment) -> Result<(), Failure> {
    let file = list(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "the decision cannot be saved").why("there is no home directory")
    })?;
    user_files::write_list(&file, all).map_err(|error| unusable(&file).because(error))
}

fn list(environment: &Environment) -> Option<PathBuf> {
    environment.state_dir.as_ref().map(|dir| dir.join(LIST))
}

fn unusable(file: &Path) -> Failure {
    let what: Text = text!(
        "the list of instructions of projects `{}` cannot be used",
        file.display()
    );
    Failure::new(Exit::Config, what).hint("delete it to be asked again about each of them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    fn environment(dir: &Path) -> Environment {
        let mut environment = Environment::for_tests(dir, &[]);
        environment.state_dir = Some(dir.join("state"));
        environment
    }

    #[test]
    fn nearest_file_up_to_the_root_of_the_project_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let sub = dir.join("home/project/sub");
        std::fs::create_dir_all(&sub).unwrap();
        let mut environment = environment(&sub);
        environment.home = Some(dir.join("home"));
        let found = || find(&environment).unwrap().map(|offered| offered.path);
        let place = |at: &str| {
            let path = dir.join(at).join(FILE);
            std::fs::write(&path, "Use tabs.").unwrap();
            path
        };
        place("");
        place("home");
        let of_project = place("home/project");
        assert_eq!(found(), None, "there is no root");
        for mark in ROOT_MARKS {
            std::fs::write(dir.join("home/project").join(mark), "").unwrap();
            assert_eq!(found().as_deref(), Some(&*of_project), "{mark}");
            std::fs::remove_file(dir.join("home/project").join(mark)).unwrap();
        }
        let nearest = place("home/project/sub");
        assert_eq!(found(), Some(nearest.clone()));
        std::fs::write(dir.join("home/project/.git"), "").unwrap();
        assert_eq!(found(), Some(nearest));
        // Nothing above the home directory.
        std::fs::write(dir.join(".git"), "").unwrap();
        std::fs::remove_file(dir.join("home/project/.git")).unwrap();
        std::fs::remove_file(sub.join(FILE)).unwrap();
        assert_eq!(found(), None);
    }

    #[test]
    fn file_is_used_up_to_its_limit_and_never_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let environment = environment(&dir);
        let path = dir.join(FILE);
        let most = usize::try_from(MAX_BYTES).unwrap();
        std::fs::write(&path, "x".repeat(most)).unwrap();
        assert_eq!(find(&environment).unwrap().unwrap().text.len(), most);
        for refused in ["x".repeat(most + 1).into_bytes(), b"\xff".to_vec()] {
            std::fs::write(&path, refused).unwrap();
            assert_eq!(find(&environment).unwrap_err().exit, Exit::Config);
        }
        for empty in ["", " \n\t"] {
            std::fs::write(&path, empty).unwrap();
            assert_eq!(find(&environment).unwrap(), None);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(dir.join("other.md"), "x").unwrap();
        for target in ["other.md", "/etc/passwd"] {
            std::os::unix::fs::symlink(target, &path).unwrap();
            let failure = find(&environment).unwrap_err().to_string();
            assert!(failure.contains("link"), "{failure}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn model_reads_what_the_user_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::write(dir.join(FILE), "Use tabs.\u{1b}[8m\u{e0041}\u{202e}\n\n").unwrap();
        let offered = find(&environment(&dir)).unwrap().unwrap();
        assert_eq!(offered.text, "Use tabs.␛[8m\\u{e0041}\\u{202e}");
    }

    #[tokio::test]
    async fn text_without_terminal_needs_setting_and_decision() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let environment = environment(&dir);
        let console = Console::new(&environment);
        std::fs::write(dir.join(FILE), "Use tabs.").unwrap();
        let offered = find(&environment).unwrap().unwrap();
        let is_used = async |mode| {
            let overrides = Overrides {
                project_instructions: Some(mode),
                ..Overrides::default()
            };
            let settings = config::load(&environment, overrides).unwrap();
            let accepted = accepted(&settings, &environment, &console).await;
            accepted.unwrap().is_some()
        };
        use ProjectInstructions::{Accepted, Ask, Off};
        for mode in [Ask, Accepted, Off] {
            assert!(!is_used(mode).await, "{mode:?}");
        }
        for (decision, expected) in [
            (true, [(Ask, false), (Accepted, true), (Off, false)]),
            (false, [(Ask, false), (Accepted, false), (Off, false)]),
        ] {
            decide(&offered, decision, &environment).unwrap();
            assert_eq!(read(&environment).unwrap().len(), 1);
            for (mode, expected) in expected {
                assert_eq!(is_used(mode).await, expected, "{mode:?} {decision}");
            }
        }
        decide(&offered, true, &environment).unwrap();
        std::fs::write(dir.join(FILE), "Use tabs!").unwrap();
        assert!(!is_used(Accepted).await);
    }
}
