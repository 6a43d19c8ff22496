//! Checks of rules before they apply: a rule that can never match would allow what the user believes is denied.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use toolcell_core::suggest::nearest;
use toolcell_core::{ToolName, ToolSpec, url_reading};

use super::ApprovalRule;
use super::wildcard::matches;

/// Maximum length of a pattern, in bytes: as long as the longest path.
pub const MAX_PATTERN: usize = 4096;

/// Reason why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRule {
    /// A pattern for tools or arguments is longer than [`MAX_PATTERN`].
    #[error("the pattern has {length} bytes, at most {MAX_PATTERN} are possible")]
    LongPattern {
        /// Length of the pattern, in bytes.
        length: usize,
    },
    /// No tool can have such a name.
    #[error("no tool has a name that matches `{}`: names consist of a-z, A-Z, 0-9, `_` and `-`", pattern.escape_debug())]
    NoToolName {
        /// Pattern that matches no tool name.
        pattern: String,
    },
    /// An argument is not named by a JSON Pointer (RFC 6901).
    #[error("`{}` is not a JSON Pointer to an argument, which begins with `/`{}", pointer.escape_debug(), right_form(like))]
    NotAPointer {
        /// Text that is not a pointer.
        pointer: String,
        /// The pointer that was probably meant.
        like: Option<String>,
    },
    /// A pattern for URLs has a host that no URL has in the form that is compared.
    #[error("the pattern `{}` matches no URL: {reason}", pattern.escape_debug())]
    UnusableHost {
        /// Pattern with the host.
        pattern: String,
        /// Defect of the host, and its right form.
        reason: &'static str,
    },
    /// A pointer contains `*`, which has no meaning in a JSON Pointer.
    #[error("`{}` contains `*`: a pointer names one argument, and includes everything in it", pointer.escape_debug())]
    StarInPointer {
        /// Pointer with `*`.
        pointer: String,
    },
}

/// Reason why a rule applies to none of the present tools. It may be meant for others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnusedRule {
    /// No tool has such a name.
    Tool {
        /// The tools with similar names.
        near: Vec<String>,
    },
    /// No tool with such a name has the argument.
    Argument {
        /// The pointer.
        pointer: String,
        /// Pointers to arguments with similar names.
        near: Vec<String>,
    },
}

fn right_form(like: &Option<String>) -> String {
    like.as_ref()
        .map_or_else(String::new, |like| format!(", such as `{}`", like.escape_debug()))
}

impl ApprovalRule {
    /// Checks that the rule can match a call.
    ///
    /// # Errors
    /// Returns the first reason why it cannot be used.
    pub fn check(&self) -> Result<(), InvalidRule> {
        Self::check_tool(&self.tool)?;
        for (pointer, pattern) in &self.arguments {
            Self::check_pointer(pointer)?;
            Self::check_pattern(pattern)?;
        }
        Ok(())
    }

    /// True if the rule is for tools with this name.
    pub fn names(&self, tool: &str) -> bool {
        matches(&self.tool, tool)
    }

    /// Returns why the rule applies to none of these tools, or `None` if it applies to one.
    pub fn unused(&self, tools: &[&ToolSpec]) -> Option<UnusedRule> {
        let named = tools.iter().filter(|tool| self.names(tool.name.as_str()));
        let named: Vec<&ToolSpec> = named.copied().collect();
        if named.is_empty() {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let near = nearest(&self.tool.replace('*', ""), &names);
            return Some(UnusedRule::Tool { near: owned(near) });
        }
        let is_used = |tool: &&ToolSpec| self.arguments.keys().all(|pointer| has_argument(tool, pointer));
        if named.iter().any(is_used) {
            return None;
        }
        let absent = |pointer: &&String| !named.iter().any(|tool| has_argument(tool, pointer));
        let known: BTreeSet<String> = named.iter().flat_map(|tool| arguments(tool)).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        self.arguments.keys().find(absent).map(|pointer| {
            let meant = named.iter().find_map(|tool| of_alias(tool, pointer));
            let near = meant.map_or_else(|| owned(nearest(pointer, &known)), |meant| vec![meant]);
            UnusedRule::Argument {
                pointer: pointer.clone(),
                near,
            }
        })
    }

    /// Checks the name or pattern for tools.
    ///
    /// # Errors
    /// Returns an error if it is too long or matches no valid name.
    pub fn check_tool(pattern: &str) -> Result<(), InvalidRule> {
        Self::check_pattern(pattern)?;
        // Stars stand for a letter in front and for nothing elsewhere, or for nothing at all.
        let plain = pattern.replace('*', "");
        let least = match pattern.starts_with('*') && ToolName::new(plain.as_str()).is_err() {
            true => format!("a{plain}"),
            false => plain,
        };
        ToolName::new(least)
            .map(drop)
            .map_err(|_| InvalidRule::NoToolName {
                pattern: pattern.to_owned(),
            })
    }

    /// Checks the pointer to an argument; an empty one means all arguments.
    ///
    /// # Errors
    /// Returns an error if it is not a JSON Pointer (RFC 6901) or contains an empty name or `*`.
    pub fn check_pointer(pointer: &str) -> Result<(), InvalidRule> {
        Self::check_pattern(pointer)?;
        if pointer.contains('*') {
            return Err(InvalidRule::StarInPointer {
                pointer: pointer.to_owned(),
            });
        }
        let is_name =
            |name: &str| !name.is_empty() && name.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        let is_pointer = match pointer.strip_prefix('/') {
            Some(names) => names.split('/').all(is_name),
            None => pointer.is_empty(),
        };
        if is_pointer {
            return Ok(());
        }
        // `path`, `$.path`, `#/path`, `/path/` and `options.path` are how others write `/path` and `/options/path`.
        let plain = pointer.trim_start_matches(['$', '#']).replace('~', "~0");
        let separators: &[char] = if pointer.starts_with('/') {
            &['/']
        } else {
            &['/', '.']
        };
        let names: Vec<&str> = plain.split(separators).filter(|name| !name.is_empty()).collect();
        Err(InvalidRule::NotAPointer {
            pointer: pointer.to_owned(),
            like: (!names.is_empty()).then(|| format!("/{}", names.join("/"))),
        })
    }

    /// Checks the pattern for an argument.
    ///
    /// # Errors
    /// Returns an error if it is too long, or a URL with a host that matches none.
    pub fn check_pattern(pattern: &str) -> Result<(), InvalidRule> {
        match (pattern.len(), url_reading::unusable_host(pattern)) {
            (length, _) if length > MAX_PATTERN => Err(InvalidRule::LongPattern { length }),
            (_, Some(reason)) => Err(InvalidRule::UnusableHost {
                pattern: pattern.to_owned(),
                reason,
            }),
            _ => Ok(()),
        }
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the arguments in the schema of a tool, as JSON Pointers.
fn arguments(tool: &ToolSpec) -> impl Iterator<Item = String> {
    let properties = tool.input.as_value().get("properties");
    let names = properties.and_then(|properties| properties.as_object());
    names
        .into_iter()
        .flat_map(|names| names.keys())
        .map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")))
}

/// Returns the pointer to the argument of which the first name of a pointer is an alias: rules are compared with the names
/// of the schema.
fn of_alias(tool: &ToolSpec, pointer: &str) -> Option<String> {
    let names = pointer.strip_prefix('/')?;
    let (alias, rest) = names.split_once('/').unwrap_or((names, ""));
    let mut arguments = Map::from_iter([(alias.to_owned(), Value::Null)]);
    tool.replace_aliases(&mut arguments).ok()?;
    let name = arguments.keys().find(|name| *name != alias)?;
    let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    Some(if rest.is_empty() {
        pointer
    } else {
        format!("{pointer}/{rest}")
    })
}

/// True if calls of a tool can have the argument. Only the first name of a pointer is compared: schemas of arguments
/// within arguments have many forms.
fn has_argument(tool: &ToolSpec, pointer: &str) -> bool {
    let schema = tool.input.as_value();
    let is_open = ["additionalProperties", "patternProperties"]
        .iter()
        .filter_map(|keyword| schema.get(keyword))
        .any(|value| value != false);
    let first = pointer.split('/').nth(1).unwrap_or_default();
    first.is_empty() || is_open || arguments(tool).any(|known| &known[1..] == first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::approval::Verdict;
    use toolcell_core::Schema;
    use toolcell_core::tool::Hints;

    fn tool(name: &str, schema: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::new(name).unwrap(),
            title: None,
            description: String::new(),
            input: Arc::new(Schema::for_arguments(schema).unwrap()),
            output: None,
            hints: Hints::default(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn rule_that_applies_to_no_present_tool_is_found() {
        let read = tool(
            "files_read",
            r#"{"type":"object","properties":{"path":{"type":"string"},"a/b":{"type":"string"}}}"#,
        );
        let open = tool(
            "open",
            r#"{"type":"object","properties":{},"additionalProperties":{"type":"string"}}"#,
        );
        let tools = [&read, &open];
        let unused = |tool: &str, pointers: &[&str]| {
            let rule = ApprovalRule::tool(tool, Verdict::Deny);
            let rule = pointers.iter().fold(rule, |rule, p| rule.with_argument(*p, "*"));
            rule.unused(&tools)
        };
        for (tool, pointers) in [
            ("*", &[][..]),
            ("files_*", &["/path"]),
            ("files_*", &[""]),
            ("files_read", &["/path/0", "/a~1b"]),
            ("open", &["/anything"]),
            ("*", &["/anything"]),
        ] {
            assert_eq!(unused(tool, pointers), None, "{tool} {pointers:?}");
        }
        let near = vec!["files_read".to_owned()];
        assert_eq!(unused("file_read", &[]), Some(UnusedRule::Tool { near }));
        assert_eq!(unused("x*", &[]), Some(UnusedRule::Tool { near: vec![] }));
        let near = vec!["/path".to_owned()];
        for pointers in [&["/Path"][..], &["/path", "/Path"]] {
            assert_eq!(
                unused("files_*", pointers),
                Some(UnusedRule::Argument {
                    pointer: "/Path".into(),
                    near: near.clone()
                })
            );
        }
    }

    #[test]
    fn rule_with_an_alias_is_told_the_name_of_its_argument() {
        let mut read = tool(
            "files_read",
            r#"{"type":"object","properties":{"path":{},"file":{}},"additionalProperties":false}"#,
        );
        let aliases = serde_json::json!({"file_path": "path"});
        read.annotations
            .insert(toolcell_core::tool::aliases::ALIASES.into(), aliases);
        for (pointer, near) in [
            ("/file_path", "/path"),
            ("/file_path/0", "/path/0"),
            ("/fil", "/file"),
        ] {
            let rule = ApprovalRule::tool("files_read", Verdict::Deny).with_argument(pointer, "*");
            let expected = UnusedRule::Argument {
                pointer: pointer.into(),
                near: vec![near.into()],
            };
            assert_eq!(rule.unused(&[&read]), Some(expected));
        }
    }

    #[test]
    fn pointer_that_never_matches_is_refused_with_its_right_form() {
        for (pointer, like) in [
            ("path", "/path"),
            ("$.path", "/path"),
            ("#/path", "/path"),
            ("$.options.path", "/options/path"),
            ("options.path", "/options/path"),
            ("/path/", "/path"),
            ("/a//b", "/a/b"),
            ("//", ""),
            ("/", ""),
            ("/a~b", "/a~0b"),
            ("/a~2b", "/a~02b"),
            ("/a~", "/a~0"),
        ] {
            let expected = InvalidRule::NotAPointer {
                pointer: pointer.into(),
                like: Some(like.to_owned()).filter(|like| !like.is_empty()),
            };
            assert_eq!(ApprovalRule::check_pointer(pointer), Err(expected));
        }
        for pointer in ["*", "/*", "/paths/*"] {
            let refused = ApprovalRule::check_pointer(pointer);
            assert!(
                matches!(refused, Err(InvalidRule::StarInPointer { .. })),
                "{pointer}"
            );
        }
        for pointer in ["", "/path", "/a~0b", "/a~1b", "/paths/0", "/a b", "/$.path"] {
            assert_eq!(ApprovalRule::check_pointer(pointer), Ok(()), "{pointer}");
        }
    }

    #[test]
    fn tool_pattern_that_no_name_matches_is_refused() {
        let stars = "*".repeat(65);
        for (pattern, is_possible) in [
            ("*", true),
            ("files_*", true),
            ("*_read", true),
            (stars.as_str(), true),
            ("", false),
            ("files.read", false),
            ("files read", false),
            ("files:*", false),
            ("project:x", false),
            ("1*", false),
            (&"a".repeat(64), true),
            (&"a".repeat(65), false),
        ] {
            assert_eq!(
                ApprovalRule::check_tool(pattern).is_ok(),
                is_possible,
                "{pattern}"
            );
        }
    }

    #[test]
    fn pattern_beyond_4096_bytes_is_refused() {
        for (length, is_possible) in [(MAX_PATTERN, true), (MAX_PATTERN + 1, false)] {
            let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", "*".repeat(length));
            assert_eq!(rule.check().is_ok(), is_possible, "{length}");
            let pointer = format!("/{}", "a".repeat(length - 1));
            assert_eq!(ApprovalRule::check_pointer(&pointer).is_ok(), is_possible);
            assert_eq!(ApprovalRule::check_tool(&"*".repeat(length)).is_ok(), is_possible);
        }
    }

    #[test]
    fn pattern_with_a_host_that_is_never_sent_is_refused() {
        for (pattern, is_possible) in [
            ("https://bücher.example/*", false),
            ("https://xn--bcher-kva.example/*", true),
        ] {
            let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/url", pattern);
            assert_eq!(rule.check().is_ok(), is_possible, "{pattern}");
        }
    }
}
