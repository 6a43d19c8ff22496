"""Exports of a component. `toolcell tool build` imports this; tests do not."""

import dataclasses
import json
import sys

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import log as host_log
from wit_world.imports import progress as host_progress

try:
    from wit_world.imports import toolcell_tool_types as types
except ImportError:
    from wit_world.imports import types

import toolcell
from toolcell import host
from toolcell.values import Blob, Link, Result, ToolError

#: Maximum length of the message of an error.
MAX_MESSAGE = 4000

_ERRORS = {
    "invalid_arguments": types.ToolError_InvalidArguments,
    "denied": types.ToolError_Denied,
    "unavailable": types.ToolError_Unavailable,
    "failed": types.ToolError_Failed,
}


def _write(level, message):
    host_log.write(host_log.Level[level.upper()], message)


class _Printed:
    """Standard output or error: lines become messages of the log."""

    encoding = "utf-8"

    def __init__(self, level):
        self._level = level
        self._line = ""

    def write(self, text):
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            _write(self._level, line)
        return len(text)

    def flush(self):
        if self._line:
            _write(self._level, self._line)
            self._line = ""

    def isatty(self):
        return False


host.write = _write
host.report = lambda done, total, message: host_progress.report(done, total, message)


def _definition(tool):
    of = tool.definition
    hints = types.Hints(0)
    for hint in of["hints"]:
        hints |= types.Hints[hint.upper()]
    annotations = [("aliases", json.dumps(of["aliases"]))] if of["aliases"] else []
    schema = json.dumps(of["input_schema"], ensure_ascii=False)
    return types.Definition(of["name"], of["title"], of["description"], schema, None, hints, annotations)


def _part(part):
    if isinstance(part, Blob):
        return types.Content_Blob(types.Blob(part.media_type, part.data))
    if isinstance(part, Link):
        return types.Content_Link(types.Link(part.uri, part.name, part.media_type))
    return types.Content_Text(str(part))


def _json(value):
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value):
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    raise TypeError(f"a result cannot contain a value of the type {type(value).__name__}")


def _output(value):
    if value is None:
        return types.Output([], None)
    if isinstance(value, Result):
        structured = None if value.structured is None else _json(value.structured)
        return types.Output([_part(part) for part in value.parts], structured)
    if isinstance(value, (str, Blob, Link)):
        return types.Output([_part(value)], None)
    text = _json(value)
    is_object = isinstance(value, dict) or dataclasses.is_dataclass(value)
    return types.Output([types.Content_Text(text)], text if is_object else None)


def _failure(error):
    kind = error.kind if isinstance(error, ToolError) else "failed"
    if isinstance(error, PermissionError):
        kind = "denied"
    message = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE] + "…"
    return Err(_ERRORS[kind](message))


class Tools(exports.Tools):
    def definitions(self):
        return [_definition(tool) for tool in toolcell.tools]

    def run(self, call):
        sys.stdout, sys.stderr = _Printed("info"), _Printed("warn")
        try:
            found = [tool for tool in toolcell.tools if tool.name == call.name]
            if not found:
                raise ToolError.invalid(f"this component has no tool {call.name!r}")
            values = {name: json.loads(value) for name, value in call.context}
            return _output(found[0].call(json.loads(call.arguments), toolcell.Call(call.id, values)))
        except Err:
            raise
        except BaseException as error:
            raise _failure(error) from None
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
