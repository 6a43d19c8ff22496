//! The configuration file, `toolcell.toml` or `config.toml`, as it is written. Each value keeps its place in the text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_core::Grant;
use toolcell_core::grant::InvalidGrant;
use toolcell_core::secret::SecretResponses;

use super::agents::AgentTable;
use super::budget::{BudgetTable, PricesTable};
use super::provider::ProviderTable;
use super::units::{Bytes, Count, Span};

/// Configuration of Toolcell.
///
/// A person's own file may say everything. A project's file may narrow what the person's file grants and limits, and
/// never widen it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Toolcell configuration", rename = "Configuration")]
pub(crate) struct File {
    /// The model that `toolcell run` talks to. Not in a project's file.
    pub(crate) provider: ProviderTable,
    /// How far one turn may go.
    #[serde(rename = "loop")]
    pub(crate) turn: LoopTable,
    /// What a whole session may use, over all its turns.
    pub(crate) budget: BudgetTable,
    /// What the tokens of models cost, by name of the model. Not in a project's file.
    #[schemars(with = "BTreeMap<String, PricesTable>")]
    pub(crate) prices: BTreeMap<Spanned<String>, PricesTable>,
    /// Agents that the main one can call as tools, by name. Not in a project's file.
    #[schemars(with = "BTreeMap<String, AgentTable>")]
    pub(crate) agents: BTreeMap<Spanned<String>, AgentTable>,
    /// Files in which everything is written down that happens. Not in a project's file.
    pub(crate) log: LogTable,
    /// Which calls a person decides on.
    pub(crate) approval: ApprovalTable,
    /// Values that the host adds to requests of tools, which never see them. Not in a project's file.
    pub(crate) secrets: BTreeMap<String, SecretTable>,
    /// What no tool and no hook gets, whatever is granted to it: paths such as `private`, and lines such as
    /// `deny-http=*.example.com` and `deny-keyvalue=NAME`. Relative paths start at the working directory in a person's file,
    /// and at the file itself in a project's, which can only add to the list.
    #[schemars(with = "Vec<String>")]
    pub(crate) deny: Vec<Spanned<DenyLine>>,
    /// Tools by name: those that ship with Toolcell, and others with a `component`.
    #[schemars(with = "BTreeMap<String, ToolTable>")]
    pub(crate) tools: BTreeMap<Spanned<String>, ToolTable>,
    /// Hooks by name: components that are asked at fixed points of every turn. Not in a project's file.
    #[schemars(with = "BTreeMap<String, HookTable>")]
    pub(crate) hooks: BTreeMap<Spanned<String>, HookTable>,
}

/// Something that is denied to everything: the line of a denial, or a path alone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct DenyLine(pub(crate) Grant);

impl TryFrom<String> for DenyLine {
    type Error = InvalidGrant;

    fn try_from(line: String) -> Result<Self, InvalidGrant> {
        let is_line = ["deny=", "deny-http=", "deny-keyvalue="]
            .iter()
            .any(|kind| line.trim_start().starts_with(kind));
        let grant = if is_line {
            line.parse()
        } else {
            format!("deny={line}").parse()
        };
        grant.map(Self)
    }
}

/// How far one turn may go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LoopTable {
    /// Preset of the agent loop: `default`, `sequential`, `task`, `resilient` or `stepwise`. Not in a project's file.
    #[schemars(with = "Option<String>")]
    pub(crate) preset: Option<Spanned<String>>,
    /// Requests to the model in one turn; the last one is made without tools.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_steps: Option<Spanned<u32>>,
    /// Wall time of one turn, such as `5m`.
    #[schemars(with = "Option<Span>")]
    pub(crate) deadline: Option<Spanned<Span>>,
}

/// Files in which everything is written down that happens: for each session one of all events, as JSON lines, and one of
/// the model's reasoning. They hold whole conversations, and nothing is written unless a directory is named.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogTable {
    /// The directory, made where it does not exist. Relative paths start at the directory of this file.
    #[schemars(with = "Option<String>")]
    pub(crate) dir: Option<Spanned<String>>,
    /// How long a log is kept that nobody writes to (default 7d). `0s` keeps all. Other files in the directory stay.
    #[schemars(with = "Option<Span>")]
    pub(crate) retention: Option<Spanned<Span>>,
}

/// Which calls a person decides on. Where no rule matches, a call is allowed: what it can reach is the matter of the
/// grants.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApprovalTable {
    /// What happens to the call with which a session would have read private data, read what strangers can write, and be
    /// able to send outside: `ask` (the default), `refuse` or `off`.
    #[schemars(with = "Option<FlowRule>")]
    pub(crate) flow: Option<Spanned<FlowRule>>,
    /// Rules; where several match, the last one counts. Those of a project come before those of a person.
    pub(crate) rules: Vec<RuleTable>,
}

/// What the flow guard does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FlowRule {
    /// Nothing.
    Off,
    /// A person decides.
    Ask,
    /// The call does not run.
    Refuse,
}

/// One rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// Name of the tool, such as `files_write`; `*` stands for any characters.
    pub(crate) tool: String,
    /// Patterns for arguments by JSON Pointer, such as `"/path" = "/etc/*"`; all must match. A path matches a rule that asks
    /// or denies in every spelling and wherever it really leads, seen from the working directory and from the root; a rule
    /// that allows only by where it leads. What no tool shall open at all stands in `deny`.
    #[serde(default)]
    pub(crate) arguments: BTreeMap<String, String>,
    /// What happens to a call that matches.
    pub(crate) verdict: VerdictWord,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerdictWord {
    /// It runs.
    Allow,
    /// A person decides.
    Ask,
    /// It does not run.
    Deny,
}

/// One tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolTable {
    /// The component, a `.wasm` file, relative to the directory of this file. Not for tools that ship with Toolcell.
    #[schemars(with = "Option<String>")]
    pub(crate) component: Option<Spanned<String>>,
    /// Whether it is offered at all. `true` unless said otherwise, except for `memory`.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// The names of those of its tools that are offered, such as `["memory_recall"]`: all of them unless this says
    /// otherwise, and none where it is empty. A project's file may only leave out more.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) only: Option<Spanned<Vec<String>>>,
    /// What it may reach, one line each: `read=.`, `write=out`, `env=LANG`, `http=example.com`, `keyvalue=memory`. Nothing
    /// by default. `deny=private`, `deny-http=…` and `deny-keyvalue=…` take away, and beat every grant.
    /// Relative paths start at the working directory in a person's file, and at the file itself in a project's.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) grants: Option<Vec<Spanned<Grant>>>,
    /// How much one call may use.
    pub(crate) limits: LimitsTable,
    /// A directory for what it changes in its directories, to look at first (`toolcell scratch`), as with `--scratch`.
    /// Not in a project's file.
    #[schemars(with = "Option<String>")]
    pub(crate) scratch: Option<Spanned<String>>,
    /// Which secrets go with its requests, and where to. Not in a project's file.
    pub(crate) secrets: Vec<BindingTable>,
}

/// One hook: a component that is asked before a prompt is sent, before and after each call, after a turn and on errors,
/// as far as it wants, and may change or refuse what is about to happen.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HookTable {
    /// The component, a `.wasm` file, relative to the directory of this file.
    #[schemars(with = "String")]
    pub(crate) component: Option<Spanned<String>>,
    /// Whether it is asked at all. `true` unless said otherwise.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Whether what it looks at must not happen when it fails. As the component says of itself unless said otherwise.
    #[schemars(with = "Option<bool>")]
    pub(crate) guard: Option<Spanned<bool>>,
    /// Among hooks without other wishes the higher number comes first. As the component says unless said otherwise.
    #[schemars(with = "Option<i32>")]
    pub(crate) priority: Option<Spanned<i32>>,
    /// Names of hooks that it runs before. As the component says unless said otherwise.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) before: Option<Spanned<Vec<String>>>,
    /// Names of hooks that it runs after. As the component says unless said otherwise.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) after: Option<Spanned<Vec<String>>>,
    /// What it may reach, as for a tool. Nothing by default; `--grant` gives it nothing.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) grants: Option<Vec<Spanned<Grant>>>,
    /// How much it may use at one moment, as for a call of a tool; `wall` is 10s by default.
    pub(crate) limits: LimitsTable,
    /// Which secrets go with its requests, and where to.
    pub(crate) secrets: Vec<BindingTable>,
}

/// Where the value of a secret is. It is never written in a configuration file itself.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SecretTable {
    /// The environment variable that holds it.
    pub(crate) env: Option<String>,
    /// The file that holds it; white space around it is cut off.
    pub(crate) file: Option<String>,
    /// The account in the keyring of this system that holds it (`toolcell secret set ACCOUNT`).
    pub(crate) keyring: Option<String>,
}

/// A secret that goes with requests of a tool: in a header, or in the place of a text that the tool writes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BindingTable {
    /// Name of the secret, from `[secrets]`.
    pub(crate) secret: String,
    /// Where it may go, such as `https://api.github.com`.
    pub(crate) origins: Vec<String>,
    /// The header that carries it, such as `authorization`.
    pub(crate) header: Option<String>,
    /// Value of the header, with `{}` for the secret, such as `Bearer {}`.
    pub(crate) template: Option<String>,
    /// In the place of a header: a text in requests that is replaced by the secret.
    pub(crate) placeholder: Option<String>,
    /// Methods of the requests that it goes with, in capitals. All unless said otherwise; other requests go without it.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Prefixes of the paths that it goes with, by whole segments, such as `/repos/me`. All unless said otherwise.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// What the tool gets of answers to requests with the secret: `any`, `withheld` (the status and two headers), or a list of media types
    /// such as `application/json`. `any` unless said otherwise.
    #[serde(default)]
    #[schemars(schema_with = "responses_schema")]
    pub(crate) responses: SecretResponses,
}

fn responses_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [
            { "type": "string", "enum": ["any", "withheld"] },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
        ]
    })
}

/// How much one call of a tool may use. What is not set keeps its default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsTable {
    /// Memory: linear memories, tables, and what the host holds for the call (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) memory: Option<Spanned<Bytes>>,
    /// Wall time, with everything that the call waits for (default 30s).
    #[schemars(with = "Option<Span>")]
    pub(crate) wall: Option<Spanned<Span>>,
    /// Fuel, about one unit for each instruction (default 20 G).
    #[schemars(with = "Option<Count>")]
    pub(crate) fuel: Option<Spanned<Count>>,
    /// Size of the answer (default 4 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) output: Option<Spanned<Bytes>>,
    /// Standard output, standard error and log that are kept (default 64 KiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) log: Option<Spanned<Bytes>>,
    /// Elements of all tables together (default 200 k).
    #[schemars(with = "Option<Count>")]
    pub(crate) table_elements: Option<Spanned<Count>>,
    /// Files, streams and requests held at one time (default 1000).
    #[schemars(with = "Option<Count>")]
    pub(crate) handles: Option<Spanned<Count>>,
    /// HTTP requests (default 64).
    #[schemars(with = "Option<Count>")]
    pub(crate) http_requests: Option<Spanned<Count>>,
    /// Size of one HTTP response (default 16 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) http_body: Option<Spanned<Bytes>>,
    /// Bytes written to files (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) file_bytes: Option<Spanned<Bytes>>,
    /// Files and directories made (default 10 k).
    #[schemars(with = "Option<Count>")]
    pub(crate) file_count: Option<Spanned<Count>>,
    /// Bytes read from buckets and written to them (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) keyvalue_bytes: Option<Spanned<Bytes>>,
}
