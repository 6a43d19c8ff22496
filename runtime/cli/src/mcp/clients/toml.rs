//! Entries of TOML files.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

pub(super) fn read(text: &str) -> Result<Value, String> {
    let table: ::toml::Table = text
        .parse()
        .map_err(|error: ::toml::de::Error| error.to_string())?;
    serde_json::to_value(table).map_err(|error| error.to_string())
}

pub(super) fn set(
    text: &str,
    section: &str,
    name: &str,
    existing: Option<&Value>,
    entry: &Value,
) -> Result<String, String> {
    let mut document = parsed(text)?;
    let new = || {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    };
    let entries = entries(document.entry(section).or_insert_with(new), section)?;
    let mut values: Vec<_> = entry.as_object().into_iter().flatten().collect();
    // A program comes before its arguments, and both before tables.
    values.sort_by_key(|(_, value)| match value {
        Value::Array(_) => 1,
        Value::Object(_) => 2,
        _ => 0,
    });
    match entries.get_mut(name).and_then(Item::as_table_like_mut) {
        Some(table) => {
            for (key, value) in values {
                if existing.and_then(|existing| existing.get(key)) != Some(value) {
                    table.insert(key, Item::Value(toml_value(value)?));
                }
            }
        }
        None => {
            let mut table = Table::new();
            for (key, value) in values {
                table.insert(key, Item::Value(toml_value(value)?));
            }
            entries.insert(name, Item::Table(table));
        }
    }
    Ok(document.to_string())
}

pub(super) fn remove(text: &str, section: &str, name: &str) -> Result<String, String> {
    let mut document = parsed(text)?;
    if let Some(item) = document.get_mut(section) {
        entries(item, section)?.remove(name);
    }
    Ok(document.to_string())
}

fn parsed(text: &str) -> Result<DocumentMut, String> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| error.to_string())
}

fn entries<'a>(item: &'a mut Item, section: &str) -> Result<&'a mut dyn TableLike, String> {
    item.as_table_like_mut()
        .ok_or_else(|| format!("`{section}` in it is not a table"))
}

fn toml_value(value: &Value) -> Result<toml_edit::Value, String> {
    Ok(match value {
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => number.as_i64().ok_or("a number is not an integer")?.into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => {
            let items: Result<Array, String> = items.iter().map(toml_value).collect();
            items?.into()
        }
        Value::Object(entries) => {
            let mut table = InlineTable::new();
            for (name, value) in entries {
                table.insert(name, toml_value(value)?);
            }
            table.into()
        }
        Value::Null => return Err("TOML has no null".into()),
    })
}
