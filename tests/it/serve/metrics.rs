//! `/metrics` counts what happens at `/api` and `/v1`, by labels of a limited number.

use serde_json::json;

use super::{Served, is_finished, user};

#[test]
fn turns_requests_and_streams_are_counted() {
    let user = user(json!([
        {"calls": [{"name": "text_count", "arguments": {"text": "a b"}}, {"name": "made_up_by_the_model", "arguments": {}}]},
        {"text": "Two words."},
    ]));
    let served = Served::start(&user);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Count."}));
    served.stream(&session, 0, is_finished);
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": "Count."}]});
    assert_eq!(served.post("/v1/chat/completions", &chat).status, 200);
    assert_eq!(served.get("/api/sessions/secret-of-a-client").status, 404);
    assert_eq!(served.get("/api/secret-of-a-client").status, 404);
    let headers = format!("{}accept: text/event-stream\r\n", served.authorized());
    let open = served.open("GET", &format!("{session}/events"), &headers, "");
    let has_stream = |count: u64| {
        let line = format!("toolcell_serve_streams{{route=\"/api/sessions/{{id}}/events\"}} {count}\n");
        let begun = std::time::Instant::now();
        while !served.get("/metrics").body.contains(&line) {
            assert!(begun.elapsed().as_secs() < 60, "{}", served.get("/metrics").body);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    has_stream(1);
    drop(open);
    // The connection notices it with the next part.
    served.post(&format!("{session}/turns"), &json!({"text": "Again."}));
    has_stream(0);

    let metrics = served.get("/metrics");
    assert_eq!(metrics.status, 200);
    let all = metrics.body;
    for line in [
        "toolcell_serve_requests_total{route=\"/api/sessions\",method=\"POST\",status=\"201\"} 1",
        "toolcell_serve_requests_total{route=\"/api/sessions/{id}\",method=\"GET\",status=\"404\"} 1",
        "toolcell_serve_requests_total{route=\"other\",method=\"GET\",status=\"404\"} 1",
        "toolcell_serve_requests_total{route=\"/v1/chat/completions\",method=\"POST\",status=\"200\"} 1",
        "toolcell_serve_turns_total{api=\"v1\",agent=\"default\",outcome=\"completed\"} 1",
        "toolcell_serve_turn_seconds_count{api=\"v1\"} 1",
    ] {
        assert!(all.lines().any(|found| found == line), "{line}\n{all}");
    }
    for part in [
        "toolcell_serve_turns_in_progress{api=\"api\"} ",
        "toolcell_serve_turns_total{api=\"api\",agent=\"default\",outcome=\"completed\"} ",
        "toolcell_serve_tokens_total{agent=\"default\",type=\"input\"} ",
        "toolcell_serve_calls_total{tool=\"text_count\",outcome=\"ok\"} ",
        "toolcell_serve_calls_total{tool=\"other\",outcome=\"unknown_tool\"} ",
        "toolcell_connections ",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    for unknown in ["secret-of-a-client", "made_up_by_the_model"] {
        assert!(!all.contains(unknown), "{all}");
    }
    // Each family is described once, before its samples.
    let mut families: Vec<&str> = all.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count);
}
