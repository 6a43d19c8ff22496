//! Imports of a component: the abilities that it can request, described for the user.

use semver::Version;
use serde::Serialize;
use toolcell_core::Grant;

use crate::bindings::{self, is_compatible, split_version};
use crate::error::LoadError;

/// Version of WASI that is linked; every `0.2.x` links with it.
pub(crate) const WASI: Version = Version::new(0, 2, 0);

/// Version of WASI with asynchronous functions that is linked for components of the concurrent engine; every `0.3.x` links
/// with it.
pub(crate) const WASI_ASYNC: Version = Version::new(0, 3, 0);

/// Versions of a package of WASI that are linked. A draft links only with itself.
fn wasi_versions(interface: &str) -> Vec<Version> {
    let pre = |pre: &str| Version {
        pre: semver::Prerelease::new(pre).expect("the names of drafts are well-formed pre-releases"),
        ..Version::new(0, 2, 0)
    };
    match interface.split_once('/').map(|(package, _)| package) {
        Some("wasi:keyvalue") => vec![pre("draft")],
        Some("wasi:config") => vec![pre("draft"), pre("rc.1")],
        _ => vec![WASI],
    }
}

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Full name, such as `wasi:filesystem/types@0.2.6`.
    pub name: String,
    /// Ability that the interface provides.
    pub ability: Ability,
}

/// Ability that an import provides. Without the import a component lacks it; with it, the policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ability {
    /// Files and directories.
    Files,
    /// HTTP requests.
    Http,
    /// Values that are stored between calls.
    KeyValue,
    /// Environment variables and arguments.
    Environment,
    /// Wall clock.
    WallClock,
    /// Monotonic clock and timers.
    MonotonicClock,
    /// Random numbers.
    Random,
    /// Raw TCP and UDP sockets.
    Sockets,
    /// Resolution of host names.
    NameLookup,
    /// Log messages.
    Log,
    /// Progress reports.
    Progress,
    /// Standard input, output and error.
    Stdio,
    /// Termination of the call by the component.
    Exit,
    /// Streams and polling, on which other interfaces are based.
    Plumbing,
}

impl Ability {
    /// Returns a sentence about a component that has this import, for the user who decides about grants.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Files => "can request files, and sees only the directories that are granted",
            Self::Http => "can request HTTP, and reaches only the hosts that are granted",
            Self::KeyValue => {
                "can request buckets of values that outlive the call, and sees only those that are granted"
            }
            Self::Environment => "can read environment variables, and sees only those that are granted",
            Self::WallClock => "can read the time of day",
            Self::MonotonicClock => "can measure time and wait, within the time limit of the call",
            Self::Random => "can get random numbers",
            Self::Sockets => "can request network sockets, and every request is denied",
            Self::NameLookup => "can request addresses of hosts, and every look-up is denied",
            Self::Log => "can write to the log of the call",
            Self::Progress => "can report the progress of a call",
            Self::Stdio => "can write to standard output and standard error, which go to the log of the call",
            Self::Exit => "can terminate itself, which ends only the call",
            Self::Plumbing => "can wait for the streams of its other imports",
        }
    }

    /// Returns a sentence about a component without this import, if it is informative.
    pub fn absent_sentence(self) -> Option<&'static str> {
        match self {
            Self::Files => Some("cannot access files, whatever is granted"),
            Self::Http => Some("cannot send HTTP requests, whatever is granted"),
            Self::Environment => Some("cannot read environment variables, whatever is granted"),
            Self::WallClock => Some("cannot read the time of day"),
            Self::Random => Some("cannot get random numbers"),
            _ => None,
        }
    }

    /// Returns the kind of grant that this ability requires, as written in a grant line; `None` if it requires none or
    /// none would help.
    pub fn grant(self) -> Option<&'static str> {
        match self {
            Self::Files => Some("read"),
            Self::Http => Some("http"),
            Self::KeyValue => Some("keyvalue"),
            Self::Environment => Some("env"),
            _ => None,
        }
    }

    /// Returns the ability without which a grant has no effect; for a denial, without which it is not needed.
    pub fn of_grant(grant: &Grant) -> Self {
        match grant {
            Grant::Dir { .. } | Grant::Deny { .. } => Self::Files,
            Grant::Env { .. } => Self::Environment,
            Grant::Http(_) | Grant::DenyHttp(_) => Self::Http,
            Grant::Bucket(_) | Grant::DenyBucket { .. } => Self::KeyValue,
        }
    }

    /// Abilities that have an [`Ability::absent_sentence`].
    pub const TELLING: [Self; 5] = [
        Self::Files,
        Self::Http,
        Self::Environment,
        Self::WallClock,
        Self::Random,
    ];

    /// Returns the ability of an interface of WASI 0.3; `None` for one that is not provided. Files and HTTP are provided in
    /// WASI 0.2 alone, where every operation on them is checked.
    pub(crate) fn of_async_interface(interface: &str) -> Option<Self> {
        Some(match interface {
            "wasi:cli/environment" => Self::Environment,
            "wasi:cli/exit" => Self::Exit,
            "wasi:cli/stdin"
            | "wasi:cli/stdout"
            | "wasi:cli/stderr"
            | "wasi:cli/terminal-input"
            | "wasi:cli/terminal-output"
            | "wasi:cli/terminal-stdin"
            | "wasi:cli/terminal-stdout"
            | "wasi:cli/terminal-stderr" => Self::Stdio,
            "wasi:clocks/system-clock" => Self::WallClock,
            "wasi:clocks/monotonic-clock" => Self::MonotonicClock,
            "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => Self::Random,
            // Types alone, without functions.
            "wasi:cli/types" | "wasi:clocks/types" => Self::Plumbing,
            _ => return None,
        })
    }

    pub(crate) fn of_interface(interface: &str) -> Option<Self> {
        Some(match interface {
            "toolcell:tool/log" => Self::Log,
            "toolcell:tool/progress" => Self::Progress,
            // Types alone, without functions.
            "toolcell:tool/types" => Self::Plumbing,
            "wasi:filesystem/types" | "wasi:filesystem/preopens" => Self::Files,
            "wasi:http/types" | "wasi:http/outgoing-handler" => Self::Http,
            "wasi:keyvalue/store" | "wasi:keyvalue/atomics" | "wasi:keyvalue/batch" => Self::KeyValue,
            "wasi:cli/environment" | "wasi:config/store" => Self::Environment,
            "wasi:cli/exit" => Self::Exit,
            "wasi:cli/stdin"
            | "wasi:cli/stdout"
            | "wasi:cli/stderr"
            | "wasi:cli/terminal-input"
            | "wasi:cli/terminal-output"
            | "wasi:cli/terminal-stdin"
            | "wasi:cli/terminal-stdout"
            | "wasi:cli/terminal-stderr" => Self::Stdio,
            "wasi:clocks/wall-clock" => Self::WallClock,
            "wasi:clocks/monotonic-clock" => Self::MonotonicClock,
            "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => Self::Random,
            "wasi:io/error" | "wasi:io/poll" | "wasi:io/streams" => Self::Plumbing,
            "wasi:sockets/network"
            | "wasi:sockets/instance-network"
            | "wasi:sockets/tcp"
            | "wasi:sockets/tcp-create-socket"
            | "wasi:sockets/udp"
            | "wasi:sockets/udp-create-socket" => Self::Sockets,
            "wasi:sockets/ip-name-lookup" => Self::NameLookup,
            _ => return None,
        })
    }
}

/// Classifies the imports of a component; fails for an import that this host does not provide.
pub(crate) fn classify(names: &[String]) -> Result<Vec<Import>, LoadError> {
    names.iter().map(|name| classify_one(name)).collect()
}

fn classify_one(name: &str) -> Result<Import, LoadError> {
    let unknown = |hint: String| LoadError::UnknownImport {
        name: name.escape_debug().to_string(),
        hint,
    };
    let (interface, version) = split_version(name);
    if is_of_async_wasi(name) {
        return match Ability::of_async_interface(interface) {
            Some(ability) => Ok(Import {
                name: name.to_owned(),
                ability,
            }),
            None => Err(unknown(async_wasi_hint(interface))),
        };
    }
    let ours = match interface.split_once(':') {
        Some(("wasi", _)) => wasi_versions(interface),
        Some(("toolcell", _)) => vec![bindings::VERSION],
        _ => return Err(unknown(other_world_hint(name))),
    };
    let fits = version
        .as_ref()
        .is_some_and(|version| ours.iter().any(|ours| is_compatible(version, ours)));
    match Ability::of_interface(interface) {
        Some(ability) if fits => Ok(Import {
            name: name.to_owned(),
            ability,
        }),
        Some(_) => {
            let versions: Vec<String> = ours
                .iter()
                .map(|version| {
                    if version.pre.is_empty() {
                        format!("{}.{}", version.major, version.minor)
                    } else {
                        version.to_string()
                    }
                })
                .collect();
            let versions = versions.join(" or ");
            Err(unknown(format!(
                "this host provides `{interface}` in version {versions}; rebuild the component with that version"
            )))
        }
        None => Err(unknown(other_world_hint(name))),
    }
}

/// Returns `true` for an import of WASI 0.3, which links only in the concurrent engine.
pub(crate) fn is_of_async_wasi(name: &str) -> bool {
    match split_version(name) {
        (interface, Some(version)) => interface.starts_with("wasi:") && is_compatible(&version, &WASI_ASYNC),
        (_, None) => false,
    }
}

fn async_wasi_hint(interface: &str) -> String {
    let remedy = "build it for WASI 0.2 (`wasm32-wasip2`)";
    match interface.split_once('/').map(|(package, _)| package) {
        Some("wasi:filesystem") => format!("files are provided in WASI 0.2, not yet in WASI 0.3; {remedy}"),
        Some("wasi:http") => format!("HTTP is provided in WASI 0.2, not yet in WASI 0.3; {remedy}"),
        Some("wasi:sockets") => format!(
            "sockets are never provided; build it without them, use `wasi:http`, or {remedy}, where every socket is denied"
        ),
        _ => format!(
            "of WASI 0.3, this host provides standard streams, environment, clocks and random numbers; {remedy}"
        ),
    }
}

fn other_world_hint(name: &str) -> String {
    format!(
        "no grant provides it; compose the component with one that exports `{}`, for example with `wac plug`",
        name.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_0_2_of_wasi_and_0_1_of_the_tool_package_is_known() {
        for name in [
            "wasi:filesystem/types@0.2.0",
            "wasi:http/types@0.2.12",
            "toolcell:tool/log@0.1.7",
            "wasi:keyvalue/batch@0.2.0-draft",
            "wasi:config/store@0.2.0-draft",
            "wasi:config/store@0.2.0-rc.1",
            "wasi:cli/stdout@0.3.0",
            "wasi:clocks/system-clock@0.3.1",
        ] {
            assert!(classify_one(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn unknown_import_is_named_with_a_possible_provider() {
        for (name, hint) in [
            ("evil:host/fs@9.9.9", "no grant provides it; compose"),
            ("wasi:keyvalue/store@0.2.0", "in version 0.2.0-draft"),
            ("wasi:keyvalue/store@0.2.0-draft2", "in version 0.2.0-draft"),
            ("wasi:config/store@0.2.0", "in version 0.2.0-draft or 0.2.0-rc.1"),
            ("wasi:config/runtime@0.2.0-draft", "no grant provides it; compose"),
            (
                "wasi:keyvalue/watcher@0.2.0-draft",
                "no grant provides it; compose",
            ),
            ("wasi:filesystem/types@0.3.0", "files are provided in WASI 0.2"),
            ("wasi:http/client@0.3.0", "HTTP is provided in WASI 0.2"),
            ("wasi:sockets/types@0.3.0", "sockets are never provided"),
            (
                "wasi:clocks/timezone@0.3.0",
                "this host provides standard streams",
            ),
            (
                "wasi:clocks/wall-clock@0.3.0",
                "this host provides standard streams",
            ),
            ("wasi:cli/stdin@0.3.0-rc-2026-02-09", "in version 0.2"),
            ("wasi:filesystem/types", "in version 0.2"),
            ("toolcell:tool/log@0.2.0", "in version 0.1"),
            ("plain-function", "no grant provides it; compose"),
        ] {
            let error = classify_one(name).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert!(error.hint().unwrap().contains(hint), "{name}: {:?}", error.hint());
        }
    }
}
