//! Files and URLs that the arguments of a call refer to: as written by the model, normalized, and resolved on the host.
//!
//! A rule, hook or remembered approval that names a path must not be bypassed by another spelling, by a directory
//! mapped elsewhere, or by a link. A tool reports the places in its arguments ([`Tool::places`](crate::Tool::places)),
//! and [`ArgumentPlace::is_met_by`] and [`ArgumentPlace::is_within`] match patterns against them.
//!
//! An argument is a path if its schema has `"format": "path"` or if its name suggests one ([`is_path_name`]); it is a
//! URL if the schema has `"format": "uri"` or the name is one such as `url`. A name that the schema does not declare is
//! itself a path if its object suggests paths or if it contains a slash, and a URL if it contains `://`.

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

/// Ends of words that mark an argument as a path, such as `logfile`, and as a URL, such as `baseurl`.
const PATH_ENDS: [&str; 6] = ["path", "paths", "file", "files", "dir", "folder"];
const URL_ENDS: [&str; 4] = ["url", "urls", "uri", "uris"];

/// Words with such an end that mean something else.
const OTHER_WORDS: [&str; 6] = ["profile", "profiles", "curl", "xpath", "jsonpath", "redir"];

/// Maximum depth of `$ref` and alternatives that are followed in a schema.
const MAX_SCHEMA_LEVELS: u32 = 8;

/// A file or URL that an argument refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentPlace {
    /// Location of the argument, as a JSON Pointer (RFC 6901). Empty for all those that are too many to be listed.
    pub pointer: String,
    /// Kind of the place.
    pub kind: PlaceKind,
    /// Normalized form: for a path, absolute as seen by the tool, without `.`, `..` and empty parts; for a URL, as
    /// clients send it.
    pub plain: String,
    /// Path on the host according to the tool's grants, with links unresolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The path on the host with links resolved. Absent where no grant holds it, and where [`Self::is_unresolved`]. For a URL
    /// in whose path a server could read an upward step, its origin, which is all that is certain.
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

/// Maximum number of places that are found in the arguments of a call. Hundreds of paths in one call are plausible.
const MAX_FOUND: usize = 1_024;

/// Maximum size of all their pointers, in bytes. Each repeats the names above its argument, which the model chooses.
const MAX_POINTERS: usize = 256 << 10;

/// Maximum number of schemas that are read to find them. A schema can refer to itself in many ways.
const MAX_SCHEMAS: u32 = 100_000;

/// Paths and URLs in the arguments of a call.
#[derive(Debug)]
pub struct PlacesFound<'a> {
    /// Pointer, kind and text of each.
    pub places: Vec<(String, PlaceKind, &'a str)>,
    /// False if there are too many, so that some were not found.
    pub is_complete: bool,
}

/// Finds the arguments that are paths or URLs by schema or name, in time and memory that are linear in the arguments.
pub fn places_in<'a>(arguments: &'a Value, schema: &'a Value) -> PlacesFound<'a> {
    let mut search = Search {
        root: schema,
        pointer: String::new(),
        pointers: 0,
        schemas: MAX_SCHEMAS,
        found: PlacesFound {
            places: Vec::new(),
            is_complete: true,
        },
    };
    let says = search.format(schema, 0);
    let argument = Argument {
        schema: Some(schema),
        says,
        name: Suggestion::default(),
    };
    search.value(arguments, argument);
    search.found
}

struct Search<'a> {
    root: &'a Value,
    /// Pointer of the value that is looked at.
    pointer: String,
    /// Size of the pointers of all that was found.
    pointers: usize,
    /// Schemas that may still be read.
    schemas: u32,
    found: PlacesFound<'a>,
}

/// What is known of a value before it is looked at.
#[derive(Clone, Copy)]
struct Argument<'a> {
    schema: Option<&'a Value>,
    /// Kind that the schema declares for a text.
    says: Option<PlaceKind>,
    name: Suggestion,
}

/// What the name of an argument suggests. `dirUrl` may be either.
#[derive(Debug, Clone, Copy, Default)]
struct Suggestion {
    is_path: bool,
    is_url: bool,
}

impl<'a> Search<'a> {
    fn value(&mut self, value: &'a Value, argument: Argument<'a>) {
        if !self.found.is_complete {
            return;
        }
        let end = self.pointer.len();
        match value {
            Value::String(text) => match argument.says {
                Some(kind) => self.add(kind, text),
                None => argument.name.kinds(text).for_each(|kind| self.add(kind, text)),
            },
            Value::Array(items) => {
                let schema = argument
                    .schema
                    .and_then(|schema| self.below(schema, "items", None, 0));
                let says = schema.and_then(|schema| self.format(schema, 0));
                let first = argument
                    .schema
                    .and_then(|schema| self.below(schema, "prefixItems", None, 0))
                    .and_then(Value::as_array);
                for (i, item) in items.iter().enumerate() {
                    let own = first.and_then(|first| first.get(i));
                    let schema = own.or(schema);
                    let says = match own {
                        Some(own) => self.format(own, 0),
                        None => says,
                    };
                    self.pointer.push('/');
                    self.pointer.push_str(&i.to_string());
                    self.value(
                        item,
                        Argument {
                            schema,
                            says,
                            ..argument
                        },
                    );
                    self.pointer.truncate(end);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let schema = argument
                        .schema
                        .and_then(|schema| self.below(schema, "properties", Some(name), 0));
                    let is_declared = schema.is_some();
                    let schema = schema.or_else(|| self.undeclared(argument.schema?));
                    let says = schema.and_then(|schema| self.format(schema, 0));
                    self.pointer.push('/');
                    self.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    if self.names_are_paths(argument.schema) {
                        self.add(PlaceKind::Path, name);
                    } else if !is_declared {
                        // A map by files or URLs, such as `{"files": {"a": "…"}, "edits": {"a/b": "…"}}`.
                        let suggested = Suggestion {
                            is_path: argument.name.is_path || name.contains(['/', '\\']),
                            is_url: argument.name.is_url || name.contains("://"),
                        };
                        suggested.kinds(name).for_each(|kind| self.add(kind, name));
                    }
                    let name = Suggestion::of(name);
                    self.value(member, Argument { schema, says, name });
                    self.pointer.truncate(end);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Returns the schema of a property that is not declared by its name.
    fn undeclared(&mut self, schema: &'a Value) -> Option<&'a Value> {
        let patterns = self.below(schema, "patternProperties", None, 0);
        let mut patterns = patterns.and_then(Value::as_object).into_iter().flatten();
        // Of any pattern: one more place is the safe side.
        let path = patterns.find_map(|(_, schema)| self.format(schema, 0).map(|_| schema));
        path.or_else(|| self.below(schema, "additionalProperties", None, 0))
    }

    /// True if the schema says that the names of an object's members are paths.
    fn names_are_paths(&mut self, schema: Option<&'a Value>) -> bool {
        let names = schema.and_then(|schema| self.below(schema, "propertyNames", None, 0));
        names.is_some_and(|names| self.format(names, 0) == Some(PlaceKind::Path))
    }

    fn add(&mut self, kind: PlaceKind, text: &'a str) {
        self.pointers += self.pointer.len();
        if self.found.places.len() == MAX_FOUND || self.pointers > MAX_POINTERS {
            self.found.is_complete = false;
            return;
        }
        let text = match kind {
            PlaceKind::Path => path_of_file_url(text).unwrap_or(text),
            PlaceKind::Url => text,
        };
        self.found.places.push((self.pointer.clone(), kind, text));
    }

    /// Returns the format that a schema, its references or its alternatives declare for a text.
    fn format(&mut self, schema: &'a Value, level: u32) -> Option<PlaceKind> {
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
    fn below(
        &mut self,
        schema: &'a Value,
        keyword: &str,
        name: Option<&str>,
        level: u32,
    ) -> Option<&'a Value> {
        let found = schema.get(keyword);
        let found = match name {
            Some(name) => found.and_then(|properties| properties.get(name)),
            None => found,
        };
        found.or_else(|| {
            self.others(schema, level)
                .into_iter()
                .find_map(|other| self.below(other, keyword, name, level + 1))
        })
    }

    fn others(&mut self, schema: &'a Value, level: u32) -> Vec<&'a Value> {
        if level >= MAX_SCHEMA_LEVELS {
            return Vec::new();
        }
        self.schemas = self.schemas.saturating_sub(1);
        if self.schemas == 0 {
            self.found.is_complete = false;
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

impl Suggestion {
    fn of(name: &str) -> Self {
        Self {
            is_path: is_path_name(name),
            is_url: words(name)
                .iter()
                .any(|word| is_word(word, &URL_WORDS, &URL_ENDS)),
        }
    }

    /// The kinds that a text may be. `source` may also be a URL if its text has a scheme: then it is both, and a rule for one
    /// of them applies.
    fn kinds(self, text: &str) -> impl Iterator<Item = PlaceKind> + use<> {
        let is_url = self.is_url || (self.is_path && text.contains("://"));
        let path = self.is_path.then_some(PlaceKind::Path);
        path.into_iter().chain(is_url.then_some(PlaceKind::Url))
    }
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
    words.iter().any(|word| is_word(word, &PATH_WORDS, &PATH_ENDS))
        || matches!(&words[..], [word] if PATH_NAMES.contains(&word.as_str()))
}

fn is_word(word: &str, words: &[&str], ends: &[&str]) -> bool {
    words.contains(&word) || (ends.iter().any(|end| word.ends_with(end)) && !OTHER_WORDS.contains(&word))
}

/// Splits a name in `snake_case`, `kebab-case` or `camelCase` into lower-case words; `CSVDir` is `csv` and `dir`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut was_lower, mut was_upper) = (false, false);
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        let is_next_lower = rest.clone().next().is_some_and(char::is_lowercase);
        let begins = c.is_uppercase() && (was_lower || (was_upper && is_next_lower));
        if !c.is_alphanumeric() || begins {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        was_upper = c.is_uppercase();
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
                "rows": {"type": "array", "items": {"properties": {"cell": {"format": "path"}}}},
                "deep": {"properties": {"input_file": {"type": "string"}}},
                "site": {"format": "uri"},
                "map": {"additionalProperties": {"format": "path"}},
                "pair": {"prefixItems": [{"format": "path"}, {"type": "string"}]},
                "some": {"patternProperties": {"^x": {"type": "string"}, "^p": {"format": "path"}}},
                "keys": {"propertyNames": {"format": "path"}},
            },
            "$defs": {"place": {"type": "string", "format": "path"}},
        });
        let arguments = json!({
            "where": "a", "perhaps": "b", "list": ["c", "d"], "deep": {"input_file": "e"},
            "outputDir": "f", "path": 1, "content": "g", "profile": "h", "site": "i", "to": "j", "base_url": "k", "a/b": {"path": "l"},
            "dirUrl": "m", "source": "https://n", "target": "o:p", "file": "FILE://localhost/q", "path_url": "file:r",
            "rows": [{"cell": "1"}], "DIR": "2", "infile": "s", "CSVDir": "t", "baseurl": "u", "APIUrl": "v", "xpath": "w", "files": {"x/y": "z", "k": "1"},
            "edits": {"x/y": "z", "k": {"./x": 1}, "https://o/": 1, "C:\\p": 1}, "urls": {"o": 1},
            "map": {"k": "1"}, "pair": ["2", "3"], "some": {"p1": "4"}, "keys": {"k": 5},
        });
        let mut found = places_in(&arguments, &schema);
        assert!(found.is_complete);
        found.places.sort();
        let shown: Vec<String> = found
            .places
            .iter()
            .map(|(pointer, kind, text)| format!("{pointer} {kind:?} {text}"))
            .collect();
        assert_eq!(
            shown,
            [
                "/APIUrl Url v",
                "/CSVDir Path t",
                "/DIR Path 2",
                "/a~1b Path a/b",
                "/a~1b/path Path l",
                "/base_url Url k",
                "/baseurl Url u",
                "/deep/input_file Path e",
                "/dirUrl Path m",
                "/dirUrl Url m",
                "/edits/C:\\p Path C:\\p",
                "/edits/https:~1~1o~1 Path https://o/",
                "/edits/https:~1~1o~1 Url https://o/",
                "/edits/k/.~1x Path ./x",
                "/edits/x~1y Path x/y",
                "/file Path /q",
                "/file Url FILE://localhost/q",
                "/files/k Path k",
                "/files/x~1y Path x/y",
                "/infile Path s",
                "/keys/k Path k",
                "/list/0 Path c",
                "/list/1 Path d",
                "/map/k Path 1",
                "/outputDir Path f",
                "/pair/0 Path 2",
                "/path_url Path r",
                "/path_url Url file:r",
                "/perhaps Path b",
                "/rows/0/cell Path 1",
                "/site Url i",
                "/some/p1 Path 4",
                "/source Path https://n",
                "/source Url https://n",
                "/target Path o:p",
                "/to Path j",
                "/urls/o Url o",
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
            assert_eq!(places_in(&json!("a"), &schema).places.len(), found, "{levels}");
            let schema = chain(levels, member.clone());
            assert_eq!(
                places_in(&json!({"x": "a"}), &schema).places.len(),
                found,
                "{levels}"
            );
        }
    }

    #[test]
    fn schema_that_refers_to_itself_says_nothing() {
        let schema = json!({"$ref": "#"});
        assert!(
            places_in(&json!({"x": "a", "y": ["b"]}), &schema)
                .places
                .is_empty()
        );
    }

    #[test]
    fn number_and_pointers_of_places_are_limited() {
        let paths = |number: usize| json!({ "path": vec!["a"; number] });
        for (arguments, is_complete) in [
            (paths(MAX_FOUND), true),
            (paths(MAX_FOUND + 1), false),
            (
                json!({ format!("path_{}", "x".repeat(MAX_POINTERS - 6)): "a" }),
                true,
            ),
            (
                json!({ format!("path_{}", "x".repeat(MAX_POINTERS - 5)): "a" }),
                false,
            ),
            (
                json!({ format!("path_{}", "x".repeat(1_000)): vec!["a"; 261] }),
                false,
            ),
            // What is no path needs no pointer.
            (
                json!({ "x".repeat(2 * MAX_POINTERS): vec!["a"; 10 * MAX_FOUND] }),
                true,
            ),
        ] {
            let found = places_in(&arguments, &Value::Null);
            assert_eq!(found.is_complete, is_complete, "{}", found.places.len());
            assert!(found.places.len() <= MAX_FOUND);
        }
    }

    #[test]
    fn schema_that_refers_to_itself_in_many_ways_is_given_up() {
        let many = |number: usize| json!({ "anyOf": vec![json!({"$ref": "#"}); number] });
        // 8 levels: 2 to the power of 8 is little, and 20 to the power of 8 is not.
        assert!(places_in(&json!({"x": "a"}), &many(1)).is_complete);
        assert!(!places_in(&json!({"x": "a"}), &many(20)).is_complete);
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
