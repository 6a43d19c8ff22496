//! Expansion of the attribute: names, schemas, decoding, results.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcell_sdk::{
    Content, Context, ErrorKind, Hints, Output, Result, ToolError, input, output, testing, tool,
};

/// Length of something.
#[input]
#[serde(rename_all = "snake_case")]
#[derive(Debug, PartialEq)]
enum Unit {
    Metre,
    Foot,
}

/// A place on the map.
#[input]
#[derive(Debug, PartialEq)]
struct Place {
    /// Degrees north.
    latitude: f64,
    /// Name for the user, in
    /// one line.
    name: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

/// A tree of names.
#[input]
struct Tree {
    name: String,
    #[serde(default)]
    below: Vec<Tree>,
}

/// Report with its number of copies.
#[output]
struct Report {
    /// Number of copies.
    count: u16,
    note: Option<String>,
}

/// Takes one of
/// everything.
///
/// - A list.
#[tool(name = "take-all", title = "Take it", destructive, idempotent, open_world)]
#[expect(clippy::too_many_arguments, reason = "one of everything")]
fn everything(
    /// Some text.
    text: String,
    flag: bool,
    small: u8,
    signed: Option<i32>,
    unit: Unit,
    place: Place,
    table: BTreeMap<String, u64>,
    #[default(vec![1, 2])]
    /// Numbers of the places.
    numbers: Vec<u16>,
    r#type: Option<Unit>,
    #[rename("the-last")] last: Option<Place>,
    any: Option<Value>,
) -> String {
    format!(
        "{text} {flag} {small} {signed:?} {unit:?} {place:?} {table:?} {numbers:?} {type:?} {last:?} {any:?}"
    )
}

/// Counts the copies.
#[tool(read_only)]
fn report(count: u16) -> std::result::Result<Report, std::num::TryFromIntError> {
    u8::try_from(count)?;
    Ok(Report { count, note: None })
}

/// Has all arguments in one type.
#[tool]
fn in_one(context: &Context, #[arguments] place: Place) -> String {
    format!("{} {}", context.call_id(), place.latitude)
}

/// Borrows its argument.
#[tool]
fn shout(text: &str) -> String {
    text.to_uppercase()
}

/// Goes down.
#[tool]
fn depth(tree: Tree) -> usize {
    1 + tree.below.into_iter().map(depth).max().unwrap_or(0)
}

/// Does nothing.
#[tool]
fn nothing() {}

/// Answers in parts.
#[tool(output = Report)]
fn parts(fail: bool) -> Result<Output> {
    if fail {
        return Err(ToolError::denied("not today"));
    }
    Output::new()
        .text("a")
        .blob("image/png", [1, 2])
        .link("https://a.example", "a")
        .structured(&Report {
            count: 1,
            note: Some("n".into()),
        })
}

fn everything_required() -> Value {
    json!({
        "text": "t", "flag": true, "small": 255, "unit": "foot", "place": {"latitude": 1.5}, "table": {"a": 1},
    })
}

#[test]
fn definition_comes_from_attribute_and_docs() {
    let definition = testing::definition::<everything>();
    assert_eq!(definition.name, "take-all");
    assert_eq!(definition.title, Some("Take it"));
    assert_eq!(definition.description, "Takes one of everything.\n\n- A list.");
    assert_eq!(
        definition.hints,
        Hints {
            read_only: false,
            destructive: true,
            idempotent: true,
            open_world: true
        }
    );
    assert_eq!(definition, testing::definition::<everything>());
}

#[test]
fn schema_matches_the_types() {
    let place = json!({
        "type": "object",
        "description": "A place on the map.",
        "properties": {
            "latitude": {"type": "number", "description": "Degrees north."},
            "name": {"type": "string", "description": "Name for the user, in one line."},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["latitude"],
        "additionalProperties": false,
    });
    let unit = json!({"type": "string", "enum": ["metre", "foot"], "description": "Length of something."});
    assert_eq!(
        testing::definition::<everything>().input_schema,
        json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "Some text."},
                "flag": {"type": "boolean"},
                "small": {"type": "integer", "minimum": 0, "maximum": 255},
                "signed": {"type": "integer", "minimum": -2_147_483_648_i64, "maximum": 2_147_483_647},
                "unit": unit,
                "place": place,
                "table": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
                "numbers": {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0, "maximum": 65535},
                    "default": [1, 2],
                    "description": "Numbers of the places.",
                },
                "type": unit,
                "the-last": place,
                "any": {},
            },
            "required": ["text", "flag", "small", "unit", "place", "table"],
            "additionalProperties": false,
        })
    );
}

#[test]
fn schemas_are_valid_and_agree_with_decoding() {
    let schema = testing::definition::<everything>().input_schema;
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let with = |name: &str, value: Value| {
        let mut arguments = everything_required();
        arguments[name] = value;
        arguments
    };
    for (arguments, fits) in [
        (everything_required(), true),
        (with("signed", json!(-5)), true),
        (with("small", json!(256)), false),
        (with("small", json!(-1)), false),
        (with("unit", json!("mile")), false),
        (with("place", json!({"name": "x"})), false),
        (with("table", json!({"a": -1})), false),
        (with("unknown", json!(1)), false),
        (json!({}), false),
    ] {
        assert_eq!(validator.is_valid(&arguments), fits, "{arguments}");
        let decoded = testing::call::<everything>(arguments.clone());
        assert_eq!(decoded.is_ok(), fits, "{arguments}: {decoded:?}");
        if let Err(error) = decoded {
            assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        }
    }
}

#[test]
fn missing_arguments_have_defaults() {
    let text = testing::call::<everything>(everything_required())
        .unwrap()
        .to_text();
    assert_eq!(
        text,
        "t true 255 None Foot Place { latitude: 1.5, name: None, tags: [] } {\"a\": 1} [1, 2] None None None"
    );
}

#[test]
fn invalid_argument_is_named_with_its_path() {
    let mut arguments = everything_required();
    arguments["place"]["tags"] = json!(["a", 7]);
    let error = testing::call::<everything>(arguments).unwrap_err();
    assert_eq!(
        error.message(),
        "`place.tags[1]`: invalid type: integer `7`, expected a string"
    );
}

#[test]
fn structure_is_text_and_structured_output_with_schema() {
    let output = testing::call::<report>(json!({"count": 7})).unwrap();
    assert_eq!(output.to_text(), r#"{"count":7,"note":null}"#);
    assert_eq!(output.structured, Some(json!({"count": 7, "note": null})));
    let schema = testing::definition::<report>().output_schema.unwrap();
    assert!(
        jsonschema::draft202012::is_valid(&schema, output.structured.as_ref().unwrap()),
        "{schema}"
    );
    assert_eq!(schema["properties"]["count"]["maximum"], 65535);
}

/// Copies files.
#[tool]
fn copy(
    #[format("path")] origin: &str,
    #[format("path")] into: Option<String>,
    #[format("path")] more: Option<Vec<String>>,
    #[format("path")]
    #[default(".".into())]
    below: String,
    how: Copying,
) -> String {
    format!("{origin} {into:?} {more:?} {below} {how:?}")
}

/// Options of a copy.
#[input]
#[derive(Debug)]
struct Copying {
    /// A place for what is replaced.
    #[format("path")]
    attic: Option<String>,
    #[format("path")]
    others: Vec<String>,
    /// No path.
    label: String,
}

#[test]
fn marked_arguments_and_fields_are_paths() {
    let schema = testing::definition::<copy>().input_schema;
    let path = json!({ "type": "string", "format": "path" });
    let properties = &schema["properties"];
    assert_eq!(properties["origin"], path);
    assert_eq!(properties["into"], path);
    assert_eq!(properties["more"]["items"], path);
    assert_eq!(properties["below"]["format"], "path");
    let how = &properties["how"]["properties"];
    assert_eq!(how["attic"]["format"], "path");
    assert_eq!(how["attic"]["description"], "A place for what is replaced.");
    assert_eq!(how["others"]["items"], path);
    assert_eq!(how["label"].get("format"), None);
    let how = json!({ "others": ["c"], "label": "x" });
    let output = testing::call::<copy>(json!({ "origin": "a", "into": "b", "how": how })).unwrap();
    assert!(output.to_text().starts_with("a Some(\"b\") None . Copying"));
}

#[test]
fn any_error_converts_to_a_tool_failure() {
    let error = testing::call::<report>(json!({"count": 256})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.message(), "out of range integral type conversion attempted");
}

#[test]
fn one_type_can_hold_all_arguments() {
    let schema = testing::definition::<in_one>().input_schema;
    assert_eq!(
        (&schema["type"], &schema["required"]),
        (&json!("object"), &json!(["latitude"]))
    );
    assert_eq!(schema["additionalProperties"], false);
    let context = Context::new("call-1", []);
    let output = testing::call_in::<in_one>(&context, json!({"latitude": 2})).unwrap();
    assert_eq!(output.to_text(), "call-1 2");
    let error = testing::call::<in_one>(json!({"latitude": "x"})).unwrap_err();
    assert_eq!(
        error.message(),
        "`latitude`: invalid type: string \"x\", expected f64"
    );
}

#[test]
fn recursive_type_uses_a_reference() {
    let schema = testing::definition::<depth>().input_schema;
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let tree = json!({"tree": {"name": "a", "below": [{"name": "b", "below": [{"name": "c"}]}]}});
    assert!(validator.is_valid(&tree), "{schema}");
    assert!(
        !validator.is_valid(&json!({"tree": {"name": "a", "below": [{"nam": "b"}]}})),
        "{schema}"
    );
    assert_eq!(testing::call::<depth>(tree).unwrap().to_text(), "3");
}

#[test]
fn tool_may_borrow_text_and_return_unit() {
    assert_eq!(
        testing::call::<shout>(json!({"text": "a"})).unwrap().to_text(),
        "A"
    );
    assert_eq!(testing::call::<nothing>(json!({})).unwrap().to_text(), "Done.");
    assert_eq!(
        testing::definition::<nothing>().input_schema,
        json!({"type": "object", "properties": {}, "additionalProperties": false})
    );
}

#[test]
fn output_has_parts_and_the_declared_schema() {
    let output = testing::call::<parts>(json!({"fail": false})).unwrap();
    assert_eq!(output.content.len(), 3);
    assert_eq!(output.content[0], Content::Text("a".into()));
    assert_eq!(output.structured, Some(json!({"count": 1, "note": "n"})));
    assert!(testing::definition::<parts>().output_schema.is_some());
    let error = testing::call::<parts>(json!({"fail": true})).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Denied, "not today"));
}

#[test]
fn tool_remains_a_plain_function() {
    assert_eq!(shout("b"), "B");
}

#[test]
fn logs_are_kept_for_tests() {
    toolcell_sdk::log::warn("careful");
    assert_eq!(
        testing::logs(),
        [(toolcell_sdk::log::Level::Warn, "careful".to_owned())]
    );
    assert_eq!(testing::logs(), []);
}

/// Fails with a text.
#[tool]
fn fails_with_text() -> Result<String, String> {
    Err("no luck".into())
}

/// Fails with a borrowed text.
#[tool]
fn fails_with_str() -> Result<(), &'static str> {
    Err("no luck")
}

/// Fails with an error like that of `anyhow`.
#[tool]
fn fails_with_box() -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied).into())
}

/// Fails with an error that stays on its thread.
#[tool]
fn fails_with_local_box() -> Result<String, Box<dyn std::error::Error>> {
    Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied).into())
}

/// Fails with an error of the standard library.
#[tool]
fn fails_with_std() -> Result<u8, std::num::ParseIntError> {
    "x".parse()
}

#[test]
fn error_types_without_the_error_trait_are_converted() {
    let failed = |answer: toolcell_sdk::Result<Output>| {
        let error = answer.unwrap_err();
        (error.kind(), error.message().to_owned())
    };
    let no_luck = (ErrorKind::Failed, "no luck".to_owned());
    assert_eq!(failed(testing::call::<fails_with_text>(json!({}))), no_luck);
    assert_eq!(failed(testing::call::<fails_with_str>(json!({}))), no_luck);
    assert_eq!(
        failed(testing::call::<fails_with_box>(json!({}))).0,
        ErrorKind::Denied
    );
    assert_eq!(
        failed(testing::call::<fails_with_local_box>(json!({}))).0,
        ErrorKind::Denied
    );
    assert!(
        failed(testing::call::<fails_with_std>(json!({})))
            .1
            .contains("invalid digit")
    );
}

/// A point.
#[output]
#[derive(Debug, PartialEq)]
struct Point {
    x: i32,
    tags: Vec<String>,
}

/// A point with a borrowed name, which can only be written.
#[output]
struct Named<'a> {
    name: &'a str,
}

#[test]
fn output_that_borrows_nothing_can_be_read() {
    let point = Point {
        x: 1,
        tags: vec!["a".into()],
    };
    let value = serde_json::to_value(&point).unwrap();
    assert_eq!(serde_json::from_value::<Point>(value).unwrap(), point);
    assert_eq!(
        serde_json::to_value(Named { name: "a" }).unwrap(),
        json!({"name": "a"})
    );
}

/// Waits, and adds.
#[tool]
async fn add_later(
    #[alias("a", "first")] x: u32,
    #[alias("b")]
    #[default(1)]
    y: u32,
) -> Result<String> {
    std::future::ready(()).await;
    if x == 0 {
        return Err(ToolError::invalid("`x` is zero"));
    }
    Ok((x + y).to_string())
}

#[test]
fn async_function_is_a_tool() {
    let answer = testing::call::<add_later>(json!({"x": 2, "y": 3})).unwrap();
    assert_eq!(answer.to_text(), "5");
    let error = testing::call::<add_later>(json!({"x": 0})).unwrap_err();
    assert_eq!(error.message(), "`x` is zero");
}

#[test]
fn aliases_are_in_the_definition_and_not_in_the_schema() {
    let definition = testing::definition::<add_later>();
    assert_eq!(definition.aliases, [("a", "x"), ("first", "x"), ("b", "y")]);
    let schema = definition.input_schema;
    let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["x", "y"]);
    assert_eq!(schema["additionalProperties"], json!(false));
    // Only the host replaces them: a tool never takes a name that no rule was asked about.
    let error = testing::call::<add_later>(json!({"a": 2})).unwrap_err();
    assert_eq!(error.message(), "`x` is missing");
}
