//! The tool `json_query`.

use jaq_json::Val;
use toolcell_sdk::serde::de::IgnoredAny;
use toolcell_sdk::serde_json::{self, Value};
use toolcell_sdk::{Optional, Result, ToolError, files, show, tool};

use crate::document::{parse, to_text};
use crate::program::{Program, Yield};

/// Maximum size of a document, in bytes. As values in memory it takes about ten times as much.
const MAX_DOCUMENT: u64 = 16 << 20;

/// Maximum size of an answer, in bytes.
const MAX_TEXT: usize = 200_000;

/// Run a jq program on JSON: select, filter, count, group or reshape. Give the JSON in `json` or as a file in `path` (also
/// JSON lines: the program then runs on each document; `input` and `inputs` read the next ones).
///
/// The answer has one output of the program in each line. Examples of programs: `.items | length`,
/// `.users[] | select(.age > 30) | .name`, `group_by(.kind) | map({kind: .[0].kind, n: length})`, `keys`.
#[tool(title = "Query JSON", read_only, idempotent)]
pub(crate) fn json_query(
    /// The jq program.
    #[alias("query", "filter", "expression", "jq")]
    program: String,
    /// The JSON: any value, or its text. A text that is no JSON is a string. Give this or `path`.
    #[alias("data", "input", "document")]
    json: Optional<Value>,
    /// Path of a file with JSON. Give this or `json`.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: Option<String>,
    /// Write strings without quotes.
    #[default(false)]
    raw: bool,
    /// Write each output over several lines, indented.
    #[default(false)]
    pretty: bool,
    /// Put all documents into one array first and run the program once.
    #[default(false)]
    slurp: bool,
    /// The most outputs to write.
    #[default(1000)]
    #[alias("limit")]
    max_outputs: u32,
) -> Result<String> {
    let is_text = matches!(json, Optional::Given(Value::String(_)));
    let (text, what) = match (json, path) {
        (Optional::Given(Value::String(json)), None) => (json, "`json`".to_owned()),
        (Optional::Given(json), None) => (json.to_string(), "`json`".to_owned()),
        (Optional::Missing, None) => return Err(ToolError::invalid("give `json` or `path`")),
        // Some models give every argument, with `null` for those that they do not need.
        (Optional::Missing | Optional::Given(Value::Null), Some(path)) => (
            files::read_text(&path, MAX_DOCUMENT)?,
            show::quoted(path).to_string(),
        ),
        (Optional::Given(_), Some(_)) => {
            return Err(ToolError::invalid("give `json` or `path`, not both"));
        }
    };
    let program = Program::compile(&program)?;
    let mut documents = match parse(&text, &what) {
        Ok(documents) if !is_text || !begins_like_a_number(&text) => documents,
        Ok(_) => vec![Val::from(text)],
        Err(_) if is_text && is_plain(&text) => vec![Val::from(text)],
        Err(error) if is_text && !text.trim().is_empty() => {
            return Err(ToolError::failed(format_args!(
                "{}; a text that begins so is given as a JSON string, in quotes of its own: {}",
                error.message(),
                r#""\"[a] text\"""#
            )));
        }
        Err(error) => return Err(error),
    };
    if slurp {
        documents = vec![documents.into_iter().collect::<Val>()];
    }
    let mut answer = Answer {
        text: String::new(),
        outputs: 0,
        max_outputs,
        raw,
        pretty,
        full: false,
    };
    let several = documents.len() > 1;
    if let Err((number, error)) = program.run(documents, &mut |yielded| answer.take(yielded)) {
        let place = if several {
            format!("document {number}: ")
        } else {
            String::new()
        };
        let after = match answer.outputs {
            0 => String::new(),
            1 => " (after 1 output)".into(),
            n => format!(" (after {n} outputs)"),
        };
        let hint = match error.starts_with(NO_NULL) {
            true => {
                "; an assignment makes no object or array of null: write one before, as in `.a //= {} | .a.b = 1`"
            }
            false => "",
        };
        return Err(ToolError::failed(format_args!("{place}{error}{after}{hint}")));
    }
    Ok(answer.finish())
}

/// Error of the library for an iteration of null, and for an assignment below null, which jq accepts.
const NO_NULL: &str = "cannot use null as iterable";

/// True if a text begins with a digit or sign, and its first word is no number, such as a date: the library would read a date as
/// several numbers.
fn begins_like_a_number(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<IgnoredAny>(word).is_err()
}

/// True if a text that is no JSON was not meant as JSON: it begins like no array, object or string.
fn is_plain(text: &str) -> bool {
    let begins = text.trim_start().chars().next();
    begins.is_some_and(|c| !matches!(c, '[' | '{' | '"'))
}

/// Outputs, up to their limits.
struct Answer {
    text: String,
    outputs: u32,
    max_outputs: u32,
    raw: bool,
    pretty: bool,
    full: bool,
}

impl Answer {
    /// Adds an output. `false` if no more are wanted.
    fn take(&mut self, yielded: Yield) -> bool {
        let Yield::Value(value) = yielded else {
            return false;
        };
        if self.outputs == self.max_outputs || self.text.len() >= MAX_TEXT {
            self.full = true;
            return false;
        }
        self.outputs += 1;
        match value {
            Val::TStr(text) | Val::BStr(text) if self.raw => {
                self.text.push_str(&String::from_utf8_lossy(&text));
            }
            value => self.text.push_str(&to_text(&value, self.pretty)),
        }
        self.text.push('\n');
        true
    }

    fn finish(mut self) -> String {
        if self.text.len() > MAX_TEXT {
            let end = self.text.floor_char_boundary(MAX_TEXT);
            let cut = self.text.len() - end;
            self.text.truncate(end);
            self.text
                .push_str(&format!("\n[{cut} more bytes of this output are left out]\n"));
        }
        if self.full {
            self.text
                .push_str(&format!("[there are more outputs than these {}]\n", self.outputs));
        }
        if self.outputs == 0 && !self.full {
            return "The program has no output for this JSON.".into();
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::{ErrorKind, testing};

    fn query(program: &str, document: &str, more: Value) -> Result<String> {
        let mut arguments = json!({"program": program, "json": document});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Ok(testing::call::<json_query>(arguments)?.to_text())
    }

    fn answer(program: &str, document: &str) -> String {
        query(program, document, json!({})).unwrap()
    }

    #[test]
    fn nested_open_brackets_are_one_error() {
        for program in ["((", "[[[", "([{"] {
            let error = query(program, "1", json!({})).unwrap_err();
            let mut told: Vec<&str> = error.message().split("; ").collect();
            let all = told.len();
            told.sort_unstable();
            told.dedup();
            assert_eq!(told.len(), all, "{program}: {error}");
        }
    }

    #[test]
    fn programs_select_count_and_reshape() {
        let users = r#"{"users": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 20}]}"#;
        assert_eq!(answer(".users | length", users), "2\n");
        assert_eq!(answer(".users[] | select(.age > 30) | .name", users), "\"Ada\"\n");
        assert_eq!(answer("[.users[].age] | add / length", users), "28.0\n");
        assert_eq!(
            query(".users[].name", users, json!({"raw": true})).unwrap(),
            "Ada\nBob\n"
        );
        assert_eq!(
            query(".users[0]", users, json!({"pretty": true})).unwrap(),
            "{\n  \"name\": \"Ada\",\n  \"age\": 36\n}\n"
        );
        assert_eq!(answer("empty", users), "The program has no output for this JSON.");
        assert_eq!(answer("1, halt, 2", users), "1\n");
    }

    #[test]
    fn text_that_begins_like_a_number_is_a_string() {
        for (text, outputs) in [
            ("2024-01-01", "\"2024-01-01\"\n"),
            ("2024-01-01T10:00:00Z", "\"2024-01-01T10:00:00Z\"\n"),
            ("-01", "\"-01\"\n"),
            ("3 apples", "\"3 apples\"\n"),
            ("12", "12\n"),
            ("-1.5e3 \n 2", "-1.5e3\n2\n"),
            ("1 [2] {\"a\": 3}", "1\n[2]\n{\"a\":3}\n"),
        ] {
            assert_eq!(answer(".", text), outputs, "{text}");
        }
        for text in ["[draft] notes", "{name} is here", "\"x"] {
            let error = query(".", text, json!({})).unwrap_err();
            assert!(error.message().contains("is given as a JSON string"), "{error}");
            let quoted = json!(text).to_string();
            assert_eq!(answer("length", &quoted), format!("{}\n", text.len()));
        }
    }

    #[test]
    fn halt_error_is_an_error_with_its_message() {
        for (program, message) in [
            ("1, halt_error, 2", "boom (after 1 output)"),
            ("halt_error(1)", "boom"),
            ("try halt_error catch 1", "boom"),
            ("{a: 1} | halt_error", "{\"a\":1}"),
            ("halt(3)", "the program halted with an error"),
        ] {
            let error = query(program, "\"boom\"", json!({})).unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Failed, message),
                "{program}"
            );
        }
        assert_eq!(answer("halt", "1"), "The program has no output for this JSON.");
    }

    #[test]
    fn filters_of_strings_pass_other_values() {
        assert_eq!(
            answer(
                "ltrimstr(1), rtrimstr(null), ltrimstr(\"ä\"), rtrimstr(\"c\"), trimstr(\"\")",
                "\"äbc\""
            ),
            "\"äbc\"\n\"äbc\"\n\"bc\"\n\"äb\"\n\"äbc\"\n"
        );
        assert_eq!(
            answer("ltrimstr(\"a\"), toarray, ([.] | toarray)", "1"),
            "1\n[1]\n[1]\n"
        );
    }

    #[test]
    fn json_lines_are_documents_and_slurp_joins_them() {
        assert_eq!(answer(".a", "{\"a\":1}\n{\"a\":2}\n"), "1\n2\n");
        assert_eq!(
            query("map(.a) | add", "{\"a\":1}\n{\"a\":2}\n", json!({"slurp": true})).unwrap(),
            "3\n"
        );
    }

    #[test]
    fn any_json_value_is_input() {
        for (json, program, output) in [
            (json!({"a": [1, 2]}), ".a[1]", "2\n"),
            (json!([3]), ".[0]", "3\n"),
            (json!(7), ". + 1", "8\n"),
            (json!("{\"a\": 1}"), ".a", "1\n"),
            (json!(true), "not", "false\n"),
            (json!(null), ". == null", "true\n"),
            (json!("null"), ". == null", "true\n"),
            (json!("hello"), "length", "5\n"),
            (json!("hello, world"), ".", "\"hello, world\"\n"),
        ] {
            let arguments = json!({"program": program, "json": json});
            let answer = testing::call::<json_query>(arguments).unwrap().to_text();
            assert_eq!(answer, output, "{program}");
        }
    }

    #[test]
    fn text_that_begins_as_json_and_missing_json_are_errors() {
        let refused = |arguments: Value| {
            let error = testing::call::<json_query>(arguments).unwrap_err();
            error.message().to_owned()
        };
        for text in ["{\"a\": 1,}", " [1", "\"a"] {
            let told = refused(json!({"program": ".", "json": text}));
            assert!(told.starts_with("`json` is not valid JSON: line 1"), "{told}");
        }
        assert_eq!(refused(json!({"program": ".", "json": " "})), "`json` is empty");
        assert_eq!(refused(json!({"program": "."})), "give `json` or `path`");
        let both = json!({"program": ".", "json": 1, "path": "a"});
        assert_eq!(refused(both), "give `json` or `path`, not both");
        let null = json!({"program": ".", "json": null, "path": "/no/such/file"});
        assert!(refused(null).contains("does not exist"));
    }

    #[test]
    fn program_reads_the_documents_that_follow() {
        let lines = "1\n2\n3\n";
        assert_eq!(answer("[., input]", lines), "[1,2]\n[3]\n");
        assert_eq!(answer("[., inputs] | add", lines), "6\n");
        let error = query("input | .a", lines, json!({})).unwrap_err();
        assert!(error.message().starts_with("document 2: "), "{error}");
    }

    #[test]
    fn tables_and_indexes_are_made() {
        let rows = r#"[{"id": 1, "n": "a\"b"}, {"id": 2, "n": null}]"#;
        let raw = |program: &str| query(program, rows, json!({"raw": true})).unwrap();
        assert_eq!(
            raw(".[] | [.id, .n, true] | @csv"),
            "1,\"a\"\"b\",true\n2,,true\n"
        );
        assert_eq!(raw(r#".[0] | [.id, "x\ty\n\\"] | @tsv"#), "1\tx\\ty\\n\\\\\n");
        assert_eq!(answer("INDEX(.id) | keys", rows), "[\"1\",\"2\"]\n");
        assert_eq!(answer("INDEX(.[]; .id)[\"2\"].id", rows), "2\n");
        assert_eq!(answer("[.[] | .id | IN(2, 3)]", rows), "[false,true]\n");
        let error = query(".[] | @csv", rows, json!({})).unwrap_err();
        assert!(error.message().contains("cannot be formatted as CSV"), "{error}");
    }

    #[test]
    fn filters_of_jq_that_the_library_lacks_are_there() {
        for (program, json, expected) in [
            (
                "[tostream]",
                "{\"a\":[1]}",
                "[[[\"a\",0],1],[[\"a\",0]],[[\"a\"]]]\n",
            ),
            (
                "fromstream(tostream)",
                "{\"a\":[1,{\"b\":null}]}",
                "{\"a\":[1,{\"b\":null}]}\n",
            ),
            ("[fromstream(1, 2 | tostream)]", "0", "[1,2]\n"),
            (
                "[1 | truncate_stream([[0],1],[[1,0],2],[[1,0]],[[1]])]",
                "0",
                "[[[0],2],[[0]]]\n",
            ),
            ("[truncate_stream(1; tostream)]", "[[2]]", "[[[0],2],[[0]]]\n"),
            ("[leaf_paths]", "{\"a\":[1,null]}", "[[\"a\",0]]\n"),
            ("[JOIN({\"1\": \"x\"}; tostring)]", "[1]", "[[[1,\"x\"]]]\n"),
            ("[JOIN({\"1\": \"x\"}; .[]; tostring; .[1])]", "[1]", "[\"x\"]\n"),
            (
                "0 | date, dateadd(\"seconds\"; 5), datesub(\"seconds\"; 5)",
                "0",
                "\"1970-01-01T00:00:00Z\"\n5\n-5\n",
            ),
            (
                "[1, \"a\"] | format(\"csv\"), format(\"json\")",
                "0",
                "\"1,\\\"a\\\"\"\n\"[1,\\\"a\\\"]\"\n",
            ),
            ("65 | ascii", "0", "\"A\"\n"),
            ("$ENV == env, input_filename", "0", "true\nnull\n"),
        ] {
            assert_eq!(answer(program, json), expected, "{program}");
        }
    }

    #[test]
    fn assignment_below_null_names_what_to_write() {
        let error = query(".a.b = 1", "{}", json!({})).unwrap_err();
        assert!(error.message().ends_with("`.a //= {} | .a.b = 1`"), "{error}");
        assert_eq!(answer(".a //= {} | .a.b = 1", "{}"), "{\"a\":{\"b\":1}}\n");
    }

    #[test]
    fn what_json_cannot_hold_is_null_or_text() {
        assert_eq!(
            answer("[nan, infinite, -infinite, 1.5], {a: nan}", "null"),
            "[null,null,null,1.5]\n{\"a\":null}\n"
        );
        assert_eq!(
            answer("{(1, null | tojson): 2}", "null"),
            "{\"1\":2}\n{\"null\":2}\n"
        );
        assert_eq!(answer("{(1 | .): 2}", "null"), "{\"1\":2}\n");
    }

    #[test]
    fn error_does_not_repeat_a_whole_document() {
        let document = json!({"text": "x".repeat(16_000)}).to_string();
        let error = query(". + 1", &document, json!({})).unwrap_err();
        assert!(
            error.message().len() < 500 && error.message().contains("[...]"),
            "{error}"
        );
    }

    #[test]
    fn invalid_program_is_named_with_its_position() {
        let error = |program: &str| query(program, "1", json!({})).unwrap_err();
        assert_eq!(
            error(".a | foo(1)").message(),
            "`program`: at character 6: undefined filter `foo/1`"
        );
        assert_eq!(error(".a | (").kind(), ErrorKind::InvalidArguments);
        assert!(
            error(".[] |").message().contains("found the end"),
            "{}",
            error(".[] |")
        );
        assert!(error("$x").message().contains("undefined variable `$x`"));
    }

    #[test]
    fn program_error_names_document_and_output_count() {
        let error = query(".a", "{\"a\":1}\n[]", json!({})).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(
            error
                .message()
                .starts_with("document 2: cannot index [] with \"a\""),
            "{error}"
        );
        assert!(error.message().ends_with("(after 1 output)"), "{error}");
    }

    #[test]
    fn outputs_beyond_the_limit_are_announced() {
        let limited = |max: u32| query("range(3)", "null", json!({"max_outputs": max})).unwrap();
        assert_eq!(limited(3), "0\n1\n2\n");
        assert_eq!(limited(0), "[there are more outputs than these 0]\n");
        assert_eq!(limited(2), "0\n1\n[there are more outputs than these 2]\n");
        let endless = query("repeat(\"some words\")", "null", json!({"max_outputs": u32::MAX})).unwrap();
        assert!(endless.len() < MAX_TEXT + 100 && endless.contains("there are more outputs"));
        let long = answer("\"x\" * 300000", "null");
        assert!(
            long.ends_with("[100003 more bytes of this output are left out]\n"),
            "{}",
            &long[long.len() - 80..]
        );
    }

    #[test]
    fn file_can_be_queried_and_one_source_is_required() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "\u{feff}{\"a\": [1, 2]}").unwrap();
        let output = testing::call::<json_query>(json!({"program": ".a[1]", "path": file.path()})).unwrap();
        assert_eq!(output.to_text(), "2\n");
        assert!(testing::call::<json_query>(json!({"program": "."})).is_err());
    }
}
