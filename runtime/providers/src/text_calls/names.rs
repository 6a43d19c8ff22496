//! Offered tools, and resolution of names in text to them.

use std::sync::Arc;

use serde_json::Value;
use toolcell_core::ToolSpec;
use toolcell_core::json::parse_value;

/// Offered tools.
#[derive(Debug, Clone)]
pub(super) struct Offered {
    tools: Arc<[ToolSpec]>,
}

impl Offered {
    pub(super) fn new(tools: Arc<[ToolSpec]>) -> Self {
        Self { tools }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Resolves a name to a tool: the name itself, `functions.name:0`, `name` with other separators, or a unique
    /// suffix. `None` if no tool or several match.
    pub(super) fn resolve(&self, written: &str) -> Option<&str> {
        let named = |name: &str| {
            self.tools
                .iter()
                .find(|t| t.name.as_str() == name)
                .map(|t| t.name.as_str())
        };
        let written = written.trim().trim_matches(|c| matches!(c, '"' | '\'' | '`'));
        let bare = written.strip_prefix("functions.").unwrap_or(written);
        let bare = match bare.rsplit_once(':') {
            Some((name, number)) if number.chars().all(|c| c.is_ascii_digit()) => name,
            _ => bare,
        };
        if let Some(name) = named(written).or_else(|| named(bare)) {
            return Some(name);
        }
        let plain = |name: &str| {
            name.to_ascii_lowercase()
                .replace(['.', '-', '/', ':'], "_")
                .replace("__", "_")
        };
        let wanted = plain(bare);
        if wanted.is_empty() {
            return None;
        }
        let only = |fits: &dyn Fn(&str) -> bool| {
            let mut found = self
                .tools
                .iter()
                .map(|t| t.name.as_str())
                .filter(|name| fits(&plain(name)));
            found.next().filter(|_| found.next().is_none())
        };
        only(&|name| name == wanted).or_else(|| only(&|name| name.ends_with(&format!("_{wanted}"))))
    }

    /// Converts bare text to the type of the parameter in the tool's schema.
    pub(super) fn typed(&self, tool: &str, parameter: &str, text: &str) -> Value {
        let property = self.tools.iter().find(|t| t.name.as_str() == tool).and_then(|t| {
            t.input
                .as_value()
                .pointer(&format!("/properties/{}", escaped(parameter)))
        });
        let takes_text = property.is_none_or(|property| match property.get("type") {
            Some(Value::String(name)) => name == "string",
            Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
            _ => property.get("enum").is_some(),
        });
        if takes_text {
            return text.into();
        }
        parse_value(text.trim()).unwrap_or_else(|_| text.into())
    }
}

/// Escapes a name as one token of a JSON Pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use toolcell_core::{Schema, ToolName};

    pub(in super::super) fn offered(names: &[&str]) -> Offered {
        let schema = r#"{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"all":{"type":["boolean","null"]}}}"#;
        let tools: Vec<ToolSpec> = names
            .iter()
            .map(|name| ToolSpec {
                name: ToolName::new(*name).unwrap(),
                title: None,
                description: format!("The {name}."),
                input: Arc::new(Schema::for_arguments(schema).unwrap()),
                output: None,
                hints: toolcell_core::tool::Hints::default(),
                annotations: std::collections::BTreeMap::new(),
            })
            .collect();
        Offered::new(tools.into())
    }

    #[test]
    fn name_resolves_to_one_tool_or_none() {
        let offered = offered(&["files_read", "files_list", "notes_list", "weather"]);
        for (written, name) in [
            ("files_read", Some("files_read")),
            ("functions.files_read:0", Some("files_read")),
            ("files.read", Some("files_read")),
            ("Files-Read", Some("files_read")),
            ("read", Some("files_read")),
            ("list", None),
            ("weathers", None),
            ("", None),
            (":3", None),
        ] {
            assert_eq!(offered.resolve(written), name, "{written}");
        }
    }

    #[test]
    fn bare_value_gets_the_type_of_its_parameter() {
        let offered = offered(&["weather"]);
        assert_eq!(offered.typed("weather", "city", "7"), "7");
        assert_eq!(offered.typed("weather", "days", " 7 "), 7);
        assert_eq!(offered.typed("weather", "all", "true"), true);
        assert_eq!(offered.typed("weather", "days", "many"), "many");
        assert_eq!(offered.typed("weather", "other", "7"), "7");
    }
}
