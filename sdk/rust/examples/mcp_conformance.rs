//! Tools, resources and prompts of the MCP conformance suite, with the names and results that its scenarios expect.
//!
//! `tests/mcp-conformance` serves them and runs the suite against the server.

use std::thread::sleep;
use std::time::Duration;

use toolcell_sdk::prompts::{self, Argument, Message, Prompt, Prompts};
use toolcell_sdk::resources::{Resource, Resources, Template};
use toolcell_sdk::{
    Arguments, Content, Context, Definition, Hints, Output, Result, Tool, ToolError, log, progress,
    serde_json::json, tool,
};

/// PNG picture of one red pixel.
const RED_PIXEL: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\
    \0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

/// WAV sound without samples.
const SILENCE: &[u8] =
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0D\xac\0\0\x88X\x01\0\x02\0\x10\0data\0\0\0\0";

/// Time between the messages of a call: long enough for a client to tell them apart.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns text.
#[tool(read_only)]
fn test_simple_text() -> String {
    "This is a simple text response for testing.".into()
}

/// Returns a picture.
#[tool(read_only)]
fn test_image_content() -> Output {
    Output::new().blob("image/png", RED_PIXEL)
}

/// Returns a sound.
#[tool(read_only)]
fn test_audio_content() -> Output {
    Output::new().blob("audio/wav", SILENCE)
}

/// Returns a resource within the result.
#[tool(read_only)]
fn test_embedded_resource() -> Output {
    Output::new().blob("text/plain", *b"This is an embedded resource content.")
}

/// Returns text, a picture and a resource.
#[tool(read_only)]
fn test_multiple_content_types() -> Output {
    Output::new()
        .text("Multiple content types test:")
        .blob("image/png", RED_PIXEL)
        .blob("application/json", *br#"{"test":"data","value":123}"#)
}

/// Fails.
#[tool(read_only)]
fn test_error_handling() -> Result<String> {
    Err(ToolError::failed(
        "This tool intentionally returns an error for testing",
    ))
}

/// Sends log messages.
#[tool(read_only)]
fn test_tool_with_logging() -> String {
    log::info("Tool execution started");
    sleep(PAUSE);
    log::info("Tool processing data");
    sleep(PAUSE);
    log::info("Tool execution completed");
    "Three messages were logged.".into()
}

/// Sends a log message.
#[tool(read_only)]
fn test_logging_tool() -> String {
    log::info("This message is sent only to a client that asked for it.");
    "A message was logged.".into()
}

/// Reports progress.
#[tool(read_only)]
fn test_tool_with_progress() -> String {
    for done in [0, 50, 100] {
        progress::report(done, 100);
        sleep(PAUSE);
    }
    "Progress was reported three times.".into()
}

/// Has a schema with keywords of JSON Schema 2020-12.
#[allow(non_camel_case_types, reason = "name of the tool")]
struct json_schema_2020_12_tool;

impl Tool for json_schema_2020_12_tool {
    const NAME: &'static str = "json_schema_2020_12_tool";

    fn definition() -> Definition {
        Definition {
            name: Self::NAME,
            title: None,
            description: "Has a schema with keywords of JSON Schema 2020-12.".into(),
            input_schema: json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": { "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
                }},
                "properties": {
                    "name": { "type": "string" },
                    "address": { "$ref": "#/$defs/address" },
                    "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                    "phone": { "type": "string" },
                    "email": { "type": "string" },
                },
                "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
                "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
                "then": { "required": ["phone"] },
                "else": { "required": ["email"] },
                "additionalProperties": false,
            }),
            output_schema: None,
            hints: Hints::default(),
            aliases: &[],
        }
    }

    fn call(_: Arguments, _: &Context) -> Result<Output, ToolError> {
        Ok(Output::new().text("The arguments fit."))
    }
}

/// Has a parameter that clients repeat in a header.
#[allow(non_camel_case_types, reason = "name of the tool")]
struct test_x_mcp_header;

impl Tool for test_x_mcp_header {
    const NAME: &'static str = "test_x_mcp_header";

    fn definition() -> Definition {
        Definition {
            name: Self::NAME,
            title: None,
            description: "Has a parameter that clients repeat in a header.".into(),
            input_schema: json!({
                "type": "object",
                "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
                "required": ["region"],
            }),
            output_schema: None,
            hints: Hints::default(),
            aliases: &[],
        }
    }

    fn call(mut arguments: Arguments, _: &Context) -> Result<Output, ToolError> {
        let region: String = arguments.take("region")?;
        arguments.finish()?;
        Ok(Output::new().text(format!("The region is {region}.")))
    }
}

toolcell_sdk::export!(
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    json_schema_2020_12_tool,
    test_x_mcp_header,
);

struct Fixtures;

impl Resources for Fixtures {
    fn list() -> Vec<Resource> {
        vec![
            Resource::new("test://static-text", "static-text")
                .description("A text.")
                .media_type("text/plain"),
            Resource::new("test://static-binary", "static-binary")
                .description("A picture.")
                .media_type("image/png"),
            Resource::new("test://watched-resource", "watched-resource")
                .description("A text that clients follow.")
                .media_type("text/plain"),
        ]
    }

    fn templates() -> Vec<Template> {
        let template = Template::new("test://template/{id}/data", "template")
            .description("Data of an identifier.")
            .media_type("application/json");
        vec![template.values("id", ["123", "124", "200"])]
    }

    fn read(uri: &str, _: &Context) -> Result<Output> {
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        match (uri, id) {
            ("test://static-text", _) => {
                Ok(Output::new().text("This is the content of the static text resource."))
            }
            ("test://watched-resource", _) => {
                Ok(Output::new().text("This is the content of the watched resource."))
            }
            ("test://static-binary", _) => Ok(Output::new().blob("image/png", RED_PIXEL)),
            (_, Some("0")) => Err(ToolError::invalid("there is no such identifier")),
            (_, Some(id)) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                Ok(Output::new().text(data.to_string()))
            }
            _ => Err(ToolError::invalid("there is no such resource")),
        }
    }
}

impl Prompts for Fixtures {
    fn list() -> Vec<Prompt> {
        let prompt = |name, description: &str| Prompt::new(name).description(description);
        vec![
            prompt("test_simple_prompt", "Has no arguments."),
            prompt("test_prompt_with_arguments", "Has two arguments.")
                .argument(Argument::new("arg1").required())
                .argument(Argument::new("arg2").required()),
            prompt("test_prompt_with_embedded_resource", "Contains a resource.")
                .argument(Argument::new("resourceUri").required()),
            prompt("test_prompt_with_image", "Contains a picture."),
            prompt("test_prompt_with_values", "Has an argument with values.")
                .argument(Argument::new("style").values(["brief", "broad", "thorough"])),
        ]
    }

    fn get(name: &str, arguments: &prompts::Arguments, _: &Context) -> Result<Vec<Message>> {
        let of = |name: &str| arguments.get(name).map_or("", String::as_str);
        let blob = |media_type: &str, data: &[u8]| {
            Message::user(Content::Blob {
                media_type: media_type.into(),
                data: data.into(),
            })
        };
        Ok(match name {
            "test_prompt_with_arguments" => vec![Message::user(format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                of("arg1"),
                of("arg2")
            ))],
            "test_prompt_with_embedded_resource" => vec![
                blob("text/plain", b"Embedded resource content for testing."),
                Message::user(format!(
                    "Please process the embedded resource above, {}.",
                    of("resourceUri")
                )),
            ],
            "test_prompt_with_image" => vec![
                blob("image/png", RED_PIXEL),
                Message::user("Please analyze the image above."),
            ],
            "test_prompt_with_values" => vec![
                Message::user(format!("Be {}.", of("style"))),
                Message::assistant("I will."),
            ],
            _ => vec![Message::user("This is a simple prompt for testing.")],
        })
    }
}

toolcell_sdk::export_resources!(Fixtures);
toolcell_sdk::export_prompts!(Fixtures);
