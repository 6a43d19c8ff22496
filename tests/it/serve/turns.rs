//! Turns one after another.

use serde_json::json;

use super::{Served, is_finished, user};
use crate::hooks::built;

#[test]
fn next_turn_may_begin_once_the_last_has_finished() {
    let user = user(json!([{"text": "One."}, {"text": "Two."}, {"text": "Three."}]));
    user.file(
        "hook.wasm",
        std::fs::read(built().join("unruly_hook.wasm")).unwrap(),
    );
    let hook = user.work().join("hook.wasm");
    user.configure(&format!("[hooks.h]\ncomponent = {hook:?}\n"));
    let served = Served::start(&user);
    let session = served.session();
    let mut seen = 0;
    for _ in 0..3 {
        // The hook runs on for a while after the end of each turn.
        let started = served.post(&format!("{session}/turns"), &json!({"text": "linger"}));
        assert_eq!(started.status, 202, "{}", started.body);
        let (ids, _) = served.stream(&session, seen, is_finished);
        seen = *ids.last().unwrap();
        assert_eq!(served.get(&session).json()["state"], "idle");
    }
}
