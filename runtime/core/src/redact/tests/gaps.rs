//! Bytes between the characters of a secret.

use super::*;

#[test]
fn separators_are_skipped_up_to_a_number() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    for (spaces, is_found) in [(MAX_SPACES, true), (MAX_SPACES + 1, false)] {
        let spread = "s3cretvalue"
            .chars()
            .map(String::from)
            .collect::<Vec<_>>()
            .join(&" ".repeat(spaces));
        assert_eq!(redactor.text(&spread).contains("[redacted"), is_found, "{spaces}");
    }
}

#[test]
fn maximum_gap_is_the_same_for_all_content() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    for (gap, is_found) in [
        (format!("<{}", " ".repeat(31)), true),
        (format!("<{}", " ".repeat(32)), false),
        (format!("={}", " ".repeat(31)), true),
        (format!("={}", " ".repeat(32)), false),
        ("x".to_owned(), false),
    ] {
        let chars: Vec<String> = "s3cretvalue".chars().map(String::from).collect();
        let found = redactor.text(&chars.join(&gap)).contains("[redacted");
        assert_eq!(found, is_found, "{gap:?}");
    }
}

#[test]
fn soft_line_break_is_skipped_in_any_pieces() {
    let redactor = Redactor::new([("short", "s3c+-t")]);
    let text = "<s=\r\n3=\nc=2B=\r\n-=\r\nt>";
    for length in 1..text.len() {
        let mut stream = redactor.stream(Replacement::Name);
        assert!(!stream.has_found() && stream.held() == 0);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(length) {
            out.extend_from_slice(&stream.push(piece));
        }
        out.extend(stream.finish());
        assert_eq!(String::from_utf8(out).unwrap(), "<[redacted:short]>", "{length}");
        assert!(stream.has_found());
    }
}

#[test]
fn long_gap_is_no_gap_wherever_it_stands() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    for (spaces, is_found) in [(MAX_SPACES, true), (MAX_SPACES + 1, false)] {
        let text = format!("s3cret{}value", " ".repeat(spaces));
        assert_eq!(redactor.text(&text).contains("[redacted"), is_found, "{spaces}");
    }
}

#[test]
fn escapes_of_separators_are_passed_over_and_of_letters_not() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    for (gap, is_found) in [
        ("\\t", true),
        ("\\n", true),
        ("\\r", true),
        ("\\b", true),
        ("\\f", true),
        ("%20", true),
        ("&#32;", true),
        ("&#160;", true),
        ("%78", false),
        ("&#120;", false),
        ("\\u0078", false),
    ] {
        let chars: Vec<String> = "s3cretvalue".chars().map(String::from).collect();
        let found = redactor.text(&chars.join(gap)).contains("[redacted");
        assert_eq!(found, is_found, "{gap:?}");
    }
}

#[test]
fn tag_between_characters_is_passed_over_in_any_pieces() {
    let redactor = Redactor::new([("token", "s3cretvalue")]);
    for tag in ["<wbr>", "<a b='c' d='e' >"] {
        let chars: Vec<String> = "s3cretvalue".chars().map(String::from).collect();
        let text = format!("({})", chars.join(tag));
        for length in 1..text.len() {
            let mut stream = redactor.stream(Replacement::Name);
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(length) {
                out.extend_from_slice(&stream.push(piece));
            }
            out.extend(stream.finish());
            assert_eq!(String::from_utf8(out).unwrap(), "([redacted:token])", "{length}");
        }
    }
}

#[test]
fn encoded_secret_is_found_with_separators_up_to_a_number() {
    let value = "s3cretvalue-0123";
    let redactor = Redactor::new([("token", value)]);
    let encoded = STANDARD.encode(value);
    let (one, other) = encoded.split_at(10);
    for (spaces, is_found) in [(1, true), (MAX_SPACES, true), (MAX_SPACES + 1, false)] {
        let text = format!("{one}{}{other}", " ".repeat(spaces));
        assert_eq!(redactor.text(&text).contains("[redacted"), is_found, "{spaces}");
    }
    // Short encodings are common words when their separators do not count.
    for (value, is_found) in [("s3cretv9a", true), ("s3cretv9", false)] {
        let encoded = STANDARD.encode(value);
        let redactor = Redactor::new([("token", value)]);
        assert!(redactor.text(&encoded).contains("[redacted"), "{encoded}");
        let text = format!("{} {}", &encoded[..5], &encoded[5..]);
        assert_eq!(redactor.text(&text).contains("[redacted"), is_found, "{text}");
    }
}
