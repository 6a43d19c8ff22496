//! Each answer at `/api` and `/v1` that a test gets is one of the OpenAPI document: its status, its type, and its body.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use serde_json::Value;

use super::{Answered, Served};

/// Document of the server; that of all servers of a binary is the same.
static DOCUMENT: OnceLock<Value> = OnceLock::new();

type Validators = HashMap<String, Option<Arc<jsonschema::Validator>>>;

/// Validators of the answers, by method, route and status.
static VALIDATORS: LazyLock<Mutex<Validators>> = LazyLock::new(Mutex::default);

fn route_of<'a>(document: &'a Value, path: &str) -> Option<(&'a String, &'a Value)> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |route: &str| {
        let names: Vec<&str> = route.split('/').collect();
        let fit = |(name, part): (&&str, &&str)| name == part || (name.starts_with('{') && !part.is_empty());
        names.len() == parts.len() && names.iter().zip(&parts).all(fit)
    };
    document["paths"]
        .as_object()?
        .iter()
        .find(|(route, _)| fits(route))
}

/// Returns the validator of a part of the document.
pub(super) fn validator(document: &Value, schema: &Value) -> jsonschema::Validator {
    let mut whole = schema.clone();
    whole["components"] = document["components"].clone();
    jsonschema::validator_for(&whole).unwrap()
}

/// Compares an answer with the document. Other paths and methods are not in it.
pub(super) fn check(served: &Served, method: &str, path: &str, answer: &Answered) {
    if !path.starts_with("/api/") && !path.starts_with("/v1/") {
        return;
    }
    let document = DOCUMENT.get_or_init(|| {
        let host = format!("host: {}\r\n", served.address);
        served.exchange("GET", "/openapi.json", &host, "").json()
    });
    let Some((route, operations)) = route_of(document, path) else {
        let is_nothing = matches!(answer.status, 401 | 403 | 404 | 429);
        return assert!(is_nothing, "{method} {path} is not described");
    };
    let operation = &operations[method.to_lowercase()];
    if !operation.is_object() {
        let is_head = method == "HEAD" && operations["get"].is_object();
        assert!(
            is_head || matches!(answer.status, 401 | 403 | 405 | 429),
            "{method} {path}"
        );
        return;
    }
    let shown = format!("{method} {route} {}", answer.status);
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{shown} is not described: {}", answer.body);
    let Value::Object(content) = &response["content"] else {
        return assert_eq!(answer.body, "", "{shown}");
    };
    let of_head = |name: &str| answer.head.contains(&format!("content-type: {name}"));
    let found = content.iter().find(|(name, _)| of_head(name));
    let (_, content) = found.unwrap_or_else(|| panic!("{shown}: {}", answer.head));
    let validator = {
        let mut all = VALIDATORS.lock().unwrap();
        let schema = content.get("schema").filter(|_| of_head("application/json"));
        let known = all.entry(shown.clone()).or_default();
        if let (None, Some(schema)) = (&known, schema) {
            *known = Some(Arc::new(validator(document, schema)));
        }
        known.clone()
    };
    if let Some(validator) = validator.filter(|_| of_head("application/json")) {
        let value = answer.json();
        let errors: Vec<String> = (validator.iter_errors(&value))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{shown}: {errors:?}: {}", answer.body);
    }
}
