"""Tools of Toolcell in Python: a decorated function becomes a tool.

Its name, its docstring and its annotations become the definition that the model reads.
"""

from collections.abc import Callable as _Callable
from typing import Any as _Any
from typing import Generic as _Generic
from typing import ParamSpec as _ParamSpec
from typing import TypeVar as _TypeVar
from typing import overload as _overload

from toolcell import host as _host
from toolcell.schema import convert, parameters
from toolcell.values import Blob, Link, Result, ToolError

__all__ = ["Blob", "Call", "Link", "Result", "Tool", "ToolError", "log", "progress", "tool", "tools"]

_Parameters = _ParamSpec("_Parameters")
_Answer = _TypeVar("_Answer")

#: Tools in the order of their functions.
tools: "list[Tool[..., _Any]]" = []


class Call:
    """One call of a tool: its identifier and the values of the session."""

    def __init__(self, id: str = "", values: dict[str, _Any] | None = None) -> None:
        self.id = id
        self.values = values or {}


class Tool(_Generic[_Parameters, _Answer]):
    """A tool. It can be called like its function, or with `call` as the host does."""

    def __init__(
        self, function: _Callable[_Parameters, _Answer], definition: dict[str, _Any], given: dict[str, _Any]
    ) -> None:
        self.function = function
        self.definition = definition
        self.name: str = definition["name"]
        self._given = given
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
        return self.function(*arguments, **named)

    def call(self, arguments: dict[str, _Any], call: Call | None = None) -> _Answer:
        """Calls the tool with a JSON object."""
        values: dict[str, _Any] = {}
        for name, parameter in self._given.items():
            if parameter is Call:
                values[name] = call or Call()
            elif name in arguments:
                values[name] = convert(arguments[name], parameter, name)
        return self.function(**values)


@_overload
def tool(function: _Callable[_Parameters, _Answer]) -> Tool[_Parameters, _Answer]: ...


@_overload
def tool(
    function: None = None,
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    aliases: dict[str, str] | None = None,
) -> _Callable[[_Callable[_Parameters, _Answer]], Tool[_Parameters, _Answer]]: ...


def tool(
    function: _Any = None,
    *,
    name: str | None = None,
    title: str | None = None,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    aliases: dict[str, str] | None = None,
) -> _Any:
    """Makes a tool of a function.

    The hints say what a call may do; they grant nothing. `aliases` maps other names of parameters, which models guess, to
    their own.
    """

    def decorate(function: _Any) -> _Any:
        description, input_schema, given = parameters(function, Call)
        hints = {
            "read_only": read_only,
            "destructive": destructive,
            "idempotent": idempotent,
            "open_world": open_world,
        }
        definition = {
            "name": name or function.__name__,
            "title": title,
            "description": description,
            "input_schema": input_schema,
            "hints": {hint for hint, is_set in hints.items() if is_set},
            "aliases": aliases or {},
        }
        made: Tool[..., _Any] = Tool(function, definition, given)
        tools.append(made)
        return made

    return decorate(function) if function is not None else decorate


class log:
    """Messages for the user. The model does not read them."""

    @staticmethod
    def trace(message: object) -> None:
        _host.write("trace", str(message))

    @staticmethod
    def debug(message: object) -> None:
        _host.write("debug", str(message))

    @staticmethod
    def info(message: object) -> None:
        _host.write("info", str(message))

    @staticmethod
    def warn(message: object) -> None:
        _host.write("warn", str(message))

    @staticmethod
    def error(message: object) -> None:
        _host.write("error", str(message))


def progress(done: int, total: int | None = None, message: str | None = None) -> None:
    """Reports to the user that `done` of `total` steps are completed."""
    _host.report(done, total, message)
