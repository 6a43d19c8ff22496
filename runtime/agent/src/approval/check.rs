//! Checks of rules before they apply: a rule that can never match would allow what the user believes is denied.

use toolcell_core::ToolName;

use super::ApprovalRule;

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
        /// The pattern.
        pattern: String,
    },
    /// An argument is not named by a JSON Pointer (RFC 6901).
    #[error("`{}` is not a JSON Pointer to an argument, which begins with `/`{}", pointer.escape_debug(), right_form(like))]
    NotAPointer {
        /// The text.
        pointer: String,
        /// The pointer that was probably meant.
        like: Option<String>,
    },
    /// A pointer contains `*`, which has no meaning in a JSON Pointer.
    #[error("`{}` contains `*`: a pointer names one argument, and includes everything in it", pointer.escape_debug())]
    StarInPointer {
        /// The pointer.
        pointer: String,
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
    /// Returns an error if it is too long.
    pub fn check_pattern(pattern: &str) -> Result<(), InvalidRule> {
        match pattern.len() {
            length if length > MAX_PATTERN => Err(InvalidRule::LongPattern { length }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::Verdict;

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
}
