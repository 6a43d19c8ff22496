//! The page of all settings in the guide is made of the schema of the configuration.
//!
//! After a change of the schema, `TOOLCELL_WRITE_PAGES=1 cargo test settings_page` writes it anew.

use std::fmt::Write as _;

use serde_json::Value;

use crate::repository::workspace::root;
use crate::support::cli_user::User;

/// First line of what is made of the schema.
const BEGINNING: &str =
    "<!-- Made of the schema of the configuration by tests/it/repository/settings_page.rs. -->\n";

struct Page<'a> {
    schema: &'a Value,
    text: String,
}

impl<'a> Page<'a> {
    /// Follows a reference, also that of a value that may be left out.
    fn resolved(&self, schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        let alternatives = schema["anyOf"].as_array().into_iter().flatten();
        let only = alternatives
            .filter(|other| other["type"] != "null")
            .collect::<Vec<_>>();
        let target = match &only[..] {
            [one] => one,
            _ => schema,
        };
        match target["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"))
        {
            Some(name) => (Some(name), &self.schema["$defs"][name]),
            None => (None, target),
        }
    }

    /// Adds a table of the configuration, and those in it.
    fn table(&mut self, path: &str, describes: &str, table: &'a Value) {
        let table_describes = describes;
        let _ = write!(self.text, "\n## `[{path}]`\n\n{}\n\n", one_line(describes));
        self.text.push_str("| key | value | meaning |\n|---|---|---|\n");
        let mut inner = Vec::new();
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let (_, target) = self.resolved(property);
            let describes = property["description"].as_str().unwrap_or_default();
            let item = self.resolved(&target["items"]).1;
            let is_list = item["properties"].is_object();
            if target["properties"].is_object() {
                inner.push((format!("{path}.{key}"), describes, target));
            } else if is_list {
                inner.push((format!("[{path}.{key}]"), describes, item));
            } else {
                let describes =
                    with_default_of(table_describes, key, &one_line(describes)).replace('|', "\\|");
                let required = table["required"].as_array().into_iter().flatten();
                let is_required = required.into_iter().any(|name| *name == **key);
                let required = if is_required { ", required" } else { "" };
                let kind = self.kind(property);
                let _ = writeln!(self.text, "| `{key}` | {kind}{required} | {describes} |");
            }
        }
        if self.text.ends_with("|---|---|---|\n") {
            let empty = self.text.len() - "| key | value | meaning |\n|---|---|---|\n".len();
            self.text.truncate(empty);
        }
        for (path, describes, table) in inner {
            self.table(&path, describes, table);
        }
    }

    /// Kind of value of a key.
    fn kind(&self, property: &'a Value) -> String {
        let (name, schema) = self.resolved(property);
        let known = match name {
            Some("Span") => "duration",
            Some("Bytes") => "size",
            Some("Count") => "count",
            Some("Money") => "amount",
            _ => "",
        };
        if !known.is_empty() {
            return known.to_owned();
        }
        let words: Vec<String> = self
            .words(schema)
            .iter()
            .map(|word| format!("`{word}`"))
            .collect();
        if !words.is_empty() {
            return words.join(", ");
        }
        let types = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        match types.into_iter().find(|one| *one != "null") {
            Some("array") => match self.kind(&schema["items"]) {
                words if words.starts_with('`') => format!("list of {words}"),
                kind => format!("list of {kind}s"),
            },
            Some("object") => "table".to_owned(),
            Some("string") => "text".to_owned(),
            Some("boolean") => "`true` or `false`".to_owned(),
            Some(other) => other.to_owned(),
            None => "text or table".to_owned(),
        }
    }

    /// The words that a key may have.
    fn words(&self, schema: &'a Value) -> Vec<&'a str> {
        let listed = schema["enum"].as_array().into_iter().flatten();
        let each = schema["oneOf"].as_array().into_iter().flatten();
        listed
            .chain(each.map(|one| &one["const"]))
            .filter_map(Value::as_str)
            .collect()
    }
}

/// Returns a description with the default that the description of the table gives the key: "`KEY` defaults to VALUE", or
/// "`KEY` to VALUE" after another one.
fn with_default_of(table: &str, key: &str, describes: &str) -> String {
    let table = one_line(table);
    let of_table = [format!("`{key}` defaults to "), format!("`{key}` to ")]
        .iter()
        .find_map(|said| {
            Some(
                table
                    .split_once(said)?
                    .1
                    .split([',', ';', '.', ' '])
                    .next()?
                    .to_owned(),
            )
        });
    match (of_table, describes.split_once(" (default ")) {
        (Some(value), Some((begin, end))) => {
            let end = end.split_once(')').map_or("", |(_, end)| end);
            format!("{begin} (default {value}){end}")
        }
        _ => describes.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn page_of(schema: &Value) -> String {
    let mut page = Page {
        schema,
        text: BEGINNING.to_owned(),
    };
    for (key, property) in schema["properties"].as_object().unwrap() {
        let describes = property["description"].as_str().unwrap_or_default();
        let (_, target) = page.resolved(property);
        if property["additionalProperties"].is_object() {
            let (_, table) = page.resolved(&property["additionalProperties"]);
            page.table(&format!("{key}.NAME"), describes, table);
        } else if target["properties"].is_object() {
            page.table(key, describes, target);
        } else {
            let _ = write!(
                page.text,
                "\n## `{key}`\n\n{}: {}\n",
                page.kind(property),
                one_line(describes)
            );
        }
    }
    page.text
}

#[test]
fn default_of_a_table_replaces_that_of_the_key() {
    let table = "Limits; `wall` defaults to 24h, `fuel` to 1000T and `http_requests` to 100000.";
    for (key, value) in [("wall", "24h"), ("fuel", "1000T"), ("http_requests", "100000")] {
        let shown = with_default_of(table, key, "Text (default 1).");
        assert_eq!(shown, format!("Text (default {value})."));
    }
    assert_eq!(
        with_default_of(table, "log", "Text (default 1)."),
        "Text (default 1)."
    );
}

#[test]
fn every_setting_is_on_its_page() {
    let printed = User::new().run(&["config", "schema"]);
    let expected = page_of(&serde_json::from_str(&printed.stdout).unwrap());
    let path = root().join("runtime/guide/src/settings.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, made) = text.split_at(text.find(BEGINNING).unwrap_or(text.len()));
    if std::env::var_os("TOOLCELL_WRITE_PAGES").is_some() {
        std::fs::write(&path, format!("{head}{expected}")).unwrap();
    } else {
        assert!(
            made == expected,
            "{} differs from the schema; TOOLCELL_WRITE_PAGES=1 writes it",
            path.display()
        );
    }
}
