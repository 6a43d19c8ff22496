//! `tojson` as Python writes JSON: blanks after separators, keys in their order, nothing escaped for HTML.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, State, Value};
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Maximum size of one JSON text, in bytes: 16 MiB, as that of a whole conversation.
const MAX_JSON_BYTES: usize = super::MAX_OUTPUT_BYTES;

/// Maximum indentation, in blanks.
const MAX_INDENT: usize = 16;

/// The filter `tojson`. `ensure_ascii`, `sort_keys` and `separators` are accepted and have no effect.
pub(super) fn to_json(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        options.get::<Option<Value>>(ignored)?;
    }
    options.assert_all_used()?;
    let mut text = Charged {
        state,
        bytes: Vec::new(),
    };
    let written = match indent {
        Some(indent) => {
            let blanks = " ".repeat(indent.min(MAX_INDENT));
            let formatter = PrettyFormatter::with_indent(blanks.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut text, Python)),
    };
    let failed = |reason: String| Error::new(ErrorKind::BadSerialization, reason);
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(text.bytes)
        .map(Value::from_safe_string)
        .map_err(|error| failed(error.to_string()))
}

/// Text whose bytes are charged as fuel before they are kept.
struct Charged<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    bytes: Vec<u8>,
}

impl Write for Charged<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_JSON_BYTES {
            return Err(io::Error::other("the JSON text is too long"));
        }
        // Pieces are short: each counts at least once.
        self.state
            .consume_fuel(1 + bytes.len() as u64 / 64)
            .map_err(io::Error::other)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Separators of Python: `, ` and `: `.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        if is_first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        if is_first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
