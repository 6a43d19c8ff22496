//! Text that a person may copy into a shell or a configuration file. What a tool asked for can stand in it, so that it
//! is quoted for the place where it goes.

/// One word for a POSIX shell.
pub(crate) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A basic string of TOML (toml.io/en/v1.0.0#string).
pub(crate) fn toml(text: &str) -> String {
    ::toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_the_shell_stays_one_word() {
        assert_eq!(shell("http=example.com"), "http=example.com");
        assert_eq!(shell("http=GET,POST https://a"), "'http=GET,POST https://a'");
        assert_eq!(shell("read='; rm -rf ~"), r"'read='\''; rm -rf ~'");
        assert_eq!(shell(""), "''");
    }

    #[test]
    fn a_string_for_toml_reads_back_as_it_was() {
        for text in ["read=.", "a\"b", "a\\b\n", "it's"] {
            let line = format!("x = {}", toml(text));
            let table: ::toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text), "{line}");
        }
    }
}
