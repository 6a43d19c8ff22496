//! Parser of one configuration file: size, encoding, TOML, unknown keys, types.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};
use toolcell_agent::{ApprovalRule, InvalidRule};
use toolcell_core::suggest::nearest;
use toolcell_fs::Rules;

use super::wrong_value::{self, LIST, resolve};
use super::{File, RuleTable};
use crate::config::limits;
use crate::config::source::{Layer, Source};
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::reason;
use crate::ui::terminal::{Text, text};

/// Maximum size of a configuration file, in bytes. Enough for a thousand tools, and small enough to reject a device or
/// a wrong file.
pub(in crate::config) const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of entries of a list, or of `[[...]]` tables of one name. Each line of `deny` is looked up on disk in
/// every call, and each approval rule is compared with its arguments.
const MAX_ENTRIES: usize = 1_000;

/// Maximum size of the texts in such a list, in bytes: a thousand lines of usual length.
const MAX_LIST_BYTES: usize = 64 << 10;

/// A parsed configuration file.
#[derive(Debug)]
pub(crate) struct Parsed {
    /// Path and text of the file.
    pub(crate) source: Arc<Source>,
    /// Contents of the file.
    pub(crate) file: File,
}

/// Reads and checks the file at `path`; returns `None` if there is none. `rules` are the requirements on the file,
/// because error messages show lines of it.
///
/// # Errors
/// Returns an error if the file cannot be read, violates `rules`, is not valid TOML, or contains an unknown key.
pub(crate) fn read(
    path: &Path,
    layer: Layer,
    rules: Rules,
    environment: &Environment,
) -> Result<Option<Parsed>, Failure> {
    let shown = environment.shown(path);
    let text = match toolcell_fs::read_text(path, &rules) {
        Ok(text) => text,
        Err(_) if layer == Layer::User && is_null_device(path) => String::new(),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => {
            let fail = Failure::new(
                Exit::Config,
                text!("the {} configuration `{}` cannot be read", layer, shown),
            );
            return Err(user_files::because(fail, error));
        }
    };
    let source = Source {
        layer,
        path: path.to_owned(),
        shown,
        text,
        line_starts: OnceLock::new(),
    };
    parse(source).map(Some)
}

/// True for `/dev/null` and links to it, the usual name of an empty file.
fn is_null_device(path: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|path| path == Path::new("/dev/null"))
}

/// Parses and checks a text.
///
/// # Errors
/// Same as [`read`].
pub(crate) fn parse(source: Source) -> Result<Parsed, Failure> {
    let fail = || {
        Failure::new(
            Exit::Config,
            text!(
                "the {} configuration `{}` cannot be used",
                source.layer,
                source.shown
            ),
        )
    };
    let because = |error: toml::de::Error, message: String| {
        let span = error.span().unwrap_or(0..source.text.len());
        let theirs = source.text.get(span).unwrap_or(&source.text);
        let place = error.span().map(|span| text!("\n{}", source.point_at(&span)));
        // A text in quotes is a word of the file as well.
        let theirs = theirs.split(['"', '\'']).chain([theirs]);
        let message = match message.contains(": string \"") {
            true => Text::foreign(message),
            false => Text::sentence(&message, theirs),
        };
        fail().why(text!("{}{}", message, place.unwrap_or_default()))
    };
    let table = DeTable::parse(&source.text).map_err(|error| {
        let message = error.message().trim().to_owned();
        because(error, message)
    })?;
    let schema = crate::config::file::schema::json_schema();
    if let Some(unknown) = unknown_key(table.get_ref(), &schema, &schema, "") {
        let table = match unknown.table.as_str() {
            "" => "at the top level".into(),
            table => text!("in `{}`", format!("[{table}]")),
        };
        let reason = text!(
            "there is no key `{}` {}\n{}",
            unknown.key.get_ref(),
            table,
            source.point_at(&unknown.key.span()),
        );
        let known: Vec<&str> = unknown.known.iter().map(String::as_str).collect();
        if unknown.key.get_ref() == "deny" {
            return Err(fail().why(reason).hint(
                "a denial for one component is a line of its `grants`, such as \"deny=private\"; \
                 `deny = [\"private\"]` at the top of the file is for all",
            ));
        }
        return Err(fail()
            .why(reason)
            .hint(match nearest(unknown.key.get_ref(), &known).first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys are {}", list(&known)),
            }));
    }
    if let Some(wrong) = wrong_value::find(table.get_ref(), &schema, &schema) {
        let key = wrong.key.get_ref().as_ref();
        let failure = fail().why(text!(
            "`{}` takes {}, not {}\n{}",
            key,
            Text::sentence(&wrong.wanted, []),
            Text::sentence(&wrong.found, []),
            source.point_at(&wrong.place)
        ));
        return Err(match wrong.wanted.as_str() {
            LIST => failure.hint(text!("put its entries in brackets: `{} = [\"…\"]`", key)),
            _ => failure,
        });
    }
    if let Some((key, list)) = long_list(table.get_ref()) {
        return Err(fail()
            .why(text!(
                "the list `{}` has {}\n{}",
                key.get_ref().as_ref(),
                Text::sentence(&list, []),
                source.point_at(&key.span())
            ))
            .hint("name a directory or a pattern that covers several of them"));
    }
    let file = toml::from_str::<File>(&source.text).map_err(|error| {
        let key = error
            .span()
            .and_then(|span| wrong_value::key_at(table.get_ref(), &span));
        let message = wrong_value::in_words(error.message().trim(), key);
        because(error, message)
    })?;
    if let Some((span, why)) = invalid_rule(&file.approval.rules) {
        return Err(fail().why(text!("{}\n{}", why, source.point_at(&span))));
    }
    let limits = file.tools.values().map(|tool| &tool.limits);
    let limits = limits.chain(file.hooks.values().map(|hook| &hook.limits));
    if let Some((span, why)) = limits.into_iter().find_map(limits::too_small_in) {
        return Err(fail().why(text!("{}\n{}", why, source.point_at(&span))));
    }
    Ok(Parsed {
        source: Arc::new(source),
        file,
    })
}

/// Returns the key and the length of the first list with more than [`MAX_ENTRIES`] entries or [`MAX_LIST_BYTES`].
fn long_list<'a, 'b>(table: &'b DeTable<'a>) -> Option<(&'b Spanned<DeString<'a>>, String)> {
    let bytes = |list: &DeArray<'_>| -> usize {
        let texts = list.iter().map(|entry| match entry.get_ref() {
            DeValue::String(text) => text.len(),
            _ => 0,
        });
        texts.sum()
    };
    table.iter().find_map(|(key, value)| match value.get_ref() {
        DeValue::Table(below) => long_list(below),
        DeValue::Array(list) if list.len() > MAX_ENTRIES => {
            Some((key, format!("{} entries, more than {MAX_ENTRIES}", list.len())))
        }
        DeValue::Array(list) if bytes(list) > MAX_LIST_BYTES => {
            let bytes = bytes(list);
            Some((key, format!("{bytes} bytes of text, more than {MAX_LIST_BYTES}")))
        }
        DeValue::Array(list) => list.iter().find_map(|entry| match entry.get_ref() {
            DeValue::Table(below) => long_list(below),
            _ => None,
        }),
        _ => None,
    })
}

/// Returns the place of the first approval rule that could never match, and the reason.
fn invalid_rule(rules: &[RuleTable]) -> Option<(Range<usize>, Text)> {
    let refused = |part: &Spanned<String>, checked: Result<(), InvalidRule>| {
        checked.err().map(|why| (part.span(), reason::of_rule(&why)))
    };
    rules.iter().find_map(|rule| {
        refused(&rule.tool, ApprovalRule::check_tool(rule.tool.get_ref())).or_else(|| {
            rule.arguments.iter().find_map(|(pointer, pattern)| {
                refused(pointer, ApprovalRule::check_pointer(pointer.get_ref()))
                    .or_else(|| refused(pattern, ApprovalRule::check_pattern(pattern.get_ref())))
            })
        })
    })
}

struct Unknown {
    key: Spanned<String>,
    table: String,
    known: Vec<String>,
}

/// Returns the first key that is not in the schema. The schema is generated from the types the file is deserialized
/// into, so that both know the same keys.
fn unknown_key(table: &DeTable<'_>, schema: &Value, root: &Value, path: &str) -> Option<Unknown> {
    let schema = resolve(schema, root);
    let properties = schema.get("properties").and_then(Value::as_object);
    let others = schema
        .get("additionalProperties")
        .filter(|value| value.is_object());
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let Some(inner) = properties.and_then(|known| known.get(name)).or(others) else {
            return Some(Unknown {
                key: Spanned::new(key.span(), name.to_owned()),
                table: path.to_owned(),
                known: properties
                    .map(|known| known.keys().cloned().collect())
                    .unwrap_or_default(),
            });
        };
        if let DeValue::Table(below) = value.get_ref() {
            let below_path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            let below_schema = resolve(inner, root);
            let is_table = ["properties", "additionalProperties"]
                .iter()
                .any(|keyword| below_schema.get(keyword).is_some());
            if is_table && let Some(unknown) = unknown_key(below, below_schema, root, &below_path) {
                return Some(unknown);
            }
        }
    }
    None
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> bool {
        let source = Source {
            layer: Layer::Project,
            path: "/c.toml".into(),
            shown: "c.toml".into(),
            text: text.into(),
            line_starts: OnceLock::new(),
        };
        parse(source).is_ok()
    }

    fn failure(text: &str) -> String {
        let source = Source {
            layer: Layer::User,
            path: "/c.toml".into(),
            shown: "c.toml".into(),
            text: text.into(),
            line_starts: OnceLock::new(),
        };
        let mut out = Vec::new();
        let mut screen = crate::ui::terminal::Screen::new(&mut out, false, crate::ui::terminal::Size::NONE);
        parse(source).unwrap_err().print(&mut screen).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn value_of_wrong_type_is_refused_in_words() {
        for (file, parts) in [
            (
                "[tools.files]\ngrants = \"read=.\"\n",
                &[
                    "`grants` takes a list, not a text",
                    "line 2",
                    "`grants = [\"…\"]`",
                ][..],
            ),
            ("deny = true\n", &["`deny` takes a list, not true or false"]),
            (
                "[loop]\nmax_steps = \"ten\"\n",
                &[
                    "`max_steps` takes a whole number from 1 to 4294967295, not a text",
                    "line 2",
                ],
            ),
            ("tools = 1\n", &["`tools` takes a table, not a whole number"]),
            (
                "[tools.files]\nenabled = \"no\"\n",
                &["`enabled` takes true or false, not a text"],
            ),
            (
                "[loop]\nmax_steps = 1.5\n",
                &["`max_steps` takes a whole number", "not a number with a fraction"],
            ),
            (
                "[loop]\nmax_steps = -1\n",
                &["`max_steps` takes a whole number from 1 to 4294967295, not -1"],
            ),
            (
                "[loop]\nmax_steps = 4294967296\n",
                &["from 1 to 4294967295, not 4294967296"],
            ),
            (
                "[provider]\nretries = -1\n",
                &["`retries` takes a whole number from 0 to 20, not -1"],
            ),
            ("[provider]\nretries = 21\n", &["from 0 to 20, not 21"]),
            (
                "[provider]\nseed = -1\n",
                &["`seed` takes a whole number of at least 0, not -1"],
            ),
            (
                "[provider]\ntemperature = 2.5\n",
                &["`temperature` takes a number from 0 to 2, not 2.5"],
            ),
            (
                "[provider]\ntop_p = 0.0\n",
                &["`top_p` takes a number above 0 and up to 1, not 0.0"],
            ),
            ("[provider]\nstop = []\n", &["at least one text"]),
            (
                "[provider]\nstop = [\"\"]\n",
                &["an empty text would end every answer"],
            ),
            (
                "[provider.headers]\nX-Key = 1\n",
                &["`X-Key` takes a text in quotes or a table with `env`, not a whole number"],
            ),
            (
                "[provider.headers]\nX-Key = { environment = \"A\" }\n",
                &["`X-Key` takes a text in quotes or a table with `env`, not a table without `env`"],
            ),
            (
                "[provider.headers]\n\"bad name\" = \"x\"\n",
                &["`bad name` cannot be the name of a header"],
            ),
            (
                "[budget]\ncalls = -1\n",
                &["`calls` takes a count, such as", "not `-1`"],
            ),
            (
                "[budget]\ntokens = 1.5\n",
                &["`tokens` takes a count, such as", "not `1.5`"],
            ),
            (
                "[loop]\ndeadline = 30\n",
                &["`deadline` takes a duration with a unit, such as", "not"],
            ),
            (
                "[tools.files]\ndeny = [\"a\"]\n",
                &["no key `deny`", "\"deny=private\""],
            ),
        ] {
            let shown = failure(file);
            for part in parts {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
    }

    #[test]
    fn error_about_a_value_names_no_type_of_the_program() {
        let values = ["-1", "1.5", "99999999999999", "true", "[1]", "{ a = 1 }"];
        let schema = crate::config::file::schema::json_schema();
        let tables = [
            "loop", "context", "provider", "budget", "approval", "agent", "log",
        ];
        for table in tables {
            let properties = resolve(&schema["properties"][table], &schema)["properties"].clone();
            let properties = properties.as_object().cloned().unwrap_or_default();
            assert!(!properties.is_empty(), "{table}");
            for (key, value) in properties.keys().flat_map(|key| values.map(|value| (key, value))) {
                let text = format!("[{table}]\n{key} = {value}\n");
                if parsed(&text) {
                    continue;
                }
                let shown = failure(&text);
                let words = shown.split(|c: char| !c.is_alphanumeric() && c != '_');
                let is_type = |word: &str| {
                    [
                        "u8", "u16", "u32", "u64", "i64", "f64", "usize", "map", "sequence", "enum",
                        "variant", "struct",
                    ]
                    .contains(&word)
                };
                let found = words
                    .filter(|word| is_type(word) && *word != key)
                    .collect::<Vec<_>>();
                assert!(
                    found.is_empty() && !shown.contains("invalid type"),
                    "{text}{shown}"
                );
            }
        }
    }

    #[test]
    fn list_has_at_most_1000_entries() {
        let parsed = |text: String| {
            parse(Source {
                layer: Layer::Project,
                path: "/c.toml".into(),
                shown: "c.toml".into(),
                text,
                line_starts: OnceLock::new(),
            })
            .map(drop)
            .map_err(|failure| failure.to_string())
        };
        let rule = "[[approval.rules]]\ntool = \"x\"\nverdict = \"ask\"\n";
        for text in [
            |n: usize| format!("deny = [{}]\n", "\"a\",".repeat(n)),
            |n: usize| format!("[tools.files]\ngrants = [{}]\n", "\"read=.\",".repeat(n)),
        ] {
            assert_eq!(parsed(text(1_000)), Ok(()));
            let error = parsed(text(1_001)).unwrap_err();
            assert!(error.contains("has 1001 entries, more than 1000"), "{error}");
        }
        let long = |bytes: usize| format!("deny = [\"{}\", \"b\"]\n", "a".repeat(bytes - 1));
        let of = |bytes| parsed(long(bytes)).unwrap_err();
        assert!(!of(MAX_LIST_BYTES).contains("bytes of text"));
        assert!(of(MAX_LIST_BYTES + 1).contains("has 65537 bytes of text, more than 65536"));
        assert_eq!(parsed(rule.repeat(1_000)), Ok(()));
        assert!(
            parsed(rule.repeat(1_001))
                .unwrap_err()
                .contains("`rules` has 1001")
        );
    }

    #[test]
    fn rule_that_never_matches_is_refused_with_its_place() {
        let shown = failure(
            "[[approval.rules]]\ntool = \"files_*\"\narguments = { \"path\" = \"private/*\" }\nverdict = \"deny\"\n",
        );
        for part in [
            "`path` is not a JSON Pointer",
            "such as `/path`",
            "c.toml, line 3, column 15",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for (tool, pointer) in [
            ("files.read", "/path"),
            ("*", "$.path"),
            ("*", "#/path"),
            ("*", "/path/"),
            ("*", "*"),
        ] {
            let text = format!(
                "[[approval.rules]]\ntool = \"{tool}\"\narguments = {{ \"{pointer}\" = \"private/*\" }}\nverdict = \"deny\"\n"
            );
            let failure = failure(&text);
            let line = if tool == "*" { "line 3" } else { "line 2" };
            assert!(failure.contains(line), "{failure}");
        }
    }

    #[test]
    fn limit_with_which_no_call_runs_is_refused() {
        for (limit, is_refused) in [
            ("wall = \"9ms\"", true),
            ("wall = \"10ms\"", false),
            ("memory = 65535", true),
            ("memory = \"64 KiB\"", false),
            ("fuel = 99", true),
            ("fuel = 100", false),
            ("http_requests = 0", false),
            ("log = 0", false),
        ] {
            for table in ["tools.files", "hooks.h"] {
                let component = if table == "hooks.h" {
                    "component = \"h.wasm\"\n"
                } else {
                    ""
                };
                let text = format!("[{table}]\n{component}[{table}.limits]\n{limit}\n");
                assert_eq!(parsed(&text), !is_refused, "{text}");
            }
        }
        let failure = failure("[tools.files.limits]\nwall = \"0s\"\n");
        assert!(
            failure.contains("at least 10 ms") && failure.contains("line 2"),
            "{failure}"
        );
    }

    #[test]
    fn pattern_of_rule_beyond_4096_bytes_is_refused() {
        let rule = |pattern: &str| {
            format!(
                "[[approval.rules]]\ntool = \"*\"\narguments = {{ \"/path\" = \"{pattern}\" }}\nverdict = \"ask\"\n"
            )
        };
        for (length, is_valid) in [
            (toolcell_agent::MAX_PATTERN, true),
            (toolcell_agent::MAX_PATTERN + 1, false),
        ] {
            assert_eq!(parsed(&rule(&"*".repeat(length))), is_valid, "{length}");
        }
    }

    #[test]
    fn unknown_key_is_refused_with_location_and_suggestion() {
        insta::assert_snapshot!(failure("[tools.files]\ngrnts = [\"read=.\"]\n"), @r#"
        error: the user configuration `c.toml` cannot be used
          why: there is no key `grnts` in `[tools.files]`
               in c.toml, line 2, column 1
               │   2 | grnts = ["read=."]
               │     | ^^^^^
         hint: did you mean `grants`?
        "#);
        insta::assert_snapshot!(failure("[tools.files.limits]\nmemroy = 1\n"), @r"
        error: the user configuration `c.toml` cannot be used
          why: there is no key `memroy` in `[tools.files.limits]`
               in c.toml, line 2, column 1
               │   2 | memroy = 1
               │     | ^^^^^^
         hint: did you mean `memory`?
        ");
        insta::assert_snapshot!(failure("[wasm]\nx = 1\n"), @r"
        error: the user configuration `c.toml` cannot be used
          why: there is no key `wasm` at the top level
               in c.toml, line 1, column 2
               │   1 | [wasm]
               │     |  ^^^^
         hint: the keys are `agent`, `agents`, `approval`, `buckets`, `budget`, `context`, `deny`, `hooks`, `log`, `loop`, `mcp`, `prices`, `profiles`, `provider`, `secrets`, `tools`
        ");
    }

    #[test]
    fn value_of_wrong_type_is_refused_with_location() {
        insta::assert_snapshot!(failure("[loop]\nmax_steps = \"many\"\n"), @r#"
        error: the user configuration `c.toml` cannot be used
          why: `max_steps` takes a whole number from 1 to 4294967295, not a text
               in c.toml, line 2, column 13
               │   2 | max_steps = "many"
               │     |             ^^^^^^
        "#);
        insta::assert_snapshot!(failure("[tools.x.limits]\nwall = 30\n"), @r#"
        error: the user configuration `c.toml` cannot be used
          why: `wall` takes a duration with a unit, such as `"30s"`, not `30`
               in c.toml, line 2, column 8
               │   2 | wall = 30
               │     |        ^^
        "#);
        insta::assert_snapshot!(failure("[tools.files]\ngrants = [\"read=.\", \"reed=.\"]\n"), @r#"
        error: the user configuration `c.toml` cannot be used
          why: invalid grant `reed=.`: unknown kind `reed`, expected one of read, write, modify, create, delete, env, http, http-private, keyvalue, keyvalue-read, deny, deny-http, deny-keyvalue
               in c.toml, line 2, column 10
               │   2 | grants = ["read=.", "reed=."]
               │     |          ^^^^^^^^^^^^^^^^^^^^
        "#);
        insta::assert_snapshot!(failure("[provider]\nname = \"opnai\"\n"), @r#"
        error: the user configuration `c.toml` cannot be used
          why: there is no provider `opnai`; did you mean `openai`?
               in c.toml, line 2, column 8
               │   2 | name = "opnai"
               │     |        ^^^^^^^
        "#);
    }

    #[test]
    fn invalid_toml_is_refused_with_location() {
        insta::assert_snapshot!(failure("[tools\n"), @r"
        error: the user configuration `c.toml` cannot be used
          why: unclosed table, expected `]`
               in c.toml, line 1, column 7
               │   1 | [tools
               │     |       ^
        ");
        insta::assert_snapshot!(failure("[loop]\nmax_steps = 1\nmax_steps = 2\n"), @r"
        error: the user configuration `c.toml` cannot be used
          why: duplicate key
               in c.toml, line 3, column 1
               │   3 | max_steps = 2
               │     | ^^^^^^^^^
        ");
    }

    #[test]
    fn unusable_file_is_error_and_never_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let file = dir.path().join("toolcell.toml");
        let read = || read(&file, Layer::Project, Rules::found(MAX_BYTES), &environment);
        assert!(read().unwrap().is_none());
        std::fs::create_dir(&file).unwrap();
        assert!(read().is_err());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, b"deny = [\"\xff\"]").unwrap();
        assert!(read().is_err());
        std::fs::write(&file, "deny = [\"a\"]").unwrap();
        assert_eq!(read().unwrap().unwrap().file.deny.len(), 1);
        std::fs::rename(&file, dir.path().join("other.toml")).unwrap();
        std::os::unix::fs::symlink("other.toml", &file).unwrap();
        assert!(read().is_err());
    }
}
