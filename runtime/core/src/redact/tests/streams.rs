//! Redaction of streams.

use super::*;

#[test]
fn live_stream_returns_ordinary_words_at_once() {
    let redactor = Redactor::new([("key", "sk-planted-0123456789")]);
    let push = |pieces: &[&str]| {
        let mut stream = redactor.live_stream();
        let mut out: Vec<String> = pieces
            .iter()
            .map(|p| String::from_utf8(stream.push(p.as_bytes()).into_owned()).unwrap())
            .collect();
        out.push(String::from_utf8(stream.finish()).unwrap());
        out
    };
    assert_eq!(push(&["Grüß ", "Gott s", "k"]), ["Grüß ", "Gott s", "k", ""]);
    assert_eq!(
        push(&["a sk-planted-", "0123456789 b"]),
        ["a ", "[redacted:key] b", ""]
    );
    assert_eq!(push(&["sk-p", "lan"]), ["", "", "sk-plan"]);
    assert_eq!(push(&["sk-", "plank"]), ["sk-", "plank", ""]);
    let letters: Vec<String> = "<sk-planted-0123456789>".chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    assert_eq!(push(&letters).concat(), "<sk-[redacted:key]>");
    // A match is withheld only from its own beginning on.
    assert_eq!(
        push(&["s sk-plan", "ted-0123456789"]),
        ["s ", "[redacted:key]", ""]
    );
}

#[test]
fn secret_is_found_wherever_its_notation_is_cut() {
    let references: String = TOKEN.bytes().map(|b| format!("&#{b};")).collect();
    let escapes: String = TOKEN.bytes().map(|b| format!("\\u{b:04x}")).collect();
    let redactor = redactor();
    for written in [percent(TOKEN, |_| false), references, escapes] {
        let whole = redactor.text(&written).into_owned();
        assert!(whole.starts_with("[redacted:"), "{whole}");
        for cut in 1..written.len() {
            let mut stream = redactor.stream(Replacement::Name);
            let mut out = stream.push(&written.as_bytes()[..cut]).into_owned();
            out.extend_from_slice(&stream.push(&written.as_bytes()[cut..]));
            out.extend(stream.finish());
            assert_eq!(String::from_utf8(out).unwrap(), whole, "{cut} of {written}");
        }
    }
}

#[test]
fn secrets_that_overlap_are_replaced_together() {
    let secrets = [
        ("a", "alpha-beta-1"),
        ("b", "beta-1-gamma"),
        ("c", "alpha"),
        ("d", "abab"),
    ];
    let redactor = Redactor::new(secrets);
    for (text, expected) in [
        ("<alpha-beta-1-gamma>", "<[redacted:a]>"),
        ("<alpha-beta-1alpha>", "<[redacted:a][redacted:c]>"),
        ("<alpha-beta>", "<[redacted:c]-beta>"),
        ("<alpha-beta-1-gamm>", "<[redacted:a]-gamm>"),
        ("<ababab>", "<[redacted:d]>"),
        ("<ababXab>", "<[redacted:d]Xab>"),
    ] {
        assert_eq!(redactor.text(text), expected);
        for cut in 0..=text.len() {
            let pushed = |mut stream: Redaction| {
                let mut out = stream.push(&text.as_bytes()[..cut]).into_owned();
                out.extend_from_slice(&stream.push(&text.as_bytes()[cut..]));
                out.extend(stream.finish());
                String::from_utf8(out).unwrap()
            };
            assert_eq!(pushed(redactor.stream(Replacement::Name)), expected, "{cut}");
            // Up to three characters of a secret can be shown.
            let live = pushed(redactor.live_stream());
            let shown = secrets.iter().any(|(_, secret)| live.contains(secret));
            assert!(
                !shown && live.contains("gamm") == expected.contains("gamm"),
                "{cut}: {live}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_byte_of_a_secret_remains_where_several_overlap(
        secrets in prop::collection::vec("[ab]{4,7}|[a-c-]{8,10}", 1..4),
        text in "[abc-]{0,60}",
        cuts in prop::collection::vec(0_usize..60, 0..8),
    ) {
        let redactor = Redactor::new(secrets.iter().map(|secret| ("s", secret.as_str())));
        let whole = redactor.replace(text.as_bytes(), Replacement::SameLength).into_owned();
        prop_assert_eq!(whole.len(), text.len());
        for secret in &secrets {
            for at in (0..text.len()).filter(|at| text[*at..].starts_with(secret.as_str())) {
                prop_assert!(whole[at..at + secret.len()].iter().all(|byte| *byte == b'*'), "{secret}");
            }
        }
        let mut stream = redactor.stream(Replacement::SameLength);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let (mut from, mut out) = (0, Vec::new());
        for to in cuts {
            out.extend_from_slice(&stream.push(&text.as_bytes()[from..to]));
            from = to;
        }
        out.extend(stream.finish());
        prop_assert_eq!(out, whole);
    }

    #[test]
    fn live_stream_loses_nothing_and_reveals_no_secret(
        parts in prop::collection::vec(prop_oneof![
            Just(TOKEN.to_owned()),
            Just(percent(TOKEN, |_| false)),
            Just("4711-4711".to_owned()),
            Just("s3cr".to_owned()),
            "[a-z4711%\\\\+ -]{0,6}",
        ], 0..8),
        cuts in prop::collection::vec(0_usize..200, 0..10),
    ) {
        let text = parts.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut stream = redactor().live_stream();
        let (mut from, mut out) = (0, Vec::new());
        for to in cuts {
            out.extend_from_slice(&stream.push(&text.as_bytes()[from..to]));
            from = to;
        }
        out.extend(stream.finish());
        let out = String::from_utf8(out).unwrap();
        prop_assert!(!out.contains(TOKEN) && !out.contains("4711-4711"), "{}", out);
        if !redactor().text(&text).contains("[redacted") {
            prop_assert_eq!(out, text);
        }
    }

    #[test]
    fn stream_output_does_not_depend_on_piece_boundaries(
        parts in prop::collection::vec(prop_oneof![
            Just(TOKEN.to_owned()),
            Just(STANDARD.encode(TOKEN)),
            Just(percent(TOKEN, |_| false)),
            Just("4711-4711".to_owned()),
            Just("4711-47".to_owned()),
            Just("s3cr".to_owned()),
            Just(TOKEN.chars().map(|c| format!("{c}, ")).collect::<String>()),
            Just(TOKEN.bytes().map(|b| format!("&#{b};")).collect::<String>()),
            Just("&amp;#x7".to_owned()),
            Just("s=\r".to_owned()),
            Just("s<wb".to_owned()),
            "[a-z%\\\\+ 0-9&#;=<>\0\n]{0,6}",
        ], 0..8),
        cuts in prop::collection::vec(0_usize..200, 0..10),
    ) {
        let text = parts.concat();
        let whole = redactor().text(&text).into_owned();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        let mut stream = redactor().stream(Replacement::Name);
        let (mut from, mut out) = (0, Vec::new());
        for to in cuts {
            out.extend_from_slice(&stream.push(&text.as_bytes()[from..to]));
            from = to;
        }
        out.extend(stream.finish());
        prop_assert_eq!(&whole, &String::from_utf8(out).unwrap());
        prop_assert!(!whole.contains(TOKEN) && !whole.contains("4711-4711"));
    }

    #[test]
    fn any_secret_is_found_in_any_text(
        secret in "\\PC{6,20}",
        before in "\\PC{0,5}",
        after in "\\PC{0,5}",
    ) {
        let redactor = Redactor::new([("x", secret.as_str())]);
        for form in [secret.clone(), serde_json::to_string(&secret).unwrap(), percent(&secret, |_| false)] {
            let text = format!("{before}{form}{after}");
            prop_assert!(redactor.text(&text).contains("[redacted:x]"));
        }
        let encoded = STANDARD.encode(format!("{before}{secret}{after}"));
        prop_assert!(redactor.text(&encoded).contains("[redacted:x]"));
    }
}
