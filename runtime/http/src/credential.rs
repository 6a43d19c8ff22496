//! Bearer tokens (RFC 6750).

use std::fmt;

/// Minimum length of a token, in bytes: 128 random bits in hexadecimal.
pub const MIN_TOKEN_BYTES: usize = 32;

/// Token of a client. It is kept as a digest, whose comparison takes the same time for each text.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

/// Text that cannot be a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeakToken {
    /// The text has fewer than [`MIN_TOKEN_BYTES`] bytes.
    #[error("it has fewer than {MIN_TOKEN_BYTES} characters")]
    Short,
    /// The text has characters that a header cannot carry as a token.
    #[error("it has other characters than letters, digits and `-._~+/=`")]
    Characters,
}

impl Token {
    /// Creates a token from its text.
    ///
    /// # Errors
    /// Fails if the text is short, or has other characters than the `token68` of RFC 9110.
    pub fn new(text: &str) -> Result<Self, WeakToken> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if text.len() < MIN_TOKEN_BYTES {
            return Err(WeakToken::Short);
        }
        if !text.bytes().all(is_allowed) {
            return Err(WeakToken::Characters);
        }
        Ok(Self(blake3::hash(text.as_bytes())))
    }

    /// Returns a name of the token, from which it cannot be found out: the first 8 digits of its digest.
    pub fn fingerprint(&self) -> String {
        self.0.to_hex()[..8].to_owned()
    }

    /// True if an `Authorization` header carries this token.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let Some((scheme, text)) = header.split_at_checked(7) else {
            return false;
        };
        // `Hash` compares in constant time.
        scheme.eq_ignore_ascii_case(b"bearer ") && self.0 == blake3::hash(text.trim_ascii())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_its_minimum_length_and_characters() {
        let text = "x".repeat(MIN_TOKEN_BYTES);
        assert!(Token::new(&text).is_ok());
        assert_eq!(Token::new(&text[1..]).unwrap_err(), WeakToken::Short);
        for wrong in [" ", "\n", "é", "\"", "\0"] {
            assert_eq!(
                Token::new(&(text.clone() + wrong)).unwrap_err(),
                WeakToken::Characters
            );
        }
        assert_eq!(format!("{:?}", Token::new(&text)), "Ok(Token)");
    }

    #[test]
    fn fingerprint_tells_tokens_apart_and_has_none_of_their_text() {
        let fingerprint = |letter: &str| Token::new(&letter.repeat(MIN_TOKEN_BYTES)).unwrap().fingerprint();
        let (a, b) = (fingerprint("a"), fingerprint("b"));
        assert_ne!(a, b);
        for (fingerprint, letter) in [(&a, "a"), (&b, "b")] {
            assert!(
                fingerprint.len() == 8 && !fingerprint.contains(&letter.repeat(8)),
                "{fingerprint}"
            );
            assert!(
                fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{fingerprint}"
            );
        }
    }

    #[test]
    fn token_is_that_of_the_header_as_a_whole() {
        let text = "x".repeat(MIN_TOKEN_BYTES);
        let token = Token::new(&text).unwrap();
        for (header, is_in) in [
            (format!("Bearer {text}"), true),
            (format!("bearer {text} "), true),
            (format!("Bearer {text}x"), false),
            (format!("Bearer {}", &text[1..]), false),
            (format!("Basic {text}"), false),
            (text.clone(), false),
            ("Bearer ".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(token.is_in(header.as_bytes()), is_in, "{header}");
        }
    }
}
