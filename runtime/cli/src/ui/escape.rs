//! Quoting of text that the user may copy into a shell or a configuration file. The text can come from a tool, so it is
//! quoted for its destination.

/// Quotes a word for a POSIX shell.
pub(crate) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Quotes a path for a POSIX shell, which expands a `~/` at its start.
pub(crate) fn shell_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) if !rest.is_empty() => format!("~/{}", shell(rest)),
        _ => shell(path),
    }
}

/// Quotes a TOML basic string (toml.io/en/v1.0.0#string).
pub(crate) fn toml(text: &str) -> String {
    ::toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_word_stays_one_word() {
        assert_eq!(shell("http=example.com"), "http=example.com");
        assert_eq!(shell("http=GET,POST https://a"), "'http=GET,POST https://a'");
        assert_eq!(shell("read='; rm -rf ~"), r"'read='\''; rm -rf ~'");
        assert_eq!(shell(""), "''");
    }

    #[test]
    fn home_in_path_is_expanded_and_rest_is_quoted() {
        assert_eq!(shell_path("~/a b"), "~/'a b'");
        assert_eq!(shell_path("docs/x; touch y"), "'docs/x; touch y'");
        assert_eq!(shell_path("~"), "'~'");
    }

    #[test]
    fn toml_string_reads_back_unchanged() {
        for text in ["read=.", "a\"b", "a\\b\n", "it's"] {
            let line = format!("x = {}", toml(text));
            let table: ::toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text), "{line}");
        }
    }
}
