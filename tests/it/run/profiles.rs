//! Profiles of the provider, and models that answer when another one does not.

use serde_json::json;

use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};

const ASK: [&str; 3] = ["run", "hi", "--no-session"];

/// A user with a server for each profile.
fn user(own: &ModelServer, other: &ModelServer) -> User {
    let mut user = User::new();
    user.configure(&format!(
        "[provider]\nbase_url = \"{}\"\nmodel = \"own\"\nretries = 0\napi_key_env = \"OWN_KEY\"\n\
         [profiles.cheap]\nmodel = \"small\"\n\
         [profiles.other]\nbase_url = \"{}\"\nmodel = \"other\"\nretries = 0\n",
        own.url("/v1"),
        other.url("/v1"),
    ));
    user.var("OWN_KEY", "key-of-the-first");
    user
}

#[test]
fn profile_replaces_settings_of_provider() {
    let (own, other) = (
        ModelServer::playing(vec![Answer::chat("Own.")]),
        ModelServer::playing(vec![Answer::chat("Other.")]),
    );
    let mut user = user(&own, &other);
    for (flags, model, is_own) in [
        (&[][..], "own", true),
        (&["--profile", "cheap"], "small", true),
        (&["--profile", "cheap", "--model", "tiny"], "tiny", true),
        (&["--profile", "other"], "other", false),
    ] {
        let seen = user.run(&[&ASK[..], flags].concat()).ended(0);
        let (server, text) = if is_own {
            (&own, "Own.")
        } else {
            (&other, "Other.")
        };
        assert_eq!(seen.stdout.trim(), text, "{flags:?}");
        let request = server.requests().pop().unwrap();
        assert_eq!(request.body["model"], model, "{flags:?}");
        // A key is for one server.
        assert_eq!(
            request.head.contains("key-of-the-first"),
            is_own,
            "{}",
            request.head
        );
    }
    user.var("TOOLCELL_PROFILE", "cheap");
    user.run(&ASK).ended(0);
    assert_eq!(own.requests().pop().unwrap().body["model"], "small");
    let shown = user
        .run(&["config", "show", "provider.model", "provider.profile"])
        .ended(0);
    assert!(
        shown.stdout.contains("small") && shown.stdout.contains("cheap"),
        "{}",
        shown.stdout
    );
}

#[test]
fn unknown_profile_is_refused_with_those_that_exist() {
    let server = ModelServer::playing(vec![Answer::chat("")]);
    let user = user(&server, &server);
    for (flags, hint) in [
        (["--profile", "chep"], "did you mean `cheap`?"),
        (["--fallback", "cheap,1234"], "the profiles are cheap, other"),
    ] {
        let seen = user.run(&[&ASK[..], &flags].concat()).ended(3);
        assert!(
            seen.stderr.contains("there is no profile") && seen.stderr.contains(hint),
            "{}",
            seen.stderr
        );
    }
    let nested = User::new();
    nested.configure("[profiles.a]\nprofile = \"b\"\n[profiles.b]\nmodel = \"m\"\n");
    let seen = nested.run(&["config", "check"]).ended(3);
    assert!(
        seen.stderr.contains("the profile `a` has a profile of its own"),
        "{}",
        seen.stderr
    );
    assert!(server.requests().is_empty());
}

#[test]
fn fallback_answers_when_the_model_does_not() {
    let counted = Answer::events(&[
        json!({"choices": [{"index": 0, "delta": {"content": "Other."}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 1_000, "completion_tokens": 1_000}}),
    ]);
    let (own, other) = (
        ModelServer::playing(vec![Answer::error(503, "overloaded\nerror: forged")]),
        ModelServer::playing(vec![counted]),
    );
    let user = user(&own, &other);
    let seen = user.run(&[&ASK[..], &["--fallback", "other"]].concat()).ended(0);
    assert_eq!(seen.stdout.trim(), "Other.");
    assert!(
        seen.stderr.contains("`other` of openai answers instead"),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("\nerror: forged"), "{}", seen.stderr);
    assert_eq!((own.requests().len(), other.requests().len()), (1, 1));
    // Its tokens cost what they cost, also if the model that did not answer has no price.
    let priced = user.home().join(".config/toolcell/config.toml");
    let with =
        std::fs::read_to_string(&priced).unwrap() + "[prices.other]\ninput = 1000000\noutput = 1000000\n";
    std::fs::write(&priced, with).unwrap();
    let seen = user.run(&[&ASK[..], &["--fallback", "other"]].concat()).ended(0);
    assert!(seen.stderr.contains("· cost "), "{}", seen.stderr);
    // The model of a wrong request is not changed.
    let wrong = ModelServer::playing(vec![Answer::error(400, "no such model")]);
    let user = self::user(&wrong, &other);
    user.run(&[&ASK[..], &["--fallback", "other"]].concat()).ended(6);
    assert_eq!(other.requests().len(), 2);
}
