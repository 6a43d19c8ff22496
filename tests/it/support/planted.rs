//! Searches every output of the suite for planted secrets: what a command prints, and every file it leaves behind, such
//! as the journal of sessions.
//!
//! Every user of the suite (`cli_user`) has one in their environment, and each key and token of a test is another. The
//! search knows the common encodings of a text and shares no code with the redaction it checks.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::cli_user::User;

/// A value that must not be printed or stored.
pub(crate) struct Planted {
    value: String,
    needles: Vec<Vec<u8>>,
}

impl Planted {
    pub(crate) fn new(value: &str) -> Self {
        let bytes = value.as_bytes();
        let hex = |upper: bool| -> String {
            let digit = |b: &u8| {
                if upper {
                    format!("{b:02X}")
                } else {
                    format!("{b:02x}")
                }
            };
            bytes.iter().map(digit).collect()
        };
        let percent = |upper: bool| -> String {
            hex(upper)
                .as_bytes()
                .chunks(2)
                .map(|pair| format!("%{}{}", char::from(pair[0]), char::from(pair[1])))
                .collect()
        };
        let escaped: String = bytes.iter().map(|b| format!("\\u{b:04x}")).collect();
        let mut needles = vec![
            value.to_owned(),
            hex(false),
            hex(true),
            percent(false),
            percent(true),
            escaped,
            value.chars().rev().collect(),
        ];
        // A text has three forms in Base64, depending on its offset; characters that depend on adjacent bytes are
        // omitted.
        for skip in 0..3 {
            let whole = (bytes.len() - skip) / 3 * 3;
            for alphabet in [STANDARD, URL] {
                needles.push(base64(&bytes[skip..skip + whole], alphabet));
            }
        }
        Self {
            value: value.to_owned(),
            needles: needles.into_iter().map(String::into_bytes).collect(),
        }
    }

    /// True if the value occurs in these bytes, in any encoding.
    pub(crate) fn stands_in(&self, bytes: &[u8]) -> bool {
        self.needles
            .iter()
            .any(|needle| bytes.windows(needle.len()).any(|window| window == needle))
    }

    /// Panics if the value occurs in an output.
    #[track_caller]
    pub(crate) fn is_absent(&self, place: &str, output: &[u8]) {
        assert!(
            !self.stands_in(output),
            "the planted value `{}` stands in {place}:\n{}",
            self.value,
            String::from_utf8_lossy(output)
        );
    }
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes a multiple of three bytes as Base64 (RFC 4648).
fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    bytes
        .chunks_exact(3)
        .flat_map(|three| {
            let word = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
            [18, 12, 6, 0].map(|shift| char::from(alphabet[(word >> shift & 63) as usize]))
        })
        .collect()
}

/// Returns every file below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

#[test]
fn search_finds_value_in_every_encoding() {
    let value = "s3cr?t/value~1";
    let planted = Planted::new(value);
    for text in [
        "xx s3cr?t/value~1 xx",
        "733363723f742f76616c75657e31",
        "733363723F742F76616C75657E31",
        "%73%33%63%72%3f%74%2f%76%61%6c%75%65%7e%31",
        "x1~eulav/t?rc3s",
    ] {
        assert!(planted.stands_in(text.as_bytes()), "{text}");
    }
    for around in ["", "a", "ab", "abc"] {
        let whole = format!("{around}{value}{around}xx");
        let encoded = base64(&whole.as_bytes()[..whole.len() / 3 * 3], URL);
        assert!(planted.stands_in(encoded.as_bytes()), "{encoded}");
    }
    assert!(!planted.stands_in(b"s3cr?t/value~2"));
}

/// Returns a text in every common encoding, and in Base64 at each offset.
fn written(text: &str) -> Vec<String> {
    let hex: String = text.bytes().map(|b| format!("{b:02x}")).collect();
    let percent: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
    let mut all = vec![
        text.to_owned(),
        hex.clone(),
        hex.to_uppercase(),
        percent.to_lowercase(),
        percent,
    ];
    for before in ["", "u", "u:"] {
        let mut whole = format!("{before}{text}");
        while whole.len() % 3 != 0 {
            whole.push('\n');
        }
        all.extend([STANDARD, URL].map(|alphabet| base64(whole.as_bytes(), alphabet)));
    }
    all
}

/// Starts a server that echoes requests in every common encoding, at `/`, and in chunks, errors and redirects
/// elsewhere.
fn leaking_server() -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head: Vec<String> = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let token = head
                .iter()
                .find_map(|line| line.strip_prefix("x-token: Bearer "))
                .unwrap_or("none")
                .to_owned();
            let text = format!("{}\n{}", written(&token).join("\n"), head.join("\n"));
            let path = head[0].split(' ').nth(1).unwrap_or("/").to_owned();
            let (status, more) = match path.as_str() {
                "/error" => ("500 Oops".to_owned(), String::new()),
                "/status" => (format!("400 {token}"), format!("x-{token}: 1\r\n")),
                "/elsewhere" => ("302 Found".to_owned(), format!("location: /{token}\r\n")),
                _ => ("200 OK".to_owned(), format!("x-echo: {token}\r\n")),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n{more}transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            );
            // Every chunk ends within the value.
            for piece in text.as_bytes().chunks(7) {
                let _ = write!(stream, "{:x}\r\n", piece.len());
                let _ = stream.write_all(piece);
                let _ = stream.write_all(b"\r\n");
            }
            let _ = stream.write_all(b"0\r\n\r\n");
        }
    });
    origin
}

#[test]
fn secret_echoed_by_server_is_in_no_output_or_file() {
    let origin = leaking_server();
    let mut user = User::new();
    user.var("MY_TOKEN", "pl4nted-t0ken/with?specials~");
    user.configure(&format!(
        "[secrets.token]\nenv = \"MY_TOKEN\"\n[tools.fetch]\ngrants = [\"http={origin}\"]\n\
         secrets = [{{ secret = \"token\", origins = [\"{origin}\"], header = \"x-token\", template = \"Bearer {{}}\" }}]\n"
    ));
    let urls = ["", "error", "status", "elsewhere"].map(|path| format!("{origin}/{path}"));
    let calls: Vec<_> = urls
        .iter()
        .map(|url| json!({ "name": "fetch", "arguments": { "url": url } }))
        .collect();
    user.file(
        "script.json",
        json!({ "steps": [{ "calls": calls }, { "text": "Done." }] }).to_string(),
    );
    user.var("TOOLCELL_LOG", "trace");
    let run = [
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "fetch",
    ];
    // All output is searched (see `User`); this checks only that the secret was there to be found.
    for more in [&[][..], &["--json"]] {
        let seen = user.run(&[&run[..], more].concat()).ended(0);
        assert!(seen.stderr.contains("TRACE"), "{}", seen.stderr);
        let shown = seen.stdout.contains(&"*".repeat(28));
        assert_eq!(shown, more == ["--json"], "{}", seen.stdout);
    }
    for url in &urls {
        let arguments = json!({ "url": url }).to_string();
        user.run(&["call", "fetch", &arguments, "--receipt"]);
        user.run(&["call", "fetch", &arguments, "--json"]);
    }
    for command in [
        &["session", "list", "--json"][..],
        &["session", "show", "last"],
        &["session", "export", "last"],
        &["lock"],
        &["policy", "explain"],
        &["config", "check", "--json"],
        &["tool", "inspect", "fetch", "--json"],
        &["doctor"],
    ] {
        user.run(command).ended(0);
    }
    assert!(user.home().join(".local/state/toolcell/sessions.sqlite").exists());
}
