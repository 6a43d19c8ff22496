//! The OpenAPI document holds for the server: each route answers with a status and a body that it describes.

use serde_json::{Value, json};

use super::{Answered, Served, asking, described, is_finished, is_waiting};

/// Server and its document.
struct Described {
    served: Served,
    document: Value,
    /// Answers that were compared, as `METHOD PATH STATUS`.
    compared: std::cell::RefCell<std::collections::BTreeSet<String>>,
}

impl Described {
    fn schema_holds(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let validator = described::validator(&self.document, schema);
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors.join("; ")),
        }
    }

    /// Notes an answer, which is compared with the document as all are. `route` is the path of the document, whose parameters `path` has.
    fn compare(&self, method: &str, route: &str, path: &str, body: &Value) -> Answered {
        self.compare_as(&self.served.authorized(), method, route, path, body)
    }

    fn compare_as(&self, headers: &str, method: &str, route: &str, path: &str, body: &Value) -> Answered {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.served.send(method, path, headers, &text);
        let shown = format!("{method} {route} {}", answer.status);
        let operation = &self.document["paths"][route][method.to_lowercase()];
        // A body that the server takes is one of the document.
        if answer.status < 300 && !body.is_null() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(self.schema_holds(schema, body), Ok(()), "{shown}: {body}");
        }
        self.compared.borrow_mut().insert(shown);
        answer
    }

    fn wait_for(&self, session: &str, states: &[&str]) {
        let path = format!("/api/sessions/{session}");
        while !states.contains(&self.served.get(&path).json()["state"].as_str().unwrap()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

const SESSION: &str = "/api/sessions/{id}";

#[test]
fn every_route_answers_as_it_is_described() {
    let user = asking();
    let served = Served::start(&user);
    let document = served.get("/openapi.json").json();
    let all = Described {
        served,
        document,
        compared: Default::default(),
    };
    let none = Value::Null;
    for path in ["/api/info", "/api/questions", "/api/tools", "/v1/models"] {
        all.compare("GET", path, path, &none);
    }
    let created = all
        .compare("POST", "/api/sessions", "/api/sessions", &json!({}))
        .json();
    let id = created["id"].as_str().unwrap();
    let at = |rest: &str| format!("/api/sessions/{id}{rest}");
    let of = |rest: &str| format!("{SESSION}{rest}");
    let go = |method: &str, rest: &str, body: &Value| all.compare(method, &of(rest), &at(rest), body);
    go("POST", "/turns", &json!({"text": "Count."}));
    let (_, events) = all.served.stream(&at(""), 0, is_waiting);
    let question = events.last().unwrap()["questions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    go("GET", "", &none);
    go("GET", "/questions", &none);
    all.compare("GET", "/api/questions", "/api/questions", &none);
    go("POST", "/turns", &json!({"text": "More."}));
    go("DELETE", "", &none);
    let to_question = |body: Value| {
        let path = at(&format!("/questions/{question}"));
        all.compare("POST", &of("/questions/{question}"), &path, &body)
    };
    to_question(json!({"choice": "always"}));
    to_question(json!({"choice": "allow"}));
    to_question(json!({"choice": "allow"}));
    all.served.stream(&at(""), 0, is_finished);
    all.wait_for(id, &["idle"]);
    for rest in ["", "/events", "/receipts", "/export"] {
        go("GET", rest, &none);
    }
    let path = at("/events?limit=6000");
    all.compare("GET", &of("/events"), &path, &none);
    for word in ["resume", "abandon", "cancel"] {
        go("POST", &format!("/{word}"), &json!({}));
    }
    go("POST", "/fork", &json!({"before_turn": 1}));
    go("POST", "/fork", &json!({"before_turn": 9}));
    go("PATCH", "", &json!({"name": "plans"}));
    let other = all.served.post("/api/sessions", &json!({})).json();
    let other = format!("/api/sessions/{}", other["id"].as_str().unwrap());
    all.compare("PATCH", SESSION, &other, &json!({"name": "plans"}));
    go("POST", "/undo", &json!({}));
    go("POST", "/undo", &json!({}));
    go("POST", "/compact", &json!({}));
    all.wait_for(id, &["idle", "failed"]);

    for query in [
        "",
        "?limit=1",
        "?limit=200",
        "?q=count",
        "?limit=201",
        "?limit=-1",
        "?cursor=x",
    ] {
        let path = format!("/api/sessions{query}");
        all.compare("GET", "/api/sessions", &path, &none);
    }
    all.compare("GET", "/api/scratch", "/api/scratch", &none);
    all.compare("GET", "/api/scratch/{name}", "/api/scratch/scratch", &none);
    for word in ["commit", "discard"] {
        let route = format!("/api/scratch/{{name}}/{word}");
        let path = format!("/api/scratch/scratch/{word}");
        all.compare("POST", &route, &path, &json!({}));
        all.compare("POST", &route, &path, &json!({"files": ["/gone"]}));
        all.compare(
            "POST",
            &route,
            &path.replace("scratch/scratch", "scratch/none"),
            &json!({}),
        );
    }
    for query in ["", "?days=1", "?days=366", "?days=367"] {
        all.compare("GET", "/api/usage", &format!("/api/usage{query}"), &none);
    }
    all.compare(
        "POST",
        "/api/sessions",
        "/api/sessions",
        &json!({"agent": "nobody"}),
    );
    all.compare(
        "POST",
        "/api/markdown",
        "/api/markdown",
        &json!({"texts": ["*a*"]}),
    );
    for model in ["default", "none", "%zz"] {
        all.compare("GET", "/v1/models/{model}", &format!("/v1/models/{model}"), &none);
    }
    let chat = "/v1/chat/completions";
    let message = json!([{"role": "user", "content": "Count."}]);
    all.compare(
        "POST",
        chat,
        chat,
        &json!({"model": "default", "messages": message}),
    );
    all.compare(
        "POST",
        chat,
        chat,
        &json!({"model": "gpt-4", "messages": message}),
    );
    let responses = "/v1/responses";
    let answered = all.compare(
        "POST",
        responses,
        responses,
        &json!({"model": "default", "input": "Count."}),
    );
    let stored = format!("{responses}/{}", answered.json()["id"].as_str().unwrap());
    all.compare("GET", "/v1/responses/{id}", &stored, &none);
    all.compare(
        "GET",
        "/v1/responses/{id}",
        &format!("{stored}?stream=true"),
        &none,
    );
    all.compare(
        "POST",
        responses,
        responses,
        &json!({"model": "gpt-4", "input": "Count."}),
    );
    numbers_have_the_limits_of_the_document(&all, id);
    let texts = |count: usize| json!({"texts": vec!["a"; count]});
    let schema = &all.document["components"]["schemas"]["Markdown"]["properties"]["texts"];
    let most = usize::try_from(schema["maxItems"].as_u64().unwrap()).unwrap();
    for (count, status) in [(most, 200), (most + 1, 400)] {
        let answer = all.compare("POST", "/api/markdown", "/api/markdown", &texts(count));
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    go("DELETE", "", &none);

    // Errors of every route: no token, another host, no session, an unknown member, no JSON.
    let host = format!(
        "host: {}\r\ncontent-type: application/json\r\n",
        all.served.address
    );
    let foreign = all
        .served
        .authorized()
        .replace(&all.served.address, "evil.example");
    let plain = all.served.authorized().replace("application/json", "text/plain");
    let mut successes = 0;
    for (route, operations) in all.document["paths"].as_object().unwrap() {
        let path = route
            .replace("{id}", "none")
            .replace("{question}", "none")
            .replace("{model}", "none")
            .replace("{name}", "none");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let body = match operation["requestBody"].is_object() {
                true => json!({}),
                false => Value::Null,
            };
            assert_eq!(all.compare_as(&host, &method, route, &path, &body).status, 401);
            assert_eq!(all.compare_as(&foreign, &method, route, &path, &body).status, 403);
            if route.contains("{id}") {
                assert_eq!(all.compare(&method, route, &path, &body).status, 404);
            }
            if !body.is_null() {
                assert_eq!(all.compare_as(&plain, &method, route, &path, &body).status, 415);
            }
            if !body.is_null() && route.starts_with("/api") {
                let own = path.replacen("none", other.rsplit('/').next().unwrap(), 1);
                let unknown = json!({"grant": "read=/"});
                assert_eq!(all.compare(&method, route, &own, &unknown).status, 400, "{route}");
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                assert!(all.schema_holds(schema, &unknown).is_err(), "{route}");
            }
            let compared = all.compared.borrow();
            let of_route = format!("{method} {route} 2");
            successes += usize::from(compared.iter().any(|shown| shown.starts_with(&of_route)));
        }
    }
    // All but `resume`, `abandon` and both `cancel`, which need a turn that is open or runs, and are tested beside.
    let operations = all.document["paths"].as_object().unwrap().values();
    let operations: usize = operations.map(|all| all.as_object().unwrap().len()).sum();
    assert_eq!(successes, operations - 4, "{:?}", all.compared.borrow());
}

/// Parameters take the numbers of the document, and no others.
fn numbers_have_the_limits_of_the_document(all: &Described, session: &str) {
    let mut count = 0;
    for (route, operations) in all.document["paths"].as_object().unwrap() {
        for parameter in operations["get"]["parameters"].as_array().into_iter().flatten() {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            if schema["type"] != "integer" {
                continue;
            }
            count += 1;
            let of = |value: &dyn std::fmt::Display, is_taken: bool| {
                let path = format!("{}?{name}={value}", route.replace("{id}", session));
                let answer = all.compare("GET", route, &path, &Value::Null);
                let expected = if is_taken { 200 } else { 400 };
                assert_eq!(answer.status, expected, "{path}: {}", answer.body);
            };
            let least = schema["minimum"].as_i64().unwrap();
            of(&least, true);
            of(&(least - 1), false);
            of(&"1.5", false);
            if let Some(most) = schema["maximum"].as_u64() {
                of(&most, true);
                of(&(most + 1), false);
            }
        }
    }
    assert_eq!(count, 4);
}
