//! What a component can ask its host for, proved by its imports, in words for people.

use semver::Version;
use serde::Serialize;

use crate::bindings::{self, is_compatible, split_version};
use crate::error::LoadError;

/// The version of WASI that is linked; every `0.2.x` links with it.
const WASI: Version = Version::new(0, 2, 0);

/// The version of `wasi:keyvalue` that is linked, a draft: only itself links with it.
fn keyvalue() -> Version {
    Version {
        pre: semver::Prerelease::new("draft").expect("`draft` is a well-formed pre-release"),
        ..Version::new(0, 2, 0)
    }
}

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// Its full name, such as `wasi:filesystem/types@0.2.6`.
    pub name: String,
    /// What it is for.
    pub ability: Ability,
}

/// What an import lets a component ask for. Without the import it cannot ask; with it, the policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ability {
    /// Files and directories.
    Files,
    /// HTTP requests.
    Http,
    /// Values that are kept between calls.
    KeyValue,
    /// Environment variables and arguments.
    Environment,
    /// The time of day.
    WallClock,
    /// Measuring and waiting.
    MonotonicClock,
    /// Random numbers.
    Random,
    /// Raw TCP and UDP sockets.
    Sockets,
    /// Looking up names of hosts.
    NameLookup,
    /// Log messages.
    Log,
    /// Progress reports.
    Progress,
    /// Standard input, output and error.
    Stdio,
    /// Ending itself.
    Exit,
    /// Streams and waiting for them, which other interfaces are made of.
    Plumbing,
}

impl Ability {
    /// One sentence about a component that has this import, for a person who decides about grants.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Files => "can ask for files, and sees only the directories that are granted",
            Self::Http => "can ask for HTTP requests, and reaches only the hosts that are granted",
            Self::KeyValue => {
                "can ask for buckets of values that outlive the call, and sees only those that are granted"
            }
            Self::Environment => "can read environment variables, and sees only those that are granted",
            Self::WallClock => "can read the time of day",
            Self::MonotonicClock => "can measure time and wait, within the time limit of the call",
            Self::Random => "can get random numbers",
            Self::Sockets => "can ask for network sockets, and every one is denied",
            Self::NameLookup => "can ask for addresses of hosts, and every look-up is denied",
            Self::Log => "can write to the log of the call",
            Self::Progress => "can report how far a call has come",
            Self::Stdio => "can write to standard output and standard error, which go to the log of the call",
            Self::Exit => "can end itself, which ends the call and nothing else",
            Self::Plumbing => "can wait for the streams of its other imports",
        }
    }

    /// The sentence for a component that lacks this import, where that is worth saying.
    pub fn absent_sentence(self) -> Option<&'static str> {
        match self {
            Self::Files => Some("cannot touch files, whatever is granted"),
            Self::Http => Some("cannot send HTTP requests, whatever is granted"),
            Self::Environment => Some("cannot read environment variables, whatever is granted"),
            Self::WallClock => Some("cannot know the time of day"),
            Self::Random => Some("cannot get random numbers"),
            _ => None,
        }
    }

    /// The kind of grant that this ability needs to be of use, as it is written in a grant line; `None` where it needs
    /// none or none would help.
    pub fn grant(self) -> Option<&'static str> {
        match self {
            Self::Files => Some("read"),
            Self::Http => Some("http"),
            Self::KeyValue => Some("keyvalue"),
            Self::Environment => Some("env"),
            _ => None,
        }
    }

    /// The abilities that have an [`Ability::absent_sentence`].
    pub const TELLING: [Self; 5] = [
        Self::Files,
        Self::Http,
        Self::Environment,
        Self::WallClock,
        Self::Random,
    ];

    pub(crate) fn of_interface(interface: &str) -> Option<Self> {
        Some(match interface {
            "toolcell:tool/log" => Self::Log,
            "toolcell:tool/progress" => Self::Progress,
            // Types alone: there is nothing to call in it.
            "toolcell:tool/types" => Self::Plumbing,
            "wasi:filesystem/types" | "wasi:filesystem/preopens" => Self::Files,
            "wasi:http/types" | "wasi:http/outgoing-handler" => Self::Http,
            "wasi:keyvalue/store" | "wasi:keyvalue/atomics" | "wasi:keyvalue/batch" => Self::KeyValue,
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

/// Sorts the imports of a component; an import that nothing here provides is an error.
pub(crate) fn classify(names: &[String]) -> Result<Vec<Import>, LoadError> {
    names.iter().map(|name| classify_one(name)).collect()
}

fn classify_one(name: &str) -> Result<Import, LoadError> {
    let unknown = |hint: String| LoadError::UnknownImport {
        name: name.escape_debug().to_string(),
        hint,
    };
    let (interface, version) = split_version(name);
    let ours = match interface.split_once(':') {
        Some(("wasi", rest)) if rest.starts_with("keyvalue/") => keyvalue(),
        Some(("wasi", _)) => WASI,
        Some(("toolcell", _)) => bindings::VERSION,
        _ => return Err(unknown(other_world_hint(name))),
    };
    let fits = version
        .as_ref()
        .is_some_and(|version| is_compatible(version, &ours));
    match Ability::of_interface(interface) {
        Some(ability) if fits => Ok(Import {
            name: name.to_owned(),
            ability,
        }),
        Some(_) => {
            let version = if ours.pre.is_empty() {
                format!("{}.{}", ours.major, ours.minor)
            } else {
                ours.to_string()
            };
            Err(unknown(format!(
                "this host provides `{interface}` in version {version}; rebuild the component against that"
            )))
        }
        None => Err(unknown(other_world_hint(name))),
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
    fn every_0_2_of_wasi_and_every_0_1_of_the_contract_is_known() {
        for name in [
            "wasi:filesystem/types@0.2.0",
            "wasi:http/types@0.2.12",
            "toolcell:tool/log@0.1.7",
            "wasi:keyvalue/batch@0.2.0-draft",
        ] {
            assert!(classify_one(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_unknown_import_is_named_with_what_would_provide_it() {
        for (name, hint) in [
            ("evil:host/fs@9.9.9", "no grant provides it; compose"),
            ("wasi:keyvalue/store@0.2.0", "in version 0.2.0-draft"),
            ("wasi:keyvalue/store@0.2.0-draft2", "in version 0.2.0-draft"),
            (
                "wasi:keyvalue/watcher@0.2.0-draft",
                "no grant provides it; compose",
            ),
            ("wasi:filesystem/types@0.3.0", "in version 0.2"),
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
