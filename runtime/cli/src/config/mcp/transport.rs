//! Connection to an MCP server: a process that is started, or an address.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_mcp::client::{check_header_name, check_url};

use crate::config::layers::tool_table;
use crate::config::limits::{self, NamedLimit};
use crate::config::mcp::{EnvValue, McpTable, OAuthSettings};
use crate::config::provider::token_command::TokenCommand;
use crate::config::settings::{ComponentSource, ToolSettings};
use crate::config::source::{Origin, Source, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, Text, text};

/// Place of the secret in a template.
const SECRET: &str = "{}";

/// Connection to a server.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    /// A process, over its standard input and output.
    Process(Process),
    /// An address.
    Http {
        /// The address as written.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, HeaderValue>,
        /// Login to it.
        oauth: Box<OAuthSettings>,
        /// True if its plain endpoints are used instead of the protocol.
        plain: bool,
    },
    /// A component in a cell, over its standard input and output.
    Cell {
        /// The component, with its grants and limits.
        component: Box<ToolSettings>,
        /// Arguments of the program.
        arguments: Vec<String>,
    },
}

/// Default limits of a server in a cell, from its start to its end: a day, a thousand times the fuel, files and values of a
/// call, and as many requests as a busy server makes in it. Beyond `wall`, `fuel` and `memory` it ends and is started again;
/// beyond the others its operations fail until then.
const OF_CELL: [NamedLimit; 6] = [
    NamedLimit {
        name: "wall",
        value: 24 * 60 * 60 * 1_000,
    },
    NamedLimit {
        name: "fuel",
        value: 1_000_000_000_000_000,
    },
    NamedLimit {
        name: "http_requests",
        value: 100_000,
    },
    NamedLimit {
        name: "file_bytes",
        value: 256 << 30,
    },
    NamedLimit {
        name: "file_count",
        value: 10_000_000,
    },
    NamedLimit {
        name: "keyvalue_bytes",
        value: 256 << 30,
    },
];

/// The process of a server.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    /// Its program as written.
    pub(crate) command: String,
    /// Path of its program; `None` if there is no such program.
    pub(crate) program: Option<PathBuf>,
    /// Arguments of the program.
    pub(crate) arguments: Vec<String>,
    /// Environment of the program.
    pub(crate) env: BTreeMap<String, EnvValue>,
    /// Working directory of the program.
    pub(crate) directory: PathBuf,
}

/// Value of a header of a server over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, or a secret as `{ secret = \"NAME\" }` or `{ secret = \"NAME\", template = \"Bearer {}\" }`"
)]
pub(crate) enum HeaderValue {
    /// The value itself.
    Text(String),
    /// The value of a secret of `[secrets]`.
    Secret(HeaderSecret),
}

/// A secret in a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderSecret {
    /// Name in `[secrets]`.
    secret: String,
    /// Value of the header, with `{}` for the secret, such as `Bearer {}`. Defaults to the secret alone.
    #[serde(default)]
    template: Option<String>,
}

impl HeaderValue {
    /// The value, with that of its secret; `None` without one.
    pub(crate) fn with<'a>(&self, secret: impl FnOnce(&str) -> Option<&'a str>) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Secret(HeaderSecret {
                secret: name,
                template,
            }) => {
                let value = secret(name)?;
                let template = template.as_deref().unwrap_or(SECRET);
                Some(template.replacen(SECRET, value, 1))
            }
        }
    }

    /// Name of the secret in it.
    pub(crate) fn secret(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Secret(value) => Some(&value.secret),
        }
    }
}

/// Reads the connection of a server.
///
/// # Errors
/// Returns an error if there is none, there are two, or a key belongs to the other kind.
pub(super) fn of_table(
    name: &Spanned<String>,
    table: &McpTable,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<(Transport, Origin), Failure> {
    let key = name.get_ref();
    let at = |span| Origin::File(source.clone(), span);
    let fail = |what: Text, span| Failure::new(Exit::Config, what).why(at(span).point_at());
    if let Some(component) = &table.component {
        return cell(name, component, table, source, environment);
    }
    let (command, url) = match (&table.command, &table.url) {
        (Some(_), Some(url)) => {
            let what = text!("the MCP server `{}` has a command and a URL", key);
            return Err(fail(what, url.span()).hint("remove one of them"));
        }
        (None, None) => {
            let what = text!("the MCP server `{}` has neither a command nor a URL", key);
            return Err(fail(what, name.span()).hint(
                "set its program: command = \"PROGRAM\", args = [\"…\"]; or its address: url = \"https://…\"; or its component: component = \"FILE.wasm\"",
            ));
        }
        (command, url) => (command, url),
    };
    let has_limits = !limits::of_table(&table.limits, source).is_empty();
    let (unfit, kind) = match url {
        Some(_) => (
            [
                ("args", !table.args.is_empty()),
                ("env", !table.env.is_empty()),
                ("cwd", table.cwd.is_some()),
                ("grants", table.grants.is_some()),
                ("secrets", !table.secrets.is_empty()),
                ("limits", has_limits),
            ],
            "is reached over HTTP",
        ),
        None => (
            [
                ("headers", !table.headers.is_empty()),
                ("plain", table.plain),
                ("grants", table.grants.is_some()),
                ("secrets", !table.secrets.is_empty()),
                ("limits", has_limits),
                ("oauth", table.oauth.is_set()),
            ],
            "is a process",
        ),
    };
    if let Some((unfit, _)) = unfit.into_iter().find(|(_, is_set)| *is_set) {
        return Err(fail(
            text!(
                "the MCP server `{}` cannot have `{}`: it {}",
                key,
                unfit,
                Own(kind)
            ),
            name.span(),
        )
        .hint(text!("remove `{}`", unfit)));
    }
    if let Some(url) = url {
        check_url(url.get_ref()).map_err(|error| {
            fail(
                text!("the URL of the MCP server `{}` cannot be used", key),
                url.span(),
            )
            .because(error)
        })?;
        let mut headers = BTreeMap::<String, HeaderValue>::new();
        for (header, value) in &table.headers {
            let refused = || {
                let what = text!("a header of the MCP server `{}` cannot be used", key);
                fail(what, header.span())
            };
            check_header_name(header.get_ref()).map_err(|error| refused().because(error))?;
            if let HeaderValue::Secret(HeaderSecret {
                template: Some(template),
                ..
            }) = value
                && !template.contains(SECRET)
            {
                return Err(refused()
                    .why(text!("its template `{}` has no place for the secret", template))
                    .hint("write `{}` there, such as in template = \"Bearer {}\""));
            }
            if table.oauth.is_set() && header.get_ref().eq_ignore_ascii_case("authorization") {
                return Err(refused()
                    .why("a login sets it")
                    .hint("remove the header, or the table `oauth`"));
            }
            let mut known = headers.keys();
            if let Some(known) = known.find(|known| known.eq_ignore_ascii_case(header.get_ref())) {
                return Err(refused()
                    .why(text!("it is the same as `{}`", known))
                    .hint("remove one of them"));
            }
            headers.insert(header.get_ref().clone(), value.clone());
        }
        let transport = Transport::Http {
            url: url.get_ref().clone(),
            headers,
            oauth: Box::new(table.oauth.settings(name, source, environment)?),
            plain: table.plain,
        };
        return Ok((transport, at(url.span())));
    }
    let (command, span) = match command {
        Some(command) => (command.get_ref().clone(), command.span()),
        None => (String::new(), name.span()),
    };
    let program = match command.as_str() {
        path if path.contains('/') => {
            let base = source.path.parent().unwrap_or(&environment.cwd);
            Some(environment.path(path, base))
        }
        name => environment.program_file(name.as_ref()),
    };
    let home = environment.home.as_ref().unwrap_or(&environment.cwd);
    let process = Process {
        command,
        program,
        arguments: table.args.clone(),
        env: table.env.clone(),
        directory: match &table.cwd {
            Some(dir) => environment.path(dir.get_ref(), &environment.cwd),
            None => home.clone(),
        },
    };
    Ok((Transport::Process(process), at(span)))
}

/// Reads a server that is a component.
fn cell(
    name: &Spanned<String>,
    component: &Spanned<String>,
    table: &McpTable,
    source: &Arc<Source>,
    environment: &Environment,
) -> Result<(Transport, Origin), Failure> {
    let key = name.get_ref();
    let at = |span| Origin::File(source.clone(), span);
    let unfit = [
        ("command", table.command.is_some()),
        ("url", table.url.is_some()),
        ("headers", !table.headers.is_empty()),
        ("plain", table.plain),
        ("oauth", table.oauth.is_set()),
        ("env", !table.env.is_empty()),
        ("cwd", table.cwd.is_some()),
    ];
    if let Some((unfit, _)) = unfit.into_iter().find(|(_, is_set)| *is_set) {
        let what = format!("the MCP server `{key}` cannot have `{unfit}`: it is a component in a cell");
        return Err(Failure::new(Exit::Config, what)
            .why(at(component.span()).point_at())
            .hint(match unfit {
                "env" => text!("write a variable as a grant: grants = [\"env=NAME=VALUE\"]"),
                unfit => text!("remove `{}`", unfit),
            }));
    }
    let base = source.path.parent().unwrap_or(&environment.cwd);
    let path = Sourced {
        value: environment.path(component.get_ref(), base),
        origin: at(component.span()),
    };
    let mut settings = ToolSettings::new(key.clone(), ComponentSource::File(path));
    for limit in OF_CELL {
        limit.set(&mut settings.limits.limits);
    }
    settings.grants = tool_table::grant_lines(table.grants.as_deref(), source, &environment.cwd);
    settings.bindings = tool_table::bindings(name, &table.secrets, source)?;
    for (limit, origin) in limits::of_table(&table.limits, source) {
        settings.limits.set(limit, origin);
    }
    let transport = Transport::Cell {
        component: Box::new(settings),
        arguments: table.args.clone(),
    };
    Ok((transport, at(component.span())))
}

/// The component and its arguments, for display.
pub(super) fn of_cell(component: &ToolSettings, arguments: &[String]) -> String {
    let file = match &component.component {
        ComponentSource::File(path) => path.value.to_string_lossy().into_owned(),
        ComponentSource::Shipped(_) => component.name.clone(),
    };
    let words = std::iter::once(&file).chain(arguments);
    words
        .map(|word| crate::ui::escape::shell(word))
        .collect::<Vec<_>>()
        .join(" ")
}

impl Transport {
    /// Word for the kind of connection.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "stdio",
            Self::Http { plain: false, .. } => "http",
            Self::Http { plain: true, .. } => "plain",
            Self::Cell { .. } => "cell",
        }
    }

    /// Names of the secrets that the server gets.
    pub(super) fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Process(process) => {
                let secrets = process.env.values().filter_map(|value| match value {
                    EnvValue::Secret(name) => Some(name.secret.as_str()),
                    EnvValue::Text(_) => None,
                });
                secrets.collect()
            }
            Self::Http { headers, oauth, .. } => {
                let of_headers = headers.values().filter_map(HeaderValue::secret);
                of_headers.chain(oauth.client_secret.as_deref()).collect()
            }
            Self::Cell { component, .. } => (component.bindings.iter())
                .map(|binding| binding.name.as_str())
                .collect(),
        }
    }
}

impl Process {
    /// The command line, for display.
    pub(crate) fn command_line(&self) -> String {
        let words = std::iter::once(&self.command).chain(&self.arguments);
        words
            .map(|word| crate::ui::escape::shell(word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Files that the command starts or reads.
    pub(super) fn files(&self, environment: &Environment) -> Vec<PathBuf> {
        let words = std::iter::once(&self.command).chain(&self.arguments);
        let in_directory = (self.arguments.iter()).map(|word| environment.path(word, &self.directory));
        let mut files = TokenCommand(words.cloned().collect()).files(environment);
        files.extend(in_directory.filter(|path| path.is_file()));
        files.extend(self.program.clone());
        files.retain(|path| !path.is_dir());
        files
    }
}
