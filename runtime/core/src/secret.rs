//! Secrets: values that the host adds to requests and that guests, models and logs never see.
//!
//! A [`SecretBinding`] is part of a policy and states where a secret may be sent and how it is added; it names the
//! secret and does not contain it. The embedder supplies the values as [`Secrets`], from a keyring, the environment or
//! a file. The host adds a value only to requests to the origins of its binding, after the guest can no longer access
//! the request. All returned data passes a [`crate::Redactor`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::redact::Redactor;

/// Binding of a secret: its destinations and its placement in a request.
///
/// ```
/// # use toolcell_core::secret::SecretBinding;
/// let binding: SecretBinding = serde_json::from_str(
///     r#"{ "name": "github", "origins": ["https://api.github.com"], "header": "authorization", "template": "Bearer {}" }"#,
/// )?;
/// assert_eq!(binding.placement.to_string(), "authorization: Bearer {}");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct SecretBinding {
    /// Name of the secret, such as `github`.
    pub name: String,
    /// Origins that may receive the secret, such as `https://api.example.com` or `https://api.example.com:8443`:
    /// scheme, host and port, compared exactly. A binding is not a grant: the request must be granted as well.
    pub origins: Vec<String>,
    /// Placement of the secret in the request.
    pub placement: SecretPlacement,
    /// Methods of requests that carry the secret, in upper case; empty means all but `TRACE`, which never carries a
    /// secret.
    pub methods: Vec<String>,
    /// Path prefixes of requests that carry the secret, by whole segments, such as `/repos/me`; empty means every path.
    ///
    /// A request with another method or path is sent without the secret, if the grants allow it.
    pub paths: Vec<String>,
    /// Parts of the response that the guest receives.
    pub responses: SecretResponses,
}

/// Parts of a response that the guest receives if the request carried a secret.
///
/// Responses are redacted in any case, which protects against servers that echo the secret. A hostile server can encode
/// a secret in ways that no search finds. If a tool must not learn the secret even from such a server, restrict its
/// responses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenResponses", into = "WrittenResponses")]
pub enum SecretResponses {
    /// The complete response; `"any"`.
    #[default]
    Any,
    /// Responses of these media types, without parameters, such as `application/json`; others are denied.
    MediaTypes(Vec<String>),
    /// The status and the headers `date` and `retry-after`; `"withheld"`.
    Withheld,
}

/// Placement of a secret in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlacement {
    /// In a header of every request to the origins; it replaces a header set by the guest.
    Header {
        /// Name of the header, such as `authorization`.
        header: String,
        /// Value of the header, with `{}` for the secret; defaults to `{}`.
        template: String,
    },
    /// In place of a placeholder that the guest writes in a header value or in the query of the URL, such as
    /// `{{github}}`.
    Placeholder {
        /// Text of the placeholder, at least four bytes.
        placeholder: String,
    },
}

/// Value of a secret. Never printed; [`SecretValue::expose`] is the only access.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

/// Values of secrets, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, SecretValue>);

/// Error of a value that cannot be protected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecret {
    /// Too short: it occurs in other text by chance, and redaction would destroy that text.
    #[error(
        "the value of the secret `{name}` has fewer than {} bytes and cannot be distinguished from other text",
        SecretValue::MIN_LEN
    )]
    TooShort {
        /// Name of the secret.
        name: String,
    },
    /// Longer than any token.
    #[error(
        "the value of the secret `{name}` has more than {} bytes",
        SecretValue::MAX_LEN
    )]
    TooLong {
        /// Name of the secret.
        name: String,
    },
    /// Contains a character that is not allowed in a header.
    #[error("the value of the secret `{name}` contains a control character, such as a newline at its end")]
    ControlCharacter {
        /// Name of the secret.
        name: String,
    },
}

impl SecretValue {
    /// Minimum size of a value, in bytes.
    pub const MIN_LEN: usize = 6;
    /// Maximum size of a value, in bytes. A JSON Web Token has one or two kilobytes.
    pub const MAX_LEN: usize = 8 << 10;

    /// Returns the plain value, for the code that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secrets {
    /// Inserts a value, replacing any existing value of the same name.
    ///
    /// # Errors
    /// If the value is shorter than [`SecretValue::MIN_LEN`], longer than [`SecretValue::MAX_LEN`], or contains a
    /// control character.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), InvalidSecret> {
        let (name, value) = (name.into(), value.into());
        if value.len() < SecretValue::MIN_LEN {
            return Err(InvalidSecret::TooShort { name });
        }
        if value.len() > SecretValue::MAX_LEN {
            return Err(InvalidSecret::TooLong { name });
        }
        if value.chars().any(char::is_control) {
            return Err(InvalidSecret::ControlCharacter { name });
        }
        self.0.insert(name, SecretValue(value));
        Ok(())
    }

    /// Returns the value of a secret.
    pub fn get(&self, name: &str) -> Option<&SecretValue> {
        self.0.get(name)
    }

    /// Returns names and values, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns a redactor for these values.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.iter().map(|(name, value)| (name, value.expose())))
    }
}

impl fmt::Display for SecretPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { header, template } => write!(f, "{header}: {template}"),
            Self::Placeholder { placeholder } => f.write_str(placeholder),
        }
    }
}

/// A binding as written in a configuration file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    origins: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    methods: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    #[serde(default, skip_serializing_if = "SecretResponses::is_any")]
    responses: SecretResponses,
}

/// `responses` as written in a configuration file: a keyword, or a list of media types.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenResponses {
    Word(String),
    MediaTypes(Vec<String>),
}

impl SecretResponses {
    /// Returns `true` if the response is not restricted.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

impl TryFrom<WrittenResponses> for SecretResponses {
    type Error = String;

    fn try_from(written: WrittenResponses) -> Result<Self, String> {
        match written {
            WrittenResponses::Word(word) if word == "any" => Ok(Self::Any),
            WrittenResponses::Word(word) if word == "withheld" => Ok(Self::Withheld),
            WrittenResponses::Word(word) => Err(format!(
                "invalid `responses` value `{}`: expected `any`, `withheld` or a list of media types",
                word.escape_debug()
            )),
            WrittenResponses::MediaTypes(types) if types.is_empty() => {
                Err("`responses` is an empty list; use `withheld` to block all content".into())
            }
            WrittenResponses::MediaTypes(types) => {
                let token = |text: &str| {
                    !text.is_empty()
                        && text
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
                };
                let is_type = |t: &String| t.split_once('/').is_some_and(|(a, b)| token(a) && token(b));
                match types.iter().find(|t| !is_type(t)) {
                    Some(wrong) => Err(format!(
                        "invalid media type `{}` in `responses`: expected one such as `application/json`",
                        wrong.escape_debug()
                    )),
                    None => Ok(Self::MediaTypes(
                        types.iter().map(|t| t.to_ascii_lowercase()).collect(),
                    )),
                }
            }
        }
    }
}

impl From<SecretResponses> for WrittenResponses {
    fn from(responses: SecretResponses) -> Self {
        match responses {
            SecretResponses::Any => Self::Word("any".into()),
            SecretResponses::Withheld => Self::Word("withheld".into()),
            SecretResponses::MediaTypes(types) => Self::MediaTypes(types),
        }
    }
}

impl fmt::Display for SecretBinding {
    /// Formats the binding as one line, for the user and the lock file: `github: authorization: Bearer {} to
    /// https://api.github.com`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} to {}",
            self.name,
            self.placement,
            self.origins.join(" ")
        )?;
        if !self.methods.is_empty() {
            write!(f, ", methods {}", self.methods.join(" "))?;
        }
        if !self.paths.is_empty() {
            write!(f, ", paths {}", self.paths.join(" "))?;
        }
        match &self.responses {
            SecretResponses::Any => Ok(()),
            SecretResponses::MediaTypes(types) => write!(f, ", answers {}", types.join(" ")),
            SecretResponses::Withheld => f.write_str(", answers withheld"),
        }
    }
}

impl TryFrom<Written> for SecretBinding {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let placement = match (written.header, written.template, written.placeholder) {
            (Some(header), template, None) => SecretPlacement::Header {
                header,
                template: template.unwrap_or_else(|| "{}".into()),
            },
            (None, None, Some(placeholder)) => SecretPlacement::Placeholder { placeholder },
            _ => {
                return Err(format!(
                    "invalid binding of the secret `{}`: expected either `header`, optionally with `template`, or `placeholder`",
                    written.name.escape_debug()
                ));
            }
        };
        Ok(Self {
            name: written.name,
            origins: written.origins,
            placement,
            methods: written.methods,
            paths: written.paths,
            responses: written.responses,
        })
    }
}

impl From<SecretBinding> for Written {
    fn from(binding: SecretBinding) -> Self {
        let (header, template, placeholder) = match binding.placement {
            SecretPlacement::Header { header, template } => (Some(header), Some(template), None),
            SecretPlacement::Placeholder { placeholder } => (None, None, Some(placeholder)),
        };
        Self {
            name: binding.name,
            origins: binding.origins,
            header,
            template,
            placeholder,
            methods: binding.methods,
            paths: binding.paths,
            responses: binding.responses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_value_is_never_printed() {
        let mut secrets = Secrets::default();
        secrets.insert("token", "hunter2-hunter2").unwrap();
        let printed = format!("{secrets:?} {:?} {:#?}", secrets.get("token"), secrets.redactor());
        assert!(
            printed.contains("***") && !printed.contains("hunter2"),
            "{printed}"
        );
    }

    #[test]
    fn invalid_value_is_rejected_without_being_printed() {
        let mut secrets = Secrets::default();
        for (value, kept) in [
            ("12345".to_owned(), false),
            ("123456".to_owned(), true),
            ("x".repeat(SecretValue::MAX_LEN), true),
            ("x".repeat(SecretValue::MAX_LEN + 1), false),
            ("token\n".to_owned(), false),
            ("to\0ken".to_owned(), false),
        ] {
            let inserted = secrets.insert("t", value.clone());
            assert_eq!(inserted.is_ok(), kept, "{}", value.len());
            if let Err(error) = inserted {
                assert!(!error.to_string().contains(&value), "{error}");
            }
        }
    }

    #[test]
    fn binding_round_trips_and_an_invalid_one_is_an_error() {
        for text in [
            r#"{"name":"a","origins":["https://x.example"],"header":"x-key","template":"k {}"}"#,
            r#"{"name":"a","origins":[],"placeholder":"{{a}}"}"#,
            r#"{"name":"a","origins":[],"placeholder":"{{a}}","methods":["POST"],"paths":["/x"],"responses":"withheld"}"#,
            r#"{"name":"a","origins":[],"placeholder":"{{a}}","responses":["application/json"]}"#,
        ] {
            let binding: SecretBinding = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&binding).unwrap(), text);
        }
        for (text, reason) in [
            (r#"{"name":"a","origins":[]}"#, "either `header`"),
            (
                r#"{"name":"a","origins":[],"header":"x","placeholder":"{{a}}"}"#,
                "either `header`",
            ),
            (
                r#"{"name":"a","origins":[],"placeholder":"{{a}}","template":"{}"}"#,
                "either `header`",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","vaule":"y"}"#,
                "unknown field `vaule`",
            ),
            (r#"{"name":"a","header":"x"}"#, "missing field `origins`"),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":"none"}"#,
                "`none`: expected",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":[]}"#,
                "empty list",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":["json"]}"#,
                "invalid media type `json`",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":["text/html; charset=x"]}"#,
                "invalid media type",
            ),
        ] {
            let error = serde_json::from_str::<SecretBinding>(text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn binding_is_printed_on_one_line_with_all_restrictions() {
        for (text, line) in [
            (
                r#"{"name":"a","origins":["https://x.example"],"header":"x-key","template":"k {}"}"#,
                "a: x-key: k {} to https://x.example",
            ),
            (
                r#"{"name":"a","origins":["https://x.example","https://y.example"],"placeholder":"{{a}}","methods":["GET","POST"],"paths":["/p"],"responses":["text/plain","image/png"]}"#,
                "a: {{a}} to https://x.example https://y.example, methods GET POST, paths /p, answers text/plain image/png",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":"withheld"}"#,
                "a: x: {} to , answers withheld",
            ),
        ] {
            let binding: SecretBinding = serde_json::from_str(text).unwrap();
            assert_eq!(binding.to_string(), line);
        }
    }

    #[test]
    fn kept_value_is_given_out_and_taken_out_of_texts() {
        let mut secrets = Secrets::default();
        secrets.insert("token", "s3cretvalue").unwrap();
        assert_eq!(secrets.get("token").map(SecretValue::expose), Some("s3cretvalue"));
        assert_eq!(secrets.redactor().text("a s3cretvalue"), "a [redacted:token]");
    }

    #[test]
    fn responses_are_a_word_or_media_types() {
        let responses = |json: &str| serde_json::from_str::<SecretResponses>(json).ok();
        assert_eq!(responses(r#""any""#), Some(SecretResponses::Any));
        assert_eq!(responses(r#""withheld""#), Some(SecretResponses::Withheld));
        let types = vec!["text/plain".to_owned()];
        assert_eq!(
            responses(r#"["Text/Plain"]"#),
            Some(SecretResponses::MediaTypes(types))
        );
        assert_eq!(responses(r#""all""#), None);
    }
}
