//! Matches and non-matches of the redactor.

mod dumps;
mod gaps;
mod streams;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const TOKEN: &str = "s3cr?t/T+k n\"x%41>>>";

fn redactor() -> Redactor {
    Redactor::new([("token", TOKEN), ("pin", "4711-4711")])
}

fn percent(text: &str, keep: impl Fn(u8) -> bool) -> String {
    text.bytes()
        .map(|b| match keep(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

#[test]
fn secret_is_found_in_every_notation() {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let json = serde_json::to_string(TOKEN).unwrap();
    let hex: String = TOKEN.bytes().map(|b| format!("{b:02x}")).collect();
    let base64 = STANDARD.encode(TOKEN);
    let forms = [
        ("plain", TOKEN.to_owned()),
        ("percent", percent(TOKEN, unreserved)),
        (
            "percent, lower case",
            TOKEN.bytes().map(|b| format!("%{b:02x}")).collect(),
        ),
        ("percent, everything", percent(TOKEN, |_| false)),
        (
            "form",
            percent(TOKEN, |b| unreserved(b) || b == b' ').replace(' ', "+"),
        ),
        ("json", json.trim_matches('"').to_owned()),
        ("json, slash", json.trim_matches('"').replace('/', "\\/")),
        (
            "json, codes",
            TOKEN.bytes().map(|b| format!("\\u{b:04x}")).collect(),
        ),
        ("hex", hex.clone()),
        ("hex, upper case", hex.to_uppercase()),
        ("hex, lines", hex.replacen("3", "3\n", 1)),
        ("base64", base64.clone()),
        ("base64, url", URL_SAFE_NO_PAD.encode(TOKEN)),
        ("base64, percent", percent(&base64, unreserved)),
        ("base64, lines", format!("{}\r\n{}", &base64[..8], &base64[8..])),
    ];
    for (name, form) in forms {
        let text = format!("before {form} after");
        let redacted = redactor().text(&text).into_owned();
        assert!(
            redacted.starts_with("before [redacted:token]"),
            "{name}: {text} -> {redacted}"
        );
        assert!(redacted.ends_with(" after"), "{name}: {redacted}");
    }
}

/// Encodings of a value as produced by ordinary servers, with their names.
fn written(value: &str) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = value.as_bytes();
    let join = |between: &str| {
        let chars: Vec<String> = value.chars().map(String::from).collect();
        chars.join(between).into_bytes()
    };
    let each = |write: &dyn Fn(u8) -> String| {
        let text: String = bytes.iter().map(|b| write(*b)).collect();
        text.into_bytes()
    };
    let list = |write: &dyn Fn(u8) -> String, between: &str| {
        let items: Vec<String> = bytes.iter().map(|b| write(*b)).collect();
        items.join(between).into_bytes()
    };
    let wide = |to: &dyn Fn(u16) -> Vec<u8>| value.encode_utf16().flat_map(to).collect::<Vec<u8>>();
    let utf16 = wide(&|unit| unit.to_le_bytes().into());
    let reversed = |text: &[u8]| text.iter().rev().copied().collect::<Vec<u8>>();
    let quoted = serde_json::to_string(value).unwrap();
    let twice = serde_json::to_string(quoted.trim_matches('"')).unwrap();
    let entities = value
        .replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    vec![
        ("upper case", value.to_uppercase().into_bytes()),
        ("lower case", value.to_lowercase().into_bytes()),
        ("percent twice", each(&|b| format!("%25{b:02x}"))),
        ("percent of UTF-16", each(&|b| format!("%u00{b:02x}"))),
        ("JSON in JSON", twice.trim_matches('"').into()),
        ("codes in JSON in JSON", each(&|b| format!("\\\\u{b:04x}"))),
        ("hexadecimal escapes", each(&|b| format!("\\x{b:02x}"))),
        ("octal escapes", each(&|b| format!("\\{b:03o}"))),
        ("escapes of Rust", each(&|b| format!("\\u{{{b:x}}}"))),
        ("HTML", entities.clone().into_bytes()),
        ("HTML in HTML", entities.replace('&', "&amp;").into_bytes()),
        ("HTML, decimal", each(&|b| format!("&#{b};"))),
        ("HTML, decimal, padded", each(&|b| format!("&#{b:06};"))),
        ("HTML, decimal, padded widely", each(&|b| format!("&#{b:024};"))),
        ("HTML, hexadecimal", each(&|b| format!("&#x{b:X};"))),
        (
            "HTML, every second",
            bytes
                .iter()
                .enumerate()
                .map(|(i, b)| match i % 2 {
                    0 => format!("&#{b};"),
                    _ => format!("&#x{b:02x};"),
                })
                .collect::<String>()
                .into_bytes(),
        ),
        ("quoted-printable", each(&|b| format!("={b:02X}"))),
        ("quoted-printable, wrapped", join("=\r\n")),
        ("UTF-16, little end first", utf16.clone()),
        ("UTF-16, big end first", wide(&|unit| unit.to_be_bytes().into())),
        (
            "UTF-32, little end first",
            wide(&|unit| u32::from(unit).to_le_bytes().into()),
        ),
        (
            "UTF-32, big end first",
            wide(&|unit| u32::from(unit).to_be_bytes().into()),
        ),
        ("base64 of UTF-16", STANDARD.encode(&utf16).into_bytes()),
        (
            "base64 of UTF-16, big end first",
            STANDARD
                .encode(wide(&|unit| unit.to_be_bytes().into()))
                .into_bytes(),
        ),
        (
            "hexadecimal of UTF-16",
            wide(&|unit| format!("{unit:04x}").into()),
        ),
        (
            "hexadecimal of UTF-16, little end first",
            wide(&|unit| format!("{:04X}", unit.swap_bytes()).into()),
        ),
        ("escapes of CSS", each(&|b| format!("\\{b:x} "))),
        ("escapes of CSS, six digits", each(&|b| format!("\\{b:06x}"))),
        (
            "base64, lower case",
            STANDARD.encode(value).to_lowercase().into_bytes(),
        ),
        ("base64, backwards", reversed(STANDARD.encode(value).as_bytes())),
        (
            "base64 of the reverse",
            STANDARD.encode(reversed(bytes)).into_bytes(),
        ),
        ("backwards", reversed(bytes)),
        ("hexadecimal, backwards", reversed(&each(&|b| format!("{b:02x}")))),
        ("hexadecimal, colons", list(&|b| format!("{b:02X}"), ":")),
        ("hexadecimal, spaces", list(&|b| format!("{b:02x}"), " ")),
        ("hexadecimal, a list", list(&|b| format!("0x{b:02x}"), ", ")),
        ("numbers", list(&|b| b.to_string(), ",")),
        ("numbers, a line each", list(&|b| b.to_string(), ",\n      ")),
        ("spaced", join(" ")),
        ("spaced widely", join(&" ".repeat(6))),
        ("a line each", join("\r\n")),
        ("hyphens", join("-")),
        ("a JSON list", join("\", \"")),
        ("spaces of HTML", join("&nbsp;")),
        ("zero width", join("\u{200b}")),
        ("zero width, JSON", join("\\u200b")),
        ("tags", join("<wbr>")),
        ("backwards and spaced", reversed(&join(" "))),
        (
            "letters and digits alone",
            value.replace(|c: char| !c.is_alphanumeric(), "").into_bytes(),
        ),
    ]
}

/// Maximum number of spaces between two characters of a matched value.
const MAX_SPACES: usize = 32;

#[test]
fn secret_is_found_in_every_common_form() {
    for value in [
        "s3cret-value_of.the/user",
        "AKIA<0>&\"example\"+Zx",
        "correct horse battery",
    ] {
        let redactor = Redactor::new([("token", value)]);
        for (name, form) in written(value) {
            let text = [b"before: ".as_slice(), &form, b" ;after"].concat();
            let redacted = redactor.bytes(&text);
            assert!(
                redacted.escape_ascii().to_string().contains("[redacted:token]") && redacted.len() < 40,
                "{name}: {} -> {}",
                text.escape_ascii(),
                redacted.escape_ascii()
            );
        }
        for alphabet in [
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
            "0123456789abcdefghijklmnopqrstuv",
        ] {
            for before in 0..5 {
                let whole = format!("{}{value};;;;;", "u".repeat(before));
                let encoded = base32(whole.as_bytes(), alphabet);
                let redacted = redactor.text(&encoded);
                assert!(redacted.contains("[redacted:token]"), "{encoded} -> {redacted}");
            }
        }
    }
}

fn base32(bytes: &[u8], alphabet: &str) -> String {
    let bits: String = bytes.iter().map(|b| format!("{b:08b}")).collect();
    let bits = bits.as_bytes().chunks_exact(5);
    bits.map(|digit| {
        let index = usize::from_str_radix(std::str::from_utf8(digit).unwrap(), 2).unwrap();
        char::from(alphabet.as_bytes()[index])
    })
    .collect()
}

#[test]
fn short_secret_is_found_in_both_alphabets_of_base64() {
    let redactor = Redactor::new([("odd", "???>>>")]);
    for text in ["Pz8/Pj4+", "Pz8_Pj4-", "Pz8/\r\nPj4+", "+4jP/8zP", "-4jP_8zP"] {
        assert_eq!(redactor.text(text), "[redacted:odd]", "{text}");
    }
    assert_eq!(redactor.text("Pz8.Pj4+"), "Pz8.Pj4+");
}

#[test]
fn short_secret_is_found_in_both_cases_of_base32() {
    for value in ["pass-7", "secret7"] {
        let redactor = Redactor::new([("odd", value)]);
        for alphabet in [
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
            "abcdefghijklmnopqrstuvwxyz234567",
            "0123456789ABCDEFGHIJKLMNOPQRSTUV",
        ] {
            for before in 0..5 {
                let whole = format!("{}{value};;;;;", "u".repeat(before));
                let encoded = base32(whole.as_bytes(), alphabet);
                let redacted = redactor.text(&encoded);
                assert!(redacted.contains("[redacted:odd]"), "{encoded} -> {redacted}");
            }
        }
    }
}

#[test]
fn case_matters_only_in_short_encodings() {
    for (value, is_found) in [("secretse", false), ("secretsec", true)] {
        let redactor = Redactor::new([("t", value)]);
        let upper = STANDARD.encode(value).to_ascii_uppercase();
        assert_eq!(redactor.text(&upper).contains("[redacted"), is_found, "{upper}");
        assert!(redactor.text(&STANDARD.encode(value)).contains("[redacted"));
    }
}

#[test]
fn non_ascii_secret_is_found_in_utf_16() {
    let redactor = Redactor::new([("p", "pässwört")]);
    for to in [u16::to_le_bytes, u16::to_be_bytes] {
        let text: Vec<u8> = "pässwört".encode_utf16().flat_map(to).collect();
        let redacted = redactor.bytes(&text);
        assert!(
            redacted.len() <= "[redacted:p]".len() + 2,
            "{}",
            redacted.escape_ascii()
        );
    }
}

#[test]
fn non_ascii_secret_is_not_matched_with_gaps() {
    let redactor = Redactor::new([("p", "pässwört-geheim1")]);
    for text in ["psswrt geheim1", "p-s-s-w-r-t-g-e-h-e-i-m-1"] {
        assert_eq!(redactor.text(text), text);
    }
}

#[test]
fn text_similar_to_a_short_secret_is_unchanged() {
    let redactor = Redactor::new([
        ("pin", "471147"),
        ("word", "secret1"),
        ("number", "123456789012345"),
    ]);
    for text in [
        "4-7-1-1-4-7",
        "4711 47",
        "sec ret1",
        "1,2,3,4,5,6,7,8,9,0,1,2,3,4,5",
        "2024-01-02",
    ] {
        assert_eq!(redactor.text(text), text);
    }
    for text in [
        "471147",
        "SECRET1",
        "c2VjcmV0MQ==",
        "3437 3131 3437".replace(' ', "").as_str(),
    ] {
        assert!(redactor.text(text).contains("[redacted"), "{text}");
    }
    // With few letters, a form that is matched case-sensitively.
    assert_eq!(redactor.text("C2VJCMV0MQ=="), "C2VJCMV0MQ==");
}

#[test]
fn signs_of_base64_are_found_in_a_secret_that_is_none() {
    let redactor = Redactor::new([("word", "my pass-word, as_it is!")]);
    assert_eq!(redactor.text("<my pass-word, as_it is!>"), "<[redacted:word]>");
}

#[test]
fn long_secret_is_found_in_small_pieces() {
    let value: String = (0..8192_u32)
        .map(|n| char::from(b'a' + u8::try_from(n * n % 23).unwrap()))
        .collect();
    let redactor = Redactor::new([("long", value.as_str())]);
    let mut stream = redactor.stream(Replacement::Name);
    let mut out = Vec::new();
    for piece in value.as_bytes().chunks(64) {
        out.extend_from_slice(&stream.push(piece));
    }
    out.extend(stream.finish());
    assert_eq!(String::from_utf8(out).unwrap(), "[redacted:long]");
}

#[test]
fn secret_is_found_in_base64_at_any_offset() {
    for before in ["", "u", "us", "user:", "user::"] {
        for after in ["", ":", "::", ":::"] {
            let whole = format!("{before}{TOKEN}{after}");
            for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                let redacted = redactor().text(&encoded).into_owned();
                assert!(redacted.contains("[redacted:token]"), "{whole}: {redacted}");
            }
        }
    }
}

#[test]
fn text_without_secrets_is_unchanged() {
    for text in [
        "",
        "nothing here",
        "s3cr?t",
        "100%",
        "a\\",
        "\\u00",
        "4711",
        "%",
        "ünïcode",
    ] {
        assert!(matches!(redactor().text(text), Cow::Borrowed(_)), "{text}");
    }
    let bytes = [0xff, 0, b'%', 0xfe];
    assert!(matches!(redactor().bytes(&bytes), Cow::Borrowed(_)));
    assert!(matches!(Redactor::default().text(TOKEN), Cow::Borrowed(_)));
}

#[test]
fn non_ascii_secret_is_found() {
    let redactor = Redactor::new([("p", "pässwörd🔑")]);
    for form in [
        "pässwörd🔑",
        "p\\u00e4ssw\\u00f6rd\\ud83d\\udd11",
        "p%C3%A4ssw%C3%B6rd%F0%9F%94%91",
    ] {
        assert_eq!(redactor.text(&format!("ä{form}ä")), "ä[redacted:p]ä", "{form}");
    }
}

#[test]
fn longest_match_wins_and_matches_may_be_adjacent() {
    let redactor = Redactor::new([("short", "abcdef"), ("long", "abcdefghi")]);
    assert_eq!(
        redactor.text("abcdefghiabcdefabcdef"),
        "[redacted:long][redacted:short][redacted:short]"
    );
}

#[test]
fn length_is_preserved_where_required() {
    let text = format!("a{TOKEN}b");
    let redacted = redactor()
        .replace(text.as_bytes(), Replacement::SameLength)
        .into_owned();
    assert_eq!(redacted, format!("a{}b", "*".repeat(TOKEN.len())).into_bytes());
}

#[test]
fn json_is_redacted_in_texts_keys_and_numbers() {
    let redactor = Redactor::new([("t", "12345678")]);
    let mut value =
        json!({"a": ["x12345678"], "12345678": 12345678, "n": 1, "deep": {"b": [{"c": "MTIzNDU2Nzg="}]}});
    redactor.json(&mut value);
    let text = value.to_string();
    assert!(
        !text.contains("12345678") && !text.contains("MTIzNDU2Nz"),
        "{text}"
    );
    assert_eq!(value["n"], 1);
    assert_eq!(value["a"][0], "x[redacted:t]");
    assert_eq!(value["[redacted:t]"], "[redacted:t]");
}

#[test]
fn list_that_has_a_secret_in_pieces_becomes_a_text() {
    let characters: Vec<String> = TOKEN.chars().map(String::from).collect();
    let nested: Vec<_> = TOKEN.bytes().map(|byte| json!([byte])).collect();
    for pieces in [
        json!(TOKEN.as_bytes()),
        json!(characters),
        json!(nested),
        json!({"type": "Buffer", "data": TOKEN.as_bytes()}),
    ] {
        let mut value = json!({"a": {"b": [1, pieces]}, "other": [1, 2, 3], "text": "x"});
        redactor().json(&mut value);
        let found = value["a"]["b"][1].to_string();
        assert!(found.contains("[redacted:token]"), "{value}");
        assert!(found.len() < 60, "{value}");
        assert_eq!(
            (&value["other"], &value["text"]),
            (&json!([1, 2, 3]), &json!("x"))
        );
    }
}

#[test]
fn short_value_is_found_and_its_shortest_encodings_are_not() {
    let redactor = Redactor::new([("pin", "4711")]);
    for (text, is_found) in [("4711", true), ("34373131", true), ("NDcxMQ==", false)] {
        assert_eq!(redactor.text(text).contains("[redacted"), is_found, "{text}");
    }
}

#[test]
fn empty_value_is_never_looked_for() {
    let redactor = Redactor::new([("none", "")]);
    assert!(redactor.is_empty());
    assert_eq!(redactor.text("abc"), "abc");
}

#[test]
fn of_two_names_of_one_value_the_first_stands() {
    let redactor = Redactor::new([("first", "s3cretvalue"), ("second", "s3cretvalue")]);
    assert_eq!(redactor.text("s3cretvalue"), "[redacted:first]");
}

#[test]
fn bytes_that_may_begin_a_secret_are_held() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    let mut stream = redactor.stream(Replacement::Name);
    assert_eq!(*stream.push(b"ab s3cr"), *b"ab ");
    assert_eq!(stream.held(), 4);
    // The last bytes may begin another form.
    let mut rest = stream.push(b"x").into_owned();
    assert!(rest.starts_with(b"s3c"));
    rest.extend(stream.finish());
    assert_eq!(rest, b"s3crx");
    assert_eq!(stream.held(), 0);
}
