//! Saved approvals: calls that the user allowed always.
//!
//! Each is bound to a tool, the digest of its component, what it can access, and arguments: exact ones, a pattern, or any. They are stored
//! in the user's state directory and written only after an answer at the terminal: no model, tool or project can add
//! one.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcell_agent::{ApprovalRequest, ApprovalRule, Verdict, is_within};
use toolcell_core::policy::Grants;
use toolcell_core::{ArgumentPlace, Denials, PlaceKind};
use toolcell_sandbox::Digest;

use crate::approval::terminal::Known;
use crate::config::grants::is_denied_line;
use crate::config::user_files;
use crate::environment::Environment;

/// Maximum number of saved approvals. Each is compared with the arguments of a call before the user is asked.
const MAX_SAVED: usize = 1_000;

/// Name of the file in the state directory.
const FILE: &str = "approvals.json";

/// A saved approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedApproval {
    /// Name of the tool.
    pub(crate) tool: String,
    /// Digest of its component. Another version is asked about again.
    pub(crate) digest: String,
    /// Digest of the access that was shown ([`access`]). With other grants the user is asked again.
    #[serde(default)]
    pub(crate) access: String,
    /// Arguments that are allowed.
    pub(crate) arguments: Scope,
    /// Resolved targets of the arguments when they were shown, by JSON Pointer: the real path, or the URL. A target
    /// that has changed, because of another mount or a changed link, is asked about again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) places: BTreeMap<String, String>,
    /// Directory of the host at which relative patterns for paths began when they were shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
}

/// Returns a digest of what a component can access: directories with their rights and overlays, hosts, buckets, variables,
/// secrets with what limits them, and what the user denied. Denials that are built in are left out: they vary with places
/// of Toolcell, such as the working directory, and cannot be taken back.
pub(crate) fn access(grants: &Grants, scratch: Option<String>) -> String {
    let Grants {
        dirs,
        env,
        http,
        buckets,
        secrets,
        denied,
    } = grants;
    let Denials {
        paths,
        http: denied_http,
        buckets: denied_buckets,
        programs,
    } = denied;
    let paths: Vec<_> = paths
        .iter()
        .filter(|denial| is_denied_line(denial))
        .map(|denial| (&denial.host, denial.uses))
        .collect();
    let denied = serde_json::json!([paths, denied_http, denied_buckets, programs]);
    let access = serde_json::json!([dirs, env, http, buckets, secrets, scratch, denied]);
    Digest::of(access.to_string().as_bytes()).hex()
}

/// Returns the resolved targets of the arguments, as they are saved.
pub(crate) fn places_of(request: &ApprovalRequest) -> BTreeMap<String, String> {
    let places = request.places.iter();
    places
        .map(|place| (key(place), target(place).to_owned()))
        .collect()
}

/// Returns the key of a place: its pointer, and its kind where one argument may be a path and a URL.
fn key(place: &ArgumentPlace) -> String {
    match place.kind {
        PlaceKind::Path => place.pointer.clone(),
        PlaceKind::Url => format!("{} (URL)", place.pointer),
    }
}

/// Returns the resolved target of an argument.
fn target(place: &ArgumentPlace) -> &str {
    place.real.as_deref().unwrap_or(&place.plain)
}

/// Arguments that a saved approval allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// Any arguments.
    Any,
    /// Exactly these arguments.
    Exactly(Value),
    /// These arguments, with patterns for some strings.
    ArgumentPattern(ArgumentPattern),
}

/// Arguments in which some strings may vary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArgumentPattern {
    /// Arguments that were shown.
    arguments: Value,
    /// Patterns for strings, by JSON Pointer (RFC 6901); `*` matches any characters except a `..` path component.
    patterns: BTreeMap<String, String>,
}

impl SavedApproval {
    /// True if this approval allows the call. Relative path patterns start at `base`.
    pub(crate) fn allows(&self, request: &ApprovalRequest, known: &Known, base: Option<&str>) -> bool {
        let is_same = |place: &ArgumentPlace| {
            let known = self.places.get(&key(place));
            !place.is_unresolved && known.is_some_and(|known| known == target(place))
        };
        let mut places = request.places.iter();
        self.tool == request.tool
            && self.digest == known.digest
            && self.access == known.access
            && match &self.arguments {
                Scope::Any => true,
                Scope::Exactly(known) => *known == request.arguments && places.all(is_same),
                Scope::ArgumentPattern(like) => {
                    (self.base.as_deref() == base || !like.starts_at_base(&request.places))
                        && like.matches(&request.arguments, &request.places, base)
                        && places.all(|place| like.patterns.contains_key(&place.pointer) || is_same(place))
                }
            }
    }
}

impl ArgumentPattern {
    /// Creates a pattern from the arguments of a request. Returns `None` if a pattern is for a missing string or does
    /// not match it.
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

    /// True if a pattern for a path is relative, so that it means other files elsewhere.
    fn starts_at_base(&self, places: &[ArgumentPlace]) -> bool {
        let is_path = |pointer: &str| {
            let mut places = places.iter();
            places.any(|place| place.pointer == pointer && place.kind == PlaceKind::Path)
        };
        let mut patterns = self.patterns.iter();
        patterns.any(|(pointer, pattern)| !pattern.starts_with('/') && is_path(pointer))
    }

    /// Returns the patterns, by JSON Pointer.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&String, &String)> {
        self.patterns.iter()
    }

    /// True if every string with a pattern matches it (a path by its real target) and everything else is unchanged.
    fn matches(&self, arguments: &Value, places: &[ArgumentPlace], base: Option<&str>) -> bool {
        let (mut shown, mut given) = (self.arguments.clone(), arguments.clone());
        for (pointer, pattern) in &self.patterns {
            let (Some(shown), Some(given)) = (shown.pointer_mut(pointer), given.pointer_mut(pointer)) else {
                return false;
            };
            let Value::String(text) = given else {
                return false;
            };
            // A path with `..` can leave the directory that the pattern names.
            if pattern.contains('*') && text.split(['/', '\\']).any(|part| part == "..") {
                return false;
            }
            let mut of_text = places.iter().filter(|place| place.pointer == *pointer).peekable();
            let fits = match of_text.peek() {
                Some(_) => of_text.all(|place| is_within(place, pattern, base)),
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

/// True if a string matches a pattern, with the syntax of approval rules.
fn matches(pattern: &str, text: &str) -> bool {
    let rule = ApprovalRule::tool("*", Verdict::Allow).with_argument("", pattern);
    rule.matches("", &Value::String(text.to_owned()))
}

/// Returns the strings in the arguments with their JSON Pointers, in document order; `None` if there are more than `most`.
pub(crate) fn texts(arguments: &Value, most: usize) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut number = 0;
    each_text(arguments, |at, text| {
        number += 1;
        if number <= most {
            found.push((at.to_owned(), text.to_owned()));
        }
    });
    (number <= most).then_some(found)
}

/// Visits all strings in the arguments with their JSON Pointers, in document order. A pointer repeats the names above its
/// string, which the model chooses: it is not kept for each.
pub(crate) fn each_text<'a>(arguments: &'a Value, mut visit: impl FnMut(&str, &'a str)) {
    fn walk<'a>(value: &'a Value, at: &mut String, visit: &mut dyn FnMut(&str, &'a str)) {
        let end = at.len();
        match value {
            Value::String(text) => visit(at, text),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    at.push('/');
                    at.push_str(&i.to_string());
                    walk(item, at, visit);
                    at.truncate(end);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    at.push('/');
                    at.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    walk(member, at, visit);
                    at.truncate(end);
                }
            }
            _ => {}
        }
    }
    walk(arguments, &mut String::new(), &mut visit);
}

/// Formats for display: `with any arguments`, `with {"path":"a"}`, `where /path is notes/*`.
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

/// Returns the path of the file, or `None` without a state directory.
pub(crate) fn file(environment: &Environment) -> Option<PathBuf> {
    environment.state_dir.as_ref().map(|dir| dir.join(FILE))
}

/// Reads all saved approvals; a missing file contains none.
///
/// # Errors
/// Returns an error if the file cannot be read or is invalid.
pub(crate) fn read(file: &Path) -> io::Result<Vec<SavedApproval>> {
    user_files::read_list(file)
}

/// Adds an approval to those in the file, which another process may have changed since it was read.
///
/// # Errors
/// Returns an error if there are [`MAX_SAVED`] already, or the file cannot be read or written.
pub(crate) fn add(file: &Path, new: &SavedApproval) -> io::Result<()> {
    let mut all = read(file)?;
    if all.len() >= MAX_SAVED {
        return Err(io::Error::other(format!(
            "{MAX_SAVED} approvals are saved, which is the maximum; `toolcell approval forget` removes one"
        )));
    }
    all.push(new.clone());
    write(file, &all)
}

/// Replaces all saved approvals.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub(crate) fn write(file: &Path, remembered: &[SavedApproval]) -> io::Result<()> {
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

    /// A component with this digest, and an access of which the digest is `a`.
    fn known(digest: &str) -> Known {
        Known {
            digest: digest.into(),
            access: "a".into(),
            ..Known::default()
        }
    }

    #[test]
    fn approval_holds_only_for_the_access_that_was_shown() {
        let grants = |grant: &str| -> Grants {
            let environment = Environment::for_tests(Path::new("/"), &[("A", "1")]);
            let overrides = crate::config::Overrides {
                grants: vec![grant.parse().unwrap()],
                dangerous: true,
                ..crate::config::Overrides::default()
            };
            let settings = crate::config::load(&environment, overrides).unwrap();
            settings.tools["files"]
                .policy(&settings, &environment)
                .unwrap()
                .grants
        };
        let shown = access(&grants("write=/tmp"), None);
        assert_eq!(shown, access(&grants("write=/tmp"), None));
        let mut others: Vec<String> = [
            "read=/tmp",
            "write=/usr",
            "write=/tmp:/x",
            "env=A",
            "http=a.com",
            "keyvalue=b",
        ]
        .iter()
        .map(|grant| access(&grants(grant), None))
        .collect();
        others.push(access(&grants("write=/tmp"), Some("scratch".into())));
        let mut denied = grants("write=/tmp");
        denied.denied.programs ^= true;
        others.push(access(&denied, None));
        for line in ["deny=/tmp/private", "deny-http=a.com", "deny-keyvalue=b"] {
            let mut narrowed = grants("write=/tmp");
            let denial = toolcell_core::Policy::granting([line]).unwrap().grants.denied;
            narrowed.denied.paths.extend(denial.paths);
            narrowed.denied.http.extend(denial.http);
            narrowed.denied.buckets.extend(denial.buckets);
            others.push(access(&narrowed, None));
        }
        // What is built in varies with places of Toolcell.
        let mut built_in = grants("write=/tmp");
        built_in.denied.paths.push(toolcell_core::denial::PathDenial {
            host: "/tmp/state".into(),
            uses: toolcell_core::denial::DeniedUse::All,
            by: "the state of Toolcell `/tmp/state`".into(),
        });
        assert_eq!(access(&built_in, None), shown);
        assert!(!others.contains(&shown), "{others:?}");
        let saved = SavedApproval {
            tool: "t".into(),
            digest: "d".into(),
            access: shown.clone(),
            arguments: Scope::Any,
            places: BTreeMap::new(),
            base: None,
        };
        let with = |access: &String| Known {
            access: access.clone(),
            ..known("d")
        };
        let request = request("t", json!({}));
        assert!(saved.allows(&request, &with(&shown), None));
        for other in &others {
            assert!(!saved.allows(&request, &with(other), None));
        }
    }

    /// Creates a request with a path that resolves to `real`.
    fn leading(tool: &str, path: &str, real: &str) -> ApprovalRequest {
        let mut request = request(tool, json!({ "path": path }));
        request.places.push(ArgumentPlace {
            pointer: "/path".into(),
            kind: toolcell_core::PlaceKind::Path,
            plain: format!("/{path}"),
            named: Some(format!("/work/{path}")),
            real: Some(real.into()),
            is_unresolved: false,
        });
        request
    }

    #[test]
    fn path_that_resolves_elsewhere_now_asks_again() {
        let shown = leading("t", "notes/a", "/work/notes/a");
        let exactly = SavedApproval {
            tool: "t".into(),
            digest: "d".into(),
            access: "a".into(),
            arguments: Scope::Exactly(shown.arguments.clone()),
            places: places_of(&shown),
            base: None,
        };
        assert!(exactly.allows(&shown, &known("d"), Some("/work")));
        let moved = leading("t", "notes/a", "/work/private/a");
        assert!(!exactly.allows(&moved, &known("d"), Some("/work")));
        let before = SavedApproval {
            places: BTreeMap::new(),
            ..exactly
        };
        assert!(!before.allows(&shown, &known("d"), Some("/work")));
        let patterns = BTreeMap::from([("/path".to_owned(), "notes/*".to_owned())]);
        let like = SavedApproval {
            arguments: Scope::ArgumentPattern(ArgumentPattern::new(&shown, patterns, Some("/work")).unwrap()),
            base: Some("/work".into()),
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
                like.allows(&leading("t", path, real), &known("d"), Some("/work")),
                allowed,
                "{path}"
            );
        }
    }

    #[test]
    fn saved_approval_needs_same_tool_digest_and_arguments() {
        let exactly = SavedApproval {
            tool: "files_write".into(),
            digest: "sha256:1".into(),
            access: "a".into(),
            arguments: Scope::Exactly(json!({"path": "/a"})),
            places: BTreeMap::new(),
            base: None,
        };
        assert!(exactly.allows(
            &request("files_write", json!({"path": "/a"})),
            &known("sha256:1"),
            None
        ));
        assert!(!exactly.allows(
            &request("files_write", json!({"path": "/b"})),
            &known("sha256:1"),
            None
        ));
        assert!(!exactly.allows(
            &request("files_write", json!({"path": "/a", "mode": "w"})),
            &known("sha256:1"),
            None
        ));
        assert!(!exactly.allows(
            &request("files_write", json!({"path": "/a"})),
            &known("sha256:2"),
            None
        ));
        assert!(!exactly.allows(
            &request("files_edit", json!({"path": "/a"})),
            &known("sha256:1"),
            None
        ));
        let any = SavedApproval {
            arguments: Scope::Any,
            ..exactly
        };
        assert!(any.allows(
            &request("files_write", json!({"path": "/b"})),
            &known("sha256:1"),
            None
        ));
        assert!(!any.allows(
            &request("files_write", json!({"path": "/b"})),
            &known("sha256:2"),
            None
        ));
    }

    #[test]
    fn pattern_varies_one_string_and_fixes_the_rest() {
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
    fn pattern_never_matches_path_with_parent_components() {
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
    fn pattern_must_match_shown_arguments() {
        let arguments = json!({"path": "notes/a.md", "depth": 3});
        for patterns in [&[("/path", "other/*")][..], &[("/name", "*")], &[("/depth", "*")]] {
            assert_eq!(like(arguments.clone(), patterns), None, "{patterns:?}");
        }
    }

    #[test]
    fn strings_are_found_at_any_depth_with_their_pointers() {
        let arguments = json!({"a": "1", "b/c~d": ["2", {"e": "3"}], "f": 4, "": "5"});
        let found = texts(&arguments, 100).unwrap();
        assert_eq!(found.len(), 4);
        for (pointer, text) in found {
            assert_eq!(arguments.pointer(&pointer).and_then(Value::as_str), Some(&*text));
        }
    }

    #[test]
    fn saved_approvals_read_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/approvals.json");
        assert_eq!(read(&file).unwrap(), []);
        let of = |arguments| SavedApproval {
            tool: "t".into(),
            digest: "sha256:1".into(),
            access: "a".into(),
            arguments,
            places: BTreeMap::new(),
            base: None,
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

    #[test]
    fn at_most_1000_approvals_are_saved() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("approvals.json");
        let one = SavedApproval {
            tool: "t".into(),
            digest: "sha256:1".into(),
            access: "a".into(),
            arguments: Scope::Any,
            places: BTreeMap::new(),
            base: None,
        };
        write(&file, &vec![one.clone(); MAX_SAVED - 1]).unwrap();
        add(&file, &one).unwrap();
        assert!(add(&file, &one).is_err());
        assert_eq!(read(&file).unwrap().len(), MAX_SAVED);
    }

    #[test]
    fn relative_pattern_holds_only_where_it_was_shown() {
        let at = |real: &str| ApprovalRequest {
            places: vec![ArgumentPlace {
                pointer: "/path".into(),
                kind: PlaceKind::Path,
                plain: real.into(),
                named: Some(real.into()),
                real: Some(real.into()),
                is_unresolved: false,
            }],
            ..request("t", json!({ "path": real }))
        };
        for (pattern, elsewhere) in [("notes/*", false), ("/work/sub/notes/*", true)] {
            let shown = at("/work/sub/notes/a");
            let (base, patterns) = (
                Some("/work/sub"),
                BTreeMap::from([("/path".into(), pattern.into())]),
            );
            let like = ArgumentPattern::new(&shown, patterns, base).unwrap();
            let saved = SavedApproval {
                tool: "t".into(),
                digest: "d".into(),
                access: "a".into(),
                arguments: Scope::ArgumentPattern(like),
                places: places_of(&shown),
                base: base.map(str::to_owned),
            };
            assert!(saved.allows(&at("/work/sub/notes/b"), &known("d"), base));
            assert!(!saved.allows(&at("/work/notes/b"), &known("d"), base));
            assert!(
                !saved.allows(&at("/work/notes/b"), &known("d"), Some("/work")),
                "{pattern}"
            );
            let same = saved.allows(&at("/work/sub/notes/b"), &known("d"), Some("/other"));
            assert_eq!(same, elsewhere, "{pattern}");
        }
    }

    #[test]
    fn each_argument_has_its_own_target() {
        let place = |pointer: &str, kind, target: &str| ArgumentPlace {
            pointer: pointer.into(),
            kind,
            plain: target.into(),
            named: None,
            real: None,
            is_unresolved: false,
        };
        let shown = ApprovalRequest {
            places: vec![
                place("/to", PlaceKind::Path, "/work/https:/example.com/a"),
                place("/to", PlaceKind::Url, "https://example.com/a"),
                place("/from", PlaceKind::Path, "/work/b"),
            ],
            ..request("t", json!({"to": "https://example.com/a", "from": "b"}))
        };
        let saved = |arguments| SavedApproval {
            tool: "t".into(),
            digest: "d".into(),
            access: "a".into(),
            arguments,
            places: places_of(&shown),
            base: Some("/work".into()),
        };
        let exactly = saved(Scope::Exactly(shown.arguments.clone()));
        assert!(exactly.allows(&shown, &known("d"), Some("/work")));
        for moved in 0..shown.places.len() {
            let mut other = shown.clone();
            other.places[moved].plain = "/elsewhere".into();
            assert!(!exactly.allows(&other, &known("d"), Some("/work")), "{moved}");
        }

        // A pattern for a URL does not depend on the base of paths.
        let mut of_url = shown.clone();
        of_url.places.remove(0);
        let patterns = BTreeMap::from([("/to".into(), "https://example.com/*".into())]);
        let like = ArgumentPattern::new(&of_url, patterns, Some("/work")).unwrap();
        let like = saved(Scope::ArgumentPattern(like));
        assert!(like.allows(&of_url, &known("d"), Some("/other")));
    }
}
