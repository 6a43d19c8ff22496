//! Secrets on their way into requests.
//!
//! A value is added after a request was admitted, to requests for exactly the origins of its binding, and never to a
//! request that follows a redirect from another origin: a server that may see the secret is asked only for what the guest
//! itself wanted from it. The answer is asked for without compression, and what it echoes of a secret is masked before
//! the guest reads it (`mask`).

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use toolcell_core::Redactor;
use toolcell_core::secret::{SecretBinding, SecretPlacement, SecretValue, Secrets};

use super::target::Target;

/// Bytes of the shortest placeholder; a shorter one would be replaced where it stands by chance.
const MIN_PLACEHOLDER: usize = 4;

/// Headers that frame a message or address it. A secret in one of them would be no secret.
const NOT_FOR_SECRETS: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A binding that cannot be used. The message names the secret and never shows its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the binding of the secret `{}` cannot be used: {reason}", name.escape_debug())]
pub struct InvalidBinding {
    /// The secret.
    pub name: String,
    /// What is wrong with the binding.
    pub reason: String,
}

/// The bindings of a policy joined with their values.
#[derive(Debug, Default)]
pub(crate) struct BoundSecrets {
    bound: Vec<Bound>,
    redactor: Redactor,
}

#[derive(Debug)]
struct Bound {
    origins: Vec<Target>,
    placement: Placement,
}

enum Placement {
    Header(HeaderName, HeaderValue),
    Placeholder {
        text: String,
        value: SecretValue,
        /// Both as they stand in a query.
        in_query: (String, String),
    },
}

impl BoundSecrets {
    /// # Errors
    /// When an origin is none, a header cannot carry a secret, or a secret has no value.
    pub(crate) fn new(bindings: &[SecretBinding], secrets: &Secrets) -> Result<Self, InvalidBinding> {
        let bind = |binding: &SecretBinding| {
            Bound::new(binding, secrets).map_err(|reason| InvalidBinding {
                name: binding.name.clone(),
                reason,
            })
        };
        Ok(Self {
            bound: bindings.iter().map(bind).collect::<Result<_, _>>()?,
            redactor: secrets.redactor(),
        })
    }

    /// What takes all secrets out of a text, bound or not.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Adds what is bound to the origin of `target`, to the headers or the query. Gives what takes it out of the answer
    /// again; `None` if nothing was added.
    pub(crate) fn attach(&self, target: &mut Target, headers: &mut HeaderMap) -> Option<Redactor> {
        let mut attached = false;
        for bound in &self.bound {
            if bound.origins.iter().any(|origin| origin.same_origin(target)) {
                attached |= bound.placement.apply(target, headers);
            }
        }
        if !attached {
            return None;
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Some(self.redactor.clone())
    }
}

impl Bound {
    fn new(binding: &SecretBinding, secrets: &Secrets) -> Result<Self, String> {
        let value = secrets.get(&binding.name).ok_or("it has no value")?;
        let origins = binding.origins.iter().map(|text| origin(text));
        Ok(Self {
            origins: origins.collect::<Result<_, _>>()?,
            placement: Placement::new(&binding.placement, value)?,
        })
    }
}

/// Reads `scheme://host` or `scheme://host:port`.
fn origin(text: &str) -> Result<Target, String> {
    let shown = text.escape_debug();
    let target = Target::parse(text).map_err(|e| format!("`{shown}` is no origin: {e}"))?;
    if target.path != "/" || target.query.is_some() || text.contains(['#', '*', '?']) {
        return Err(format!(
            "`{shown}` is no origin: scheme, host and port are expected, such as `https://api.example.com`"
        ));
    }
    Ok(target)
}

impl Placement {
    fn new(placement: &SecretPlacement, value: &SecretValue) -> Result<Self, String> {
        match placement {
            SecretPlacement::Header { header, template } => {
                let shown = header.escape_debug();
                let name = HeaderName::try_from(header.as_str())
                    .ok()
                    .filter(|name| !NOT_FOR_SECRETS.contains(&name.as_str()))
                    .ok_or_else(|| format!("`{shown}` is no header that can carry a secret"))?;
                if !template.contains("{}") {
                    return Err(format!(
                        "the template `{}` has no `{{}}` for the value",
                        template.escape_debug()
                    ));
                }
                let mut value = HeaderValue::try_from(template.replace("{}", value.expose()))
                    .map_err(|_| "the template or the value has characters that no header can carry")?;
                value.set_sensitive(true);
                Ok(Self::Header(name, value))
            }
            SecretPlacement::Placeholder { placeholder } if placeholder.len() < MIN_PLACEHOLDER => {
                Err(format!(
                    "the placeholder `{}` has fewer than {MIN_PLACEHOLDER} bytes",
                    placeholder.escape_debug()
                ))
            }
            SecretPlacement::Placeholder { placeholder } => Ok(Self::Placeholder {
                text: placeholder.clone(),
                value: value.clone(),
                in_query: (encoded(placeholder), encoded(value.expose())),
            }),
        }
    }

    /// Whether the secret is now in the request.
    fn apply(&self, target: &mut Target, headers: &mut HeaderMap) -> bool {
        match self {
            Self::Header(name, value) => {
                headers.insert(name.clone(), value.clone());
                true
            }
            Self::Placeholder {
                text,
                value,
                in_query: (text_in_query, value_in_query),
            } => {
                let mut applied = false;
                if let Some(query) = &mut target.query {
                    for written in [text, text_in_query] {
                        if query.contains(written.as_str()) {
                            *query = query.replace(written.as_str(), value_in_query);
                            applied = true;
                        }
                    }
                }
                for (name, header) in headers.iter_mut() {
                    let Some(written) = header.to_str().ok().filter(|h| h.contains(text.as_str())) else {
                        continue;
                    };
                    let filled = written.replace(text.as_str(), value.expose());
                    if let Ok(mut filled) = HeaderValue::try_from(filled)
                        && !NOT_FOR_SECRETS.contains(&name.as_str())
                    {
                        filled.set_sensitive(true);
                        *header = filled;
                        applied = true;
                    }
                }
                applied
            }
        }
    }
}

/// A text as a form has it in a query.
fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name, _) => write!(f, "{name}: ***"),
            Self::Placeholder { text, .. } => write!(f, "{text} -> ***"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.insert("token", "s3cret-value").unwrap();
        secrets
    }

    fn binding(json: &str) -> SecretBinding {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_secret_goes_to_its_origins_and_nowhere_else() {
        let binding = binding(
            r#"{"name": "token", "origins": ["https://a.example", "http://b.example:8080"],
                "header": "Authorization", "template": "Bearer {}"}"#,
        );
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        for (url, expected) in [
            ("https://a.example/any?thing", true),
            ("https://A.EXAMPLE.:443/", true),
            ("http://b.example:8080/", true),
            ("http://a.example/", false),
            ("https://a.example:8443/", false),
            ("https://b.example/", false),
            ("http://b.example/", false),
            ("https://x.a.example/", false),
            ("https://a.example.evil.org/", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_static("of the guest"));
            let attached = bound.attach(&mut Target::parse(url).unwrap(), &mut headers);
            assert_eq!(attached.is_some(), expected, "{url}");
            let value = if expected {
                "Bearer s3cret-value"
            } else {
                "of the guest"
            };
            assert_eq!(headers["authorization"], value, "{url}");
            assert_eq!(headers.contains_key("accept-encoding"), expected, "{url}");
        }
    }

    #[test]
    fn a_placeholder_is_filled_where_the_guest_wrote_it() {
        let binding =
            binding(r#"{"name": "token", "origins": ["https://a.example"], "placeholder": "{{token}}"}"#);
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        for (url, expected) in [
            ("https://a.example/", "key=s3cret-value;"),
            ("https://b.example/", "key={{token}};"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-auth", HeaderValue::from_static("key={{token}};"));
            bound.attach(&mut Target::parse(url).unwrap(), &mut headers);
            assert_eq!(headers["x-auth"], expected);
        }
        for (url, expected) in [
            (
                "https://a.example/?q=1&key={{token}}",
                "https://a.example/?q=1&key=s3cret-value",
            ),
            (
                "https://a.example/?key=%7B%7Btoken%7D%7D",
                "https://a.example/?key=s3cret-value",
            ),
            (
                "https://b.example/?key={{token}}",
                "https://b.example/?key={{token}}",
            ),
            (
                "https://a.example/%7B%7Btoken%7D%7D",
                "https://a.example/%7B%7Btoken%7D%7D",
            ),
        ] {
            let mut target = Target::parse(url).unwrap();
            bound.attach(&mut target, &mut HeaderMap::new());
            assert_eq!(target.to_string(), expected);
        }
        let mut none = HeaderMap::new();
        assert!(
            bound
                .attach(&mut Target::parse("https://a.example/").unwrap(), &mut none)
                .is_none()
        );
        assert!(none.is_empty());
    }

    #[test]
    fn nothing_that_is_printed_holds_a_value() {
        let bindings = [
            binding(r#"{"name": "token", "origins": ["https://a.example"], "header": "x-key"}"#),
            binding(r#"{"name": "token", "origins": ["https://a.example"], "placeholder": "{{token}}"}"#),
        ];
        let bound = BoundSecrets::new(&bindings, &secrets()).unwrap();
        let mut headers = HeaderMap::new();
        bound.attach(&mut Target::parse("https://a.example/").unwrap(), &mut headers);
        assert!(!format!("{bound:?} {headers:?}").contains("s3cret"));
    }

    #[test]
    fn a_binding_that_cannot_work_is_refused_with_a_reason() {
        for (json, reason) in [
            (
                r#"{"name": "other", "origins": [], "header": "x"}"#,
                "it has no value",
            ),
            (
                r#"{"name": "token", "origins": ["a.example"], "header": "x"}"#,
                "no origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://a.example/path"], "header": "x"}"#,
                "no origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://*.example"], "header": "x"}"#,
                "no origin",
            ),
            (
                r#"{"name": "token", "origins": ["ftp://a.example"], "header": "x"}"#,
                "neither",
            ),
            (
                r#"{"name": "token", "origins": ["https://u@a.example"], "header": "x"}"#,
                "user name",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "Host"}"#,
                "no header",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "a b"}"#,
                "no header",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "template": "Bearer"}"#,
                "no `{}`",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "template": "{}\n"}"#,
                "characters",
            ),
            (
                r#"{"name": "token", "origins": [], "placeholder": "{}"}"#,
                "fewer than 4",
            ),
        ] {
            let error = BoundSecrets::new(&[binding(json)], &secrets()).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(reason) && !text.contains("s3cret"),
                "{json}: {text}"
            );
        }
    }
}
