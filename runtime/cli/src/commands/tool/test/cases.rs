//! Files of test cases: arguments of a call, what it finds, and what it must answer.
//!
//! A file of cases belongs to the author of a tool, who may be a stranger. Nothing in it reaches beyond the test: grants of
//! files are below the planted directory, variables have the value that the case states, and requests reach planted answers
//! alone.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};
use toolcell_core::Grant;
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, depth_of, kind_of, parse_nested};
use toolcell_core::suggest::nearest;
use toolcell_fs::Rules;
use url::Url;

use crate::config::limits::{FlagLimit, NamedLimit};
use crate::config::user_files;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Own, text};

/// Maximum size of a file of cases, in bytes: planted files are part of it.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// Maximum number of cases of one run. Each takes milliseconds.
pub(super) const MAX_CASES: usize = 2_000;

/// Maximum number of files in a directory of cases.
pub(super) const MAX_FILES: usize = 200;

/// Maximum number of planted files, and of planted answers, of one case.
pub(super) const MAX_PLANTED: usize = 200;

/// Maximum length of a name, in characters, so that it fits on a few lines.
const MAX_NAME: usize = 200;

/// Levels of a file around the arguments of a case: the file, the list, the case.
const OUTER_LEVELS: usize = 3;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// Maximum number of patterns of all cases. All are compiled before the first case runs.
pub(super) const MAX_PATTERNS: usize = 500;

/// Errors that a case can expect, as [`toolcell_core::ToolError::kind`] names them.
const ERRORS: [&str; 6] = [
    "invalid_arguments",
    "denied",
    "unavailable",
    "failed",
    "limit",
    "crashed",
];

/// Cases of one run, of all files.
#[derive(Debug, Default)]
pub(super) struct Cases {
    /// Tools whose answers to equal calls may differ.
    pub(super) varying: Vec<String>,
    /// Cases in the order of the files.
    pub(super) cases: Vec<Case>,
}

/// One case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    /// Name of the tool; `None` means the only one.
    pub(super) tool: Option<String>,
    pub(super) arguments: Map<String, Value>,
    pub(super) expected: Expected,
    pub(super) grants: Vec<Grant>,
    pub(super) limits: Vec<NamedLimit>,
    /// Contents of planted files, by path below the planted directory.
    pub(super) files: BTreeMap<PathBuf, String>,
    pub(super) answers: Vec<PlantedAnswer>,
}

/// Expected outcome of a case. Everything that is set must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// The structured result, or the text.
    pub(super) result: Option<Value>,
    /// Pattern that the text of the result, or the message of the error, contains.
    pub(super) pattern: Option<Regex>,
    /// Kind of the error; `None` means that the call must succeed.
    pub(super) error: Option<&'static str>,
    /// Contents of files after the call.
    pub(super) files: BTreeMap<PathBuf, String>,
}

/// An answer to requests of one URL.
#[derive(Debug, Clone)]
pub(super) struct PlantedAnswer {
    /// Method; `None` means any.
    pub(super) method: Option<String>,
    pub(super) url: Url,
    /// Pattern that the body of the request contains.
    pub(super) request_body: Option<Regex>,
    pub(super) status: u16,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: String,
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    #[serde(default)]
    varying: Vec<String>,
    #[serde(default, rename = "case")]
    cases: Vec<CaseTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    name: String,
    tool: Option<String>,
    #[serde(default)]
    arguments: Map<String, Value>,
    result: Option<Value>,
    pattern: Option<String>,
    error: Option<String>,
    #[serde(default)]
    grants: Vec<String>,
    #[serde(default)]
    limits: BTreeMap<String, Value>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    files_after: BTreeMap<String, String>,
    #[serde(default)]
    http: Vec<AnswerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerTable {
    method: Option<String>,
    url: String,
    request_body: Option<String>,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    json: Option<Value>,
}

impl CaseTable {
    /// Number of its patterns.
    fn patterns(&self) -> usize {
        let answers = self.http.iter().filter(|answer| answer.request_body.is_some());
        usize::from(self.pattern.is_some()) + answers.count()
    }
}

fn ok() -> u16 {
    200
}

/// Reads the cases of a file, or of all files of a directory that end in `.toml` or `.json`, by name.
///
/// # Errors
/// Returns an error with file, case and reason.
pub(super) fn read(path: &Path, environment: &Environment) -> Result<Cases, Failure> {
    let mut all = Cases::default();
    let mut patterns = 0;
    for file in files(path, environment)? {
        let fail = || unusable(&file, environment);
        let text = toolcell_fs::read_text(&file, &Rules::named(MAX_BYTES))
            .map_err(|error| user_files::because(fail(), error))?;
        let read = parse(&text, is_json(&file)).map_err(|why| fail().why(why).hint(HINT))?;
        all.varying.extend(read.varying);
        patterns += read.cases.iter().map(CaseTable::patterns).sum::<usize>();
        let too_many = [
            (all.cases.len() + read.cases.len(), MAX_CASES, "cases"),
            (patterns, MAX_PATTERNS, "patterns"),
        ];
        if let Some((_, most, what)) = too_many.iter().find(|(count, most, _)| count > most) {
            return Err(fail()
                .why(text!("there are more than {} {}", *most, Own(what)))
                .hint("test a part of them: --cases FILE"));
        }
        for table in read.cases {
            let name = table.name.clone();
            let case = case(table).map_err(|why| fail().why(text!("in the case `{}`: {}", name, why)))?;
            if all.cases.iter().any(|other| other.name == case.name) {
                return Err(fail().why(text!("two cases are called `{}`", name)));
            }
            all.cases.push(case);
        }
    }
    Ok(all)
}

/// Hint for a file that is not a file of cases.
const HINT: &str = "the page \"Testing tools\" of the guide has an example";

fn unusable(file: &Path, environment: &Environment) -> Failure {
    let shown = environment.shown(file);
    Failure::new(Exit::Usage, text!("the cases in `{}` cannot be used", shown))
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "json")
}

/// The files of a path, in order.
pub(super) fn files(path: &Path, environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = || unusable(path, environment);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| fail().because(error))? {
        let file = entry.map_err(|error| fail().because(error))?.path();
        if is_json(&file) || file.extension().is_some_and(|ending| ending == "toml") {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(fail().why(text!("there are more than {} files", MAX_FILES)));
        }
    }
    if files.is_empty() {
        return Err(fail().why("no file in it ends in `.toml` or `.json`"));
    }
    files.sort();
    Ok(files)
}

fn parse(text: &str, is_json: bool) -> Result<CaseFile, String> {
    let depth = MAX_ARGUMENT_DEPTH + OUTER_LEVELS;
    if is_json {
        let value = parse_nested(text, depth).map_err(|error| error.to_string())?;
        return serde_json::from_value(value).map_err(|error| error.to_string());
    }
    toml::from_str(text).map_err(|error| error.to_string())
}

/// Checks a case.
fn case(table: CaseTable) -> Result<Case, String> {
    if table.name.trim().is_empty() || table.name.chars().count() > MAX_NAME {
        return Err(format!("a name has 1 to {MAX_NAME} characters"));
    }
    if table
        .files
        .len()
        .max(table.http.len())
        .max(table.files_after.len())
        > MAX_PLANTED
    {
        return Err(format!(
            "there are more than {MAX_PLANTED} planted files or answers"
        ));
    }
    check_value(&Value::Object(table.arguments.clone()))?;
    let error = table.error.as_deref().map(error_kind).transpose()?;
    if error.is_some() && table.result.is_some() {
        return Err("it expects a result and an error; for the message of the error use `pattern`".into());
    }
    if let Some(result) = &table.result {
        check_value(result)?;
    }
    Ok(Case {
        name: table.name,
        tool: table.tool,
        arguments: table.arguments,
        expected: Expected {
            result: table.result,
            pattern: table.pattern.as_deref().map(pattern).transpose()?,
            error,
            files: paths(table.files_after)?,
        },
        grants: table
            .grants
            .iter()
            .map(|line| grant(line))
            .collect::<Result<_, _>>()?,
        limits: table
            .limits
            .iter()
            .map(|(name, value)| limit(name, value))
            .collect::<Result<_, _>>()?,
        files: paths(table.files)?,
        answers: table.http.into_iter().map(answer).collect::<Result<_, _>>()?,
    })
}

/// Refuses values that JSON does not have: TOML has dates.
fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(members) if members.keys().any(|key| key.starts_with("$__toml_private")) => {
            Err("it has a date, which JSON does not have; write it as a text".into())
        }
        Value::Object(members) => members.values().try_for_each(check_value),
        Value::Array(items) => items.iter().try_for_each(check_value),
        _ if depth_of(value) > MAX_ARGUMENT_DEPTH => Err("it is nested too deeply".into()),
        _ => Ok(()),
    }
}

fn error_kind(name: &str) -> Result<&'static str, String> {
    ERRORS.into_iter().find(|known| *known == name).ok_or_else(|| {
        let name = name.escape_debug();
        match nearest(&name.to_string(), &ERRORS).first() {
            Some(near) => format!("there is no error `{name}`; did you mean `{near}`?"),
            None => format!("there is no error `{name}`; the errors are {}", ERRORS.join(", ")),
        }
    })
}

fn pattern(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(MAX_PATTERN_BYTES).build();
    built.map_err(|error| format!("a pattern cannot be used: {error}"))
}

/// Parses a grant, which reaches nothing but what the case plants.
fn grant(line: &str) -> Result<Grant, String> {
    let grant: Grant = line.parse().map_err(|error| format!("{error}"))?;
    match &grant {
        Grant::Dir { host, .. } | Grant::Deny { host } => {
            below(host).map_err(|why| format!("the grant `{}`: {why}", line.escape_debug()))?;
        }
        Grant::Env { name, value: None } => {
            let name = name.escape_debug();
            return Err(format!(
                "a case has no variables of yours: write the value, `env={name}=VALUE`"
            ));
        }
        _ => {}
    }
    Ok(grant)
}

/// Returns a path below the planted directory.
fn below(path: &str) -> Result<PathBuf, String> {
    let mut below = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => below.push(part),
            Component::CurDir => {}
            _ => return Err("paths are below the planted directory, such as `.` or `data`".into()),
        }
    }
    match path.is_empty() || path.starts_with('~') || path.contains('\0') {
        true => Err("paths are below the planted directory, such as `.` or `data`".into()),
        false => Ok(below),
    }
}

fn paths(files: BTreeMap<String, String>) -> Result<BTreeMap<PathBuf, String>, String> {
    let checked = files.into_iter().map(|(path, content)| {
        let below = below(&path).map_err(|why| format!("the file `{}`: {why}", path.escape_debug()))?;
        match below == Path::new("") {
            true => Err(format!("`{}` is not the name of a file", path.escape_debug())),
            false => Ok((below, content)),
        }
    });
    checked.collect()
}

fn limit(name: &str, value: &Value) -> Result<NamedLimit, String> {
    let value = match value {
        Value::String(value) => value.clone(),
        Value::Number(value) => value.to_string(),
        other => {
            return Err(format!(
                "the limit `{}` is {}",
                name.escape_debug(),
                kind_of(other)
            ));
        }
    };
    let limit: FlagLimit = format!("{name}={value}").parse()?;
    Ok(limit.limit)
}

fn answer(table: AnswerTable) -> Result<PlantedAnswer, String> {
    let shown = table.url.escape_debug().to_string();
    let fail = |why: &str| format!("the answer for `{shown}`: {why}");
    let mut url = Url::parse(&table.url).map_err(|error| fail(&error.to_string()))?;
    url.set_fragment(None);
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(fail("it is no address of HTTP"));
    }
    if !(200..=599).contains(&table.status) {
        return Err(fail("a status is from 200 to 599"));
    }
    let (body, media_type) = match (table.body, table.json) {
        (Some(_), Some(_)) => return Err(fail("it has both `body` and `json`")),
        (None, Some(json)) => (json.to_string(), Some("application/json")),
        (body, None) => (body.unwrap_or_default(), None),
    };
    let mut headers = Vec::new();
    if let Some(media_type) = media_type
        && !table
            .headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case("content-type"))
    {
        headers.push((hyper::header::CONTENT_TYPE, HeaderValue::from_static(media_type)));
    }
    for (name, value) in &table.headers {
        let name: HeaderName = name.parse().map_err(|_| fail("a header has no valid name"))?;
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE].contains(&name) {
            return Err(fail(
                "the host itself sets the headers of the connection and of the length",
            ));
        }
        let value: HeaderValue = value.parse().map_err(|_| fail("a header has no valid value"))?;
        headers.push((name, value));
    }
    Ok(PlantedAnswer {
        method: table.method.map(|method| method.to_uppercase()),
        url,
        request_body: table.request_body.as_deref().map(pattern).transpose()?,
        status: table.status,
        headers,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(toml: &str) -> Result<Case, String> {
        let mut file = parse(toml, false)?;
        case(file.cases.remove(0))
    }

    #[test]
    fn cases_of_toml_and_json_are_the_same() {
        let toml = r#"
            varying = ["now"]
            [[case]]
            name = "one"
            arguments = { text = "a", n = 3 }
            result = { words = 1 }
            grants = ["read=data", "env=LANG=de", "http=https://a.example"]
            limits = { fuel = "5M", handles = 7 }
            files = { "data/a.txt" = "x" }
            [[case.http]]
            url = "https://a.example/x"
            json = { ok = true }
        "#;
        let json = r#"{"varying": ["now"], "case": [{
            "name": "one", "arguments": {"text": "a", "n": 3}, "result": {"words": 1},
            "grants": ["read=data", "env=LANG=de", "http=https://a.example"],
            "limits": {"fuel": "5M", "handles": 7}, "files": {"data/a.txt": "x"},
            "http": [{"url": "https://a.example/x", "json": {"ok": true}}]
        }]}"#;
        let [toml, json] = [(toml, false), (json, true)].map(|(text, is_json)| {
            let mut file = parse(text, is_json).unwrap();
            assert_eq!(file.varying, ["now"]);
            case(file.cases.remove(0)).unwrap()
        });
        assert_eq!(format!("{toml:?}"), format!("{json:?}"));
        assert_eq!(toml.limits[0].value, 5_000_000);
        assert_eq!(toml.answers[0].body, r#"{"ok":true}"#);
    }

    #[test]
    fn case_reaches_nothing_beyond_what_it_plants() {
        for wrong in [
            "grants = [\"read=/etc\"]",
            "grants = [\"read=..\"]",
            "grants = [\"write=a/../..\"]",
            "grants = [\"read=~/.ssh\"]",
            "grants = [\"env=HOME\"]",
            "files = { \"../a\" = \"x\" }",
            "files = { \"/tmp/a\" = \"x\" }",
            "files = { \".\" = \"x\" }",
            "files_after = { \"/etc/passwd\" = \"x\" }",
        ] {
            assert!(
                one(&format!("[[case]]\nname = \"x\"\n{wrong}")).is_err(),
                "{wrong}"
            );
        }
        for right in [
            "grants = [\"read=.\"]",
            "grants = [\"write=./a/b:/c\", \"keyvalue=x\"]",
        ] {
            assert!(
                one(&format!("[[case]]\nname = \"x\"\n{right}")).is_ok(),
                "{right}"
            );
        }
    }

    #[test]
    fn invalid_case_is_refused_with_its_reason() {
        for (wrong, why) in [
            ("erorr = \"failed\"", "unknown field `erorr`"),
            ("error = \"faild\"", "did you mean `failed`?"),
            ("error = \"failed\"\nresult = 1", "a result and an error"),
            ("pattern = \"(\"", "a pattern cannot be used"),
            ("limits = { feul = 3 }", "did you mean `fuel`?"),
            ("limits = { fuel = true }", "is a boolean"),
            ("arguments = { day = 2020-01-01 }", "write it as a text"),
            ("http = [{ url = \"ftp://a\" }]", "no address of HTTP"),
            (
                "http = [{ url = \"https://a.example\", status = 101 }]",
                "200 to 599",
            ),
            (
                "http = [{ url = \"https://a.example\", headers = { \"a b\" = \"\" } }]",
                "valid name",
            ),
            (
                "http = [{ url = \"https://a.example\", headers = { Content-Length = \"1\" } }]",
                "host itself",
            ),
            (
                "http = [{ url = \"https://a.example\", body = \"\", json = 1 }]",
                "both",
            ),
        ] {
            let error = one(&format!("[[case]]\nname = \"x\"\n{wrong}")).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let named = |length: usize| one(&format!("[[case]]\nname = \"{}\"", "x".repeat(length)));
        assert!(named(0).is_err() && named(MAX_NAME).is_ok() && named(MAX_NAME + 1).is_err());
    }

    #[test]
    fn number_of_planted_files_is_limited() {
        let planting = |number: usize| {
            let files: Vec<String> = (0..number).map(|i| format!("f{i} = \"\"")).collect();
            one(&format!(
                "[[case]]\nname = \"x\"\nfiles = {{ {} }}",
                files.join(", ")
            ))
        };
        assert!(planting(MAX_PLANTED).is_ok() && planting(MAX_PLANTED + 1).is_err());
    }

    #[test]
    fn directory_of_cases_is_read_in_order_and_limited() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        assert!(read(dir.path(), &environment).is_err());
        for (file, name) in [("b.json", "second"), ("a.toml", "first"), ("c.txt", "third")] {
            let text = match file {
                "b.json" => format!("{{\"case\": [{{\"name\": \"{name}\"}}]}}"),
                _ => format!("[[case]]\nname = \"{name}\"\n"),
            };
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let names = |cases: Cases| cases.cases.into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(
            names(read(dir.path(), &environment).unwrap()),
            ["first", "second"]
        );
        std::fs::write(dir.path().join("d.toml"), "[[case]]\nname = \"first\"\n").unwrap();
        let twice = read(dir.path(), &environment).unwrap_err().to_string();
        assert!(twice.contains("two cases are called `first`"), "{twice}");
    }

    #[test]
    fn number_of_cases_is_limited() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let file = dir.path().join("cases.toml");
        let with = |number: usize| {
            let cases: String = (0..number)
                .map(|i| format!("[[case]]\nname = \"{i}\"\n"))
                .collect();
            std::fs::write(&file, cases).unwrap();
            read(&file, &environment)
        };
        assert_eq!(with(MAX_CASES).unwrap().cases.len(), MAX_CASES);
        assert!(with(MAX_CASES + 1).is_err());
    }

    #[test]
    fn number_of_patterns_is_limited_before_they_are_compiled() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let file = dir.path().join("cases.toml");
        let with = |patterns: usize, pattern: &str| {
            let answer = format!("[[case.http]]\nurl = \"https://x.test/\"\nrequest_body = '{pattern}'\n");
            let cases: String = (0..patterns / 2)
                .map(|i| format!("[[case]]\nname = \"{i}\"\npattern = '{pattern}'\n{answer}"))
                .collect();
            std::fs::write(&file, cases).unwrap();
            read(&file, &environment)
        };
        assert!(with(MAX_PATTERNS, "a").is_ok());
        let refused = with(MAX_PATTERNS + 2, "(").unwrap_err().to_string();
        assert!(refused.contains("more than 500 patterns"), "{refused}");
        let refused = with(2, r"\w{100}").unwrap_err().to_string();
        assert!(refused.contains("a pattern cannot be used"), "{refused}");
    }
}
