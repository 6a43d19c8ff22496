"""JSON Schema of the parameters of a function, from its annotations and its docstring."""

import dataclasses
import enum
import inspect
import re
import types
import typing

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def parameters(function, call):
    """Returns the description, the schema, and the type of each parameter."""
    described, sections = _docstring(inspect.getdoc(function) or "")
    hints = typing.get_type_hints(function, include_extras=True)
    properties, required, given = {}, [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        where = f"parameter `{name}` of `{function.__name__}`"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{where} cannot be named in a call")
        if name not in hints:
            raise TypeError(f"{where} has no annotation")
        given[name] = hints[name]
        if hints[name] is call:
            continue
        schema = of_type(hints[name], where)
        if name in sections and "description" not in schema:
            schema["description"] = sections[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            schema["default"] = _plain(parameter.default)
        properties[name] = schema
    return described, _object(properties, required), given


def of_type(annotation, where):
    """Returns the schema of a type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        schema = of_type(arguments[0], where)
        for more in arguments[1:]:
            schema.update({"description": more} if isinstance(more, str) else more)
        return schema
    if annotation in _PLAIN:
        return {"type": _PLAIN[annotation]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        cases = [of_type(case, where) for case in arguments if case is not type(None)]
        has_none = len(cases) < len(arguments)
        if has_none:
            cases.append({"type": "null"})
        return cases[0] if len(cases) == 1 else {"anyOf": cases}
    if origin is list or annotation is list:
        return {"type": "array", **({"items": of_type(arguments[0], where)} if arguments else {})}
    if origin is dict or annotation is dict:
        return {"type": "object", **({"additionalProperties": of_type(arguments[1], where)} if arguments else {})}
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return {"enum": [case.value for case in annotation]}
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        fields = dataclasses.fields(annotation)
        needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
        return _object({f.name: of_type(hints[f.name], where) for f in fields}, needed)
    if annotation in (typing.Any, inspect.Parameter.empty):
        return {}
    raise TypeError(f"{where} has a type without a JSON Schema: {annotation}")


def convert(value, annotation, where):
    """Makes a value of a type of its JSON, which fits the schema."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return convert(value, arguments[0], where)
    if annotation is float and isinstance(value, int):
        return float(value)
    if annotation is int and isinstance(value, float):
        return int(value)
    if value is not None and origin in (typing.Union, types.UnionType):
        cases = [case for case in arguments if case is not type(None)]
        return convert(value, cases[0], where) if len(cases) == 1 else value
    if origin is list and arguments:
        return [convert(item, arguments[0], where) for item in value]
    if origin is dict and arguments:
        return {key: convert(item, arguments[1], where) for key, item in value.items()}
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return annotation(value)
    if dataclasses.is_dataclass(annotation) and isinstance(value, dict):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return annotation(**{key: convert(item, hints[key], where) for key, item in value.items()})
    return value


def _object(properties, required):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _plain(default):
    return default.value if isinstance(default, enum.Enum) else default


def _docstring(text):
    """Splits a docstring into its description and the parameters of its section `Args:`."""
    described, _, rest = text.partition("\nArgs:\n")
    sections, name = {}, None
    for line in rest.splitlines():
        found = re.match(r"\s{2,8}\**(\w+)(?: \([^)]*\))?:\s*(.*)", line)
        if line and not line[0].isspace():
            break
        if found:
            name = found[1]
            sections[name] = found[2]
        elif name and line.strip():
            sections[name] = f"{sections[name]} {line.strip()}".strip()
    described = re.split(r"\n(?:Returns|Raises|Yields|Example|Examples):\n", described)[0]
    paragraphs = re.split(r"\n\s*\n", described.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs), sections
