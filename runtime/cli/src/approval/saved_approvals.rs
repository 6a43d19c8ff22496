//! Calls that a person allowed for always.
//!
//! Each is scoped to a tool, the digest of its component and arguments: exactly these, some of them by a pattern, or any.
//! They lie in the person's own state directory and are written only when the person says so at a terminal: no model, tool
//! or project can add one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcell_agent::{ApprovalRequest, ApprovalRule, Verdict, is_within};
use toolcell_core::ArgumentPlace;

use crate::config::user_files;
use crate::environment::Environment;

/// Name of the file, in the state directory.
const FILE: &str = "approvals.json";

/// Something that a person allowed for always.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remembered {
    /// Name of the tool.
    pub(crate) tool: String,
    /// Digest of its component: another version asks again.
    pub(crate) digest: String,
    /// With which arguments.
    pub(crate) arguments: Scope,
    /// Where the arguments led when they were shown, by JSON Pointer: the real path, or the URL. What leads elsewhere since,
    /// because a directory is seen at another place or a link changed, asks again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) places: BTreeMap<String, String>,
}

/// Where arguments lead, as it is remembered.
pub(crate) fn places_of(request: &ApprovalRequest) -> BTreeMap<String, String> {
    let places = request.places.iter();
    places
        .map(|place| (place.pointer.clone(), led(place).to_owned()))
        .collect()
}

/// Where an argument really leads.
fn led(place: &ArgumentPlace) -> &str {
    place.real.as_deref().unwrap_or(&place.plain)
}

/// The arguments for which a person allowed a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// Whatever they are.
    Any,
    /// These, and nothing else.
    Exactly(Value),
    /// These, but for texts that match a pattern.
    ArgumentPattern(ArgumentPattern),
}

/// Arguments of which some texts may be others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArgumentPattern {
    /// The arguments that were shown.
    arguments: Value,
    /// Patterns for texts, by JSON Pointer (RFC 6901); `*` stands for any characters, but for the `..` of a path.
    patterns: BTreeMap<String, String>,
}

impl Remembered {
    /// Whether it allows this call. Relative patterns of paths start at `base`.
    pub(crate) fn allows(&self, request: &ApprovalRequest, digest: &str, base: Option<&str>) -> bool {
        let is_same = |place: &ArgumentPlace| {
            let known = self.places.get(&place.pointer);
            known.is_some_and(|known| known == led(place))
        };
        let mut places = request.places.iter();
        self.tool == request.tool
            && self.digest == digest
            && match &self.arguments {
                Scope::Any => true,
                Scope::Exactly(known) => *known == request.arguments && places.all(is_same),
                Scope::ArgumentPattern(like) => {
                    like.matches(&request.arguments, &request.places, base)
                        && places.all(|place| like.patterns.contains_key(&place.pointer) || is_same(place))
                }
            }
    }
}

impl ArgumentPattern {
    /// Arguments like those of a request; `None` if a pattern is for no text in them, or does not match it.
    pub(crate) fn new(
        request: &ApprovalRequest,
        patterns: BTreeMap<String, String>,
        base: Option<&str>,
    ) -> Option<Self> {
        let arguments = request.arguments.clone();
        let like = Self { arguments, patterns };
        like.matches(&like.arguments, &request.places, base)
            .then_some(like)
    }

    /// The patterns, by JSON Pointer.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&String, &String)> {
        self.patterns.iter()
    }

    /// Every text with a pattern matches it, paths by where they really lead, and everything else is as it was shown.
    fn matches(&self, arguments: &Value, places: &[ArgumentPlace], base: Option<&str>) -> bool {
        let (mut shown, mut given) = (self.arguments.clone(), arguments.clone());
        for (pointer, pattern) in &self.patterns {
            let (Some(shown), Some(given)) = (shown.pointer_mut(pointer), given.pointer_mut(pointer)) else {
                return false;
            };
            let Value::String(text) = given else {
                return false;
            };
            // A path that climbs is another place than the one that the pattern names.
            if pattern.contains('*') && text.split(['/', '\\']).any(|part| part == "..") {
                return false;
            }
            let fits = match places.iter().find(|place| place.pointer == *pointer) {
                Some(place) => is_within(place, pattern, base),
                None => matches(pattern, text),
            };
            if !fits {
                return false;
            }
            *shown = Value::Null;
            *given = Value::Null;
        }
        shown == given
    }
}

/// Whether a text matches a pattern, as in the rules of configuration.
fn matches(pattern: &str, text: &str) -> bool {
    let rule = ApprovalRule::tool("*", Verdict::Allow).with_argument("", pattern);
    rule.matches("", &Value::String(text.to_owned()))
}

/// The texts in some arguments, by JSON Pointer, in the order in which they stand there.
pub(crate) fn texts(arguments: &Value) -> Vec<(String, String)> {
    fn walk(value: &Value, at: &str, found: &mut Vec<(String, String)>) {
        match value {
            Value::String(text) => found.push((at.to_owned(), text.clone())),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{i}"), found);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    walk(member, &format!("{at}/{name}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(arguments, "", &mut found);
    found
}

/// As a person reads it: `with any arguments`, `with {"path":"a"}`, `where /path is notes/*`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("with any arguments"),
            Self::Exactly(arguments) => write!(f, "with {arguments}"),
            Self::ArgumentPattern(like) => {
                let mut rest = like.arguments.clone();
                for (i, (pointer, pattern)) in like.patterns.iter().enumerate() {
                    let word = if i == 0 { "where" } else { " and" };
                    write!(f, "{word} {pointer} is {pattern}")?;
                    if let Some(text) = rest.pointer_mut(pointer) {
                        *text = Value::String("…".into());
                    }
                }
                write!(f, " in {rest}")
            }
        }
    }
}

/// Where they lie; `None` where the person has no state directory.
pub(crate) fn file(environment: &Environment) -> Option<PathBuf> {
    environment.state_dir.as_ref().map(|dir| dir.join(FILE))
}

/// Reads them all; a file that does not exist holds none.
///
/// # Errors
/// When the file cannot be read or is no such file.
pub(crate) fn read(file: &Path) -> io::Result<Vec<Remembered>> {
    user_files::read_list(file)
}

/// Writes the whole list.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(file: &Path, remembered: &[Remembered]) -> io::Result<()> {
    user_files::write_list(file, remembered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn like(arguments: Value, patterns: &[(&str, &str)]) -> Option<ArgumentPattern> {
        let patterns = patterns.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned()));
        ArgumentPattern::new(&request("t", arguments), patterns.collect(), None)
    }

    fn request(tool: &str, arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            id: "1".into(),
            tool: tool.into(),
            arguments,
            cause: toolcell_agent::ApprovalCause::Rule,
            reason: "a rule".into(),
            places: Vec::new(),
        }
    }

    /// The same, with a path that really leads to `real`.
    fn leading(tool: &str, path: &str, real: &str) -> ApprovalRequest {
        let mut request = request(tool, json!({ "path": path }));
        request.places.push(ArgumentPlace {
            pointer: "/path".into(),
            kind: toolcell_core::PlaceKind::Path,
            plain: format!("/{path}"),
            named: Some(format!("/work/{path}")),
            real: Some(real.into()),
        });
        request
    }

    #[test]
    fn what_leads_elsewhere_since_asks_again() {
        let shown = leading("t", "notes/a", "/work/notes/a");
        let exactly = Remembered {
            tool: "t".into(),
            digest: "d".into(),
            arguments: Scope::Exactly(shown.arguments.clone()),
            places: places_of(&shown),
        };
        assert!(exactly.allows(&shown, "d", Some("/work")));
        let moved = leading("t", "notes/a", "/work/private/a");
        assert!(!exactly.allows(&moved, "d", Some("/work")));
        let before = Remembered {
            places: BTreeMap::new(),
            ..exactly
        };
        assert!(!before.allows(&shown, "d", Some("/work")));
        let patterns = BTreeMap::from([("/path".to_owned(), "notes/*".to_owned())]);
        let like = Remembered {
            arguments: Scope::ArgumentPattern(ArgumentPattern::new(&shown, patterns, Some("/work")).unwrap()),
            ..before
        };
        for (path, real, allowed) in [
            ("notes/b", "/work/notes/b", true),
            ("./notes//b", "/work/notes/b", true),
            ("/notes/b", "/work/notes/b", true),
            ("notes/b", "/work/private/b", false),
            ("notes/../private/b", "/work/private/b", false),
            ("notes/../notes/b", "/work/notes/b", false),
        ] {
            assert_eq!(
                like.allows(&leading("t", path, real), "d", Some("/work")),
                allowed,
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_remembered_holds_for_the_same_tool_digest_and_arguments_and_for_nothing_else() {
        let exactly = Remembered {
            tool: "files_write".into(),
            digest: "sha256:1".into(),
            arguments: Scope::Exactly(json!({"path": "/a"})),
            places: BTreeMap::new(),
        };
        assert!(exactly.allows(&request("files_write", json!({"path": "/a"})), "sha256:1", None));
        assert!(!exactly.allows(&request("files_write", json!({"path": "/b"})), "sha256:1", None));
        assert!(!exactly.allows(
            &request("files_write", json!({"path": "/a", "mode": "w"})),
            "sha256:1",
            None
        ));
        assert!(!exactly.allows(&request("files_write", json!({"path": "/a"})), "sha256:2", None));
        assert!(!exactly.allows(&request("files_edit", json!({"path": "/a"})), "sha256:1", None));
        let any = Remembered {
            arguments: Scope::Any,
            ..exactly
        };
        assert!(any.allows(&request("files_write", json!({"path": "/b"})), "sha256:1", None));
        assert!(!any.allows(&request("files_write", json!({"path": "/b"})), "sha256:2", None));
    }

    #[test]
    fn a_pattern_frees_one_text_and_everything_else_stays_as_it_was_shown() {
        let shown = json!({"path": "notes/a.md", "content": "x", "options": {"append": true}});
        let like = like(shown, &[("/path", "notes/*.md"), ("/content", "*")]).unwrap();
        let call =
            |path: &str, append: bool| json!({"path": path, "content": "y", "options": {"append": append}});
        assert!(like.matches(&call("notes/b/c.md", true), &[], None));
        assert!(!like.matches(&call("notes/b.txt", true), &[], None));
        assert!(!like.matches(&call("notes/b.md", false), &[], None));
        assert!(!like.matches(&json!({"path": "notes/b.md", "content": "y"}), &[], None));
        let more = json!({"path": "notes/b.md", "content": "y", "options": {"append": true}, "force": true});
        assert!(!like.matches(&more, &[], None));
        assert!(!like.matches(
            &json!({"path": 1, "content": "y", "options": {"append": true}}),
            &[],
            None
        ));
    }

    #[test]
    fn a_pattern_never_matches_a_path_that_climbs() {
        let like = like(json!({"path": "notes/a.md"}), &[("/path", "notes/*")]).unwrap();
        assert!(like.matches(&json!({"path": "notes/..a/b..c"}), &[], None));
        for path in ["notes/../secret", "notes/a/..", "notes/x\\..\\..\\secret"] {
            assert!(!like.matches(&json!({ "path": path }), &[], None), "{path}");
        }
        assert_eq!(
            super::tests::like(json!({"path": "../a"}), &[("/path", "*")]),
            None
        );
    }

    #[test]
    fn a_pattern_must_match_what_was_shown() {
        let arguments = json!({"path": "notes/a.md", "depth": 3});
        for patterns in [&[("/path", "other/*")][..], &[("/name", "*")], &[("/depth", "*")]] {
            assert_eq!(like(arguments.clone(), patterns), None, "{patterns:?}");
        }
    }

    #[test]
    fn texts_are_found_wherever_they_stand_and_their_pointers_lead_to_them() {
        let arguments = json!({"a": "1", "b/c~d": ["2", {"e": "3"}], "f": 4, "": "5"});
        let found = texts(&arguments);
        assert_eq!(found.len(), 4);
        for (pointer, text) in found {
            assert_eq!(arguments.pointer(&pointer).and_then(Value::as_str), Some(&*text));
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/approvals.json");
        assert_eq!(read(&file).unwrap(), []);
        let of = |arguments| Remembered {
            tool: "t".into(),
            digest: "sha256:1".into(),
            arguments,
            places: BTreeMap::new(),
        };
        let all = [
            of(Scope::Any),
            of(Scope::Exactly(json!({"a": 1}))),
            of(Scope::ArgumentPattern(
                like(json!({"a": "b"}), &[("/a", "*")]).unwrap(),
            )),
        ];
        write(&file, &all).unwrap();
        assert_eq!(read(&file).unwrap(), all);
        assert_eq!(all[2].arguments.to_string(), r#"where /a is * in {"a":"…"}"#);
        std::fs::write(&file, "{").unwrap();
        assert!(read(&file).is_err());
    }
}
