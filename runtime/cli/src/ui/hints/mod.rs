//! Hints that allow a denied access or raise a limit: a flag, and a line of the user's configuration. They are shown to
//! the user and never to the model.

mod budget;
mod limit;

use std::collections::{BTreeMap, BTreeSet};

use toolcell_core::keyvalue::Quota;
use toolcell_core::policy::DirAccess;
use toolcell_core::receipt::Denial;
use toolcell_core::{Grant, Limits, Receipt, ToolError};
use toolcell_sandbox::Ability;

use crate::components::loader::Loaded;
use crate::config::limits;
use crate::config::source::PROJECT;
use crate::config::{ComponentSource, Origin};
use crate::environment::Environment;
use crate::ui::escape;
use crate::ui::hints::limit::{limit_setting, sufficient};
use crate::ui::render::receipt;
use crate::ui::terminal::{Name, Own, Shown, Text, text};

pub(crate) use self::budget::BudgetHints;

/// Denial in a receipt of a tool that requested its directories and has none.
const DIRECTORIES: &str = "directories";

/// Denials in a receipt of a tool that wanted a socket, or to look up a name.
const SOCKETS: [&str; 2] = ["socket", "dns"];

/// Limits that the tool of a call sees as errors, so that they end no call.
const QUOTAS: [&str; 5] = [
    "http_requests",
    "http_body",
    "file_bytes",
    "file_count",
    "keyvalue_bytes",
];

/// Words by which an error says that a file was not found: those of the SDK, of C libraries, Rust, Go, Python and
/// JavaScript. Interpreters look for files on other occasions, too, such as the source lines of a stack trace.
const NO_FILE: [&str; 8] = [
    "no files are granted",
    "no such file",
    "file not found",
    "does not exist",
    "pre-opened",
    "preopened",
    "enoent",
    "enotcapable",
];

/// Component of a tool, as needed for hints.
#[derive(Clone)]
struct Known {
    component: String,
    /// True if the user's configuration can have settings for it.
    configured: bool,
    /// True if it can request files and has no directory. Without a directory there is no path to request, and no
    /// denial.
    without_files: bool,
    /// Access that its tool requests if it has no directory. What a tool says of itself counts for built-in ones alone.
    wants: DirAccess,
    limits: Limits,
    /// HTTP grants for `https` alone, with their hosts.
    https_only: Vec<(String, Grant)>,
}

impl Known {
    /// Returns the grant that allows `https` to the host of this one, which is for `http`.
    fn https_only(&self, grant: &Grant) -> Option<&Grant> {
        let Grant::Http(asked) = grant else { return None };
        if asked.schemes.iter().any(|scheme| scheme == "https") {
            return None;
        }
        let mut grants = self.https_only.iter();
        let granted = grants.find(|(host, _)| match host.strip_prefix('*') {
            Some(below) => asked.host.ends_with(below),
            None => asked.host.eq_ignore_ascii_case(host),
        });
        granted.map(|(_, grant)| grant)
    }
}

/// Hints per tool that allow denied accesses.
#[derive(Default)]
pub(crate) struct AllowHints {
    /// Components by the name of the tool.
    tools: BTreeMap<String, Known>,
    user_file: Option<String>,
}

impl AllowHints {
    /// Creates hints for the tools of these components.
    pub(crate) fn new<'b>(loaded: impl IntoIterator<Item = &'b Loaded>, environment: &Environment) -> Self {
        let mut tools = BTreeMap::new();
        for loaded in loaded {
            let configured = match &loaded.settings.component {
                ComponentSource::Shipped(_) => true,
                ComponentSource::File(path) => {
                    matches!(path.origin, Origin::File(..)) && !loaded.settings.is_of_project()
                }
            };
            let is_shipped = matches!(loaded.settings.component, ComponentSource::Shipped(_));
            let has_directory =
                (loaded.settings.grants.iter()).any(|line| matches!(line.grant, Grant::Dir { .. }));
            let https_only = (loaded.settings.grants.iter()).filter_map(|line| match &line.grant {
                Grant::Http(http) if http.schemes.is_empty() || http.schemes == ["https"] => {
                    Some((http.host.clone(), line.grant.clone()))
                }
                _ => None,
            });
            let known = Known {
                component: loaded.settings.name.clone(),
                configured,
                limits: loaded.settings.limits.limits.clone(),
                https_only: https_only.collect(),
                wants: DirAccess::READ,
                without_files: !has_directory && loaded.component.abilities().contains(&Ability::Files),
            };
            for tool in loaded.called() {
                let spec = tool.spec();
                let mut known = known.clone();
                if is_shipped && !spec.hints.read_only {
                    known.wants = DirAccess::WRITE;
                }
                tools.insert(spec.name.to_string(), known);
            }
        }
        Self {
            tools,
            ..Self::of_user(environment)
        }
    }

    /// Creates hints about what is configured by name, without tools.
    pub(crate) fn of_user(environment: &Environment) -> Self {
        Self {
            tools: BTreeMap::new(),
            user_file: crate::config::user_files::user_file(environment).map(|path| environment.shown(&path)),
        }
    }

    /// Returns hints that allow the denied accesses of this call, or raise the limit it reached.
    pub(crate) fn of(&self, tool: &str, receipt: &Receipt, error: Option<&ToolError>) -> Vec<String> {
        let mut hints = self.of_denials(tool, receipt, error);
        hints.extend(error.and_then(|error| self.of_limit(tool, receipt, error)));
        hints.extend(self.of_quotas(tool, receipt));
        hints.extend(self.of_server(tool, receipt, error));
        hints.extend(self.of_server_in_cell(receipt));
        hints
    }

    /// Returns the hint about a call that an MCP server refused. The client wrote it, and the receipt: a component could only
    /// claim both.
    fn of_server(&self, tool: &str, receipt: &Receipt, error: Option<&ToolError>) -> Option<String> {
        receipt.server.as_ref()?;
        match error? {
            ToolError::Denied { hint, .. } if !self.tools.contains_key(tool) => hint.clone(),
            _ => None,
        }
    }

    /// Returns one hint per denial of an MCP server that runs in a cell and that a line of the configuration allows or denies.
    fn of_server_in_cell(&self, receipt: &Receipt) -> Vec<String> {
        let Some(server) = receipt.server.as_ref().filter(|_| receipt.server_in_cell) else {
            return Vec::new();
        };
        let hints = self.of_server_at_start(server, receipt).into_iter();
        hints.map(|hint| hint.inert()).collect()
    }

    /// As [`AllowHints::of_server_in_cell`], for a server that ended before its first call.
    pub(crate) fn of_server_at_start(&self, server: &str, receipt: &Receipt) -> Vec<Text> {
        let whose = text!("the MCP server `{}`", server);
        // One for each line: a server can try thousands of places that the same line allows.
        let mut lines = BTreeSet::new();
        let mut hints = Vec::new();
        for denial in &receipt.denials {
            let line = denial.denied_by.as_ref().or(denial.allow_with.as_ref());
            if line.is_some_and(|line| lines.insert(line)) {
                hints.push(self.denied(&whose, "mcp", server, denial));
            }
        }
        hints
    }

    /// True if the call went beyond a limit that its tool saw as an error.
    pub(crate) fn is_beyond_quota(&self, tool: &str, receipt: &Receipt) -> bool {
        !self.of_quotas(tool, receipt).is_empty()
    }

    /// Returns hints that raise the limits which the tool of this call saw as errors.
    fn of_quotas(&self, tool: &str, receipt: &Receipt) -> Vec<String> {
        let Some(known) = self.tools.get(tool) else {
            return Vec::new();
        };
        let exceeded = QUOTAS.into_iter().filter_map(|name| {
            let limit = limits::get(&known.limits, name);
            let target = Limits::too_much(name, limit);
            let denial = receipt.denials.iter().find(|denial| denial.target == target)?;
            let more = sufficient(name, limit, denial.needed);
            Some(self.raise(known, name, limits::exactly(name, more)))
        });
        let full = receipt.denials.iter().filter_map(Denial::as_full_bucket);
        exceeded
            .chain(full.map(|(bucket, limit, of)| self.raise_bucket(bucket, limit, of)))
            .collect()
    }

    /// Returns hints that allow the denied accesses of this call.
    pub(crate) fn of_denials(&self, tool: &str, receipt: &Receipt, error: Option<&ToolError>) -> Vec<String> {
        let Some(known) = self.tools.get(tool) else {
            return Vec::new();
        };
        let component = &known.component;
        let file = self.user_file.as_deref().filter(|_| known.configured);
        let mut hints = receipt::allow_hints(receipt, component, file, |grant| known.https_only(grant));
        if receipt
            .denials
            .iter()
            .any(|denial| SOCKETS.contains(&denial.what.as_str()))
        {
            hints.push(
                "no grant allows sockets: a tool sends HTTP requests through `wasi:http`, which --grant http=HOST allows"
                    .into(),
            );
        }
        // The tool requested its directories and has none. This is observed by the host, not claimed by the tool.
        let asked_for_files = receipt.denials.iter().any(|denial| denial.what == DIRECTORIES);
        let has_no_file = |error: &ToolError| {
            let text = error.to_string().to_ascii_lowercase();
            !matches!(error, ToolError::InvalidArguments { .. })
                && NO_FILE.iter().any(|words| text.contains(words))
        };
        if known.without_files && asked_for_files && error.is_some_and(has_no_file) {
            let allow = receipt::allow(
                &Grant::Dir {
                    host: ".".into(),
                    guest: None,
                    access: known.wants,
                },
                component,
                file,
            );
            hints.push(format!(
                "no directory is granted to it; if it needs files here, {allow}"
            ));
        }
        hints
    }

    /// Returns the hint that raises the limit which ended this call.
    pub(crate) fn of_limit(&self, tool: &str, receipt: &Receipt, error: &ToolError) -> Option<String> {
        let ToolError::Limit { limit } = error else {
            return None;
        };
        let known = self.tools.get(tool)?;
        let (name, value) = limit_setting(limit, receipt, &known.limits)?;
        Some(self.raise(known, name, value))
    }

    /// Returns the flag and the configuration line that set a limit.
    fn raise(&self, known: &Known, name: &str, value: String) -> String {
        let component = &known.component;
        let flag = value.replace(' ', "");
        match self.user_file.as_deref().filter(|_| known.configured) {
            // A flag without a name does not apply to a component of a project.
            None if component.starts_with(PROJECT) => format!(
                "raise the limit with --limit {}",
                escape::shell(&format!("{component}:{name}={flag}"))
            ),
            None => format!(
                "raise the limit with --limit {}",
                escape::shell(&format!("{name}={flag}"))
            ),
            Some(path) => format!(
                "raise the limit with --limit {}\nor, in {path}: [tools.{component}.limits] {name} = {}",
                escape::shell(&format!("{component}:{name}={flag}")),
                escape::toml(&value)
            ),
        }
    }

    /// Returns the configuration line that gives a full bucket more room.
    fn raise_bucket(&self, bucket: &str, limit: u64, of: Quota) -> String {
        let file = self.user_file.as_deref().unwrap_or("your own configuration");
        let larger = limit::larger_bucket(limit, of);
        let key = match bucket.contains('.') {
            true => escape::toml(bucket),
            false => bucket.to_owned(),
        };
        format!("the bucket `{bucket}` is full; raise its limit, in {file}: [buckets.{key}] {of} = {larger}")
    }

    /// Returns one sentence per denial of a hook, with the configuration line that would allow it, or the denial that
    /// refused it. All but names between backticks are our words, unlike those of a notice of the hook.
    pub(crate) fn of_hook(&self, hook: &str, receipt: &Receipt) -> Vec<Text> {
        let whose = text!("the hook `{}`", hook);
        let denials = receipt.denials.iter();
        denials
            .map(|denial| self.denied(&whose, "hooks", hook, denial))
            .collect()
    }

    /// Returns a sentence about a denial of `whose` cell, whose grants are in `section.name` of the configuration.
    fn denied(&self, whose: &Text, section: &'static str, name: &str, denial: &Denial) -> Text {
        let file = self.user_file.as_deref().unwrap_or("your own configuration");
        let denied = text!("{} was denied {} `{}`", whose, Name(&denial.what), denial.target);
        // The line comes from what a guest asked for: only what reads as a grant is shown, in its own written form.
        let grant = denial
            .allow_with
            .as_ref()
            .and_then(|line| line.parse::<Grant>().ok());
        match (&denial.denied_by, grant) {
            (Some(by), _) => text!("{}, by `{}`", denied, by),
            (None, Some(grant)) => text!(
                "{}; to allow it, in {}: `[{}.{}] grants = [{}]`",
                denied,
                Shown(file),
                Own(section),
                name,
                escape::toml(&grant.to_string())
            ),
            (None, None) => denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Component without a directory that it requests, under the default limits.
    fn known() -> Known {
        Known {
            component: "x".into(),
            configured: false,
            without_files: false,
            wants: DirAccess::READ,
            limits: Limits::default(),
            https_only: Vec::new(),
        }
    }

    fn hints_of(known: Known) -> AllowHints {
        AllowHints {
            tools: BTreeMap::from([("x".into(), known)]),
            user_file: None,
        }
    }

    #[test]
    fn limits_that_a_tool_sees_as_errors_have_hints() {
        let hints = hints_of(known());
        for (name, hint) in [
            ("http_requests", "http_requests=128"),
            ("http_body", "http_body=17MiB"),
            ("file_bytes", "file_bytes=512MiB"),
            ("file_count", "file_count=20k"),
            ("keyvalue_bytes", "keyvalue_bytes=512MiB"),
        ] {
            let denial = |limit| Denial::too_much(name, limit, limit + 1);
            let limit = limits::get(&Limits::default(), name);
            let receipt = |limit| Receipt {
                denials: vec![denial(limit)],
                ..Receipt::default()
            };
            let shown = hints.of("x", &receipt(limit), None);
            assert_eq!(shown, [format!("raise the limit with --limit {hint}")]);
            // The rest of another limit.
            assert_eq!(hints.of("x", &receipt(limit - 1), None), [] as [&str; 0]);
        }
    }

    #[test]
    fn hint_of_a_limit_proposes_the_largest_need_of_the_tool() {
        let hints = hints_of(Known {
            limits: Limits {
                file_bytes: 10,
                ..Limits::default()
            },
            ..known()
        });
        let mut receipt = Receipt::default();
        for needed in [11, 100, 12] {
            receipt.note_denial(Denial::too_much("file_bytes", 10, needed));
        }
        assert_eq!(
            hints.of("x", &receipt, None),
            ["raise the limit with --limit file_bytes=256MiB"]
        );
        receipt.note_denial(Denial::too_much("file_bytes", 10, (256 << 20) + 1));
        assert_eq!(
            hints.of("x", &receipt, None),
            ["raise the limit with --limit file_bytes=257MiB"]
        );
    }

    #[test]
    fn full_bucket_has_a_hint_with_its_setting() {
        let hints = hints_of(known());
        for (bucket, limit, of, line) in [
            ("memory", 5, Quota::Keys, "[buckets.memory] keys = \"250 k\""),
            (
                "memory",
                250_000,
                Quota::Keys,
                "[buckets.memory] keys = \"500 k\"",
            ),
            (
                "a.b",
                128 << 20,
                Quota::Bytes,
                "[buckets.\"a.b\"] bytes = \"256 MiB\"",
            ),
        ] {
            let receipt = Receipt {
                denials: vec![Denial::full_bucket(bucket, limit, of)],
                ..Receipt::default()
            };
            let hint =
                format!("the bucket `{bucket}` is full; raise its limit, in your own configuration: {line}");
            assert_eq!(hints.of("x", &receipt, None), [hint]);
            assert_eq!(receipt.denials[0].as_full_bucket(), Some((bucket, limit, of)));
        }
        // A name that the guest opened is no full bucket.
        for target in ["\"memory: more than 5 keys\"", "a b: more than 5 keys", "memory"] {
            let opened = Denial {
                target: target.into(),
                ..Denial::full_bucket("memory", 5, Quota::Keys)
            };
            assert_eq!(opened.as_full_bucket(), None, "{target}");
        }
    }

    #[test]
    fn tool_without_directory_is_offered_what_it_wants() {
        let receipt = Receipt {
            denials: vec![Denial {
                what: DIRECTORIES.into(),
                target: "/".into(),
                allow_with: None,
                denied_by: None,
                needed: 0,
            }],
            ..Receipt::default()
        };
        let error = ToolError::Failed {
            message: "`a` does not exist: no files are granted to this tool".into(),
        };
        for (wants, grant) in [(DirAccess::READ, "read=."), (DirAccess::WRITE, "write=.")] {
            let hints = hints_of(Known {
                without_files: true,
                wants,
                ..known()
            });
            let shown = hints.of("x", &receipt, Some(&error));
            assert!(
                shown[0].ends_with(&format!("allow it with --grant {grant}")),
                "{shown:?}"
            );
        }
    }

    #[test]
    fn denial_claimed_by_tool_makes_no_hint() {
        let hints = hints_of(Known {
            without_files: true,
            ..known()
        });
        let claim = ToolError::denied("grant me --grant read=/", Some("--grant write=/".into()));
        assert_eq!(hints.of("x", &Receipt::default(), Some(&claim)), [] as [&str; 0]);
        // It is one of the client of an MCP server for another tool.
        let of_server = Receipt {
            server: Some("srv".into()),
            ..Receipt::default()
        };
        assert_eq!(hints.of("x", &of_server, Some(&claim)), [] as [&str; 0]);
        assert_eq!(hints.of("srv_t", &of_server, Some(&claim)), ["--grant write=/"]);
        let asked = Receipt {
            denials: vec![Denial {
                what: DIRECTORIES.into(),
                target: "/".into(),
                allow_with: None,
                denied_by: None,
                needed: 0,
            }],
            ..Receipt::default()
        };
        let not_found = ToolError::Failed {
            message: "[Errno 44] No such file or directory: 'a.txt'".into(),
        };
        assert_eq!(
            hints.of("x", &asked, Some(&not_found)),
            ["no directory is granted to it; if it needs files here, allow it with --grant read=."]
        );
        assert_eq!(hints.of("x", &asked, None), [] as [&str; 0]);
        // An interpreter looks for source files to show an exception.
        let syntax = ToolError::Crashed {
            cause: "unreachable".into(),
            output: Some("json.JSONDecodeError: Expecting value: line 1 column 2".into()),
        };
        assert_eq!(hints.of("x", &asked, Some(&syntax)), [] as [&str; 0]);
    }

    #[test]
    fn denied_socket_is_explained() {
        let hints = hints_of(known());
        let denial = |what: &str| Denial {
            what: what.into(),
            target: "tcp over ipv4".into(),
            allow_with: None,
            denied_by: None,
            needed: 0,
        };
        let receipt = Receipt {
            denials: vec![denial("socket"), denial("dns")],
            ..Receipt::default()
        };
        let shown = hints.of("x", &receipt, None);
        assert!(
            shown.len() == 1 && shown[0].starts_with("no grant allows sockets"),
            "{shown:?}"
        );
    }

    #[test]
    fn denial_of_hook_names_line_that_would_allow_it() {
        let hints = AllowHints {
            tools: BTreeMap::new(),
            user_file: Some("~/config.toml".into()),
        };
        let denial = |allow: Option<&str>, by: Option<&str>| Denial {
            what: "http".into(),
            target: "example.com:443".into(),
            allow_with: allow.map(Into::into),
            denied_by: by.map(Into::into),
            needed: 0,
        };
        let receipt = Receipt {
            denials: vec![
                denial(Some("http=example.com"), None),
                denial(Some("no grant"), None),
                denial(None, Some("deny=private (config.toml:1)")),
            ],
            ..Receipt::default()
        };
        let denied = "the hook `h` was denied http `example.com:443`";
        let told = hints.of_hook("h", &receipt);
        assert_eq!(
            told.iter().map(Text::inert).collect::<Vec<_>>(),
            [
                format!(
                    "{denied}; to allow it, in ~/config.toml: `[hooks.h] grants = [\"http=example.com\"]`"
                ),
                denied.to_owned(),
                format!("{denied}, by `deny=private (config.toml:1)`"),
            ]
        );
        // A notice of the hook with these words begins behind the gutter.
        assert!(told.iter().all(|text| !text.begins_foreign()));
    }
}
