//! Injection of secrets into requests, and the treatment of responses.
//!
//! A value is added after a request was approved, to requests for exactly the origins, methods and paths of its
//! binding, and never to a request that follows a redirect from another origin: a server that may see the secret only
//! receives requests that the guest itself made.
//!
//! A server that has received a secret can return it at any time, in any response. So every response of a host named by
//! a binding is treated as if it could contain the secret, whichever request it belongs to, in this call or another:
//! such a host is asked for complete responses without any coding, responses that cannot be searched are refused, and
//! matches are redacted before the guest reads them (`redact_body`). Responses of other hosts are searched as they
//! arrive.

use http::Method;
use http::header::{self, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use toolcell_core::Redactor;
use toolcell_core::secret::{SecretBinding, SecretPlacement, SecretResponses, SecretValue, Secrets};

use super::path::PathPrefix;
use super::target::Target;

/// Minimum size of a placeholder, in bytes; a shorter one would be replaced where it occurs by chance.
const MIN_PLACEHOLDER: usize = 4;

/// Headers that frame or address a message, which cannot carry a secret.
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

/// Headers that request a partial or encoded response, in which an echo could not be found: ranges (RFC 9110, section
/// 14), transfer codings, other character sets, deltas (RFC 3229) and shared dictionaries (RFC 9842).
const ASKS_FOR_CODING: [HeaderName; 7] = [
    header::RANGE,
    header::IF_RANGE,
    header::TE,
    header::ACCEPT_CHARSET,
    HeaderName::from_static("a-im"),
    HeaderName::from_static("available-dictionary"),
    HeaderName::from_static("dictionary-id"),
];

/// Error of an invalid binding. The message names the secret and never shows its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid binding of the secret `{}`: {reason}", name.escape_debug())]
pub struct InvalidBinding {
    /// Name of the secret.
    pub name: String,
    /// Reason of the rejection.
    pub reason: String,
}

/// Bindings of a policy with their values.
#[derive(Debug, Default)]
pub(crate) struct BoundSecrets {
    bound: Vec<Bound>,
    redactor: Redactor,
}

/// Treatment of the response to a request.
#[derive(Debug)]
pub(crate) struct Treatment {
    /// Redactor of the response.
    pub(crate) redactor: Redactor,
    /// True if the server may know a secret: a response that cannot be searched is refused.
    pub(crate) must_be_searchable: bool,
    /// Response restrictions of each secret in the request, by name.
    pub(crate) responses: Vec<(String, SecretResponses)>,
}

#[derive(Debug)]
struct Bound {
    name: String,
    origins: Vec<Target>,
    methods: Vec<String>,
    paths: Vec<PathPrefix>,
    responses: SecretResponses,
    placement: Placement,
}

enum Placement {
    Header(HeaderName, HeaderValue),
    Placeholder {
        text: String,
        value: SecretValue,
        /// Both, encoded for a query.
        in_query: (String, String),
    },
}

impl BoundSecrets {
    /// # Errors
    /// If an origin is invalid, a header cannot carry a secret, or a secret has no value.
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

    /// Returns the redactor of all secrets, bound or not.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Returns the treatment of responses of the host of `target`; `None` if there are no secrets at all. Removes
    /// headers from the request that would make the response unsearchable.
    pub(crate) fn prepare(&self, target: &Target, headers: &mut HeaderMap) -> Option<Treatment> {
        if self.redactor.is_empty() {
            return None;
        }
        // Another port or scheme of the host can be the same server.
        let mut origins = self.bound.iter().flat_map(|bound| &bound.origins);
        let must_be_searchable = origins.any(|origin| origin.host == target.host);
        if must_be_searchable {
            for name in ASKS_FOR_CODING {
                headers.remove(name);
            }
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        Some(Treatment {
            redactor: self.redactor.clone(),
            must_be_searchable,
            responses: Vec::new(),
        })
    }

    /// Adds the secrets bound to the method, origin and path of a request, to the headers or the query. Returns the
    /// response restrictions of each secret that was added.
    pub(crate) fn attach(
        &self,
        method: &Method,
        target: &mut Target,
        headers: &mut HeaderMap,
    ) -> Vec<(String, SecretResponses)> {
        let mut responses = Vec::new();
        for bound in &self.bound {
            if bound.goes_with(method, target) && bound.placement.apply(target, headers) {
                responses.push((bound.name.clone(), bound.responses.clone()));
            }
        }
        responses
    }
}

impl Bound {
    fn new(binding: &SecretBinding, secrets: &Secrets) -> Result<Self, String> {
        let value = secrets.get(&binding.name).ok_or("the secret has no value")?;
        let origins = binding.origins.iter().map(|text| origin(text));
        let shown = |text: &String| text.escape_debug().to_string();
        let is_method = |m: &String| !m.is_empty() && m.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        if let Some(wrong) = binding
            .methods
            .iter()
            .find(|method| !is_method(method) || *method == "TRACE")
        {
            return Err(format!(
                "invalid method `{}`: it cannot carry a secret",
                shown(wrong)
            ));
        }
        let is_path = |path: &String| path.starts_with('/') && canonical_path(path).as_ref() == Some(path);
        if let Some(wrong) = binding.paths.iter().find(|path| !is_path(path)) {
            return Err(format!(
                "invalid path `{}`: it must begin with `/` and be written as in a URL, without `.`, `..`, `?` and `#`",
                shown(wrong)
            ));
        }
        Ok(Self {
            name: binding.name.clone(),
            origins: origins.collect::<Result<_, _>>()?,
            methods: binding.methods.clone(),
            paths: binding.paths.iter().map(|path| PathPrefix::new(path)).collect(),
            responses: binding.responses.clone(),
            placement: Placement::new(&binding.placement, value)?,
        })
    }

    /// Returns `true` if the secret belongs in a request. Never for `TRACE`, whose response contains the request (RFC
    /// 9110, section 9.3.8).
    fn goes_with(&self, method: &Method, target: &Target) -> bool {
        *method != Method::TRACE
            && (self.methods.is_empty() || self.methods.iter().any(|m| m == method.as_str()))
            && (self.paths.is_empty() || self.paths.iter().any(|path| path.covers(&target.path)))
            && self.origins.iter().any(|origin| origin.same_origin(target))
    }
}

/// Returns a path in its canonical form, as used by requests.
fn canonical_path(path: &str) -> Option<String> {
    let target = Target::parse(&format!("https://h.example{path}")).ok()?;
    target.query.is_none().then_some(target.path)
}

/// Parses `scheme://host` or `scheme://host:port`.
fn origin(text: &str) -> Result<Target, String> {
    let shown = text.escape_debug();
    let target = Target::parse(text).map_err(|e| format!("invalid origin `{shown}`: {e}"))?;
    if target.path != "/" || target.query.is_some() || text.contains(['#', '*', '?']) {
        return Err(format!(
            "invalid origin `{shown}`: expected scheme, host and port, such as `https://api.example.com`"
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
                    .ok_or_else(|| format!("invalid header `{shown}`: it cannot carry a secret"))?;
                if !template.contains("{}") {
                    return Err(format!(
                        "the template `{}` lacks `{{}}` for the value",
                        template.escape_debug()
                    ));
                }
                let mut value = HeaderValue::try_from(template.replace("{}", value.expose())).map_err(
                    |_| "the template or the value contains characters that are not allowed in a header",
                )?;
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

    /// Adds the secret to the request; returns `true` if it is now included.
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

/// Encodes a text as a form does in a query.
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
    fn secret_is_sent_only_to_its_origins() {
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
            let attached = bound.attach(&Method::GET, &mut Target::parse(url).unwrap(), &mut headers);
            assert_eq!(!attached.is_empty(), expected, "{url}");
            let value = if expected {
                "Bearer s3cret-value"
            } else {
                "of the guest"
            };
            assert_eq!(headers["authorization"], value, "{url}");
        }
    }

    #[test]
    fn placeholder_is_replaced_where_the_guest_wrote_it() {
        let binding =
            binding(r#"{"name": "token", "origins": ["https://a.example"], "placeholder": "{{token}}"}"#);
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        for (url, expected) in [
            ("https://a.example/", "key=s3cret-value;"),
            ("https://b.example/", "key={{token}};"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-auth", HeaderValue::from_static("key={{token}};"));
            bound.attach(&Method::GET, &mut Target::parse(url).unwrap(), &mut headers);
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
            bound.attach(&Method::GET, &mut target, &mut HeaderMap::new());
            assert_eq!(target.to_string(), expected);
        }
        let mut none = HeaderMap::new();
        assert!(
            bound
                .attach(
                    &Method::GET,
                    &mut Target::parse("https://a.example/").unwrap(),
                    &mut none
                )
                .is_empty()
        );
        assert!(none.is_empty());
    }

    #[test]
    fn secret_is_sent_only_with_its_methods_and_paths() {
        let binding = binding(
            r#"{"name": "token", "origins": ["https://a.example"], "header": "x-key",
                "methods": ["GET", "PUT"], "paths": ["/api/v1", "/up/"]}"#,
        );
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        for (method, path, expected) in [
            ("GET", "/api/v1", true),
            ("GET", "/api/v1/", true),
            ("GET", "/api/v1/x?y=../z", true),
            ("PUT", "/up", true),
            ("PUT", "/up/x", true),
            ("POST", "/api/v1", false),
            ("HEAD", "/api/v1", false),
            ("get", "/api/v1", false),
            ("GET", "/", false),
            ("GET", "/api", false),
            ("GET", "/api/v10", false),
            ("GET", "/API/v1", false),
            ("GET", "//api/v1", false),
            ("GET", "/api/v1/../v2", false),
            ("GET", "/api/v1/..%2fv2", false),
            ("GET", "/api/v1/%252e%252e/v2", false),
            ("GET", "/api/v1/..;/v2", false),
            ("GET", "/?/api/v1", false),
        ] {
            let mut target = Target::parse(&format!("https://a.example{path}")).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("x-key", HeaderValue::from_static("of the guest"));
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let attached = bound.attach(&method, &mut target, &mut headers);
            assert_eq!(!attached.is_empty(), expected, "{method} {path}");
            let value = if expected { "s3cret-value" } else { "of the guest" };
            assert_eq!(headers["x-key"], value, "{method} {path}");
        }
    }

    #[test]
    fn response_is_restricted_wherever_the_secret_was_placed() {
        let binding = binding(
            r#"{"name": "token", "origins": ["https://b.example", "https://a.example"], "placeholder": "{{t}",
                "responses": "withheld"}"#,
        );
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        let withheld = vec![("token".to_owned(), SecretResponses::Withheld)];
        for (url, header, expected) in [
            ("https://a.example/?k={{t}", "none", &withheld),
            ("https://a.example/?k=%7B%7Bt%7D", "none", &withheld),
            ("https://b.example/", "k {{t}", &withheld),
            ("https://a.example/?k={t}", "{t}", &Vec::new()),
            ("https://c.example/?k={{t}", "{{t}", &Vec::new()),
        ] {
            let mut target = Target::parse(url).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("x-key", HeaderValue::from_static(header));
            let treatment = bound.prepare(&target, &mut headers).unwrap();
            assert_eq!(treatment.must_be_searchable, !url.contains("c.example"), "{url}");
            assert_eq!(
                bound.attach(&Method::GET, &mut target, &mut headers),
                *expected,
                "{url}"
            );
            let is_filled = header.contains("{{t}") && !expected.is_empty();
            assert_eq!(headers["x-key"].is_sensitive(), is_filled, "{url}");
        }
    }

    #[test]
    fn trace_request_carries_no_secret() {
        let binding = binding(r#"{"name": "token", "origins": ["https://a.example"], "header": "x-key"}"#);
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        for (method, expected) in [(Method::TRACE, 0), (Method::DELETE, 1)] {
            let mut target = Target::parse("https://a.example/").unwrap();
            let attached = bound.attach(&method, &mut target, &mut HeaderMap::new());
            assert_eq!(attached.len(), expected, "{method}");
        }
    }

    #[test]
    fn host_that_may_know_a_secret_is_asked_for_plain_responses() {
        let binding = binding(r#"{"name": "token", "origins": ["https://a.example"], "header": "x-key"}"#);
        let bound = BoundSecrets::new(&[binding], &secrets()).unwrap();
        let asked = [
            "range",
            "if-range",
            "te",
            "accept-charset",
            "a-im",
            "available-dictionary",
            "dictionary-id",
        ];
        for (url, has_secret) in [
            ("https://a.example/", true),
            ("https://A.example.:8443/", true),
            ("http://a.example/", true),
            ("https://b.a.example/", false),
            ("https://b.example/", false),
        ] {
            let mut headers = HeaderMap::new();
            for name in asked.iter().chain(&["accept-encoding", "accept"]) {
                headers.insert(*name, HeaderValue::from_static("of the guest"));
            }
            let treatment = bound.prepare(&Target::parse(url).unwrap(), &mut headers).unwrap();
            assert_eq!(treatment.must_be_searchable, has_secret, "{url}");
            for name in asked {
                assert_eq!(headers.contains_key(name), !has_secret, "{url} {name}");
            }
            let coding = if has_secret { "identity" } else { "of the guest" };
            assert_eq!(headers["accept-encoding"], coding, "{url}");
            assert_eq!(headers["accept"], "of the guest", "{url}");
        }
        let nothing = BoundSecrets::default();
        assert!(
            nothing
                .prepare(
                    &Target::parse("https://a.example/").unwrap(),
                    &mut HeaderMap::new()
                )
                .is_none()
        );
    }

    #[test]
    fn printed_output_contains_no_value() {
        let bindings = [
            binding(r#"{"name": "token", "origins": ["https://a.example"], "header": "x-key"}"#),
            binding(r#"{"name": "token", "origins": ["https://a.example"], "placeholder": "{{token}}"}"#),
        ];
        let bound = BoundSecrets::new(&bindings, &secrets()).unwrap();
        let mut headers = HeaderMap::new();
        bound.attach(
            &Method::GET,
            &mut Target::parse("https://a.example/").unwrap(),
            &mut headers,
        );
        assert!(!format!("{bound:?} {headers:?}").contains("s3cret"));
    }

    #[test]
    fn invalid_binding_is_rejected_with_a_reason() {
        for (json, reason) in [
            (
                r#"{"name": "other", "origins": [], "header": "x"}"#,
                "has no value",
            ),
            (
                r#"{"name": "token", "origins": ["a.example"], "header": "x"}"#,
                "invalid origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://a.example/path"], "header": "x"}"#,
                "invalid origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://a.example/#f"], "header": "x"}"#,
                "invalid origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://a.example/?q"], "header": "x"}"#,
                "invalid origin",
            ),
            (
                r#"{"name": "token", "origins": ["https://*.example"], "header": "x"}"#,
                "invalid origin",
            ),
            (
                r#"{"name": "token", "origins": ["ftp://a.example"], "header": "x"}"#,
                "unsupported scheme",
            ),
            (
                r#"{"name": "token", "origins": ["https://u@a.example"], "header": "x"}"#,
                "user name",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "Host"}"#,
                "invalid header",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "a b"}"#,
                "invalid header",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "template": "Bearer"}"#,
                "lacks `{}`",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "template": "{}\n"}"#,
                "characters",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "methods": ["get"]}"#,
                "invalid method `get`",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "methods": ["TRACE"]}"#,
                "invalid method `TRACE`",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "paths": ["api"]}"#,
                "invalid path `api`",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "paths": ["/a/../b"]}"#,
                "invalid path",
            ),
            (
                r#"{"name": "token", "origins": [], "header": "x", "paths": ["/a?b"]}"#,
                "invalid path",
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
