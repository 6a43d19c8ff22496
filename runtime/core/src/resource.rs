//! Resources: data that clients read by its URI, beside the tools of a source.

use std::fmt;
use std::sync::Arc;

use crate::Tool;

/// Maximum size of a URI and of a template, in bytes: as long as browsers and proxies accept.
pub const MAX_URI: usize = 2048;

/// Resources of one source.
#[derive(Clone)]
pub struct Resources {
    /// Resources with a known URI.
    pub resources: Vec<ResourceSpec>,
    /// Families of resources.
    pub templates: Vec<ResourceTemplate>,
    /// Reads one: the argument [`URI_ARGUMENT`] is a URI that is listed or fits a template, the content of the result is that of the
    /// resource. [`ToolError::InvalidArguments`](crate::ToolError::InvalidArguments) says that there is no such resource.
    pub reader: Arc<dyn Tool>,
}

/// Argument of the tool that reads resources.
pub const URI_ARGUMENT: &str = "uri";

/// Description of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    /// URI, unique among all that are offered together.
    pub uri: String,
    /// Name, such as a file name.
    pub name: String,
    /// Display name for the user.
    pub title: Option<String>,
    /// Description for the model.
    pub description: Option<String>,
    /// Media type, if known, also of its texts.
    pub media_type: Option<String>,
    /// Size in bytes, if known.
    pub size: Option<u64>,
}

/// Description of a family of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplate {
    /// URIs of the family.
    pub template: UriTemplate,
    /// Name of the family.
    pub name: String,
    /// Display name for the user.
    pub title: Option<String>,
    /// Description for the model.
    pub description: Option<String>,
    /// Media type of all of them, if they have one.
    pub media_type: Option<String>,
    /// Variables, each with values to suggest.
    pub values: Vec<(String, Vec<String>)>,
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources")
            .field("resources", &self.resources)
            .field("templates", &self.templates)
            .finish_non_exhaustive()
    }
}

/// Error of a URI or a template that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUri {
    /// It is too long.
    #[error("it has {0} bytes, more than the limit of {MAX_URI}")]
    TooLong(usize),
    /// It has no scheme.
    #[error("it does not begin with a scheme such as `file:`")]
    NoScheme,
    /// It contains a character that a URI does not have.
    #[error("the character `{}` must be percent-encoded", .0.escape_debug())]
    Character(char),
    /// An expression of a template is not supported.
    #[error(
        "a template has expressions of the form `{{name}}` and `{{+name}}` only, each with a name of its own"
    )]
    Expression,
}

/// Checks that a text is an absolute URI (RFC 3986) of at most [`MAX_URI`] bytes.
///
/// # Errors
/// The reason why it is not.
pub fn check_uri(uri: &str) -> Result<(), InvalidUri> {
    if uri.len() > MAX_URI {
        return Err(InvalidUri::TooLong(uri.len()));
    }
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return Err(InvalidUri::NoScheme);
    }
    match uri.chars().find(|c| !is_of_uri(*c)) {
        Some(other) => Err(InvalidUri::Character(other)),
        None => Ok(()),
    }
}

fn is_of_uri(c: char) -> bool {
    c.is_ascii_graphic() && !"<>\"{}|\\^`".contains(c)
}

/// Template of URIs (RFC 6570) with two forms of expressions: `{name}` stands for one segment, `{+name}` for several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    text: String,
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Literal(u8),
    /// Expression with its name; `true` if its value can contain `/`, `?` and `#`.
    Variable(String, bool),
}

impl UriTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn parse(text: &str) -> Result<Self, InvalidUri> {
        if text.len() > MAX_URI {
            return Err(InvalidUri::TooLong(text.len()));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, expression)) = rest.split_once('{') {
            let (expression, after) = expression.split_once('}').ok_or(InvalidUri::Expression)?;
            let name = expression.strip_prefix('+').unwrap_or(expression);
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let part = TemplatePart::Variable(name.to_owned(), name.len() < expression.len());
            let is_known = parts
                .iter()
                .any(|known| matches!(known, TemplatePart::Variable(of, _) if of == name));
            // Where one value ends and the next begins is known only if there is something between them.
            let is_apart = !before.is_empty();
            if !is_name || is_known || !is_apart {
                return Err(InvalidUri::Expression);
            }
            literal.push_str(before);
            parts.extend(before.bytes().map(TemplatePart::Literal));
            parts.push(part);
            rest = after;
        }
        literal.push_str(rest);
        parts.extend(rest.bytes().map(TemplatePart::Literal));
        check_uri(&literal)?;
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Returns the template as it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Literal(_) => None,
            TemplatePart::Variable(name, _) => Some(name.as_str()),
        })
    }

    /// Returns `true` if a URI fits, with at least one character for each variable. It takes time proportional to the product of both
    /// lengths at most.
    pub fn matches(&self, uri: &str) -> bool {
        if check_uri(uri).is_err() {
            return false;
        }
        // The parts that may come next, as the states of an automaton.
        let end = self.parts.len();
        let mut states = vec![false; end + 1];
        states[0] = true;
        for byte in uri.bytes() {
            let mut next = vec![false; end + 1];
            for (index, part) in self.parts.iter().enumerate() {
                // A variable that has begun is left at the part after it.
                if !states[index] {
                    continue;
                }
                match part {
                    TemplatePart::Literal(literal) if *literal == byte => next[index + 1] = true,
                    TemplatePart::Variable(_, is_reserved) if *is_reserved || !b"/?#".contains(&byte) => {
                        next[index] = true;
                        next[index + 1] = true;
                    }
                    _ => {}
                }
            }
            states = next;
        }
        states[end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_absolute_and_short() {
        for good in [
            "file:///a",
            "notes:x",
            "a+b-c.1:%20?x=1#y",
            "https://a.example/[1]",
        ] {
            assert_eq!(check_uri(good), Ok(()), "{good}");
        }
        for (bad, error) in [
            ("", InvalidUri::NoScheme),
            ("/a", InvalidUri::NoScheme),
            ("1a:x", InvalidUri::NoScheme),
            ("a b:x", InvalidUri::NoScheme),
            ("a:x y", InvalidUri::Character(' ')),
            ("a:\u{1b}", InvalidUri::Character('\u{1b}')),
            ("a:é", InvalidUri::Character('é')),
            ("a:{x}", InvalidUri::Character('{')),
        ] {
            assert_eq!(check_uri(bad), Err(error), "{bad}");
        }
        let long = |bytes: usize| format!("a:{}", "x".repeat(bytes - 2));
        assert_eq!(check_uri(&long(MAX_URI)), Ok(()));
        assert_eq!(
            check_uri(&long(MAX_URI + 1)),
            Err(InvalidUri::TooLong(MAX_URI + 1))
        );
        assert!(UriTemplate::parse(&long(MAX_URI)).is_ok());
        assert!(UriTemplate::parse(&long(MAX_URI + 1)).is_err());
    }

    #[test]
    fn template_fits_its_family_only() {
        for (template, good, bad) in [
            (
                "a:{x}",
                &["a:1", "a:%2F"][..],
                &["a:", "a:1/2", "a:1?", "b:1", "a:{x}"][..],
            ),
            ("a:{+x}", &["a:1", "a:1/2?3#4"], &["a:", "a:1 2"]),
            (
                "a:{x}/b/{y}.md",
                &["a:1/b/2.md", "a:b/b/b.md.md"],
                &["a:1/b/.md", "a:1/b/2", "a:/b/2.md"],
            ),
            ("a:/{x}-{y}", &["a:/1-2", "a:/---"], &["a:/-", "a:/1-"]),
            ("a:b", &["a:b"], &["a:bc", "a:"]),
        ] {
            let parsed = UriTemplate::parse(template).unwrap();
            assert_eq!(parsed.as_str(), template);
            for uri in good {
                assert!(parsed.matches(uri), "{template} {uri}");
            }
            for uri in bad {
                assert!(!parsed.matches(uri), "{template} {uri}");
            }
        }
        let parsed = UriTemplate::parse("a:{x}/{+y}").unwrap();
        assert_eq!(parsed.variables().collect::<Vec<_>>(), ["x", "y"]);
    }

    #[test]
    fn other_expressions_are_refused() {
        for bad in [
            "a:{",
            "a:}",
            "a:{}",
            "a:{x*}",
            "a:{?x}",
            "a:{x,y}",
            "a:{x}{y}",
            "a:{x}/{x}",
            "{x}",
            "{+x}:a",
        ] {
            assert!(UriTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
