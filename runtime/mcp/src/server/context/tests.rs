//! Conversations about resources and prompts.

mod following;

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use toolcell_core::resource::MAX_URI;
use toolcell_core::tool::Hints;
use toolcell_core::{
    Blob, BoxFuture, CallContext, CallResult, Content, PromptArgument, PromptMessage, PromptRole, PromptSpec,
    Prompts, Receipt, ResourceSpec, ResourceTemplate, Resources, Schema, Tool, ToolCall, ToolError, ToolName,
    ToolSpec, UriTemplate,
};

use crate::server::Offered;
use crate::server::testing::{Client, Does, stateless, tool};
use crate::{MAX_COMPLETIONS, PAGE_CONTEXT, RECEIPT_KEY};

/// Reads resources and gets prompts.
struct Reads(ToolSpec);

fn reads(name: &str) -> Arc<dyn Tool> {
    Arc::new(Reads(ToolSpec {
        name: ToolName::new(name).unwrap(),
        title: None,
        description: String::new(),
        input: Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap()),
        output: None,
        hints: Hints::default(),
        annotations: std::collections::BTreeMap::new(),
    }))
}

impl Tool for Reads {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
        let blob = Content::Blob(Blob {
            media_type: "image/png".into(),
            data: vec![255],
        });
        let result = match call.arguments.get("uri").and_then(Value::as_str) {
            Some("a:text" | "a:/x/1") => CallResult::text("read"),
            Some("a:blob") => CallResult {
                content: vec![blob],
                ..CallResult::default()
            },
            Some("a:denied") => CallResult::failed(ToolError::denied("no", Some("add read=.".into()))),
            Some("a:host") => CallResult::failed(ToolError::Host {
                message: "secret path".into(),
            }),
            Some(_) => CallResult::failed(ToolError::invalid("no such page")),
            None => {
                let message = |role, content| PromptMessage { role, content };
                let text = Content::text(Value::Object(call.arguments).to_string());
                PromptMessage::to_result(vec![
                    message(PromptRole::User, text),
                    message(PromptRole::Assistant, blob),
                ])
            }
        };
        let receipt = Receipt {
            fuel: 3,
            ..Receipt::default()
        };
        Box::pin(std::future::ready(result.with_receipt(receipt)))
    }
}

fn resource(uri: &str) -> ResourceSpec {
    ResourceSpec {
        uri: uri.into(),
        name: "n".into(),
        title: Some("t".into()),
        description: None,
        media_type: Some("text/plain".into()),
        size: Some(4),
    }
}

fn resources(uris: &[&str]) -> Resources {
    Resources {
        resources: uris.iter().map(|uri| resource(uri)).collect(),
        templates: vec![ResourceTemplate {
            template: UriTemplate::parse("a:/x/{page}").unwrap(),
            name: "pages".into(),
            title: None,
            description: None,
            media_type: None,
            values: vec![("page".into(), vec!["1".into(), "12".into(), "2".into()])],
        }],
        reader: reads("read"),
    }
}

fn prompt(name: &str, values: usize) -> PromptSpec {
    let argument = |name: &str, required, values: Vec<String>| PromptArgument {
        name: name.into(),
        title: None,
        description: None,
        required,
        values,
    };
    PromptSpec {
        name: ToolName::new(name).unwrap(),
        title: None,
        description: Some("d".into()),
        arguments: vec![
            argument("free", true, Vec::new()),
            argument("one", false, (0..values).map(|n| format!("v{n}")).collect()),
        ],
    }
}

fn offered(uris: &[&str], prompts: Vec<PromptSpec>) -> Offered {
    let prompts = Prompts {
        prompts,
        getter: reads("get"),
    };
    Offered {
        resources: vec![("first".into(), resources(uris))],
        prompts: vec![("first".into(), prompts)],
        ..Offered::default()
    }
}

/// Resources of which clients are told when they change.
fn followed(uris: &[&str]) -> Offered {
    Offered {
        tells_updates: true,
        ..offered(uris, Vec::new())
    }
}

/// A client in a session, to which this is offered.
async fn session(offered: Offered) -> Client {
    let mut client = Client::with(Vec::new(), Arc::new(Semaphore::new(0)));
    client.server.replace(offered).unwrap();
    client.initialize("2025-11-25").await;
    client
}

fn current(params: Value) -> Value {
    stateless("2026-07-28", params.as_object().unwrap().clone())
}

#[tokio::test]
async fn capabilities_name_only_what_is_offered() {
    for (offered, expected) in [
        (Offered::default(), json!({})),
        (
            offered(&["a:text"], vec![prompt("p", 1)]),
            json!({"resources": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {}}),
        ),
        (
            Offered {
                prompts: Vec::new(),
                ..offered(&["a:text"], Vec::new())
            },
            json!({"resources": {"listChanged": true}, "completions": {}}),
        ),
        (
            Offered {
                prompts: Vec::new(),
                ..followed(&["a:text"])
            },
            json!({"resources": {"listChanged": true, "subscribe": true}, "completions": {}}),
        ),
        (
            Offered {
                tells_updates: true,
                ..Offered::default()
            },
            json!({}),
        ),
    ] {
        let mut client = Client::with(Vec::new(), Arc::new(Semaphore::new(0)));
        client.server.replace(offered).unwrap();
        let mut expected = expected.as_object().unwrap().clone();
        expected.insert("tools".into(), json!({"listChanged": true}));
        expected.insert("logging".into(), json!({}));
        let result = client.initialize("2025-11-25").await;
        assert_eq!(result["capabilities"], Value::Object(expected));
    }
}

#[tokio::test]
async fn lists_are_sorted_and_have_the_form_of_the_version() {
    let mut client = session(offered(&["b:1", "a:text"], vec![prompt("q", 1), prompt("p", 1)])).await;
    let listed = client.ask(1, "resources/list", json!({})).await["result"].take();
    let first = json!({"uri": "a:text", "name": "n", "title": "t", "mimeType": "text/plain", "size": 4});
    assert_eq!(
        (&listed["resources"][0], &listed["resources"][1]["uri"]),
        (&first, &json!("b:1"))
    );
    assert_eq!(listed.as_object().unwrap().len(), 1);
    let templates = client.ask(2, "resources/templates/list", json!({})).await["result"].take();
    assert_eq!(
        templates["resourceTemplates"],
        json!([{"uriTemplate": "a:/x/{page}", "name": "pages"}])
    );
    let prompts = client.ask(3, "prompts/list", current(json!({}))).await["result"].take();
    assert_eq!(
        (&prompts["prompts"][0]["name"], &prompts["prompts"][1]["name"]),
        (&json!("p"), &json!("q"))
    );
    assert_eq!(
        prompts["prompts"][0]["arguments"][0],
        json!({"name": "free", "required": true})
    );
    assert_eq!(
        (&prompts["cacheScope"], &prompts["resultType"]),
        (&json!("private"), &json!("complete"))
    );
    assert!(prompts["ttlMs"].is_u64());
    let mut old = Client::with(Vec::new(), Arc::new(Semaphore::new(0)));
    old.server.replace(offered(&["a:text"], Vec::new())).unwrap();
    old.initialize("2025-03-26").await;
    assert!(
        old.ask(1, "resources/list", json!({})).await["result"]["resources"][0]
            .get("title")
            .is_none()
    );
}

#[tokio::test]
async fn long_list_of_resources_has_pages() {
    for (count, pages) in [(PAGE_CONTEXT, 1), (PAGE_CONTEXT + 1, 2)] {
        let uris: Vec<String> = (0..count).map(|n| format!("a:{n:04}")).collect();
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let mut client = session(offered(&uris, Vec::new())).await;
        let first = client.ask(1, "resources/list", json!({})).await["result"].take();
        assert_eq!(first["resources"].as_array().unwrap().len(), PAGE_CONTEXT);
        assert_eq!(first.get("nextCursor").is_some(), pages == 2);
        if pages == 2 {
            let rest = client
                .ask(2, "resources/list", json!({"cursor": first["nextCursor"]}))
                .await;
            assert_eq!(rest["result"]["resources"].as_array().unwrap().len(), 1);
        }
        let wrong = client.ask(3, "resources/list", json!({"cursor": "a:x"})).await;
        assert_eq!(wrong["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn resource_is_read_by_a_call_with_a_receipt() {
    let mut client = session(offered(&["a:text", "a:blob"], Vec::new())).await;
    let read = client.ask(1, "resources/read", json!({"uri": "a:text"})).await["result"].take();
    assert_eq!(
        read["contents"],
        json!([{"uri": "a:text", "mimeType": "text/plain", "text": "read"}])
    );
    assert_eq!(read["_meta"][RECEIPT_KEY]["fuel"], 3);
    let read = client.ask(2, "resources/read", json!({"uri": "a:blob"})).await["result"].take();
    assert_eq!(
        read["contents"],
        json!([{"uri": "a:blob", "mimeType": "image/png", "blob": "/w=="}])
    );
    let read = client
        .ask(3, "resources/read", current(json!({"uri": "a:/x/1"})))
        .await["result"]
        .take();
    assert_eq!(read["contents"], json!([{"uri": "a:/x/1", "text": "read"}]));
    assert_eq!(
        (&read["ttlMs"], &read["resultType"]),
        (&json!(0), &json!("complete"))
    );
    let (_, seen) = client.finish().await;
    let tools: Vec<_> = seen.finished().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(tools, ["read", "read", "read"]);
}

#[tokio::test]
async fn resource_that_is_not_there_has_the_error_of_the_version() {
    let mut client = session(offered(&["a:text"], Vec::new())).await;
    let long = format!("a:/x/{}", "1".repeat(MAX_URI));
    for (uri, runs) in [
        ("a:none", false),
        ("a:/x/2", true),
        ("a:/x/1/2", false),
        (&long, false),
    ] {
        let error = client.ask(1, "resources/read", json!({"uri": uri})).await["error"].take();
        assert_eq!(error["code"], -32002, "{uri}");
        assert!(uri.starts_with(error["data"]["uri"].as_str().unwrap()));
        assert_eq!(error["data"].get(RECEIPT_KEY).is_some(), runs, "{uri}");
        let error = client
            .ask(2, "resources/read", current(json!({"uri": uri})))
            .await["error"]
            .take();
        assert_eq!(error["code"], -32602, "{uri}");
    }
    let error = client.ask(3, "resources/read", json!({"uri": 1})).await["error"].take();
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn failed_read_tells_the_client_no_configuration_line() {
    let mut client = session(offered(&["a:denied", "a:host"], Vec::new())).await;
    for uri in ["a:denied", "a:host"] {
        let error = client.ask(1, "resources/read", json!({"uri": uri})).await;
        assert_eq!(error["error"]["code"], -32603);
        let text = error.to_string();
        assert!(
            !text.contains("read=.") && !text.contains("secret path"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn prompt_has_messages_with_roles() {
    let mut client = session(offered(&[], vec![prompt("p", 2)])).await;
    let arguments = json!({"free": "x", "one": "v1"});
    let params = json!({"name": "p", "arguments": arguments});
    let got = client.ask(1, "prompts/get", params).await["result"].take();
    assert_eq!(got["description"], "d");
    let user = got["messages"][0]["content"]["text"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(user).unwrap(),
        json!({"name": "p", "arguments": arguments})
    );
    let picture = json!({"type": "image", "data": "/w==", "mimeType": "image/png"});
    assert_eq!(
        got["messages"][1],
        json!({"role": "assistant", "content": picture})
    );
    assert_eq!(got["_meta"][RECEIPT_KEY]["fuel"], 3);
    for (name, arguments, reason) in [
        ("q", json!({}), "unknown prompt: `q`"),
        ("p", json!({}), "the argument `free` is missing"),
        ("p", json!({"free": 1}), "the argument `free` is not a string"),
        (
            "p",
            json!({"free": "x", "two": "x"}),
            "the argument `two` is unknown",
        ),
        (
            "p",
            json!({"free": "x", "one": "v2"}),
            "a value that is not permitted",
        ),
        ("p", json!([]), "`arguments` is not an object"),
    ] {
        let params = json!({"name": name, "arguments": arguments});
        let error = client.ask(2, "prompts/get", params).await["error"].take();
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn values_are_completed_up_to_the_limit_of_the_protocol() {
    let mut client = session(offered(
        &[],
        vec![prompt("p", MAX_COMPLETIONS), prompt("q", MAX_COMPLETIONS + 1)],
    ))
    .await;
    let complete = |reference: Value, name: &str, value: &str| json!({"ref": reference, "argument": {"name": name, "value": value}});
    let of_prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
    for (name, total, has_more) in [("p", MAX_COMPLETIONS, false), ("q", MAX_COMPLETIONS + 1, true)] {
        let params = complete(of_prompt(name), "one", "v");
        let answer = client.ask(1, "completion/complete", params).await["result"]["completion"].take();
        assert_eq!(answer["values"].as_array().unwrap().len(), MAX_COMPLETIONS);
        assert_eq!(
            (&answer["total"], &answer["hasMore"]),
            (&json!(total), &json!(has_more))
        );
    }
    let template = json!({"type": "ref/resource", "uri": "a:/x/{page}"});
    let params = complete(template.clone(), "page", "1");
    let answer = client.ask(2, "completion/complete", params).await["result"].take();
    assert_eq!(answer["completion"]["values"], json!(["1", "12"]));
    for params in [
        complete(of_prompt("r"), "one", ""),
        complete(of_prompt("p"), "two", ""),
        complete(template, "other", ""),
        complete(json!({"type": "ref/resource", "uri": "b:"}), "page", ""),
        complete(json!({"type": "ref/tool", "name": "p"}), "one", ""),
        json!({}),
    ] {
        let error = client.ask(3, "completion/complete", params).await["error"].take();
        assert_eq!(error["code"], -32602);
    }
}

#[tokio::test]
async fn only_the_list_that_changes_is_told() {
    let mut client = session(offered(&["a:1"], vec![prompt("p", 1)])).await;
    client
        .server
        .replace(offered(&["a:2"], vec![prompt("p", 1)]))
        .unwrap();
    assert_eq!(
        client.next().await["method"],
        "notifications/resources/list_changed"
    );
    client
        .server
        .replace(offered(&["a:2"], vec![prompt("q", 1)]))
        .unwrap();
    assert_eq!(
        client.next().await["method"],
        "notifications/prompts/list_changed"
    );
    let mut both = offered(&["a:2"], vec![prompt("q", 1)]);
    both.tools.push(tool("t", Does::Echo, &client.gate));
    client.server.replace(both).unwrap();
    assert_eq!(client.next().await["method"], "notifications/tools/list_changed");
    let wanted = json!({"notifications": {"promptsListChanged": true}});
    let told = client.ask("s", "subscriptions/listen", current(wanted)).await;
    assert_eq!(
        told["params"]["notifications"],
        json!({"promptsListChanged": true})
    );
}

#[test]
fn collision_names_both_sources() {
    for (second, name) in [
        (offered(&["a:1"], Vec::new()), "a:1"),
        (offered(&["a:2"], Vec::new()), "a:/x/{page}"),
    ] {
        let mut both = offered(&["a:1"], vec![prompt("p", 1)]);
        both.resources
            .extend(second.resources.into_iter().map(|(_, of)| ("second".into(), of)));
        let error = crate::server::catalog::Catalog::new(both).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("`first` and `second` both offer `{name}`")
        );
    }
    let mut both = offered(&[], vec![prompt("p", 1)]);
    both.prompts.push(("second".into(), both.prompts[0].1.clone()));
    let error = crate::server::catalog::Catalog::new(both).err().unwrap();
    assert_eq!(error.to_string(), "`first` and `second` both offer `p`");
}

#[tokio::test]
async fn cut_prompt_is_an_error() {
    struct Cut(Arc<dyn Tool>);
    impl Tool for Cut {
        fn spec(&self) -> &ToolSpec {
            self.0.spec()
        }
        fn call(&self, _: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
            Box::pin(std::future::ready(CallResult::text("the beginn")))
        }
    }
    let mut offered = offered(&[], vec![prompt("p", 1)]);
    let getter = &mut offered.prompts[0].1.getter;
    *getter = Arc::new(Cut(getter.clone()));
    let mut client = session(offered).await;
    let mut params = Map::new();
    params.insert("name".into(), "p".into());
    params.insert("arguments".into(), json!({"free": "x"}));
    let error = client.ask(1, "prompts/get", Value::Object(params)).await["error"].take();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32603), &json!("the messages of the prompt were cut"))
    );
}
