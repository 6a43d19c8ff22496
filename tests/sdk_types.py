#!/usr/bin/env python3
"""Validates what the providers send against the request types of the official Python SDKs.

    python3 tests/sdk_types.py

Installs the SDKs below into a virtual environment (target/sdk-types), runs the tests of the wires, each of whose requests
goes into a file, and checks every body with the SDK's own types: fields that the SDK does not know, values of another type
and fields that are missing are errors. Needs the internet once, so it is no part of `cargo test`.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

SDKS = ["openai==3.54.0", "anthropic==2.12.0", "google-genai==3.4.0", "ollama==0.6.3"]

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "sdk-types"


def enter_environment():
    """Re-executes with the Python of the virtual environment, creating it if missing."""
    python = PLACE / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == PLACE.resolve():
        return
    if not python.exists():
        venv.create(PLACE, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *SDKS], check=True)
    os.execv(python, [str(python), *sys.argv])


def requests():
    """Returns path and body of every request of the provider tests."""
    with tempfile.TemporaryDirectory() as bodies:
        command = [os.environ.get("CARGO", "cargo"), "test", "--quiet", "-p", "toolcell-providers", "--test", "wires"]
        environment = {**os.environ, "WIRE_BODIES": bodies}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        for file in sorted(pathlib.Path(bodies).iterdir()):
            kept = json.loads(file.read_text())
            yield kept["line"].split()[1], kept["body"]


def strict(kind):
    """Returns a validator of a typed dictionary that rejects unknown fields at every level."""
    import pydantic

    adapter = pydantic.TypeAdapter(kind)
    return lambda body: exhaust(adapter.validate_python(body))


def exhaust(value):
    """Consumes the value: members of an `Iterable` are validated when read."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return
    for member in value:
        exhaust(member)


def forbid_unknown_fields(package):
    """Typed dictionaries allow unknown fields by default; a dictionary with its own setting keeps it."""
    import typing_extensions

    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package) and module]
    for module in modules:
        for kind in list(vars(module).values()):
            if typing_extensions.is_typeddict(kind) and not hasattr(kind, "__pydantic_config__"):
                kind.__pydantic_config__ = {"extra": "forbid"}


# Fields of other Chat Completions servers (DeepSeek, OpenRouter, vLLM). They are returned only to the server they came from,
# and are unknown to the SDK of OpenAI.
OF_COMPATIBLE_SERVERS = {"reasoning_content", "reasoning", "reasoning_details"}


def chat(check):
    def without_extensions(body):
        messages = [
            {name: value for name, value in message.items() if name not in OF_COMPATIBLE_SERVERS}
            for message in body["messages"]
        ]
        check({**body, "messages": messages})

    return without_extensions


def anthropic(check):
    """Blocks of an answer may be returned as the SDK's own models, which allow unknown fields; ours are plain."""
    from anthropic.types import ContentBlockParam

    block = strict(ContentBlockParam)

    def with_blocks(body):
        # Only earlier models have these; the SDK removed them.
        check({name: value for name, value in body.items() if name not in {"temperature", "top_p"}})
        for message in body["messages"]:
            for part in message["content"] if isinstance(message["content"], list) else []:
                block(part)

    return with_blocks


def gemini(body):
    """The SDK builds its bodies from these models, with fields in camel case."""
    from google.genai import types

    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    unknown = set(body) - known
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(sorted(unknown))}")
    for content in body["contents"]:
        types.Content.model_validate(content)
    if "systemInstruction" in body:
        types.Content.model_validate(body["systemInstruction"])
    for tool in body.get("tools", []):
        types.Tool.model_validate(tool)
    if "toolConfig" in body:
        types.ToolConfig.model_validate(body["toolConfig"])
    if "generationConfig" in body:
        types.GenerationConfig.model_validate(body["generationConfig"])


# Fields that the server accepts (`api/types.go`: `Message.ToolCallID`, `ToolCall.ID`, `ToolCallFunction.Index`,
# `ChatRequest.Truncate`, `ChatRequest.Shift`) and the SDK does not have.
OF_OLLAMA_SERVER = {"tool_call_id", "id", "index", "truncate", "shift"}


def ollama(body):
    """The SDK's models allow unknown fields, so the parsed value must equal the input."""
    from ollama._types import ChatRequest, Message

    def lost(sent, kept, path):
        if isinstance(sent, dict):
            for name, value in sent.items():
                if name in OF_OLLAMA_SERVER or name == "images":
                    continue
                if not isinstance(kept, dict) or name not in kept:
                    raise ValueError(f"unknown field: {path}/{name}")
                lost(value, kept[name], f"{path}/{name}")
        elif isinstance(sent, list):
            for number, value in enumerate(sent):
                lost(value, kept[number], f"{path}/{number}")

    # Tool schemas are reduced to the fields of the SDK; the server accepts more. A message may be any mapping.
    whole = {name: value for name, value in body.items() if name != "tools"}
    lost(whole, ChatRequest.model_validate(body).model_dump(exclude_unset=True), "")
    for message in body["messages"]:
        # The SDK has its own image models, which it serializes as base64.
        message = {**message, "images": [{"value": picture} for picture in message.get("images", [])]}
        lost(message, Message.model_validate(message).model_dump(exclude_unset=True), "/messages")


def ollama_show(body):
    if list(body) != ["model"] or not isinstance(body["model"], str):
        raise ValueError("only the name of the model is sent")


def checks():
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    for package in ["openai.types", "anthropic.types"]:
        forbid_unknown_fields(package)
    return [
        ("/chat/completions", "openai chat", chat(strict(CompletionCreateParamsStreaming))),
        ("/responses", "openai responses", strict(ResponseCreateParamsStreaming)),
        ("/messages", "anthropic", anthropic(strict(MessageCreateParamsStreaming))),
        (":streamGenerateContent", "google-genai", gemini),
        ("/api/chat", "ollama", ollama),
        ("/api/show", "ollama show", ollama_show),
    ]


def main():
    enter_environment()
    known = checks()
    valid, refused = collections.Counter(), []
    for path, body in requests():
        sdk, check = next(((sdk, check) for end, sdk, check in known if end in path), (None, None))
        if check is None:
            refused.append((path, "no SDK for this path", body))
            continue
        try:
            check(body)
            valid[sdk] += 1
        except ValueError as error:
            refused.append((sdk, str(error), body))
    for sdk, error, body in refused:
        print(f"{sdk}: {error}\n  {json.dumps(body)[:2000]}\n", file=sys.stderr)
    for _, sdk, _ in known:
        print(f"{sdk}: {valid[sdk]} requests valid")
    missing = [sdk for _, sdk, _ in known if not valid[sdk]]
    sys.exit(1 if refused or missing else 0)


if __name__ == "__main__":
    main()
