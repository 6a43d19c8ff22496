//! `toolcell model`: GGUF files are listed and inspected, and their words stay theirs.

use serde_json::json;

use crate::support::cli_user::User;

#[path = "../../../runtime/local/src/testing.rs"]
#[allow(dead_code, reason = "the library's own tests use the rest")]
pub(crate) mod gguf_files;

use gguf_files::small_llama;

/// Writes a file into the directory of models of the user.
fn keep(user: &User, name: &str, bytes: &[u8]) {
    let dir = user.home().join(".local/share/toolcell/models");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(name), bytes).unwrap();
}

#[test]
fn models_are_listed_and_inspected() {
    let user = User::new();
    let none = user.run(&["model", "list"]).ended(0);
    assert!(none.stderr.contains("there are no GGUF files"), "{}", none.stderr);
    keep(&user, "small.gguf", &small_llama().bytes());
    keep(&user, "cut.gguf", &small_llama().bytes()[..5_000]);

    let listed = user.run(&["model", "list"]).ended(0).stdout;
    assert!(
        listed.contains("small.gguf") && listed.contains("llama") && listed.contains("F16"),
        "{listed}"
    );
    assert!(
        listed.contains("cut.gguf  unreadable: the file ends within its header"),
        "{listed}"
    );
    let rows = user.run(&["model", "list", "--json"]).ended(0).json();
    assert_eq!(rows[0]["file"], "cut.gguf");
    assert_eq!(rows[1]["architecture"], "llama");

    let shown = user
        .run(&["model", "inspect", "small.gguf", "--context", "1000"])
        .ended(0)
        .stdout;
    for fact in [
        "architecture   llama",
        "tokenizer      gpt2, variant qwen2, 261 tokens",
        "special token  eos 2 `<|im_end|>`",
        "with tools",
        "with 1 k tokens of context",
        "the numbers of its header that engines take unchecked are in order",
    ] {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
    let shown = user
        .run(&["model", "inspect", "small.gguf", "--json"])
        .ended(0)
        .json();
    assert_eq!(shown["special"]["bos"], json!({ "id": 1, "text": "<s>" }));
    assert_eq!(shown["chat_template"]["tools"], true);
    // Two layers, two heads of 16 keys and 16 values of two bytes, for 512 tokens.
    assert_eq!(shown["memory"]["cache"], 2 * 2 * 32 * 2 * 512);
    assert_eq!(shown["error"], json!(null));
}

#[test]
fn hostile_model_is_an_error_and_says_nothing_as_ours() {
    let user = User::new();
    let mut file = small_llama();
    file.replace_text("general.name", "x\u{1b}[2J\nhint: run `curl evil.test`");
    file.text("tokenizer.ggml.extra", "y");
    file.replace_number("llama.block_count", 4_000_000);
    keep(&user, "many.gguf", &file.bytes());
    let shown = user.run(&["model", "inspect", "many.gguf"]).ended(0).stdout;
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(
        !shown.lines().any(|line| line.trim_start().starts_with("hint:")),
        "{shown}"
    );
    assert!(
        shown.contains("`llama.block_count` is 4000000, but must be from 1 to 512"),
        "{shown}"
    );

    let mut bomb = small_llama();
    bomb.replace_text(
        "tokenizer.chat_template",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    );
    keep(&user, "bomb.gguf", &bomb.bytes());
    let shown = user
        .run(&["model", "inspect", "bomb.gguf", "--json"])
        .ended(0)
        .json();
    assert!(
        shown["chat_template"]["error"].as_str().unwrap().contains("fuel"),
        "{shown}"
    );

    // What the limits of the template engine do not cover ends its process, and not this one: the stack, memory and time.
    let doubled =
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    for template in [
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(),
        format!("{{{{ {} }}}}", "1+".repeat(100_000) + "1"),
        "{{ '{:2000000000}'.format(1) }}".to_owned(),
        format!("{doubled}{{{{ ns.x | string | length }}}}"),
    ] {
        let mut file = small_llama();
        file.replace_text("tokenizer.chat_template", &template);
        keep(&user, "stops.gguf", &file.bytes());
        let shown = user.run(&["model", "inspect", "stops.gguf"]).ended(0).stdout;
        assert!(shown.contains("or ended its process"), "{template:.60}: {shown}");
    }
    let mut file = small_llama();
    let words = "{{ raise_exception('in order\\n  + all is well') }}";
    file.replace_text("tokenizer.chat_template", words);
    keep(&user, "words.gguf", &file.bytes());
    let shown = user.run(&["model", "inspect", "words.gguf"]).ended(0).stdout;
    assert!(
        shown.contains("the chat template failed:\n") && shown.contains("│   + all is well"),
        "{shown}"
    );

    keep(&user, "other.gguf", b"GGML");
    for (name, why) in [
        ("other.gguf", "it is not a GGUF file"),
        ("none.gguf", "none.gguf"),
        (".", "."),
    ] {
        let failed = user.run(&["model", "inspect", name]).ended(2).stderr;
        assert!(
            failed.contains("could not read the model") && failed.contains(why),
            "{failed}"
        );
        assert!(failed.contains("hint: name a GGUF file"), "{failed}");
    }
    let failed = user.run(&["model", "list", "--dir", "none"]).ended(2).stderr;
    assert!(failed.contains("could not list `none`"), "{failed}");
}

#[cfg(not(feature = "local"))]
#[test]
fn build_without_engine_says_how_to_get_one() {
    let user = User::new();
    keep(&user, "small.gguf", &small_llama().bytes());
    let failed = user
        .run(&["run", "Hello", "--provider", "local", "--model", "small.gguf"])
        .ended(3)
        .stderr;
    assert!(
        failed.contains("this build of Toolcell has no engine for local models"),
        "{failed}"
    );
    assert!(
        failed.contains("cargo install --path runtime/cli --features local"),
        "{failed}"
    );
    let failed = user.run(&["run", "Hello", "--provider", "local"]).ended(3).stderr;
    assert!(failed.contains("provider `local` needs a file"), "{failed}");
}
