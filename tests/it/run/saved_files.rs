//! `--save DIR`: pictures and files in answers and results become files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::support::cli_user::User;
use crate::support::model_server::{Answer, ModelServer};

const PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUg==";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// A user whose model answers with a picture and a program.
fn user() -> (User, ModelServer) {
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": PNG_BASE64}});
    let program = json!({"inlineData": {"mimeType": "application/x-sh; name=../../evil.sh", "data": "cm0="}});
    let server = ModelServer::playing(vec![Answer::gemini_parts(&json!([
        {"text": "A cat:"}, picture, program,
    ]))]);
    let user = User::new();
    let url = server.url("/v1beta");
    user.configure(&format!(
        "[provider]\nname = \"gemini\"\nbase_url = \"{url}\"\nmodel = \"m\"\n"
    ));
    (user, server)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_of_answers_are_saved_under_names_of_ours() {
    let (user, server) = user();
    let seen = user
        .run(&["run", "Draw a cat.", "--tool", "text", "--save", "out"])
        .ended(0);
    let told = "saved `out/file-1.png`, 16 B, from the answer";
    assert!(seen.stderr.contains(told), "{}", seen.stderr);
    assert!(!seen.stderr.contains("--save"), "{}", seen.stderr);
    assert_eq!(seen.stdout, "A cat:\n");
    let out = user.work().join("out");
    assert_eq!(names(&out), ["file-1.png", "file-2.bin"]);
    assert_eq!(std::fs::read(out.join("file-1.png")).unwrap(), PNG);
    let mode = |name: &str| std::fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("file-1.png"), mode("file-2.bin")), (0o600, 0o600));
    // A later turn replaces nothing, and the model has its picture back.
    user.run(&[
        "session", "resume", "last", "Again.", "--tool", "text", "--save", "out",
    ])
    .ended(0);
    assert_eq!(
        names(&out),
        ["file-1.png", "file-2.bin", "file-2.png", "file-3.bin"]
    );
    let sent = &server.requests()[1].body["contents"][1]["parts"][1]["inlineData"];
    assert_eq!(sent["data"], PNG_BASE64);
}

#[test]
fn link_in_the_directory_is_not_followed() {
    let (user, _server) = user();
    let (out, elsewhere) = (user.work().join("out"), user.work().join("elsewhere"));
    std::fs::create_dir(&out).unwrap();
    symlink(&elsewhere, out.join("file-1.png")).unwrap();
    user.run(&["run", "Draw a cat.", "--tool", "text", "--save", "out"])
        .ended(0);
    assert!(!elsewhere.exists());
    assert_eq!(names(&out), ["file-1.png", "file-2.png", "file-3.bin"]);
}

#[test]
fn file_as_directory_is_refused_before_any_request() {
    let (user, server) = user();
    user.file("out", "");
    let seen = user
        .run(&["run", "Draw a cat.", "--tool", "text", "--save", "out"])
        .ended(2);
    assert!(
        seen.stderr.contains("could not use `out` for --save"),
        "{}",
        seen.stderr
    );
    assert!(server.requests().is_empty());
}

#[test]
fn without_the_flag_the_file_is_named_and_not_written() {
    let (user, _server) = user();
    let seen = user.run(&["run", "Draw a cat.", "--tool", "text"]).ended(0);
    let told = "the model sent a file: `image/png`, 16 B; --save DIR writes it to a directory";
    assert!(seen.stderr.contains(told), "{}", seen.stderr);
    assert!(names(&user.work()).is_empty());
    // A flag that a command does not have is no advice.
    let seen = user.run(&["session", "show", "last"]).ended(0);
    let told = "the model sent a file: `image/png`, 16 B\n";
    assert!(seen.stderr.contains(told), "{}", seen.stderr);
}
