from dataclasses import dataclass
from typing import Annotated, Literal

import bundled
from toolcell import Blob, Link, Result, ToolError, http, log, progress, tool

calls = 0


@dataclass
class Sum:
    sum: int


@tool
def echo(text: str) -> str:
    """Returns a text."""
    log.info(f"echoing {len(text)}")
    progress(1, 2, "half")
    return text


@tool(read_only=True)
def add(left: int, right: int, negate: Annotated[bool, "Negate the sum."] = False) -> Sum:
    """Adds two numbers.

    Args:
        left: The first.
        right: The second.
    """
    return Sum(-(left + right) if negate else left + right)


@tool
def fail(kind: Literal["invalid_arguments", "denied", "unavailable", "failed"]):
    """Fails."""
    raise ToolError(f"as asked: {kind} é", kind)


@tool
def parts() -> Result:
    """Returns several parts."""
    return Result("text", Blob("image/png", bytes([0, 255, 128])), Link("https://example.org/x", "an example"))


@tool
def count() -> str:
    """Counts its calls."""
    global calls
    calls = bundled.next(calls)
    return str(calls)


@tool
def crash():
    """Crashes."""
    raise ZeroDivisionError("out of cheese 42")


@tool
def read_file(path: str) -> str:
    """Reads a file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


@tool
def get_url(url: str, body: str | None = None) -> str:
    """Sends a request."""
    response = http.request(url) if body is None else http.request(url, method="POST", body=body)
    return f"{response.status} {response.text()}"
