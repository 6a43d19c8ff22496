//! `toolcell tool test`: runs the cases of an author, and checks that follow from the definitions.

mod cases;
mod checks;
mod expectation;
mod fixture;
mod generate;
mod junit;
mod planted_http;
mod report;
mod target;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Args;
use tokio_util::sync::CancellationToken;
use toolcell_core::ToolSpec;
use toolcell_sandbox::Component;

use super::calibrate::Most;
use crate::components::loader::ComponentLoader;
use crate::components::sandbox::{self, Surroundings};
use crate::config::{self, Overrides, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::text;

use cases::{Case, Cases};
use fixture::{Fixtures, Ran};
pub(super) use report::Report;
use report::{Finding, FindingKind, Outcome};

/// Test a tool: run its cases, call it with generated arguments, and check its definitions.
///
/// The tests have no access to anything of yours: files, requests and buckets are those that a case plants, whatever your configuration grants.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool test ./my.wasm
  toolcell tool test ./my.wasm --cases cases.toml --junit report.xml
  toolcell tool test . --strict
  toolcell tool test text --cases tools/text/cases.toml --json

Cases are found beside the component: `cases.toml`, `cases.json` or `cases/` in a directory, `my.cases.toml` or
`my.cases.json` beside `my.wasm`.

{}", crate::exit::TABLE))]
pub(crate) struct Test {
    #[command(flatten)]
    pub(super) flags: TestFlags,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// Write the report to this file, as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Subject and extent of a test run.
#[derive(Debug, Args)]
pub(super) struct TestFlags {
    /// Component: a file, a name of the configuration, or a directory with one.
    #[arg(value_name = "FILE|NAME|DIR")]
    tool: String,

    /// File or directory with cases (TOML or JSON).
    #[arg(long, value_name = "FILE|DIR")]
    cases: Option<PathBuf>,

    /// Number of generated arguments per tool; 0 generates none.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=1000))]
    generated: u32,

    /// Seed of the generated arguments: the same seed generates the same ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Count warnings as failures.
    #[arg(long)]
    strict: bool,
}

/// The component that is tested.
struct Subject {
    settings: ToolSettings,
    component: Component,
}

/// One run, shared by its cases and checks.
struct Run<'a> {
    fixtures: &'a Fixtures,
    cancel: &'a CancellationToken,
    seed: u64,
    generated: usize,
    /// Tools whose answers to equal calls may differ.
    varying: Vec<String>,
    most: Mutex<Most>,
    calls: AtomicU64,
}

impl Test {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let cancel = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.cancel_next(cancel.clone());
        let show = |report: &Report<'_>| {
            if let Some(file) = &self.junit {
                let path = environment.path(&file.to_string_lossy(), &environment.cwd);
                let xml = junit::xml(report, self.flags.strict);
                toolcell_fs::replace(&path, xml.as_bytes(), toolcell_fs::SHARED).map_err(|error| {
                    let shown = environment.shown(&path);
                    Failure::new(Exit::Io, text!("the report `{}` cannot be written", shown)).because(error)
                })?;
            }
            match self.json {
                true => print_line(console, &report.json())?,
                false => console.write(|s| report.print(s))?,
            }
            Ok(())
        };
        let tested = self.flags.test(overrides, environment, console, &cancel, show);
        let tested = Box::pin(tested).await?;
        Ok(tested.exit)
    }
}

/// Result of the tests of one component.
pub(super) struct Tested {
    pub(super) exit: Exit,
    /// File of the component; `None` if it is built in.
    pub(super) component: Option<PathBuf>,
    /// Files of its cases.
    pub(super) cases: Vec<PathBuf>,
}

impl TestFlags {
    /// Directory that was named instead of a file, if any.
    pub(super) fn directory(
        &self,
        overrides: Overrides,
        environment: &Environment,
    ) -> Result<Option<PathBuf>, Failure> {
        let settings = config::load(environment, overrides)?;
        Ok(target::directory(&self.tool, &settings, environment))
    }

    /// Files that are named, existing or not: the component, if it is one, and the cases.
    pub(super) fn named_files(&self, environment: &Environment) -> Vec<PathBuf> {
        let path = |text: &str| environment.path(text, &environment.cwd);
        let component = path(&self.tool);
        let cases = self.cases.as_ref().map(|cases| path(&cases.to_string_lossy()));
        let beside = target::beside(&component);
        [component].into_iter().chain(beside).chain(cases).collect()
    }

    /// Places in a directory where its component and its cases are.
    pub(super) fn places(directory: &Path) -> Vec<PathBuf> {
        target::places(directory)
    }

    /// Tests the component, and shows the report.
    ///
    /// # Errors
    /// Returns an error if the component or its cases cannot be used.
    pub(super) async fn test(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
        cancel: &CancellationToken,
        show: impl FnOnce(&Report<'_>) -> Result<(), Failure>,
    ) -> Result<Tested, Failure> {
        let settings = config::load(environment, overrides)?;
        let fixtures = Fixtures::new(environment)?;
        let network = fixtures.network();
        let surroundings = Surroundings {
            trusted_roots: vec![network.root()],
            network,
            buckets: fixtures.buckets(),
        };
        let sandbox = sandbox::start_in(environment, console, surroundings)?;
        let loader = ComponentLoader::asking(environment, &settings, sandbox, console)?;
        let component = target::component(&self.tool, &settings, environment)?;
        let found = Box::pin(loader.find(&component)).await?;
        let subject = Subject {
            component: Box::pin(loader.component(&found.settings)).await?,
            settings: found.settings.clone(),
        };
        let of_flag = self.cases.as_ref();
        let of_flag = of_flag.map(|path| environment.path(&path.to_string_lossy(), &environment.cwd));
        let path = of_flag.or_else(|| target::cases(&self.tool, &found, &settings, environment));
        let cases = match &path {
            Some(path) => cases::read(path, environment)?,
            None => Cases::default(),
        };
        let tested = |exit, cases| Tested {
            exit,
            component: target::file(&found),
            cases,
        };
        let files = match &path {
            Some(path) => cases::files(path, environment)?,
            None => Vec::new(),
        };
        check_names(&subject, &cases)?;
        let run = Run {
            fixtures: &fixtures,
            cancel,
            seed: self.seed,
            generated: usize::try_from(self.generated).unwrap_or(usize::MAX),
            varying: cases.varying.clone(),
            most: Mutex::default(),
            calls: AtomicU64::new(0),
        };
        let findings = {
            let _activity = console.activity(text!("testing {}", subject.settings.name));
            Box::pin(run.all(&subject, &cases, found.tool.as_deref())).await?
        };
        if cancel.is_cancelled() {
            return Ok(tested(Exit::Cancelled, files));
        }
        let report = Report {
            subject: &subject,
            findings,
            calls: run.calls.load(Ordering::Relaxed),
            most: std::mem::take(&mut *run.most()),
        };
        show(&report)?;
        let has_failed =
            report.count(Outcome::Failed) > 0 || self.strict && report.count(Outcome::Warned) > 0;
        Ok(tested(if has_failed { Exit::Failed } else { Exit::Ok }, files))
    }
}

/// Refuses cases of tools that the component does not have.
fn check_names(subject: &Subject, cases: &Cases) -> Result<(), Failure> {
    let names: Vec<&str> = specs(subject).map(|spec| spec.name.as_str()).collect();
    let list = || {
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    let fail = |name: &str| {
        Failure::new(Exit::Usage, text!("the component has no tool `{}`", name))
            .hint(text!("it has {}", list()))
    };
    if let Some(unknown) = cases.varying.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(fail(unknown).why("`varying` in the cases names it"));
    }
    for case in &cases.cases {
        match &case.tool {
            Some(tool) if !names.contains(&tool.as_str()) => {
                return Err(fail(tool).why(text!("the case `{}` names it", case.name)));
            }
            None if names.len() > 1 => {
                return Err(Failure::new(
                    Exit::Usage,
                    text!("the case `{}` does not name its tool", case.name),
                )
                .hint(text!("add `tool = \"NAME\"`, one of {}", list())));
            }
            _ => {}
        }
    }
    Ok(())
}

fn specs(subject: &Subject) -> impl Iterator<Item = &ToolSpec> {
    subject.component.definitions().iter().map(|spec| &**spec)
}

impl Run<'_> {
    fn most(&self) -> MutexGuard<'_, Most> {
        self.most.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a tool in a new fixture, and notes its use.
    async fn call(&self, subject: &Subject, tool: &str, case: &Case) -> Result<Ran, Failure> {
        let ran = self.fixtures.call(subject, tool, case, self.cancel).await?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(receipt) = &ran.result.receipt {
            self.most().note(receipt);
        }
        Ok(ran)
    }

    /// Outcome of different answers of a tool to equal calls.
    fn unequal(&self, subject: &Subject, tool: &str) -> Outcome {
        match self.varying.iter().any(|name| name == tool) {
            true => Outcome::Passed,
            false => checks::unequal(&subject.component.identity().abilities()),
        }
    }

    /// Runs all cases and checks, of one tool or of all.
    async fn all(
        &self,
        subject: &Subject,
        cases: &Cases,
        only: Option<&str>,
    ) -> Result<Vec<Finding>, Failure> {
        let is_wanted = |name: &str| only.is_none_or(|only| only == name);
        let mut findings = Vec::new();
        for case in &cases.cases {
            let first = specs(subject).next().map(|spec| spec.name.as_str());
            let Some(tool) = case.tool.as_deref().or(first).filter(|tool| is_wanted(tool)) else {
                continue;
            };
            findings.push(self.case(subject, tool, case).await?);
            if self.cancel.is_cancelled() {
                return Ok(findings);
            }
        }
        for spec in specs(subject).filter(|spec| is_wanted(spec.name.as_str())) {
            findings.extend(checks::of_tool(self, subject, spec).await?);
            if self.cancel.is_cancelled() {
                return Ok(findings);
            }
        }
        findings.extend(checks::of_component(self, subject));
        Ok(findings)
    }

    /// Runs a case twice: it must pass, with the same answer.
    async fn case(&self, subject: &Subject, tool: &str, case: &Case) -> Result<Finding, Failure> {
        let in_case = |failure: Failure| failure.why(text!("in the case `{}`", case.name));
        let first = self.call(subject, tool, case).await.map_err(in_case)?;
        let mut messages = expectation::differences(case, &first);
        let mut outcome = Outcome::Failed;
        let mut wall_us = first.result.receipt.as_ref().map_or(0, |receipt| receipt.wall_us);
        if messages.is_empty() {
            let second = self.call(subject, tool, case).await.map_err(in_case)?;
            wall_us += second
                .result
                .receipt
                .as_ref()
                .map_or(0, |receipt| receipt.wall_us);
            let differs = checks::difference(&first.result, &second.result);
            if let Some(difference) = differs.filter(|_| self.unequal(subject, tool) != Outcome::Passed) {
                outcome = self.unequal(subject, tool);
                messages.push(difference);
            }
        }
        Ok(Finding {
            tool: tool.to_owned(),
            name: case.name.clone(),
            kind: FindingKind::Case,
            outcome: if messages.is_empty() {
                Outcome::Passed
            } else {
                outcome
            },
            messages,
            wall_us,
        })
    }
}
