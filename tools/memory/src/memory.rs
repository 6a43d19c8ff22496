//! A memory as stored and as shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use toolcell_sdk::serde::{Deserialize, Serialize};
use toolcell_sdk::{Result, ToolError, output, show};

use crate::graph::Edge;
use crate::id::Id;

/// Maximum size of content, in bytes: one to three pages. Longer content belongs in a file.
pub(crate) const MAX_CONTENT: usize = 16 << 10;

/// Maximum length of a title, and of the name of a kind, tag, relation or property, in characters.
pub(crate) const MAX_TITLE: usize = 200;
pub(crate) const MAX_WORD: usize = 64;

/// Maximum number of tags and of properties of one memory.
pub(crate) const MAX_TAGS: usize = 16;
const MAX_PROPERTIES: usize = 32;

/// Maximum length of the value of a property, in characters.
const MAX_PROPERTY: usize = 1_000;

/// Stored form of a memory. Its identifier is in its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(crate = "toolcell_sdk::serde")]
pub(crate) struct Memory {
    pub(crate) content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<String>,
    /// Number of the change that replaced it last; 0 if none did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) version: u64,
}

/// Fields used by a search; borrowed where they have no escapes.
#[derive(Deserialize)]
#[serde(crate = "toolcell_sdk::serde")]
pub(crate) struct Searched<'a> {
    #[serde(borrow)]
    pub(crate) content: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) title: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    pub(crate) version: u64,
}

impl Searched<'_> {
    /// Texts whose words count more than those of the content.
    pub(crate) fn headings(&self) -> impl Iterator<Item = &str> {
        let tags = self.tags.iter().map(String::as_str);
        self.title.as_deref().into_iter().chain(tags)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Memory as the model reads it.
#[output]
pub(crate) struct MemoryView {
    /// Identifier of the memory.
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) properties: BTreeMap<String, String>,
    /// Time of creation, in UTC.
    pub(crate) created: String,
    /// Time of the last replacement, in UTC; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<String>,
    pub(crate) content: String,
    /// Links from and to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<Edge>,
}

impl MemoryView {
    pub(crate) fn new(number: u64, memory: Memory, links: Vec<Edge>) -> Self {
        Self {
            id: Id::Memory(number).to_string(),
            title: memory.title,
            kind: memory.kind,
            tags: memory.tags,
            properties: memory.properties,
            created: memory.created,
            updated: memory.updated,
            content: memory.content,
            links,
        }
    }
}

impl Memory {
    /// Validates a memory from a model.
    ///
    /// # Errors
    /// Names the value that is too long or missing.
    pub(crate) fn new(
        content: &str,
        title: Option<&str>,
        kind: Option<&str>,
        tags: &[String],
        properties: BTreeMap<String, String>,
        created: String,
    ) -> Result<Self> {
        let content = content.trim();
        if content.is_empty() {
            return Err(ToolError::invalid("`content` is empty; say what to remember"));
        }
        if content.len() > MAX_CONTENT {
            return Err(ToolError::invalid(format_args!(
                "`content` has {} bytes, and at most {MAX_CONTENT} are kept; store the essence, or several memories and \
                 links between them",
                content.len()
            )));
        }
        if properties.len() > MAX_PROPERTIES {
            return Err(ToolError::invalid(format_args!(
                "{} properties are given, at most {MAX_PROPERTIES} are allowed",
                properties.len()
            )));
        }
        for (name, value) in &properties {
            check_length("a name in `properties`", name, MAX_WORD)?;
            check_length(&format!("the property `{name}`"), value, MAX_PROPERTY)?;
        }
        Ok(Self {
            content: content.to_owned(),
            title: title.map(|title| line("title", title)).transpose()?,
            kind: kind.map(|kind| label("kind", kind)).transpose()?,
            tags: labels(tags)?,
            properties,
            created,
            updated: None,
            version: 0,
        })
    }
}

/// True if kind and tags match a filter.
pub(crate) fn fits(
    kind: Option<&str>,
    tags: &[String],
    wanted_kind: Option<&str>,
    wanted_tags: &[String],
) -> bool {
    wanted_kind.is_none_or(|wanted| kind == Some(wanted))
        && wanted_tags.iter().all(|wanted| tags.contains(wanted))
}

/// Normalises a line of text, such as a title.
///
/// # Errors
/// Fails if it is empty or too long.
pub(crate) fn line(name: &str, text: &str) -> Result<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return Err(ToolError::invalid(format_args!(
            "`{name}` is empty; leave it out"
        )));
    }
    check_length(&format!("`{name}`"), &line, MAX_TITLE)?;
    Ok(line)
}

/// Normalises a kind, tag or relation for comparison: lower case, `_` for spaces, no leading `#`.
///
/// # Errors
/// Fails if it has other characters than letters, digits, `_`, `-`, `.` and `:`, or is too long.
pub(crate) fn label(name: &str, text: &str) -> Result<String> {
    let words: Vec<&str> = text.trim().trim_start_matches('#').split_whitespace().collect();
    let label = words.join("_").to_lowercase();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    if label.is_empty() || !label.chars().all(is_plain) {
        return Err(ToolError::invalid(format_args!(
            "{} cannot be a {name}; use letters, digits, `_`, `-`, `.` and `:`",
            show::quoted(text)
        )));
    }
    check_length(&format!("the {name} `{label}`"), &label, MAX_WORD)?;
    Ok(label)
}

/// Normalises tags and removes duplicates.
///
/// # Errors
/// Fails if one is invalid, or there are too many.
pub(crate) fn labels(tags: &[String]) -> Result<Vec<String>> {
    let mut labels: Vec<String> = Vec::new();
    for tag in tags {
        let label = label("tag", tag)?;
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    if labels.len() > MAX_TAGS {
        return Err(ToolError::invalid(format_args!(
            "{} tags are given, at most {MAX_TAGS} are allowed",
            labels.len()
        )));
    }
    Ok(labels)
}

/// Checks the length of a text in characters.
///
/// # Errors
/// Fails if there are too many.
pub(crate) fn check_length(what: &str, text: &str, max: usize) -> Result<()> {
    match text.chars().count() {
        length if length > max => Err(ToolError::invalid(format_args!(
            "{what} has {length} characters, at most {max} are allowed"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_normalised() {
        assert_eq!(label("tag", " #Release Notes "), Ok("release_notes".into()));
        assert_eq!(label("tag", "ÉTÉ"), Ok("été".into()));
        for bad in ["", "#", "a/b", "a\u{0}", "🙂"] {
            assert!(label("tag", bad).is_err(), "{bad}");
        }
        let tags = ["A".into(), "a".into(), "b".into()];
        assert_eq!(labels(&tags), Ok(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn values_beyond_their_limits_are_refused() {
        let new = |content: &str, title: &str, kind: &str, tags: usize| {
            let tags: Vec<String> = (0..tags).map(|i| format!("t{i}")).collect();
            Memory::new(
                content,
                Some(title),
                Some(kind),
                &tags,
                BTreeMap::new(),
                String::new(),
            )
            .is_ok()
        };
        assert!(new(
            &"c".repeat(MAX_CONTENT),
            &"é".repeat(MAX_TITLE),
            &"k".repeat(MAX_WORD),
            MAX_TAGS
        ));
        assert!(!new(&"c".repeat(MAX_CONTENT + 1), "t", "k", 0));
        assert!(!new("c", &"é".repeat(MAX_TITLE + 1), "k", 0));
        assert!(!new("c", "t", &"k".repeat(MAX_WORD + 1), 0));
        assert!(!new("c", "t", "k", MAX_TAGS + 1));
        assert!(!new(" \n", "t", "k", 0));
        let with = |count: usize, name: usize, value: usize| {
            let property = |i: usize| (format!("{i:0name$}"), "v".repeat(value));
            let properties = (0..count).map(property).collect();
            Memory::new("c", None, None, &[], properties, String::new()).is_ok()
        };
        assert!(with(MAX_PROPERTIES, MAX_WORD, MAX_PROPERTY));
        assert!(!with(MAX_PROPERTIES + 1, 3, 1));
        assert!(!with(1, MAX_WORD + 1, 1));
        assert!(!with(1, 1, MAX_PROPERTY + 1));
    }
}
