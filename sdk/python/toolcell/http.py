"""HTTP requests to granted hosts. `wasi = ["http"]` in tool.toml."""

import json as _json
from typing import Any
from urllib.parse import urlsplit

from toolcell.values import ToolError

try:
    from componentize_py_types import Err, Ok, Some
    from wit_world.imports import outgoing_handler, poll
    from wit_world.imports import wasi_http_types as types
    from wit_world.imports.streams import StreamError_Closed
except ImportError:
    types = None

#: Maximum size of the body of a response, in bytes, unless a request says more.
MAX_BODY = 8 << 20
#: Bytes that are written at once: the most that a stream of WASI takes.
CHUNK = 4096

_METHODS = ("get", "head", "post", "put", "delete", "connect", "options", "trace", "patch")


class Response:
    """A response with its whole body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        #: Headers, by their names in lower case.
        self.headers = headers
        self.body = body

    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return _json.loads(self.body)


def request(
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: str | bytes | None = None,
    max_body: int = MAX_BODY,
) -> Response:
    """Sends a request and waits for the whole response."""
    if types is None:
        raise ToolError.failed('this tool was built without HTTP: add "http" to `wasi` in tool.toml')
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ToolError.invalid(f"not a URL for HTTP: {url}")
    content = body.encode() if isinstance(body, str) else bytes(body or b"")
    given = dict(headers or {})
    # Many servers take no body without its length.
    if (content or method not in ("GET", "HEAD")) and "content-length" not in (name.lower() for name in given):
        given["content-length"] = str(len(content))
    fields = types.Fields.from_list([(name, value.encode()) for name, value in given.items()])
    outgoing = types.OutgoingRequest(fields)
    name = method.lower()
    known = getattr(types, f"Method_{name.capitalize()}", None) if name in _METHODS else None
    outgoing.set_method(known() if known else types.Method_Other(method))
    outgoing.set_scheme(types.Scheme_Https() if parts.scheme == "https" else types.Scheme_Http())
    outgoing.set_authority(parts.netloc)
    outgoing.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    try:
        sent = outgoing.body()
        waiting = outgoing_handler.handle(outgoing, None)
        # A request that is refused closes its body; the answer has the reason.
        if not content or _send(sent, content):
            types.OutgoingBody.finish(sent, None)
        with waiting.subscribe() as ready:
            ready.block()
        incoming = _value(_value(waiting.get()))
    except Err as error:
        _fail(url, error.value)
    headers = {name.lower(): value.decode("utf-8", "replace") for name, value in incoming.headers().entries()}
    return Response(incoming.status(), headers, _read(incoming, max_body, url))


def _send(sent, content):
    """Sends a body. Returns `False` if it was closed before its end."""
    with sent.write() as stream:
        try:
            for start in range(0, len(content), CHUNK):
                stream.blocking_write_and_flush(content[start : start + CHUNK])
        except Err:
            return False
    return True


def _read(incoming, max_body, url):
    content = bytearray()
    with incoming.consume() as body, body.stream() as stream:
        while True:
            try:
                content += stream.blocking_read(65536)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(content)
                raise ToolError.unavailable(f"{url}: the response ended early") from None
            if len(content) > max_body:
                raise ToolError.failed(f"{url}: the response has more than {max_body} bytes")


def _value(result):
    while isinstance(result, (Some, Ok)):
        result = result.value
    if isinstance(result, Err):
        raise result
    return result


def _fail(url, code):
    name = type(code).__name__.removeprefix("ErrorCode_")
    value = getattr(code, "value", None)
    message = f"{url}: {name}" + ("" if value is None else f" {value}")
    raise (ToolError.denied if name == "HttpRequestDenied" else ToolError.unavailable)(message) from None
