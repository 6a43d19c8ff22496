//! File format of `toolcell.toml` and `config.toml`. Each value keeps its location in the text.

pub(crate) mod parse;
pub(crate) mod schema;
mod wrong_value;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_core::Grant;
use toolcell_core::grant::InvalidGrant;
use toolcell_core::secret::SecretResponses;

use crate::config::budget::{BudgetTable, PricesTable};
use crate::config::mcp::McpTable;
use crate::config::provider::ProviderTable;
use crate::config::turn::{ContextTable, LoopTable};
use crate::config::units::{Bytes, Count, Span};

/// Configuration of Toolcell.
///
/// A user's own file may contain every key. A project's file can narrow the grants and limits of the user's file and
/// never widen them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Toolcell configuration", rename = "Configuration")]
pub(crate) struct File {
    /// Model provider of the agent. Not in a project's file.
    pub(crate) provider: ProviderTable,
    /// Profiles by name: other settings of the provider, for `--profile NAME` and `provider.fallback`. Keys that are not set
    /// are those of `[provider]`, unless `name` or `base_url` is set. Not in a project's file.
    #[schemars(with = "BTreeMap<String, ProviderTable>")]
    pub(crate) profiles: BTreeMap<Spanned<String>, ProviderTable>,
    /// Instructions of the main agent, and what else its model is told. Not in a project's file.
    pub(crate) agent: MainAgentTable,
    /// How a turn runs. A project's file can lower the numbers that bound its work, and set nothing else.
    #[serde(rename = "loop")]
    pub(crate) turn: LoopTable,
    /// How much of the conversation the model gets. Not in a project's file.
    pub(crate) context: ContextTable,
    /// Budget of a session, over all its turns.
    pub(crate) budget: BudgetTable,
    /// Prices of tokens, by name of the model. Not in a project's file.
    #[schemars(with = "BTreeMap<String, PricesTable>")]
    pub(crate) prices: BTreeMap<Spanned<String>, PricesTable>,
    /// Subagents that the main agent can call as tools, by name. Not in a project's file.
    #[schemars(with = "BTreeMap<String, AgentTable>")]
    pub(crate) agents: BTreeMap<Spanned<String>, AgentTable>,
    /// Log files of everything that happens. Not in a project's file.
    pub(crate) log: LogTable,
    /// Calls that need the user's approval.
    pub(crate) approval: ApprovalTable,
    /// Secrets that the host adds to requests of tools. Tools never see them. Not in a project's file.
    #[schemars(with = "BTreeMap<String, SecretTable>")]
    pub(crate) secrets: BTreeMap<Spanned<String>, SecretTable>,
    /// Denials for every tool and hook, whatever their grants: paths such as `private`, and lines such as
    /// `deny-http=*.example.com` and `deny-keyvalue=NAME`. Relative paths start at the working directory in a user's
    /// file, and at the directory of the file in a project's, which can only add denials.
    #[schemars(with = "Vec<String>")]
    pub(crate) deny: Vec<Spanned<DenyLine>>,
    /// Tools by name: built-in ones, and others with a `component`.
    #[schemars(with = "BTreeMap<String, ToolTable>")]
    pub(crate) tools: BTreeMap<Spanned<String>, ToolTable>,
    /// Hooks by name: components called at fixed points of every turn. Not in a project's file.
    #[schemars(with = "BTreeMap<String, HookTable>")]
    pub(crate) hooks: BTreeMap<Spanned<String>, HookTable>,
    /// Limits of buckets, by the name of the bucket. Others have the defaults. Not in a project's file.
    #[schemars(with = "BTreeMap<String, BucketTable>")]
    pub(crate) buckets: BTreeMap<Spanned<String>, BucketTable>,
    /// MCP servers by name, whose tools the agents can call. They run outside of every cell, except for components. Not in a project's file.
    #[schemars(with = "BTreeMap<String, McpTable>")]
    pub(crate) mcp: BTreeMap<Spanned<String>, McpTable>,
}

/// A denial for all tools and hooks: a denial line, or just a path.
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

/// Instructions of the main agent, and what else its model is told.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MainAgentTable {
    /// Instructions for the model, after those of Toolcell; they take precedence.
    #[schemars(with = "Option<String>")]
    pub(crate) instructions: Option<Spanned<String>>,
    /// Tells the model the date, the working directory and what its tools can reach. Defaults to `true`.
    #[schemars(with = "Option<bool>")]
    pub(crate) environment: Option<Spanned<bool>>,
    /// Use of the `AGENTS.md` of a project, which the model would read as instructions: `ask` (the default),
    /// `accepted` or `off`.
    #[schemars(with = "Option<ProjectInstructions>")]
    pub(crate) project_instructions: Option<Spanned<ProjectInstructions>>,
}

/// Use of the `AGENTS.md` of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProjectInstructions {
    /// Ask the user about each text once; without a terminal, use none.
    Ask,
    /// Ask the user about each text once; without a terminal, use one that was accepted before.
    Accepted,
    /// Use none.
    Off,
}

impl std::fmt::Display for ProjectInstructions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask => "ask",
            Self::Accepted => "accepted",
            Self::Off => "off",
        })
    }
}

/// Log files of everything that happens: for each session one of all events, as JSON lines, and one of the model's
/// reasoning. They contain whole conversations. Nothing is written unless a directory is set.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogTable {
    /// Directory of the log files, created if missing. Relative paths start at the directory of this file.
    #[schemars(with = "Option<String>")]
    pub(crate) dir: Option<Spanned<String>>,
    /// Time after the last write until a log file is deleted (default 7d). `0s` keeps all. Other files in the directory
    /// are not touched.
    #[schemars(with = "Option<Span>")]
    pub(crate) retention: Option<Spanned<Span>>,
}

/// Calls that need the user's approval. A call that matches no rule is allowed, within its grants.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApprovalTable {
    /// What to do with a call that would combine private data, untrusted content and network egress in one session:
    /// `ask` (the default), `refuse` or `off`.
    #[schemars(with = "Option<FlowRule>")]
    pub(crate) flow: Option<Spanned<FlowRule>>,
    /// Approval rules. The last matching rule applies. Rules of a project come before those of the user.
    pub(crate) rules: Vec<RuleTable>,
}

/// Action of the data-flow guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FlowRule {
    /// Allow the call.
    Off,
    /// Ask the user.
    Ask,
    /// Refuse the call.
    Refuse,
}

/// An approval rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// Name of the tool, such as `files_write`; `*` matches any characters.
    #[schemars(with = "String")]
    pub(crate) tool: Spanned<String>,
    /// Argument patterns by JSON Pointer, such as `"/path" = "/etc/*"`; all must match. In a rule that asks or denies,
    /// a path matches in every spelling and by its real target, both relative to the working directory and absolute; in
    /// a rule that allows, only by its real target. To keep tools from opening a path at all, use `deny`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) arguments: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Action for a matching call.
    pub(crate) verdict: VerdictWord,
}

/// Action for a matching call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerdictWord {
    /// Run the call.
    Allow,
    /// Ask the user.
    Ask,
    /// Refuse the call.
    Deny,
}

/// A subagent that the main agent can call as a tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTable {
    /// Description of its task and when to call it, for the model that calls it.
    #[schemars(with = "String")]
    pub(crate) description: Spanned<String>,
    /// Instructions for its own model.
    #[serde(default)]
    pub(crate) instructions: Option<String>,
    /// Names of its components. Defaults to those of the main agent. Grants and limits are those of `[tools]`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) tools: Option<Vec<Spanned<String>>>,
    /// Maximum number of model requests per task (default 50).
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_steps: Option<Spanned<u32>>,
    /// Model settings. Unset keys are inherited from the main agent, unless `name` or `base_url` is set.
    #[serde(default)]
    pub(crate) provider: ProviderTable,
    /// Budget for one task. Its use also counts in the budget of the session.
    #[serde(default)]
    pub(crate) budget: BudgetTable,
}

/// A tool component.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolTable {
    /// Path of the component, a `.wasm` file, relative to the directory of this file. Not for built-in tools.
    #[schemars(with = "Option<String>")]
    pub(crate) component: Option<Spanned<String>>,
    /// Description for the model of a component that is a program. One sentence by default; `"--help"` is what the program
    /// writes when it is run with that argument. Other components describe their tools themselves. Not in a project's file.
    #[schemars(with = "Option<String>")]
    pub(crate) description: Option<Spanned<String>>,
    /// Offers the tool. Defaults to `true`, except for `memory`.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Names of the tools of this component to offer, such as `["memory_recall"]`. All by default; none if empty. A
    /// project's file can only remove names.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) only: Option<Spanned<Vec<String>>>,
    /// Grants, one line each: `read=.`, `write=out`, `env=LANG`, `http=example.com`, `keyvalue=memory`. None by
    /// default. `deny=private`, `deny-http=…` and `deny-keyvalue=…` override every grant. Relative paths start at the
    /// working directory in a user's file, and at the directory of the file in a project's.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) grants: Option<Vec<Spanned<Grant>>>,
    /// Limits of one call.
    pub(crate) limits: LimitsTable,
    /// Scratch directory for its file changes, to be reviewed with `toolcell scratch`, as with `--scratch`. Not in a
    /// project's file.
    #[schemars(with = "Option<String>")]
    pub(crate) scratch: Option<Spanned<String>>,
    /// Secrets added to its requests, and their destinations. Not in a project's file.
    pub(crate) secrets: Vec<BindingTable>,
}

/// A hook: a component called before a prompt is sent, before and after each call, after a turn and on errors, as it
/// subscribes to them. It can change or refuse the operation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HookTable {
    /// Path of the component, a `.wasm` file, relative to the directory of this file.
    #[schemars(with = "String")]
    pub(crate) component: Option<Spanned<String>>,
    /// Enables the hook. Defaults to `true`.
    #[schemars(with = "Option<bool>")]
    pub(crate) enabled: Option<Spanned<bool>>,
    /// Makes the hook a guard: if it fails, the operation is refused. Defaults to the component's own declaration.
    #[schemars(with = "Option<bool>")]
    pub(crate) guard: Option<Spanned<bool>>,
    /// Priority among hooks without other constraints; higher runs first. Defaults to the component's own declaration.
    #[schemars(with = "Option<i32>")]
    pub(crate) priority: Option<Spanned<i32>>,
    /// Names of hooks that run after it. Defaults to the component's own declaration.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) before: Option<Spanned<Vec<String>>>,
    /// Names of hooks that run before it. Defaults to the component's own declaration.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) after: Option<Spanned<Vec<String>>>,
    /// Grants, as for a tool. None by default; `--grant` does not apply to hooks.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) grants: Option<Vec<Spanned<Grant>>>,
    /// Limits at one hook point, as for a call of a tool; `wall` defaults to 10s.
    pub(crate) limits: LimitsTable,
    /// Secrets added to its requests, and their destinations.
    pub(crate) secrets: Vec<BindingTable>,
}

/// Source of the value of a secret. The value itself never appears in a configuration file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SecretTable {
    /// Environment variable that contains it.
    pub(crate) env: Option<String>,
    /// File that contains it; surrounding white space is removed.
    pub(crate) file: Option<String>,
    /// Account in the system keyring that contains it (`toolcell secret set ACCOUNT`).
    pub(crate) keyring: Option<String>,
}

/// A secret added to requests of a tool: in a header, or in place of a placeholder that the tool writes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BindingTable {
    /// Name of the secret, from `[secrets]`.
    pub(crate) secret: String,
    /// Allowed destinations, such as `https://api.github.com`.
    pub(crate) origins: Vec<String>,
    /// Header that carries it, such as `authorization`.
    pub(crate) header: Option<String>,
    /// Value of the header, with `{}` for the secret, such as `Bearer {}`.
    pub(crate) template: Option<String>,
    /// Instead of a header: a placeholder in requests that is replaced by the secret.
    pub(crate) placeholder: Option<String>,
    /// Methods of requests that carry it, in capitals. All by default; other requests are sent without it.
    #[serde(default)]
    pub(crate) methods: Vec<String>,
    /// Path prefixes of requests that carry it, by whole segments, such as `/repos/me`. All by default.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// Part of a response to a request with the secret that reaches the tool: `any`, `withheld` (the status and two
    /// headers), or a list of media types such as `application/json`. Defaults to `any`.
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

/// Limits of a bucket, over all calls. A bucket that exceeds a lowered limit keeps its data, and can only shrink.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BucketTable {
    /// Number of keys (default 250 k).
    #[schemars(with = "Option<Count>")]
    pub(crate) keys: Option<Spanned<Count>>,
    /// Size of keys and values (default 128 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) bytes: Option<Spanned<Bytes>>,
}

/// Limits of one call. Unset limits keep their defaults.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsTable {
    /// Memory: linear memories, tables, and host memory held for the call (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) memory: Option<Spanned<Bytes>>,
    /// Wall time, including waiting (default 30s).
    #[schemars(with = "Option<Span>")]
    pub(crate) wall: Option<Spanned<Span>>,
    /// Fuel, about one unit per instruction (default 1 T).
    #[schemars(with = "Option<Count>")]
    pub(crate) fuel: Option<Spanned<Count>>,
    /// Size of the result (default 4 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) output: Option<Spanned<Bytes>>,
    /// Kept standard output, standard error and log (default 64 KiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) log: Option<Spanned<Bytes>>,
    /// Total elements of all tables (default 200 k).
    #[schemars(with = "Option<Count>")]
    pub(crate) table_elements: Option<Spanned<Count>>,
    /// Files, streams and requests held at a time (default 1000).
    #[schemars(with = "Option<Count>")]
    pub(crate) handles: Option<Spanned<Count>>,
    /// Number of HTTP requests (default 64).
    #[schemars(with = "Option<Count>")]
    pub(crate) http_requests: Option<Spanned<Count>>,
    /// Size of one HTTP response (default 16 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) http_body: Option<Spanned<Bytes>>,
    /// Bytes written to files (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) file_bytes: Option<Spanned<Bytes>>,
    /// Files and directories created (default 10 k).
    #[schemars(with = "Option<Count>")]
    pub(crate) file_count: Option<Spanned<Count>>,
    /// Bytes read from and written to buckets (default 256 MiB).
    #[schemars(with = "Option<Bytes>")]
    pub(crate) keyvalue_bytes: Option<Spanned<Bytes>>,
}
