//! Exports of a component: definitions in the order of the export, calls by name, errors by kind.

#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use toolcell_sdk::__private::{Entry, definitions, run};
use toolcell_sdk::generated::tool::exports::toolcell::tool::tools::{
    Call, Output as WireOutput, ToolError as WireError,
};
use toolcell_sdk::generated::tool::toolcell::tool::types::{Content as WireContent, Hints as WireHints};
use toolcell_sdk::{Context, Output, Result, ToolError, tool};

/// Fails as instructed.
#[tool(read_only, open_world)]
fn fail(how: &str) -> Result<String> {
    match how {
        "invalid" => Err(ToolError::invalid("i")),
        "denied" => Err(ToolError::denied("d")),
        "unavailable" => Err(ToolError::unavailable("u")),
        "failed" => Err(ToolError::failed("f")),
        "io" => Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied).into()),
        _ => Ok("no failure".into()),
    }
}

/// Returns the caller's context.
#[tool(title = "Caller", output = Vec<u8>)]
fn caller(context: &Context) -> Output {
    let locale: Option<String> = context.value("locale");
    Output::new()
        .text(format!(
            "{} {locale:?} {:?}",
            context.call_id(),
            context.value::<u8>("locale")
        ))
        .blob("image/png", [7])
        .link("https://a.example", "a")
}

const TOOLS: &[Entry] = &[Entry::of::<fail>(), Entry::of::<caller>()];

fn call(name: &str, arguments: &str) -> Result<WireOutput, WireError> {
    run(
        TOOLS,
        Call {
            id: "c1".into(),
            name: name.into(),
            arguments: arguments.into(),
            context: vec![("broken".into(), "{".into()), ("locale".into(), "\"de\"".into())],
        },
    )
}

#[test]
fn definitions_are_in_export_order_with_hints() {
    let all = definitions(TOOLS);
    assert_eq!(
        all.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(),
        ["fail", "caller"]
    );
    assert_eq!(all[0].hints, WireHints::READ_ONLY | WireHints::OPEN_WORLD);
    assert_eq!(all[0].title, None);
    assert_eq!(all[1].title.as_deref(), Some("Caller"));
    assert_eq!(all[1].hints, WireHints::empty());
    assert_eq!(
        all[0].input_schema,
        r#"{"additionalProperties":false,"properties":{"how":{"type":"string"}},"required":["how"],"type":"object"}"#
    );
}

#[test]
fn result_keeps_its_parts_and_invalid_context_is_ignored() {
    let output = call("caller", "{}").unwrap();
    let [
        WireContent::Text(text),
        WireContent::Blob(blob),
        WireContent::Link(link),
    ] = output.content.as_slice()
    else {
        panic!("other parts: {}", output.content.len());
    };
    assert_eq!(text, "c1 Some(\"de\") None");
    assert_eq!(
        (blob.media_type.as_str(), blob.data.as_slice()),
        ("image/png", &[7][..])
    );
    assert_eq!(
        (link.uri.as_str(), link.name.as_str()),
        ("https://a.example", "a")
    );
}

#[test]
fn each_error_kind_maps_to_the_contract() {
    let error = |arguments: &str| call("fail", arguments).unwrap_err();
    assert!(matches!(error(r#"{"how":"invalid"}"#), WireError::InvalidArguments(text) if text == "i"));
    assert!(matches!(error(r#"{"how":"denied"}"#), WireError::Denied(text) if text == "d"));
    assert!(matches!(error(r#"{"how":"unavailable"}"#), WireError::Unavailable(text) if text == "u"));
    assert!(matches!(error(r#"{"how":"failed"}"#), WireError::Failed(text) if text == "f"));
    assert!(matches!(error(r#"{"how":"io"}"#), WireError::Denied(_)));
    assert!(matches!(error("{}"), WireError::InvalidArguments(text) if text == "`how` is missing"));
    assert!(matches!(error("[]"), WireError::InvalidArguments(_)));
}

#[test]
fn call_of_an_unknown_tool_names_it() {
    let error = call("nothing", "{}").unwrap_err();
    assert!(
        matches!(error, WireError::InvalidArguments(text) if text == "this component has no tool `nothing`")
    );
}
