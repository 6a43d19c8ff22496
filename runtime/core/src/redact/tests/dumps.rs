//! Secrets in dumps and nested encodings.

use super::*;

/// As `xxd`, `hexdump -C`, `hexdump` and `od -c` write it, after `before` other bytes.
fn dumped(before: usize, value: &str) -> [(&'static str, String); 5] {
    let bytes = [&b"QWERZUIOPQWERZUIOPQ"[..before], value.as_bytes(), b" rest"].concat();
    let lines = |line: &dyn Fn(usize, &[u8]) -> String| {
        let lines = bytes.chunks(16).enumerate();
        lines.map(|(at, bytes)| line(at * 16, bytes)).collect::<String>()
    };
    let shown = |bytes: &[u8]| {
        let shown = bytes.iter().map(|b| match b {
            b' '..=b'~' => char::from(*b),
            _ => '.',
        });
        shown.collect::<String>()
    };
    let hex = |bytes: &[u8], group: usize| {
        let groups = bytes.chunks(group);
        let groups = groups.map(|group| group.iter().map(|b| format!("{b:02x}")).collect::<String>());
        groups.collect::<Vec<String>>().join(" ")
    };
    let word = |group: &[u8]| u16::from_le_bytes([group[0], group.get(1).copied().unwrap_or(0)]);
    let words = |bytes: &[u8], write: fn(u16) -> String| {
        let words = bytes.chunks(2).map(|group| write(word(group)));
        words.collect::<Vec<String>>().join(" ")
    };
    [
        (
            "xxd",
            lines(&|at, bytes| format!("{at:08x}: {:<39}  {}\n", hex(bytes, 2), shown(bytes))),
        ),
        (
            "hexdump -C",
            lines(&|at, bytes| format!("{at:08x}  {:<48} |{}|\n", hex(bytes, 1), shown(bytes))),
        ),
        (
            "hexdump",
            lines(&|at, bytes| format!("{at:07x} {}\n", words(bytes, |word| format!("{word:04x}")))),
        ),
        (
            "od",
            lines(&|at, bytes| format!("{at:07o} {}\n", words(bytes, |word| format!("{word:06o}")))),
        ),
        (
            "od -c",
            lines(&|at, bytes| {
                let chars: String = bytes.iter().map(|b| format!("   {}", char::from(*b))).collect();
                format!("{at:07o}{chars}\n")
            }),
        ),
    ]
}

#[test]
fn secret_is_found_across_lines_of_a_dump() {
    for value in ["tok-0123456789abcdefghijklmnopqrstuvwx", "hunter2-hunter2"] {
        let redactor = Redactor::new([("t", value)]);
        for before in 0..19 {
            for (name, text) in dumped(before, value) {
                let redacted = redactor.text(&text);
                assert!(
                    redacted.contains("[redacted:t]"),
                    "{name} {before}:\n{text}\n{redacted}"
                );
                // No six characters stay, in the columns of text neither.
                for piece in value.as_bytes().windows(6) {
                    let piece = String::from_utf8_lossy(piece);
                    let hex: String = piece.bytes().map(|b| format!("{b:02x}")).collect();
                    let plain = redacted.replace([' ', '\n'], "");
                    assert!(
                        !redacted.contains(&*piece) && !plain.contains(&hex),
                        "{name} {before} {piece}:\n{text}\n{redacted}"
                    );
                }
                for at in [1, 7, 33, 64] {
                    let mut stream = redactor.stream(Replacement::Name);
                    let mut out = Vec::new();
                    for piece in text.as_bytes().chunks(at) {
                        out.extend_from_slice(&stream.push(piece));
                    }
                    out.extend_from_slice(&stream.finish());
                    assert_eq!(String::from_utf8_lossy(&out), *redacted, "{name} {before} {at}");
                }
            }
        }
    }
}

#[test]
fn secret_is_found_in_two_nested_encodings() {
    let value = "tok-?>0123~456789abc";
    let redactor = Redactor::new([("t", value)]);
    let upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    type Encode<'a> = (&'a str, &'a dyn Fn(&[u8]) -> String);
    let encodings: [Encode<'_>; 6] = [
        ("hex", &|bytes| bytes.iter().map(|b| format!("{b:02x}")).collect()),
        ("HEX", &|bytes| bytes.iter().map(|b| format!("{b:02X}")).collect()),
        ("base64", &|bytes| STANDARD.encode(bytes)),
        ("base64url", &|bytes| URL_SAFE_NO_PAD.encode(bytes)),
        ("base32", &|bytes| base32(bytes, upper)),
        ("percent", &|bytes| {
            percent(&String::from_utf8_lossy(bytes), |b| b.is_ascii_alphanumeric())
        }),
    ];
    for (first, inner) in encodings {
        for (second, outer) in encodings {
            for around in ["", "x", "xy", "xyz"] {
                let once = inner(format!("{around}{value}{around}").as_bytes());
                let text = outer(format!("{around}{once}").as_bytes());
                let redacted = redactor.text(&text);
                assert!(
                    redacted.contains("[redacted:t]"),
                    "{second} of {first} with {around:?}: {text}"
                );
            }
        }
    }
    let json = STANDARD.encode(serde_json::to_string("a\"b\\c-0123456789").unwrap());
    assert!(
        Redactor::new([("t", "a\"b\\c-0123456789")])
            .text(&json)
            .contains("[redacted")
    );
}

#[test]
fn ordinary_dumps_and_encodings_stay() {
    let redactor = Redactor::new([("t", "tok-?>0123~456789abc")]);
    let other = "tok-?>0123~X56789abc".repeat(3);
    for (name, text) in dumped(3, &other) {
        assert_eq!(redactor.text(&text), text, "{name}");
    }
    let twice = STANDARD.encode(STANDARD.encode(&other));
    assert_eq!(redactor.text(&twice), twice);
    // An address is followed by a blank.
    let [(_, dump), ..] = dumped(3, "tok-?>0123~456789abc");
    let glued = dump.replace("\n00000010: ", "\n00000010:");
    assert_ne!(glued, dump);
    assert_ne!(redactor.text(&dump), dump);
    assert_eq!(redactor.text(&glued), glued);
}

#[test]
fn stream_waits_for_a_limited_part_of_a_dump() {
    let value = "tok-0123456789abcdefghijklmnopqrstuvwx";
    let redactor = Redactor::new([("t", value)]);
    let [(_, dump), ..] = dumped(0, value);
    // After the last byte, its line may go on with the column of text.
    let whole = &dump[..dump.find("7778").unwrap() + 4];
    for (more, is_decided) in [(127, false), (128, true)] {
        let mut stream = redactor.stream(Replacement::Name);
        let out = stream
            .push(format!("{whole}{}", ".".repeat(more)).as_bytes())
            .into_owned();
        let out = String::from_utf8_lossy(&out);
        assert_eq!(out.contains("[redacted:t]"), is_decided, "{more}: {out}");
        assert_eq!(stream.held() == 0, is_decided, "{more}");
    }
    // After a part of it, the next line may go on with the rest.
    for (more, is_decided) in [(57, false), (58, true)] {
        let mut stream = redactor.stream(Replacement::Name);
        stream.push(format!("{}  {}", &dump[..dump.find("  ").unwrap()], ".".repeat(more)).as_bytes());
        assert_eq!(stream.held() == 0, is_decided, "{more}: {}", stream.held());
    }
}
