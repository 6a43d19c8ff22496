//! Changes of one entry in a configuration file that belongs to another program: everything else stays as it is,
//! comments and order included.

use serde_json::{Map, Value};

use super::{json, toml, yaml};

/// Form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON with comments and trailing commas.
    Json,
    /// TOML 1.0.
    Toml,
    /// YAML 1.2.
    Yaml,
}

/// Values of an entry.
pub(crate) struct Entry {
    /// Values that are set.
    pub(crate) own: Value,
    /// Values that are set if the entry has none.
    pub(crate) defaults: Value,
}

impl Entry {
    /// The entry over one that exists, whose other values are kept.
    pub(crate) fn over(&self, existing: Option<&Value>) -> Value {
        let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let mut merged = map(&self.defaults);
        merged.extend(existing.map(map).unwrap_or_default());
        merged.extend(map(&self.own));
        Value::Object(merged)
    }
}

/// Sets `section.name` in a file, and returns its new text.
///
/// # Errors
/// Returns the reason if the file cannot be read, or not be changed without touching something else.
pub(crate) fn edit(
    format: Format,
    text: &str,
    section: &str,
    name: &str,
    entry: &Entry,
) -> Result<String, String> {
    let plain = Plain::of(text);
    let file = plain.text.as_str();
    let old = read(format, file)?;
    if !matches!(old.get(section), None | Some(Value::Null | Value::Object(_))) {
        return Err(format!("`{section}` in it has no entries with names"));
    }
    let existing = old.get(section).and_then(|section| section.get(name));
    let entry = entry.over(existing);
    if existing == Some(&entry) {
        return Ok(text.to_owned());
    }
    let new = match format {
        Format::Json => json::set(file, section, name, existing, &entry)?,
        Format::Toml => toml::set(file, section, name, existing, &entry)?,
        Format::Yaml => yaml::set(file, section, name, &entry)?,
    };
    check(format, &old, &new, section, name, Some(&entry))?;
    Ok(plain.restore(new))
}

/// Removes `section.name` from a file, and returns its new text.
///
/// # Errors
/// As [`edit`].
pub(crate) fn remove(format: Format, text: &str, section: &str, name: &str) -> Result<String, String> {
    let plain = Plain::of(text);
    let file = plain.text.as_str();
    let old = read(format, file)?;
    if old.get(section).and_then(|section| section.get(name)).is_none() {
        return Ok(text.to_owned());
    }
    let new = match format {
        Format::Json => json::remove(file, section, name)?,
        Format::Toml => toml::remove(file, section, name)?,
        Format::Yaml => yaml::remove(file, section, name)?,
    };
    check(format, &old, &new, section, name, None)?;
    Ok(plain.restore(new))
}

/// Byte order mark at the beginning of a file.
const MARK: char = '\u{feff}';

/// Text of a file without a byte order mark, and with line feeds alone if all its lines end with a carriage return as well.
struct Plain {
    text: String,
    is_marked: bool,
    has_returns: bool,
}

impl Plain {
    fn of(text: &str) -> Self {
        let (is_marked, text) = match text.strip_prefix(MARK) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let fed = text.replace("\r\n", "\n");
        let ends = text.matches('\n').count();
        let has_returns = ends > 0 && text.len() - fed.len() == ends;
        Self {
            text: if has_returns { fed } else { text.to_owned() },
            is_marked,
            has_returns,
        }
    }

    /// Gives a changed text the form of the file.
    fn restore(&self, new: String) -> String {
        let mut new = match self.has_returns {
            true => new.replace('\n', "\r\n"),
            false => new,
        };
        if self.is_marked {
            new.insert(0, MARK);
        }
        new
    }
}

/// Reads a file as an object. An empty one is an object without entries.
fn read(format: Format, text: &str) -> Result<Map<String, Value>, String> {
    let value = match format {
        Format::Json => json::read(text),
        Format::Toml => toml::read(text),
        Format::Yaml => yaml::read(text),
    }?;
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map),
        _ => Err("it is not an object with keys".into()),
    }
}

/// Compares a changed file with the old one: only the entry may differ.
fn check(
    format: Format,
    old: &Map<String, Value>,
    new: &str,
    section: &str,
    name: &str,
    entry: Option<&Value>,
) -> Result<(), String> {
    // The reason would name a place in a text that the user does not have.
    let new = read(format, new).map_err(|_| UNCHANGEABLE)?;
    let found = new.get(section).and_then(|section| section.get(name));
    // A section that the entry alone needed is the same as none.
    let rest = |map: &Map<String, Value>| {
        let mut rest = map.clone();
        if let Some(Value::Object(entries)) = rest.get_mut(section) {
            entries.remove(name);
        }
        rest.retain(|key, value| {
            key != section || value.as_object().is_some_and(|entries| !entries.is_empty())
        });
        rest
    };
    match found == entry && rest(old) == rest(&new) {
        true => Ok(()),
        false => Err(UNCHANGEABLE.into()),
    }
}

/// Reason for which a file is left as it is.
const UNCHANGEABLE: &str = "it cannot be changed without changing something else in it";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Entry {
        Entry {
            own: json!({"command": "/bin/toolcell", "args": ["mcp", "a \"b\" \\ 'c': #d"]}),
            defaults: json!({"env": {}}),
        }
    }

    /// Texts with comments and other entries, by form; the section is `s`.
    const TEXTS: [(Format, &[&str]); 3] = [
        (
            Format::Json,
            &[
                "",
                "{}",
                "// why\n{\n\t// other\n\t\"a\": [1, 2,], /* b */\n\t\"s\": {\n\t\t\"x\": {\"command\": \"y\"}, // z\n\t},\n}\n",
                "{\"s\":{}}",
                "{\"s\": {\"t\": {\"command\": \"old\", /* kept */ \"mine\": 1}}, \"é\": \"\\u0041\"}",
                "{\r\n  \"s\": {\r\n    \"t\": null\r\n  }\r\n}\r\n",
            ],
        ),
        (
            Format::Toml,
            &[
                "",
                "# why\na = 1 # b\n\n[s.x] # c\ncommand = \"y\"\n\n[z]\nd = 1979-05-27\n",
                "[s]\n",
                "s = {}\n",
                "[s.t] # kept\ncommand = \"old\" # mine\nmine = 1\n",
                "s.x.command = \"y\"\n",
            ],
        ),
        (
            Format::Yaml,
            &[
                "",
                "# why\na: [1, 2] # b\ns:\n    # c\n    x:\n        cmd: y\n\nz: |\n  s:\n    t: no\n",
                "a: 1\ns: {} # none\nb: 2\n",
                "s:\t# none\n  t:other:\n    cmd: y\n",
                "s:\t# none\n",
                "s:\nb: 2\n",
                "s:\n  x:\n    cmd: y\n  t:\n    command: old\n    mine: 1\n  # of u\n  u:\n    cmd: v\nb: 2\n",
                "s:\n  \"t\":\n    command: old\n",
                "a: 1",
            ],
        ),
    ];

    #[test]
    fn line_ends_and_byte_order_mark_stay() {
        for (format, text) in TEXTS
            .iter()
            .flat_map(|(format, texts)| texts.iter().map(|text| (*format, *text)))
        {
            if text.is_empty() {
                continue;
            }
            let text = format!("{}\n", text.trim_end_matches('\n'));
            let changed = edit(format, &text, "s", "n", &entry()).unwrap();
            let windows = |text: &str| text.replace('\n', "\r\n");
            assert_eq!(
                edit(format, &windows(&text), "s", "n", &entry()).unwrap(),
                windows(&changed),
                "{format:?}"
            );
        }
        let marked = edit(Format::Toml, "\u{feff}# a\n[s]\n", "s", "n", &entry()).unwrap();
        assert!(marked.starts_with("\u{feff}# a\n[s]\n"), "{marked:?}");
    }

    #[test]
    fn yaml_that_grows_when_it_is_read_is_refused() {
        let bomb: String = (1..40)
            .map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}]\n", n - 1))
            .collect();
        let error = edit(Format::Yaml, &format!("a0: &a0 x\n{bomb}"), "s", "n", &entry()).unwrap_err();
        assert!(error.contains("aliases"), "{error}");
        let nested = |depth: usize| format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth));
        assert!(edit(Format::Yaml, &nested(99), "s", "n", &entry()).is_ok());
        let error = edit(Format::Yaml, &nested(100), "s", "n", &entry()).unwrap_err();
        assert!(error.contains("100 levels"), "{error}");
        assert!(edit(Format::Yaml, &nested(100_000), "s", "n", &entry()).is_err());
    }

    #[test]
    fn entry_is_set_and_everything_else_kept() {
        for (format, texts) in TEXTS {
            for text in texts {
                let new =
                    edit(format, text, "s", "t", &entry()).unwrap_or_else(|why| panic!("{text}: {why}"));
                let value = read(format, &new).unwrap();
                assert_eq!(value["s"]["t"]["args"][1], "a \"b\" \\ 'c': #d", "{new}");
                assert_eq!(
                    edit(format, &new, "s", "t", &entry()).unwrap(),
                    new,
                    "not idempotent"
                );
                for comment in ["why", "kept", "of u", "# c", "// z"] {
                    assert_eq!(text.contains(comment), new.contains(comment), "{new}");
                }
                if text.contains("mine") {
                    assert_eq!(value["s"]["t"]["mine"], 1, "{new}");
                }
                let without = remove(format, &new, "s", "t").unwrap();
                let gone = read(format, &without).unwrap();
                assert!(gone.get("s").and_then(|s| s.get("t")).is_none(), "{without}");
                assert!(gone.get("s").is_none_or(Value::is_object), "{without}");
                for comment in ["why", "of u", "# c", "// z"] {
                    assert_eq!(text.contains(comment), without.contains(comment), "{without}");
                }
            }
        }
    }

    #[test]
    fn removal_gives_the_file_back_as_it_was() {
        for (format, text) in [
            (Format::Json, TEXTS[0].1[2]),
            (Format::Toml, TEXTS[1].1[1]),
            (Format::Yaml, TEXTS[2].1[1]),
        ] {
            let new = edit(format, text, "s", "t", &entry()).unwrap();
            assert_ne!(new, text);
            assert_eq!(remove(format, &new, "s", "t").unwrap(), text);
            assert_eq!(remove(format, text, "s", "t").unwrap(), text);
        }
    }

    #[test]
    fn file_that_cannot_be_changed_safely_is_refused() {
        for (format, text) in [
            (Format::Json, "[]"),
            (Format::Json, "{"),
            (Format::Json, "{\"s\": 1}"),
            (Format::Toml, "a ="),
            (Format::Toml, "s = 1"),
            (Format::Toml, "[[s]]\n"),
            (Format::Yaml, "- a"),
            (Format::Yaml, "a: 1\n---\nb: 2\n"),
            (Format::Yaml, "s: {x: {cmd: y}}\n"),
            (Format::Yaml, "s:\n  x: &a {cmd: y}\n  y: *a\n{"),
            (Format::Yaml, "s: 1\n"),
        ] {
            assert!(edit(format, text, "s", "t", &entry()).is_err(), "{text}");
        }
    }
}
