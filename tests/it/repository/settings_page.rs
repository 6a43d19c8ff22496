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
        let _ = write!(self.text, "\n## `[{path}]`\n\n{}\n\n", one_line(describes));
        self.text.push_str("| key | value | meaning |\n|---|---|---|\n");
        let mut inner = Vec::new();
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let (_, target) = self.resolved(property);
            let describes = property["description"].as_str().unwrap_or_default();
            let is_list = target["items"]["$ref"].is_string();
            if target["properties"].is_object() {
                inner.push((format!("{path}.{key}"), describes, target));
            } else if is_list {
                let (_, item) = self.resolved(&target["items"]);
                inner.push((format!("[{path}.{key}]"), describes, item));
            } else {
                let describes = one_line(describes).replace('|', "\\|");
                let _ = writeln!(self.text, "| `{key}` | {} | {describes} |", self.kind(property));
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
            Some("array") => format!("list of {}s", self.kind(&schema["items"])),
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
