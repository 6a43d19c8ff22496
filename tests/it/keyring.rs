//! Secrets in the system keyring, on a machine without one.

#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use crate::support::cli_user::Seen;
use crate::support::cli_user::User;

const VALUE: &str = "planted-secret-value";

/// Creates a user whose session has no D-Bus, and therefore no keyring.
fn without_keyring() -> User {
    let mut user = User::new();
    user.var("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    user
}

#[cfg(target_os = "linux")]
#[track_caller]
fn says_what_is_missing(seen: &Seen) {
    for part in [
        "error: the account `token` cannot be",
        "why: no keyring service",
        "hint: without a keyring, name a variable or a file: `env` or `file`",
    ] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    assert!(!format!("{seen:?}").contains(VALUE), "{seen:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn without_keyring_commands_name_cause_and_alternative() {
    let user = without_keyring();
    let start = Instant::now();
    says_what_is_missing(&user.run_with_input(&["secret", "set", "token"], VALUE).ended(3));
    says_what_is_missing(&user.run(&["secret", "delete", "token"]).ended(3));
    assert!(start.elapsed() < Duration::from_secs(60), "it hangs");
}

#[cfg(target_os = "linux")]
#[test]
fn without_keyring_only_dependent_commands_fail() {
    let user = without_keyring();
    user.configure(
        "[provider]\nname = \"openai\"\napi_key_keyring = \"token\"\n\
         [secrets.t]\nkeyring = \"token\"\n[tools.fetch]\ngrants = [\"http=example.com\"]\n\
         secrets = [{ secret = \"t\", origins = [\"https://example.com\"], header = \"x-token\" }]\n",
    );
    user.run(&["call", "text_count", r#"{"text": "one two"}"#])
        .ended(0);
    let fetch = ["call", "fetch", r#"{"url": "https://example.com/"}"#];
    says_what_is_missing(&user.run(&fetch).ended(3));
    says_what_is_missing(&user.run(&["run", "hello"]).ended(3));
}

#[test]
fn secret_value_in_argument_or_invalid_is_refused() {
    let user = without_keyring();
    let seen = user.run(&["secret", "set", "token", VALUE]).ended(2);
    assert!(seen.stderr.contains("cannot be an argument"), "{}", seen.stderr);
    assert!(!format!("{seen:?}").contains(VALUE), "{seen:?}");
    for value in ["", "short", "two\nlines"] {
        let seen = user.run_with_input(&["secret", "set", "token"], value).ended(2);
        assert!(
            seen.stderr.contains("the value of `token` is not valid"),
            "{}",
            seen.stderr
        );
        assert!(
            value.is_empty() || !seen.stderr.contains(value),
            "{}",
            seen.stderr
        );
    }
    user.run(&["secret", "set", ""]).ended(2);
}

#[test]
fn project_cannot_name_keyring_account() {
    for project in [
        "[provider]\napi_key_keyring = \"token\"\n",
        "[secrets.t]\nkeyring = \"token\"\n",
    ] {
        let user = without_keyring();
        user.file("toolcell.toml", project)
            .run(&["config", "check"])
            .ended(3);
    }
}

#[test]
fn provider_key_has_exactly_one_source() {
    let mut user = without_keyring();
    user.var("MY_KEY", "sk-planted-key");
    user.configure("[provider]\nname = \"openai\"\napi_key_keyring = \"token\"\napi_key_env = \"MY_KEY\"\n");
    let seen = user.run(&["run", "hello"]).ended(3);
    assert!(seen.stderr.contains("has two sources"), "{}", seen.stderr);
    // A flag overrides it for one command.
    let flags = [
        "--api-key-env",
        "MY_KEY",
        "--base-url",
        "http://127.0.0.1:9",
        "--model",
        "m",
    ];
    let seen = user.run(&[&["run", "hello"][..], &flags].concat()).ended(6);
    assert!(!seen.stderr.contains("keyring"), "{}", seen.stderr);
}
