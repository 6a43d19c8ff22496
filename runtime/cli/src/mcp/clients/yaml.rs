//! Entries of YAML files: whole lines are added and removed, so that all others stay as they are. The caller compares the
//! result with the old file.

use serde_json::{Map, Value};
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// Indentation of a first entry.
const INDENTATION: usize = 2;

/// Maximum nesting of a file, which is read recursively.
const MAX_DEPTH: usize = 100;

pub(super) fn read(text: &str) -> Result<Value, String> {
    check(text)?;
    let documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    match documents.as_slice() {
        [] => Ok(Value::Null),
        [document] => value(document),
        _ => Err("it has several documents".into()),
    }
}

/// Checks that reading a file takes memory and stack in proportion to its size.
fn check(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    let mut depth = 0_usize;
    loop {
        match parser.next_token().map_err(|error| error.to_string())?.0 {
            Event::StreamEnd => return Ok(()),
            Event::Alias(_) => return Err("it has aliases (`*name`)".into()),
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("it is nested in more than {MAX_DEPTH} levels"));
        }
    }
}

fn value(yaml: &Yaml) -> Result<Value, String> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(text) | Yaml::String(text) => text.as_str().into(),
        Yaml::Array(items) => Value::Array(items.iter().map(value).collect::<Result<_, _>>()?),
        Yaml::Hash(entries) => {
            let mut map = Map::new();
            for (key, entry) in entries {
                let key = match key {
                    Yaml::String(key) => key.clone(),
                    other => value(other)?.to_string(),
                };
                map.insert(key, value(entry)?);
            }
            Value::Object(map)
        }
        Yaml::Alias(_) | Yaml::BadValue => return Err("it has values that cannot be read".into()),
    })
}

/// A section with one entry.
pub(super) fn section(section: &str, name: &str, entry: &Value) -> String {
    format!("{section}:\n{}", block(name, entry, INDENTATION))
}

/// The lines of an entry. Strings are in double quotes, whose escapes in JSON are those of YAML.
fn block(name: &str, entry: &Value, indentation: usize) -> String {
    let blanks = " ".repeat(indentation);
    let mut lines = format!("{blanks}{}:\n", key(name));
    for (name, value) in entry.as_object().into_iter().flatten() {
        match value.as_array().filter(|items| !items.is_empty()) {
            Some(items) => {
                lines.push_str(&format!("{blanks}  {}:\n", key(name)));
                for item in items {
                    lines.push_str(&format!("{blanks}    - {item}\n"));
                }
            }
            None => lines.push_str(&format!("{blanks}  {}: {value}\n", key(name))),
        }
    }
    lines
}

/// A key, in quotes unless it is a plain word.
fn key(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&name.to_ascii_lowercase().as_str());
    match is_plain {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}

/// Lines of a file with their ends.
struct Lines<'a>(Vec<&'a str>);

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.split_inclusive('\n').collect())
    }

    /// The line of a key with this indentation.
    fn find(&self, name: &str, from: usize, indentation: usize) -> Option<usize> {
        let names = [key(name), Value::from(name).to_string(), format!("'{name}'")];
        (from..self.end(from, indentation)).find(|&line| {
            self.indentation(line) == Some(indentation)
                && names.iter().any(|name| {
                    let rest = self.0[line].trim_start().strip_prefix(name.as_str());
                    let after = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
                    after.is_some_and(|after| after.is_empty() || after.starts_with(char::is_whitespace))
                })
        })
    }

    /// Number of blanks in front of a line; `None` if it is empty or a comment.
    fn indentation(&self, line: usize) -> Option<usize> {
        let text = self.0.get(line)?;
        let content = text.trim_start_matches(' ');
        let is_empty = content.trim().is_empty() || content.starts_with('#');
        (!is_empty).then_some(text.len() - content.len())
    }

    /// The first line from `from` on that is less indented.
    fn end(&self, from: usize, indentation: usize) -> usize {
        let less = |&line: &usize| self.indentation(line).is_some_and(|found| found < indentation);
        (from..self.0.len()).find(less).unwrap_or(self.0.len())
    }

    /// The lines of the entry at `line`, without comments and empty lines behind it.
    fn entry(&self, line: usize, indentation: usize) -> std::ops::Range<usize> {
        let mut end = self.end(line + 1, indentation + 1);
        while end > line + 1 && self.indentation(end - 1).is_none() {
            end -= 1;
        }
        line..end
    }
}

pub(super) fn set(text: &str, section: &str, name: &str, entry: &Value) -> Result<String, String> {
    let lines = Lines::of(text);
    let Some(at) = lines.find(section, 0, 0) else {
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return Ok(format!("{text}{gap}{}", self::section(section, name, entry)));
    };
    let indentation = (at + 1..lines.0.len())
        .find_map(|line| lines.indentation(line))
        .filter(|found| *found > 0);
    if let Some(indentation) = indentation
        && let Some(line) = lines.find(name, at + 1, indentation)
    {
        let old = lines.entry(line, indentation);
        return Ok([
            &lines.0[..old.start].concat(),
            &block(name, entry, indentation),
            &lines.0[old.end..].concat(),
        ]
        .map(String::as_str)
        .concat());
    }
    Ok([
        &lines.0[..at].concat(),
        &section_line(lines.0[at], ""),
        &block(name, entry, indentation.unwrap_or(INDENTATION)),
        &lines.0[at + 1..].concat(),
    ]
    .map(String::as_str)
    .concat())
}

/// The line of a section whose entries follow on the next lines, or of an empty one, with this value.
fn section_line(line: &str, value: &str) -> String {
    let bytes = line.as_bytes();
    let comment = (1..bytes.len()).find(|&at| bytes[at] == b'#' && matches!(bytes[at - 1], b' ' | b'\t'));
    let (own, comment) = line.split_at(comment.map_or(line.len(), |at| at - 1));
    let own = own.trim_end();
    let key = ["{}", "null", "~"]
        .iter()
        .find_map(|empty| own.strip_suffix(empty));
    format!("{}{value}{}\n", key.unwrap_or(own).trim_end(), comment.trim_end())
}

pub(super) fn remove(text: &str, section: &str, name: &str) -> Result<String, String> {
    let not_found = || format!("the lines of `{name}` were not found in it");
    let lines = Lines::of(text);
    let at = lines.find(section, 0, 0).ok_or_else(not_found)?;
    let indentation = (at + 1..lines.0.len())
        .find_map(|line| lines.indentation(line))
        .filter(|found| *found > 0)
        .ok_or_else(not_found)?;
    let line = lines.find(name, at + 1, indentation).ok_or_else(not_found)?;
    let old = lines.entry(line, indentation);
    let is_only = !(at + 1..lines.end(at + 1, indentation))
        .any(|line| !old.contains(&line) && lines.indentation(line) == Some(indentation));
    // Without entries it would be null, which programs read as another type.
    let head = match is_only {
        true => section_line(lines.0[at], " {}"),
        false => lines.0[at].to_owned(),
    };
    Ok([
        &lines.0[..at].concat(),
        &head,
        &lines.0[at + 1..old.start].concat(),
        &lines.0[old.end..].concat(),
    ]
    .map(String::as_str)
    .concat())
}
