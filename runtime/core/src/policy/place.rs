//! Files and URLs that the arguments of a call refer to: as written by the model, normalized, and resolved on the host.
//!
//! A rule, hook or remembered approval that names a path must not be bypassed by another spelling, by a directory
//! mapped elsewhere, or by a link. A tool reports the places in its arguments ([`Tool::places`](crate::Tool::places)),
//! and [`ArgumentPlace::is_met_by`] and [`ArgumentPlace::is_within`] match patterns against them.
//!
//! An argument is a path if its schema has `"format": "path"` or if its name suggests one ([`is_path_name`]); it is a
//! URL if the schema has `"format": "uri"` or the name is one such as `url`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Words that mark an argument as a path, as the whole name or a part of it, such as `input_file` or `outputDir`.
const PATH_WORDS: [&str; 16] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "filepath",
    "dir",
    "dirs",
    "directory",
    "directories",
    "folder",
    "folders",
    "cwd",
    "workdir",
    "root",
];

/// Names of arguments that are paths only as the whole name.
const PATH_NAMES: [&str; 8] = [
    "src",
    "dst",
    "dest",
    "destination",
    "source",
    "target",
    "from",
    "to",
];

/// Words that mark an argument as a URL, as the whole name or a part of it.
const URL_WORDS: [&str; 6] = ["url", "urls", "uri", "uris", "href", "endpoint"];

/// Maximum depth of `$ref` and alternatives that are followed in a schema.
const MAX_SCHEMA_LEVELS: u32 = 8;

/// A file or URL that an argument refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentPlace {
    /// Location of the argument, as a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// Kind of the place.
    pub kind: PlaceKind,
    /// Normalized form: for a path, absolute as seen by the tool, without `.`, `..` and empty parts; for a URL, as
    /// clients send it.
    pub plain: String,
    /// Path on the host according to the tool's grants, with links unresolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The path on the host with links resolved. Absent where no grant holds it, and where [`Self::is_unresolved`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<String>,
    /// True if the place was not resolved: the text is too long, no complete URL, or one path too many. It may lead
    /// anywhere: patterns that ask or deny are met by it, and none that allows holds. [`Self::plain`] is its beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unresolved: bool,
}

/// Kind of place that an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// A file or directory.
    Path,
    /// A URL.
    Url,
}

impl ArgumentPlace {
    /// Returns `true` if a pattern matches the place in any spelling. Relative patterns start at `base`, a directory of
    /// the host.
    pub fn is_met_by(&self, base: Option<&str>, matches: impl Fn(&str) -> bool) -> bool {
        if self.is_unresolved {
            return true;
        }
        let host = self.named.iter().chain(&self.real);
        let mut spellings = self.spellings_of(&self.plain, None);
        spellings.extend(host.flat_map(|path| self.spellings_of(path, base)));
        spellings.iter().any(|spelling| matches(spelling))
    }

    /// Returns `true` if a pattern matches the resolved place, and not only its spelling.
    pub fn is_within(&self, base: Option<&str>, matches: impl Fn(&str) -> bool) -> bool {
        if self.is_unresolved {
            return false;
        }
        let spellings = match &self.real {
            Some(real) => self.spellings_of(real, base),
            None => self.spellings_of(&self.plain, None),
        };
        spellings.iter().any(|spelling| matches(spelling))
    }

    /// The path as it is, without its leading slash, and relative to `base` if it is below it.
    fn spellings_of(&self, path: &str, base: Option<&str>) -> Vec<String> {
        let mut spellings = vec![path.to_owned()];
        if self.kind == PlaceKind::Url {
            return spellings;
        }
        let below = match base {
            None => path.strip_prefix('/'),
            Some(base) => path
                .strip_prefix(base.trim_end_matches('/'))
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
                .map(|rest| rest.trim_start_matches('/')),
        };
        if let Some(below) = below {
            spellings.push(if below.is_empty() { "." } else { below }.to_owned());
            spellings.push(format!("/{below}"));
        }
        spellings
    }
}

/// Returns the arguments that are paths or URLs by schema or name, as pointer, kind and text.
pub fn places_in(arguments: &Value, schema: &Value) -> Vec<(String, PlaceKind, String)> {
    let mut search = Search {
        root: schema,
        found: Vec::new(),
    };
    search.value(arguments, Some(schema), "", String::new());
    search.found
}

struct Search<'a> {
    root: &'a Value,
    found: Vec<(String, PlaceKind, String)>,
}

impl Search<'_> {
    fn value(&mut self, value: &Value, schema: Option<&Value>, name: &str, pointer: String) {
        match value {
            Value::String(text) => {
                let says = schema.and_then(|schema| self.format(schema, 0));
                let kinds = says.map_or_else(|| kinds_of_name(name, text), |kind| vec![kind]);
                for kind in kinds {
                    let text = match kind {
                        PlaceKind::Path => path_of_file_url(text).unwrap_or(text),
                        PlaceKind::Url => text,
                    };
                    self.found.push((pointer.clone(), kind, text.to_owned()));
                }
            }
            Value::Array(items) => {
                let schema = schema.and_then(|schema| self.below(schema, "items", None));
                let schema = schema.cloned();
                for (i, item) in items.iter().enumerate() {
                    self.value(item, schema.as_ref(), name, format!("{pointer}/{i}"));
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let below = schema.and_then(|schema| self.below(schema, "properties", Some(name)));
                    let below = below.cloned();
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    self.value(member, below.as_ref(), name, format!("{pointer}/{escaped}"));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the format that a schema, its references or its alternatives declare for a text.
    fn format(&self, schema: &Value, level: u32) -> Option<PlaceKind> {
        match schema.get("format").and_then(Value::as_str) {
            Some("path") => return Some(PlaceKind::Path),
            Some("uri" | "uri-reference" | "iri" | "url") => return Some(PlaceKind::Url),
            _ => {}
        }
        self.others(schema, level)
            .into_iter()
            .find_map(|other| self.format(other, level + 1))
    }

    /// Returns the schema of the items of a list, or of one property of an object.
    fn below<'v>(&'v self, schema: &'v Value, keyword: &str, name: Option<&str>) -> Option<&'v Value> {
        self.below_at(schema, keyword, name, 0)
    }

    fn below_at<'v>(
        &'v self,
        schema: &'v Value,
        keyword: &str,
        name: Option<&str>,
        level: u32,
    ) -> Option<&'v Value> {
        let found = schema.get(keyword);
        let found = match name {
            Some(name) => found.and_then(|properties| properties.get(name)),
            None => found,
        };
        found.or_else(|| {
            self.others(schema, level)
                .into_iter()
                .find_map(|other| self.below_at(other, keyword, name, level + 1))
        })
    }

    fn others<'v>(&'v self, schema: &'v Value, level: u32) -> Vec<&'v Value> {
        if level >= MAX_SCHEMA_LEVELS {
            return Vec::new();
        }
        let referred = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| self.root.pointer(reference.strip_prefix('#')?));
        let lists = ["anyOf", "oneOf", "allOf"].into_iter();
        let alternatives = lists.filter_map(|keyword| schema.get(keyword)?.as_array());
        referred.into_iter().chain(alternatives.flatten()).collect()
    }
}

/// Returns what the name of an argument and its text suggest. `dirUrl` may be either, and so may `source` if its text has a
/// scheme: then it is both, and a rule for one of them applies.
fn kinds_of_name(name: &str, text: &str) -> Vec<PlaceKind> {
    let is_url = words(name).iter().any(|word| URL_WORDS.contains(&word.as_str()));
    let mut kinds = Vec::new();
    if is_path_name(name) {
        kinds.push(PlaceKind::Path);
    }
    if is_url || (!kinds.is_empty() && text.contains("://")) {
        kinds.push(PlaceKind::Url);
    }
    kinds
}

/// Returns the path in a `file:` URL (RFC 8089) of this host.
fn path_of_file_url(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    Some(
        rest.strip_prefix("localhost")
            .filter(|rest| rest.starts_with('/'))
            .unwrap_or(rest),
    )
}

/// Returns `true` if the name of an argument suggests a path: `path`, `file`, `dir` and similar words, also as a part
/// (`input_file`, `outputDir`), and `src`, `dest`, `from`, `to` and similar words alone. Used if the schema declares no
/// format.
pub fn is_path_name(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|word| PATH_WORDS.contains(&word.as_str()))
        || matches!(&words[..], [word] if PATH_NAMES.contains(&word.as_str()))
}

/// Splits a name in `snake_case`, `kebab-case` or `camelCase` into lower-case words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if c.is_alphanumeric() {
            words
                .last_mut()
                .into_iter()
                .for_each(|word| word.extend(c.to_lowercase()));
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_recognized_by_schema_or_name() {
        let schema = json!({
            "properties": {
                "where": {"type": "string", "format": "path"},
                "perhaps": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
                "list": {"type": "array", "items": {"format": "path"}},
                "deep": {"properties": {"input_file": {"type": "string"}}},
                "site": {"format": "uri"},
            },
            "$defs": {"place": {"type": "string", "format": "path"}},
        });
        let arguments = json!({
            "where": "a", "perhaps": "b", "list": ["c", "d"], "deep": {"input_file": "e"},
            "outputDir": "f", "path": 1, "content": "g", "profile": "h", "site": "i", "to": "j", "base_url": "k", "a/b": {"path": "l"},
            "dirUrl": "m", "source": "https://n", "target": "o:p", "file": "FILE://localhost/q", "path_url": "file:r",
        });
        let mut found = places_in(&arguments, &schema);
        found.sort();
        let shown: Vec<String> = found
            .iter()
            .map(|(pointer, kind, text)| format!("{pointer} {kind:?} {text}"))
            .collect();
        assert_eq!(
            shown,
            [
                "/a~1b/path Path l",
                "/base_url Url k",
                "/deep/input_file Path e",
                "/dirUrl Path m",
                "/dirUrl Url m",
                "/file Path /q",
                "/file Url FILE://localhost/q",
                "/list/0 Path c",
                "/list/1 Path d",
                "/outputDir Path f",
                "/path_url Path r",
                "/path_url Url file:r",
                "/perhaps Path b",
                "/site Url i",
                "/source Path https://n",
                "/source Url https://n",
                "/target Path o:p",
                "/to Path j",
                "/where Path a",
            ]
        );
    }

    #[test]
    fn place_matches_in_every_spelling_and_is_within_as_resolved() {
        let place = ArgumentPlace {
            pointer: "/path".into(),
            kind: PlaceKind::Path,
            plain: "/scratch/x".into(),
            named: Some("/work/way/x".into()),
            real: Some("/work/private/x".into()),
            is_unresolved: false,
        };
        let base = Some("/work");
        for (spelling, met, within) in [
            ("/scratch/x", true, false),
            ("scratch/x", true, false),
            ("way/x", true, false),
            ("/work/way/x", true, false),
            ("private/x", true, true),
            ("/private/x", true, true),
            ("/work/private/x", true, true),
            ("work/private/x", false, false),
            ("x", false, false),
        ] {
            assert_eq!(place.is_met_by(base, |text| text == spelling), met, "{spelling}");
            assert_eq!(
                place.is_within(base, |text| text == spelling),
                within,
                "{spelling}"
            );
        }
    }

    #[test]
    fn schemas_are_followed_to_their_last_level_and_no_further() {
        // Each level refers to the next; the last one says what the argument is.
        let chain = |levels: u32, last: Value| {
            let mut schema = json!({"$defs": {"d0": last}});
            for level in 1..levels {
                schema["$defs"][format!("d{level}")] = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            }
            schema["$ref"] = json!(format!("#/$defs/d{}", levels - 1));
            schema
        };
        let member = json!({"properties": {"x": {"format": "path"}}});
        for (levels, found) in [(MAX_SCHEMA_LEVELS, 1), (MAX_SCHEMA_LEVELS + 1, 0)] {
            let schema = chain(levels, json!({"format": "path"}));
            assert_eq!(places_in(&json!("a"), &schema).len(), found, "{levels}");
            let schema = chain(levels, member.clone());
            assert_eq!(places_in(&json!({"x": "a"}), &schema).len(), found, "{levels}");
        }
    }

    #[test]
    fn schema_that_refers_to_itself_says_nothing() {
        let schema = json!({"$ref": "#"});
        assert!(places_in(&json!({"x": "a", "y": ["b"]}), &schema).is_empty());
    }

    #[test]
    fn unresolved_path_overlaps_all_and_is_within_nothing() {
        let place = ArgumentPlace {
            pointer: "/path".into(),
            kind: PlaceKind::Path,
            plain: "/x".into(),
            named: Some("/work/x".into()),
            real: None,
            is_unresolved: true,
        };
        assert!(place.is_met_by(None, |_| false));
        assert!(!place.is_within(None, |_| true));
    }
}
