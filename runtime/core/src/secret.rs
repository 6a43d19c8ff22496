//! Secrets: values that the host adds to requests, and that no guest, no model and no log ever sees.
//!
//! A [`SecretBinding`] is part of a policy and says where a secret may go and how it is added; it names the secret and does
//! not hold it. The values come from whoever embeds the runtime, as [`Secrets`], from a keyring, the environment or a
//! file. The host adds a value to requests for exactly the origins of its binding, after the guest has let go of the
//! request. Everything that comes back passes a [`crate::Redactor`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Grants;
use crate::redact::Redactor;

/// Where a secret may go and how it is added.
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
    /// Origins that it may go to, such as `https://api.example.com` or `https://api.example.com:8443`: scheme, host and
    /// port, compared exactly. A binding is not a grant: the request must be granted as well.
    pub origins: Vec<String>,
    /// How it is added.
    pub placement: SecretPlacement,
    /// Methods of requests that it goes with, in capitals; empty means all but `TRACE`, which never carries a secret.
    pub methods: Vec<String>,
    /// Prefixes of paths that it goes with, by whole segments, such as `/repos/me`; empty means every path.
    ///
    /// A request to another method or path goes without the secret; that it goes at all is up to the grants.
    pub paths: Vec<String>,
    /// What a guest gets of the answer to a request that carries it.
    pub responses: SecretResponses,
}

/// What a guest gets of the answer to a request that carries a secret.
///
/// Answers are masked in any case. That makes an honest server's echo harmless; what a server computes from a secret it
/// can hide from every search. Where a tool must not learn a secret even from a server that helps it, the answer is what
/// to limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenResponses", into = "WrittenResponses")]
pub enum SecretResponses {
    /// Everything; `"any"`.
    #[default]
    Any,
    /// Answers of these media types, without parameters, such as `application/json`; others are refused.
    MediaTypes(Vec<String>),
    /// The status, and of the headers `date` and `retry-after`; `"withheld"`.
    Withheld,
}

/// How a secret is added to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlacement {
    /// As a header of every request to the origins; one that the guest has set is replaced.
    Header {
        /// Name of the header, such as `authorization`.
        header: String,
        /// Its value, with `{}` for the secret; `{}` alone by default.
        template: String,
    },
    /// In place of a text that the guest writes in the value of any header or in the query of the URL, such as
    /// `{{github}}`.
    Placeholder {
        /// The text, at least four bytes.
        placeholder: String,
    },
}

/// The value of a secret. Never printed; [`SecretValue::expose`] is the only way to it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

/// Values of secrets by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, SecretValue>);

/// A value that cannot be kept secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecret {
    /// So short that it stands in texts by chance, and taking it out would destroy them.
    #[error(
        "the value of the secret `{name}` has fewer than {} bytes and cannot be told from other text",
        SecretValue::MIN_LEN
    )]
    TooShort {
        /// The secret.
        name: String,
    },
    /// Longer than any token is.
    #[error(
        "the value of the secret `{name}` has more than {} bytes",
        SecretValue::MAX_LEN
    )]
    TooLong {
        /// The secret.
        name: String,
    },
    /// A character that no header can carry.
    #[error("the value of the secret `{name}` contains a control character, such as a newline at its end")]
    ControlCharacter {
        /// The secret.
        name: String,
    },
}

impl SecretValue {
    /// Shortest value, in bytes.
    pub const MIN_LEN: usize = 6;
    /// Longest value, in bytes. A JSON Web Token has one or two kilobytes.
    pub const MAX_LEN: usize = 8 << 10;

    /// The value itself, for the one place that sends it.
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
    /// Adds a value, or replaces the one of the same name.
    ///
    /// # Errors
    /// When the value is shorter than [`SecretValue::MIN_LEN`], longer than [`SecretValue::MAX_LEN`], or contains a
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

    /// The value of a secret.
    pub fn get(&self, name: &str) -> Option<&SecretValue> {
        self.0.get(name)
    }

    /// Names and values in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Names that the bindings of `grants` use and that have no value here.
    pub fn missing<'a>(&self, grants: &'a Grants) -> Vec<&'a str> {
        let names = grants.secrets.iter().map(|binding| binding.name.as_str());
        names.filter(|name| self.get(name).is_none()).collect()
    }

    /// What takes these values out of texts.
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

/// A binding as it stands in a configuration file.
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

/// `responses` as it stands in a configuration file: a word, or a list of media types.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenResponses {
    Word(String),
    MediaTypes(Vec<String>),
}

impl SecretResponses {
    /// Whether nothing is held back.
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
                "`responses` is `any`, `withheld` or a list of media types, not `{}`",
                word.escape_debug()
            )),
            WrittenResponses::MediaTypes(types) if types.is_empty() => {
                Err("`responses` has no media type; `withheld` lets no answer through".into())
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
                        "`{}` in `responses` is no media type, such as `application/json`",
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
    /// On one line, for the user and the lock file: `github: authorization: Bearer {} to https://api.github.com`.
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
                    "the binding of the secret `{}` has either a `header`, perhaps with a `template`, or a `placeholder`",
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
    fn a_value_is_never_printed() {
        let mut secrets = Secrets::default();
        secrets.insert("token", "hunter2-hunter2").unwrap();
        let printed = format!("{secrets:?} {:?} {:#?}", secrets.get("token"), secrets.redactor());
        assert!(
            printed.contains("***") && !printed.contains("hunter2"),
            "{printed}"
        );
    }

    #[test]
    fn a_value_that_cannot_be_kept_is_refused_without_saying_it() {
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
    fn a_binding_is_read_as_it_is_written_and_a_wrong_one_is_an_error() {
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
            (r#"{"name":"a","origins":[]}"#, "either a `header`"),
            (
                r#"{"name":"a","origins":[],"header":"x","placeholder":"{{a}}"}"#,
                "either a `header`",
            ),
            (
                r#"{"name":"a","origins":[],"placeholder":"{{a}}","template":"{}"}"#,
                "either a `header`",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","vaule":"y"}"#,
                "unknown field `vaule`",
            ),
            (r#"{"name":"a","header":"x"}"#, "missing field `origins`"),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":"none"}"#,
                "not `none`",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":[]}"#,
                "no media type",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":["json"]}"#,
                "`json` in `responses`",
            ),
            (
                r#"{"name":"a","origins":[],"header":"x","responses":["text/html; charset=x"]}"#,
                "is no media type",
            ),
        ] {
            let error = serde_json::from_str::<SecretBinding>(text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_binding_is_printed_on_one_line_with_all_that_narrows_it() {
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
    fn bindings_without_a_value_are_found() {
        let grants: Grants = serde_json::from_str(
            r#"{"secrets": [
                {"name": "a", "origins": ["https://x.example"], "header": "x-key"},
                {"name": "b", "origins": [], "placeholder": "{{b}}"}]}"#,
        )
        .unwrap();
        let mut secrets = Secrets::default();
        assert_eq!(secrets.missing(&grants), ["a", "b"]);
        secrets.insert("a", "value-of-a").unwrap();
        assert_eq!(secrets.missing(&grants), ["b"]);
        assert_eq!(
            grants.secrets[0].placement,
            SecretPlacement::Header {
                header: "x-key".into(),
                template: "{}".into()
            }
        );
    }

    #[test]
    fn a_kept_value_is_given_out_and_taken_out_of_texts() {
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
