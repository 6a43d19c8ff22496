//! Waits that a server asks for.

use super::ask;
use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};

#[test]
fn wait_that_is_too_long_is_told_with_its_limit() {
    for (status, seconds, told) in [
        (
            503,
            90,
            "the server asks to wait 1 min 30 s, which is beyond `request_timeout`",
        ),
        (
            529,
            600,
            "the server asks to wait 10 min, and no request waits longer than 2 min",
        ),
        (
            429,
            600,
            "the server asks to wait 10 min, and no request waits longer than 2 min",
        ),
    ] {
        let server = ModelServer::playing(vec![Answer::error(
            status,
            &format!("busy, retry after {seconds} seconds"),
        )]);
        let user = User::new();
        user.configure(&format!(
            "[provider]\nbase_url = \"{}\"\nmodel = \"m\"\nrequest_timeout = \"30 s\"\n",
            server.url("/v1")
        ));
        let seen = user.run(&ask(&[])).ended(6).stderr;
        assert!(seen.contains(told) && seen.contains("try again in "), "{seen}");
        assert_eq!(server.requests().len(), 1);
    }
}
