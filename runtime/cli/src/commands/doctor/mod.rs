//! `toolcell doctor`: checks the installation and configuration.

mod report;
mod surroundings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Message, Provider, error_chain};
use toolcell_sandbox::{Protection, Sandbox};

use self::report::{Finding, Report};
use crate::agent::model;
use crate::commands::mcp;
use crate::components::builtin;
use crate::components::loader::{ComponentLoader, LoadedHook};
use crate::components::sandbox;
use crate::config::{self, McpSettings, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::telemetry;
use crate::ui::render;
use crate::ui::render::Console;
use crate::ui::terminal::{Name, Own, Shown, Text, text};

/// Check the engine, the cache, the configuration, the built-in tools, the saved sessions, the buckets, the packages, the terminal and
/// the model provider.
///
/// Without `--online`, nothing is sent over the network.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell doctor
  toolcell doctor --online
  toolcell doctor --json")]
pub(crate) struct Doctor {
    /// Send a short request to the configured model to test it. This can cost money.
    #[arg(long)]
    online: bool,

    /// Print one JSON array with the result of each check.
    #[arg(long)]
    json: bool,
}

/// Timeout of the request to the model.
const ONLINE_TIMEOUT: Duration = Duration::from_secs(60);

impl Doctor {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let mut report = Report::new(console, self.json);
        self.check(&mut report, overrides, environment, console).await?;
        Ok(report.end()?)
    }

    async fn check(
        &self,
        report: &mut Report<'_>,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        let mut show = |what: Text, finding: Finding| report.add(&what, finding);
        show("toolcell".into(), Finding::Good(version()))?;
        let settings = match config::load(environment, overrides) {
            Ok(settings) => {
                show("configuration".into(), configuration(&settings))?;
                settings
            }
            Err(failure) => {
                show("configuration".into(), Finding::Bad(failure))?;
                return Ok(());
            }
        };
        match sandbox::start(environment, BTreeMap::new(), console) {
            Ok(sandbox) => {
                show("engine".into(), engine(&sandbox))?;
                show("compiler".into(), compiler(&sandbox).await)?;
                show("cache".into(), cache(&sandbox, environment))?;
                let loader = ComponentLoader::with(environment, &settings, sandbox)?;
                for tool in settings.tools.values() {
                    if !loader.is_trusted(tool) {
                        let words = "comes from this project and is not trusted; it does not run";
                        show(text!("{}", Name(&tool.name)), Finding::Note(words.into()))?;
                        continue;
                    }
                    let finding = match loader.load(tool).await {
                        Ok(_) if !tool.enabled.value => Finding::Note("disabled by default".into()),
                        Ok(loaded) => Finding::Good(format!(
                            "{} {}",
                            loaded.tools.len(),
                            if loaded.tools.len() == 1 { "tool" } else { "tools" }
                        )),
                        Err(_) if !tool.enabled.value => Finding::Note("disabled".into()),
                        Err(failure) => Finding::Bad(failure),
                    };
                    show(text!("tool {}", Name(&tool.name)), finding)?;
                }
                for hook in settings.hooks.values() {
                    let finding = match loader.hook(hook).await {
                        Ok(loaded) => Finding::Good(hook_words(&loaded)),
                        Err(_) if !hook.component.enabled.value => Finding::Note("disabled".into()),
                        Err(failure) => Finding::Bad(failure),
                    };
                    show(text!("hook {}", Name(&hook.component.name)), finding)?;
                }
            }
            Err(failure) => show("engine".into(), Finding::Bad(failure))?,
        }
        for server in settings.mcp.values() {
            show(text!("mcp {}", Name(&server.name)), mcp_server(server))?;
        }
        for missing in builtin::MISSING {
            show(
                text!("tool {}", Own(missing)),
                Finding::Note("not included in this build".into()),
            )?;
        }
        show("sessions".into(), surroundings::sessions(environment).await)?;
        show("buckets".into(), surroundings::buckets(environment).await)?;
        show("packages".into(), surroundings::packages(environment))?;
        show("terminals".into(), surroundings::terminals(environment))?;
        show("toolchains".into(), surroundings::toolchains(environment))?;
        let (telemetry, is_as_wanted) = telemetry::state(environment);
        let finding = if is_as_wanted {
            Finding::Good
        } else {
            Finding::Note
        };
        show("telemetry".into(), finding(telemetry))?;
        match model::choose(
            &settings.provider,
            &settings.profiles,
            &settings.prices,
            environment,
        ) {
            Ok(chosen) => {
                show("provider".into(), Finding::Good(chosen.note.plain()))?;
                if self.online {
                    let finding = {
                        let _asking = console.activity("sending a test request");
                        ask(&chosen.provider, model::key_source(&settings.provider).as_ref()).await
                    };
                    show("model".into(), finding)?;
                }
            }
            Err(failure) => show("provider".into(), Finding::Bad(failure))?,
        }
        Ok(())
    }
}

fn version() -> String {
    format!(
        "{} on {} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

fn configuration(settings: &Settings) -> Finding {
    let files: Vec<String> = settings
        .files
        .iter()
        .map(|file| text!("{} ({})", Shown(&file.shown), file.layer).inert())
        .collect();
    if files.is_empty() {
        Finding::Good("no file; defaults".into())
    } else {
        Finding::Good(files.join(", "))
    }
}

/// Describes the hook points of a hook and whether it is a guard.
fn hook_words(loaded: &LoadedHook) -> String {
    let spec = loaded.hook.spec();
    let points: Vec<&str> = spec.points.iter().map(|point| point.as_str()).collect();
    let mut words = points.join(", ");
    if spec.guard {
        words.insert_str(0, "guards: ");
    }
    if !loaded.settings.component.enabled.value {
        words.push_str("; disabled");
    }
    words
}

/// Describes an MCP server, which is not started.
fn mcp_server(server: &McpSettings) -> Finding {
    if !server.enabled.value {
        return Finding::Note("disabled".into());
    }
    match mcp::list::problem(server) {
        Some(problem) => Finding::Note(problem.inert()),
        None => Finding::Good(
            text!(
                "{}, not started; to test it: toolcell mcp test {}",
                Own(server.transport.kind()),
                server.name
            )
            .inert(),
        ),
    }
}

fn engine(sandbox: &Sandbox) -> Finding {
    if sandbox.has_pool() {
        Finding::Good("started, with pooled memory".into())
    } else {
        Finding::Note(
            "started, without pooled memory: address space is limited, and calls are slightly slower".into(),
        )
    }
}

/// Reports how the compile process is confined, as the process itself detects it.
async fn compiler(sandbox: &Sandbox) -> Finding {
    let isolation = match sandbox.compiler_isolation().await {
        Ok(Some(isolation)) => isolation,
        Ok(None) => return Finding::Note("runs in this process, without limits".into()),
        Err(error) => {
            let failure = Failure::new(Exit::Component, "the compile process failed");
            return Finding::Bad(failure.because(error));
        }
    };
    let mut words = "separate process with limits on memory, time and files".to_owned();
    let mut is_whole = true;
    for (name, protection) in [("seccomp", &isolation.seccomp), ("Landlock", &isolation.landlock)] {
        match protection {
            Protection::On(None) => words.push_str(&format!(", {name}")),
            Protection::On(Some(version)) => words.push_str(&format!(", {name} (ABI {version})")),
            Protection::Off(reason) => {
                is_whole = false;
                words.push_str(&format!("; without {name}: {reason}"));
            }
            _ => {}
        }
    }
    if is_whole {
        Finding::Good(words)
    } else {
        Finding::Note(words)
    }
}

fn cache(sandbox: &Sandbox, environment: &Environment) -> Finding {
    match (sandbox.cache_error(), &environment.cache_dir) {
        (Some(error), _) => Finding::Note(format!(
            "{}; components are compiled on every start",
            error_chain(error)
        )),
        (None, Some(dir)) => Finding::Good(environment.shown(dir)),
        (None, None) => {
            Finding::Note("there is no home directory; components are compiled on every start".into())
        }
    }
}

/// Sends a test request. `key` is the configured source of the key.
async fn ask(provider: &Arc<dyn Provider>, key: Option<&Text>) -> Finding {
    let request = Request {
        messages: vec![Arc::new(Message::user("Answer with the one word: ready"))],
        tool_choice: ToolChoice::None,
        ..Request::default()
    };
    let started = std::time::Instant::now();
    let answer = async {
        let mut stream = provider.stream(request);
        while let Some(delta) = stream.next().await {
            delta?;
        }
        Ok::<_, toolcell_core::ProviderError>(())
    };
    match tokio::time::timeout(ONLINE_TIMEOUT, answer).await {
        Ok(Ok(())) => Finding::Good(format!("responded in {}", config::units::Span(started.elapsed()))),
        Ok(Err(error)) => Finding::Bad(render::provider_failure(&error, key)),
        Err(_) => Finding::Bad(
            Failure::new(Exit::Provider, "the model did not respond")
                .why(text!("no response within {} s", ONLINE_TIMEOUT.as_secs())),
        ),
    }
}
