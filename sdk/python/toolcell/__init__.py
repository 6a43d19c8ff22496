"""Tools of Toolcell in Python: a decorated function becomes a tool.

Its name, its docstring and its annotations become the definition that the model reads.
"""

from toolcell import host as _host
from toolcell.schema import convert, parameters
from toolcell.values import Blob, Link, Result, ToolError

__all__ = ["Blob", "Call", "Link", "Result", "Tool", "ToolError", "log", "progress", "tool", "tools"]

#: Tools in the order of their functions.
tools = []


class Call:
    """One call of a tool: its identifier and the values of the session."""

    def __init__(self, id="", values=None):
        self.id = id
        self.values = values or {}


class Tool:
    """A tool. It can be called like its function, or with `call` as the host does."""

    def __init__(self, function, definition, given):
        self.function = function
        self.definition = definition
        self.name = definition["name"]
        self._given = given
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments, **named):
        return self.function(*arguments, **named)

    def call(self, arguments, call=None):
        """Calls the tool with a JSON object."""
        values = {}
        for name, parameter in self._given.items():
            if parameter is Call:
                values[name] = call or Call()
            elif name in arguments:
                values[name] = convert(arguments[name], parameter, name)
        return self.function(**values)


def tool(
    function=None,
    *,
    name=None,
    title=None,
    read_only=False,
    destructive=False,
    idempotent=False,
    open_world=False,
    aliases=None,
):
    """Makes a tool of a function.

    The hints say what a call may do; they grant nothing. `aliases` maps other names of parameters, which models guess, to
    their own.
    """

    def decorate(function):
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
        made = Tool(function, definition, given)
        tools.append(made)
        return made

    return decorate(function) if function is not None else decorate


class log:
    """Messages for the user. The model does not read them."""

    @staticmethod
    def trace(message):
        _host.write("trace", str(message))

    @staticmethod
    def debug(message):
        _host.write("debug", str(message))

    @staticmethod
    def info(message):
        _host.write("info", str(message))

    @staticmethod
    def warn(message):
        _host.write("warn", str(message))

    @staticmethod
    def error(message):
        _host.write("error", str(message))


def progress(done, total=None, message=None):
    """Reports to the user that `done` of `total` steps are completed."""
    _host.report(done, total, message)
