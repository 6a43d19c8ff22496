//! Secrets in the keyring of the system, on a machine that has none.

#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use crate::cli_person::Person;
#[cfg(target_os = "linux")]
use crate::cli_person::Seen;

const VALUE: &str = "planted-secret-value";

/// A person whose session has no D-Bus, and so no keyring.
fn without_keyring() -> Person {
    let mut person = Person::new();
    person.var("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    person
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
fn without_a_keyring_service_commands_say_what_is_missing_and_what_works() {
    let person = without_keyring();
    let start = Instant::now();
    says_what_is_missing(&person.run_with_input(&["secret", "set", "token"], VALUE).ended(3));
    says_what_is_missing(&person.run(&["secret", "delete", "token"]).ended(3));
    assert!(start.elapsed() < Duration::from_secs(60), "it hangs");
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_keyring_service_only_what_needs_it_fails() {
    let person = without_keyring();
    person.configure(
        "[provider]\nname = \"openai\"\napi_key_keyring = \"token\"\n\
         [secrets.t]\nkeyring = \"token\"\n[tools.fetch]\ngrants = [\"http=example.com\"]\n\
         secrets = [{ secret = \"t\", origins = [\"https://example.com\"], header = \"x-token\" }]\n",
    );
    person
        .run(&["call", "text_count", r#"{"text": "one two"}"#])
        .ended(0);
    let fetch = ["call", "fetch", r#"{"url": "https://example.com/"}"#];
    says_what_is_missing(&person.run(&fetch).ended(3));
    says_what_is_missing(&person.run(&["run", "hello"]).ended(3));
}

#[test]
fn a_value_is_refused_as_an_argument_and_when_it_cannot_be_a_secret() {
    let person = without_keyring();
    let seen = person.run(&["secret", "set", "token", VALUE]).ended(2);
    assert!(seen.stderr.contains("cannot be an argument"), "{}", seen.stderr);
    assert!(!format!("{seen:?}").contains(VALUE), "{seen:?}");
    for value in ["", "short", "two\nlines"] {
        let seen = person.run_with_input(&["secret", "set", "token"], value).ended(2);
        assert!(
            seen.stderr.contains("the value of `token` cannot be stored"),
            "{}",
            seen.stderr
        );
        assert!(
            value.is_empty() || !seen.stderr.contains(value),
            "{}",
            seen.stderr
        );
    }
    person.run(&["secret", "set", ""]).ended(2);
}

#[test]
fn a_project_cannot_name_an_account_of_the_keyring() {
    for project in [
        "[provider]\napi_key_keyring = \"token\"\n",
        "[secrets.t]\nkeyring = \"token\"\n",
    ] {
        let person = without_keyring();
        person
            .file("toolcell.toml", project)
            .run(&["config", "check"])
            .ended(3);
    }
}

#[test]
fn a_key_of_a_provider_has_one_place() {
    let mut person = without_keyring();
    person.var("MY_KEY", "sk-planted-key");
    person
        .configure("[provider]\nname = \"openai\"\napi_key_keyring = \"token\"\napi_key_env = \"MY_KEY\"\n");
    let seen = person.run(&["run", "hello"]).ended(3);
    assert!(seen.stderr.contains("has two places"), "{}", seen.stderr);
    // A flag says which one for once.
    let flags = [
        "--api-key-env",
        "MY_KEY",
        "--base-url",
        "http://127.0.0.1:9",
        "--model",
        "m",
    ];
    let seen = person.run(&[&["run", "hello"][..], &flags].concat()).ended(6);
    assert!(!seen.stderr.contains("keyring"), "{}", seen.stderr);
}
