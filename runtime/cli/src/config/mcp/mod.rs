//! `[mcp.NAME]`: MCP servers, whose tools the agent can call. They run outside of every cell, except for components.

mod oauth;
mod transport;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_core::Grant;
use toolcell_core::event::DataFlow;

use crate::components::data_flow;
use crate::config::file::{BindingTable, LimitsTable};
use crate::config::names::TakenNames;
use crate::config::source::{Origin, Source, Sourced};
use crate::config::units::Span;
use crate::config::{ComponentSource, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

pub(crate) use oauth::{OAuthSettings, OAuthTable};
pub(crate) use transport::{HeaderValue, Process, Transport};

/// Maximum length of the name of a server, so that the names of its tools have room behind it.
const MAX_NAME: usize = 32;

/// Default time in which a server starts and lists its tools. Package managers download it the first time.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Default time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum of both times.
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// An MCP server, started as a process or reached over HTTP. It runs outside of every cell, and a process with all rights of
/// the user: grants, denials and limits of tools do not apply to it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct McpTable {
    /// Program of the server: a name that is searched in `PATH`, or a path, relative to the directory of this file.
    #[schemars(with = "String")]
    pub(crate) command: Option<Spanned<String>>,
    /// Address of a server over HTTP, instead of `command`: `https`, or `http` for one on this machine.
    #[schemars(with = "String")]
    pub(crate) url: Option<Spanned<String>>,
    /// Component of the server, instead of `command`: a program (`wasi:cli/run`) in a `.wasm` file, relative to the directory of
    /// this file. It runs in one cell from its start to its end, with the `grants` and `limits` of this table.
    #[schemars(with = "String")]
    pub(crate) component: Option<Spanned<String>>,
    /// Grants of `component`, as for a tool. None by default; `--grant` does not apply to servers.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) grants: Option<Vec<Spanned<Grant>>>,
    /// Limits of `component`, from its start to its end; `wall` defaults to 24h, `fuel` to 1000T and `http_requests` to 100000.
    pub(crate) limits: LimitsTable,
    /// Secrets added to the requests of `component`, and their destinations, as for a tool.
    pub(crate) secrets: Vec<BindingTable>,
    /// Headers of every request to `url`: texts, and secrets as `{ secret = "NAME" }` or
    /// `{ secret = "NAME", template = "Bearer {}" }`.
    #[schemars(with = "BTreeMap<String, HeaderValue>")]
    pub(crate) headers: BTreeMap<Spanned<String>, HeaderValue>,
    /// Login by OAuth to a server at `url`.
    pub(crate) oauth: OAuthTable,
    /// Uses the plain endpoints below `url` instead of the protocol: `POST …/tools/list` and `POST …/tools/call`, with JSON
    /// but without JSON-RPC, versions, notifications and questions. For servers that have nothing else.
    pub(crate) plain: bool,
    /// Arguments of the program.
    pub(crate) args: Vec<String>,
    /// Environment of the program: texts, and secrets as `{ secret = "NAME" }`. It inherits `PATH` and `HOME` only.
    pub(crate) env: BTreeMap<String, EnvValue>,
    /// Working directory of the program, relative to the working directory. Defaults to the home directory, because
    /// package managers run what they find in the working directory.
    #[schemars(with = "Option<String>")]
    pub(crate) cwd: Option<Spanned<String>>,
    /// Uses the server. Defaults to `true`.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Makes it an error if the server does not start. By default it is a warning, and its tools are missing.
    pub(crate) required: bool,
    /// Names of its tools to offer, as the server calls them. All by default; none if empty.
    pub(crate) only: Option<Vec<String>>,
    /// Names of its tools not to offer, as the server calls them.
    pub(crate) except: Vec<String>,
    /// Effects of its tools, for the data-flow guard: `private` (read private data), `untrusted` (return what others wrote)
    /// and `egress` (send data out). Defaults to all three.
    pub(crate) data_flow: Option<Vec<FlowWord>>,
    /// Believes what the server says about its tools: which of them only read, destroy nothing, or can be repeated.
    pub(crate) trust_annotations: bool,
    /// Time in which it starts and lists its tools (default 30s).
    #[schemars(with = "Option<Span>")]
    pub(crate) start_timeout: Option<Spanned<Span>>,
    /// Time limit of a call (default 60s).
    #[schemars(with = "Option<Span>")]
    pub(crate) timeout: Option<Spanned<Span>>,
}

/// Value of an environment variable of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a secret as `{ secret = \"NAME\" }`")]
pub(crate) enum EnvValue {
    /// The value itself.
    Text(String),
    /// The value of a secret of `[secrets]`.
    Secret(SecretName),
}

/// Reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretName {
    /// Name in `[secrets]`.
    pub(crate) secret: String,
}

/// Effect of the tools of a server on the flow of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FlowWord {
    /// They read private data.
    Private,
    /// They return what others wrote.
    Untrusted,
    /// They send data out.
    Egress,
}

/// Merged settings of an MCP server.
#[derive(Debug, Clone)]
pub(crate) struct McpSettings {
    /// Name in the configuration, with which the names of its tools begin.
    pub(crate) name: String,
    /// False if the server is disabled.
    pub(crate) enabled: Sourced<bool>,
    /// Connection to it.
    pub(crate) transport: Transport,
    /// Place of its `command` or `url`.
    pub(crate) origin: Origin,
    /// True if the command fails without it.
    pub(crate) required: bool,
    /// Names of its tools to offer; `None` means all.
    pub(crate) only: Option<Vec<String>>,
    /// Names of its tools not to offer.
    pub(crate) except: Vec<String>,
    /// Data-flow labels of its tools.
    pub(crate) flow: DataFlow,
    /// True if its annotations are taken as hints.
    pub(crate) trusts_annotations: bool,
    /// Time in which it starts.
    pub(crate) start_timeout: Duration,
    /// Time limit of a call.
    pub(crate) call_timeout: Duration,
}

/// Reads the servers of the user's file.
///
/// # Errors
/// Returns an error if a name is in use or invalid, or a key is missing or out of range.
pub(super) fn of_tables(
    tables: &BTreeMap<Spanned<String>, McpTable>,
    taken: &mut TakenNames,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<BTreeMap<String, McpSettings>, Failure> {
    let mut servers = BTreeMap::new();
    for (name, table) in tables {
        let server = of_table(name, table, taken, source, environment)?;
        taken.add_server(&server.name);
        servers.insert(server.name.clone(), server);
    }
    Ok(servers)
}

fn of_table(
    name: &Spanned<String>,
    table: &McpTable,
    taken: &TakenNames,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<McpSettings, Failure> {
    let key = name.get_ref();
    let at = |span| Origin::File(source.clone(), span);
    let fail = |what: Text, span| Failure::new(Exit::Config, what).why(at(span).point_at());
    check(key, taken).map_err(|defect| match defect {
        Defect::Name => {
            let what = text!("`{}` is not a valid name of an MCP server", key);
            fail(what, name.span()).hint(defect.hint())
        }
        Defect::Taken(owner) => fail(text!("an MCP server cannot be called `{}`", key), name.span())
            .why(text!(
                "the name belongs to {}",
                Text::sentence(owner.as_ref(), [])
            ))
            .hint(Defect::Taken(owner).hint()),
    })?;
    let time = |written: &Option<Spanned<Span>>, default: Duration| match written {
        None => Ok(default),
        Some(time) if time.get_ref().0.is_zero() || time.get_ref().0 > MAX_TIMEOUT => {
            let what = text!(
                "the MCP server `{}` cannot have a time of {}",
                key,
                time.get_ref()
            );
            Err(fail(what, time.span()).hint("use more than 0s and at most 1h"))
        }
        Some(time) => Ok(time.get_ref().0),
    };
    let (transport, origin) = transport::of_table(name, table, source, environment)?;
    let flow = match (&transport, &table.data_flow) {
        (Transport::Cell { component, .. }, None) => data_flow::of_program(component),
        _ => flow(table.data_flow.as_deref()),
    };
    Ok(McpSettings {
        name: key.clone(),
        enabled: match &table.enabled {
            Some(enabled) => Sourced {
                value: *enabled.get_ref(),
                origin: at(enabled.span()),
            },
            None => Sourced::default(true),
        },
        transport,
        origin,
        required: table.required,
        only: table.only.clone(),
        except: table.except.clone(),
        flow,
        trusts_annotations: table.trust_annotations,
        start_timeout: time(&table.start_timeout, START_TIMEOUT)?,
        call_timeout: time(&table.timeout, CALL_TIMEOUT)?,
    })
}

/// Defect of the name of a server.
enum Defect {
    Name,
    /// It belongs to something else.
    Taken(String),
}

impl Defect {
    fn hint(&self) -> Text {
        match self {
            Self::Name => text!(
                "use 1 to {} characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter",
                MAX_NAME
            ),
            Self::Taken(_) => {
                "give it a name that is not in use; the names of its tools begin with it".into()
            }
        }
    }
}

fn check(name: &str, taken: &TakenNames) -> Result<(), Defect> {
    if toolcell_core::ToolName::new(name).is_err() || name.len() > MAX_NAME {
        return Err(Defect::Name);
    }
    match taken.taken_by(name) {
        Some(owner) => Err(Defect::Taken(owner.to_owned())),
        None => Ok(()),
    }
}

/// Checks the name of a server that is to be added.
///
/// # Errors
/// The reason for which it cannot have the name, and a hint.
pub(crate) fn check_name(name: &str, settings: &Settings) -> Result<(), (Text, Text)> {
    check(name, &TakenNames::of(settings)).map_err(|defect| {
        let why = match &defect {
            Defect::Name => "the name is not valid".into(),
            Defect::Taken(owner) => text!("the name belongs to {}", Text::sentence(owner.as_ref(), [])),
        };
        (why, defect.hint())
    })
}

/// Labels of a call; without words, all of them: the effects of the program are unknown.
fn flow(words: Option<&[FlowWord]>) -> DataFlow {
    let has = |word| words.is_none_or(|words| words.contains(&word));
    DataFlow {
        reads_private: has(FlowWord::Private),
        reads_service: has(FlowWord::Private),
        untrusted_content: has(FlowWord::Untrusted),
        can_send_out: has(FlowWord::Egress),
        can_send_elsewhere: has(FlowWord::Egress),
    }
}

impl McpSettings {
    /// The command line or the address, for display.
    pub(crate) fn address(&self) -> String {
        match &self.transport {
            Transport::Process(process) => process.command_line(),
            Transport::Http { url, .. } => url.clone(),
            Transport::Cell { component, arguments } => transport::of_cell(component, arguments),
        }
    }

    /// Its component, if it runs in a cell.
    pub(crate) fn component_mut(&mut self) -> Option<&mut ToolSettings> {
        match &mut self.transport {
            Transport::Cell { component, .. } => Some(component),
            Transport::Process(_) | Transport::Http { .. } => None,
        }
    }

    /// The words of its data-flow labels.
    pub(crate) fn flow_words(&self) -> Vec<&'static str> {
        let words = [
            (self.flow.reads_private, "private"),
            (self.flow.untrusted_content, "untrusted"),
            (self.flow.can_send_out, "egress"),
        ];
        words
            .into_iter()
            .filter_map(|(has, word)| has.then_some(word))
            .collect()
    }

    /// Names of the secrets that it gets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.transport.secrets().into_iter()
    }

    /// True if the user set the header `authorization` for it, so that there is no login.
    pub(crate) fn has_authorization(&self) -> bool {
        match &self.transport {
            Transport::Http { headers, .. } => headers
                .keys()
                .any(|name| name.eq_ignore_ascii_case("authorization")),
            Transport::Process(_) | Transport::Cell { .. } => false,
        }
    }

    /// File of its tokens, if the user named one.
    pub(crate) fn token_file(&self) -> Option<&PathBuf> {
        match &self.transport {
            Transport::Http { oauth, .. } => oauth.file.as_ref(),
            Transport::Process(_) | Transport::Cell { .. } => None,
        }
    }

    /// Returns the files that the command starts or reads, existing or not: a tool that changes one would run outside of
    /// its cell. Directories are what the server works on.
    pub(crate) fn files(&self, environment: &Environment) -> Vec<PathBuf> {
        match &self.transport {
            Transport::Process(process) => process.files(environment),
            Transport::Http { .. } => Vec::new(),
            Transport::Cell { component, .. } => match &component.component {
                ComponentSource::File(path) => vec![path.value.clone()],
                ComponentSource::Shipped(_) => Vec::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    fn load_in(dir: &std::path::Path, own: &str, project: &str) -> Result<Settings, Failure> {
        let path = dir.join("config.toml");
        std::fs::write(&path, own).unwrap();
        std::fs::write(dir.join("toolcell.toml"), project).unwrap();
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        config::load(&Environment::for_tests(dir, &[("PATH", "bin")]), overrides)
    }

    fn load(own: &str) -> Result<Settings, Failure> {
        load_in(tempfile::tempdir().unwrap().path(), own, "")
    }

    fn process(server: &McpSettings) -> &Process {
        match &server.transport {
            Transport::Process(process) => process,
            Transport::Http { .. } | Transport::Cell { .. } => panic!("{server:?}"),
        }
    }

    #[test]
    fn server_has_the_settings_of_its_table() {
        let settings = load(
            "[mcp.plain]\ncommand = \"x\"\n[mcp.all]\ncommand = \"./s.sh\"\nargs = [\"a\"]\n\
             env = { A = \"1\", B = { secret = \"k\" } }\ncwd = \"w\"\nenabled = false\nrequired = true\n\
             only = [\"t\"]\nexcept = [\"u\"]\ndata_flow = [\"untrusted\"]\ntrust_annotations = true\n\
             start_timeout = \"1s\"\ntimeout = \"1h\"\n",
        )
        .unwrap();
        let plain = &settings.mcp["plain"];
        assert!(
            plain.enabled.value
                && !plain.required
                && plain.flow.is_complete()
                && process(plain).program.is_none()
        );
        assert_eq!(
            (plain.start_timeout, plain.call_timeout),
            (START_TIMEOUT, CALL_TIMEOUT)
        );
        let all = &settings.mcp["all"];
        assert!(!all.enabled.value && all.required && all.trusts_annotations);
        assert!(
            process(all).program.as_ref().unwrap().ends_with("s.sh") && process(all).directory.ends_with("w")
        );
        assert_eq!(all.secrets().collect::<Vec<_>>(), ["k"]);
        assert_eq!((all.address(), all.flow.can_send_out), ("./s.sh a".into(), false));
        assert_eq!(
            (all.start_timeout, all.call_timeout),
            (Duration::from_secs(1), MAX_TIMEOUT)
        );
    }

    #[test]
    fn server_over_http_has_an_address_and_headers() {
        let settings = load(
            "[mcp.far]\nurl = \"https://mcp.example/mcp\"\n\
             headers = { X-Team = \"a\", Authorization = { secret = \"k\", template = \"Bearer {}\" } }\n",
        )
        .unwrap();
        let far = &settings.mcp["far"];
        assert_eq!(far.address(), "https://mcp.example/mcp");
        assert_eq!(far.secrets().collect::<Vec<_>>(), ["k"]);
        let Transport::Http { headers, .. } = &far.transport else {
            panic!("{far:?}")
        };
        assert_eq!(
            headers["Authorization"].with(|_| Some("v")),
            Some("Bearer v".into())
        );
        assert_eq!(headers["Authorization"].with(|_| None), None);
        assert_eq!(headers["X-Team"].with(|_| None), Some("a".into()));
        assert_eq!(far.transport.kind(), "http");
        let plain = load("[mcp.old]\nurl = \"https://old.example\"\nplain = true\n").unwrap();
        assert_eq!(plain.mcp["old"].transport.kind(), "plain");
    }

    #[test]
    fn unusable_server_is_refused() {
        let named = |name: &str| format!("[mcp.\"{name}\"]\ncommand = \"x\"\n");
        let remote = |url: &str, more: &str| format!("[mcp.a]\nurl = \"{url}\"\n{more}");
        assert!(load(&named(&"x".repeat(MAX_NAME))).is_ok());
        for (table, reason) in [
            (named(&"x".repeat(MAX_NAME + 1)), "not a valid name"),
            (named("a b"), "not a valid name"),
            (named("files"), "belongs to the component `files`"),
            (named("Files_2"), "belongs to the component `files`"),
            (named("a") + &named("a_b"), "belongs to the MCP server `a`"),
            ("[mcp.a]\n".into(), "has neither a command nor a URL"),
            (named("a") + "timeout = \"0s\"", "a time of 0 ms"),
            (named("a") + "start_timeout = \"3601s\"", "a time of"),
            (named("a") + "url = \"https://x\"", "has a command and a URL"),
            (named("a") + "headers = { A = \"1\" }", "cannot have `headers`"),
            (named("a") + "uri = \"https://x\"", "no key `uri`"),
            (
                remote("http://mcp.example", ""),
                "is for servers on this machine only",
            ),
            (remote("mcp.example", ""), "it is not a URL"),
            (remote("https://x", "args = []\n"), ""),
            (remote("https://x", "args = [\"a\"]\n"), "cannot have `args`"),
            (remote("https://x", "env = { A = \"1\" }\n"), "cannot have `env`"),
            (remote("https://x", "cwd = \".\"\n"), "cannot have `cwd`"),
            (
                remote("https://x", "headers = { Host = \"y\" }\n"),
                "set by the protocol",
            ),
            (
                remote(
                    "https://x",
                    "headers = { A = { secret = \"k\", template = \"Bearer\" } }\n",
                ),
                "has no place for the secret",
            ),
            (
                remote("https://x", "headers = { Team = \"a\", team = \"b\" }\n"),
                "the same as `Team`",
            ),
        ] {
            let loaded = load(&table);
            if reason.is_empty() {
                assert!(loaded.is_ok(), "{table}");
                continue;
            }
            let failure = loaded.unwrap_err().to_string();
            assert!(failure.contains(reason), "{table}: {failure}");
        }
    }

    #[test]
    fn project_neither_defines_nor_changes_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[mcp.mine]\ncommand = \"x\"\n";
        for project in [
            "[mcp.theirs]\ncommand = \"./run.sh\"\n",
            "[mcp.mine]\nenabled = false\n",
        ] {
            let failure = load_in(dir.path(), own, project).unwrap_err().to_string();
            assert!(
                failure.contains("cannot add or change an MCP server"),
                "{failure}"
            );
        }
        assert!(load_in(dir.path(), own, "[tools.mine]\ncomponent = \"x.wasm\"\n").is_err());
    }

    #[test]
    fn files_of_a_server_are_denied_and_its_directories_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for name in ["bin", "data"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        for name in ["bin/srv", "server.js", "s.sh"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        let own = format!(
            "[mcp.a]\ncommand = \"srv\"\nargs = [\"./server.js\", \"{}\"]\n[mcp.b]\ncommand = \"./s.sh\"\n",
            dir.join("data").display()
        );
        let settings = load_in(&dir, &own, "").unwrap();
        let environment = Environment::for_tests(&dir, &[("PATH", "bin")]);
        let denied = config::own_directories::own_places(&settings, &environment);
        let is_denied = |name: &str| {
            denied
                .iter()
                .any(|denial| denial.host.components().eq(dir.join(name).components()))
        };
        assert!(is_denied("bin/srv") && is_denied("server.js") && is_denied("s.sh"));
        assert!(!is_denied("data"));
    }
}
