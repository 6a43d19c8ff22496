//! Doc comments of WIT, from the custom section `package-docs` of a component.
//!
//! The component model has no place for them. Tools such as `wit-docs-inject` write this section: a version byte, then
//! JSON. It is a text of the author of the component, and is checked like the definitions that other tools return.

use std::collections::BTreeMap;

use serde::Deserialize;
use wasmparser::{Parser, Payload};

/// Name of the section.
const SECTION: &str = "package-docs";

/// Maximum size of the section, in bytes; a larger one is ignored. The descriptions of 128 tools of 10 KiB fit.
pub(crate) const MAX_DOCS: usize = 2 << 20;

/// Doc comments of functions and types.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Docs {
    worlds: BTreeMap<String, World>,
    interfaces: BTreeMap<String, Interface>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct World {
    funcs: BTreeMap<String, Function>,
    func_exports: BTreeMap<String, Function>,
    types: BTreeMap<String, TypeDocs>,
    interfaces: BTreeMap<String, Interface>,
    interface_exports: BTreeMap<String, Interface>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    funcs: BTreeMap<String, Function>,
    types: BTreeMap<String, TypeDocs>,
}

/// Doc comments of a type and of its fields, cases or flags.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct TypeDocs {
    docs: Option<String>,
    items: BTreeMap<String, String>,
}

impl TypeDocs {
    /// Returns the comment of the type, without surrounding white space.
    pub(crate) fn text(&self) -> Option<&str> {
        not_empty(self.docs.as_deref())
    }

    /// Returns the comment of a field, case or flag, without surrounding white space.
    pub(crate) fn of_item(&self, name: &str) -> Option<&str> {
        not_empty(self.items.get(name).map(String::as_str))
    }
}

fn not_empty(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// In version 0 only the text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Function {
    Text(Option<String>),
    Fields { docs: Option<String> },
}

impl Function {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(docs) | Self::Fields { docs } => docs.as_deref(),
        }
    }
}

impl Docs {
    /// Reads the section of a component; without a usable one, there are no comments.
    pub(crate) fn of(component: &[u8]) -> Self {
        section(component).and_then(Self::parse).unwrap_or_default()
    }

    fn parse(section: &[u8]) -> Option<Self> {
        match section.split_first()? {
            (0 | 1, json) if section.len() <= MAX_DOCS => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    /// True without any comment.
    pub(crate) fn is_empty(&self) -> bool {
        self.worlds.is_empty() && self.interfaces.is_empty()
    }

    /// Returns the comment of a function, without surrounding white space. `interface` is the name of the export that
    /// contains it.
    pub(crate) fn of_function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let worlds = self.worlds.values();
        let docs = match interface {
            None => worlds
                .flat_map(|world| [&world.func_exports, &world.funcs])
                .find_map(|functions| functions.get(function)),
            Some(name) => {
                let short = super::names::interface(name);
                let inline = worlds.flat_map(|world| [&world.interface_exports, &world.interfaces]);
                std::iter::once(&self.interfaces)
                    .chain(inline)
                    .find_map(|interfaces| interfaces.get(short)?.funcs.get(function))
            }
        };
        not_empty(docs?.text())
    }

    /// Returns the comments of a type that an export with this name contains, or the component itself. A type that an interface uses
    /// from another one has its comments there.
    pub(crate) fn of_type(&self, interface: Option<&str>, name: &str) -> Option<&TypeDocs> {
        let worlds = || self.worlds.values();
        let inline = || worlds().flat_map(|world| [&world.interface_exports, &world.interfaces]);
        let all = || std::iter::once(&self.interfaces).chain(inline());
        let own = match interface {
            None => worlds().find_map(|world| world.types.get(name)),
            Some(interface) => {
                let short = super::names::interface(interface);
                all().find_map(|interfaces| interfaces.get(short)?.types.get(name))
            }
        };
        let has_text = |docs: &&TypeDocs| docs.text().is_some() || !docs.items.is_empty();
        own.filter(has_text).or_else(|| {
            let mut others = all()
                .flat_map(BTreeMap::values)
                .filter_map(|interface| interface.types.get(name));
            others.find(has_text)
        })
    }
}

/// Returns the section of the outermost component.
fn section(component: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload.ok()? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 1 && section.name() == SECTION => {
                return Some(section.data());
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(section: &[u8]) -> Vec<u8> {
        let data: String = section.iter().map(|byte| format!("\\{byte:02x}")).collect();
        wat::parse_str(format!(
            "(component (component (@custom \"package-docs\" \"\\01{{}}\")) (@custom \"package-docs\" \"{data}\"))"
        ))
        .unwrap()
    }

    #[test]
    fn comments_of_worlds_and_interfaces_are_found() {
        let section = b"\x01{\"docs\":\"x\",
            \"worlds\":{\"w\":{\"docs\":\"y\",\"func_exports\":{\"add\":{\"docs\":\" Adds.\\n\"}},\"funcs\":{\"sub\":{\"docs\":\"Subtracts.\"}},
                \"interface_exports\":{\"inline\":{\"funcs\":{\"f\":{\"docs\":\"Inline.\",\"stability\":{}}}}}}},
            \"interfaces\":{\"ops\":{\"docs\":\"z\",\"funcs\":{\"mul\":{\"docs\":\"Multiplies.\"},\"none\":{}},\"types\":{}}}}";
        let docs = Docs::of(&with(section));
        for (interface, function, text) in [
            (None, "add", Some("Adds.")),
            (None, "sub", Some("Subtracts.")),
            (None, "mul", None),
            (Some("demo:math/ops@1.0.0"), "mul", Some("Multiplies.")),
            (Some("demo:math/ops"), "none", None),
            (Some("inline"), "f", Some("Inline.")),
        ] {
            assert_eq!(docs.of_function(interface, function), text, "{function}");
        }
        let first = b"\x00{\"interfaces\":{\"ops\":{\"funcs\":{\"mul\":\"Multiplies.\"}}}}";
        let docs = Docs::of(&with(first));
        assert_eq!(docs.of_function(Some("a:b/ops"), "mul"), Some("Multiplies."));
    }

    #[test]
    fn comments_of_types_are_found_in_the_interface_that_has_them() {
        let comments = serde_json::json!({
            "worlds": { "w": { "types": { "t": { "docs": "Of the world." } } } },
            "interfaces": {
                "a": { "types": {
                    "point": { "docs": " A place. ", "items": { "x": "To the right.", "y": " " } },
                    "used": {},
                } },
                "b": { "types": { "used": { "items": { "on": "It runs." } } } },
            },
        });
        let docs = Docs::of(&with(format!("\u{1}{comments}").as_bytes()));
        let point = docs.of_type(Some("demo:x/a@1.0.0"), "point").unwrap();
        assert_eq!(
            (
                point.text(),
                point.of_item("x"),
                point.of_item("y"),
                point.of_item("z")
            ),
            (Some("A place."), Some("To the right."), None, None)
        );
        let used = docs.of_type(Some("a"), "used").unwrap();
        assert_eq!((used.text(), used.of_item("on")), (None, Some("It runs.")));
        assert_eq!(docs.of_type(None, "t").unwrap().text(), Some("Of the world."));
        assert_eq!(docs.of_type(None, "other"), None);
    }

    #[test]
    fn unusable_comments_are_no_comments() {
        for section in [&b""[..], b"\x02{}", b"\x01{", b"\x01[]", b"\x01{\"worlds\":7}"] {
            let docs = Docs::of(&with(section));
            assert_eq!(docs.of_function(None, "add"), None);
        }
        let of_size = |size: usize| {
            let begin = "\u{1}{\"interfaces\":{\"i\":{\"funcs\":{\"f\":{\"docs\":\"x\"}}}},\"docs\":\"";
            format!("{begin}{}\"}}", "x".repeat(size - begin.len() - 2)).into_bytes()
        };
        for (size, text) in [(MAX_DOCS, Some("x")), (MAX_DOCS + 1, None)] {
            let docs = Docs::parse(&of_size(size)).unwrap_or_default();
            assert_eq!(docs.of_function(Some("i"), "f"), text, "{size}");
        }
    }
}
