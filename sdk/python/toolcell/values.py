"""Results and errors of tools."""

from typing import Any, Self


class ToolError(Exception):
    """Error of a tool, with a message for the model. Its kind says what may help."""

    kind = "failed"

    def __init__(self, message: object, kind: str = "failed") -> None:
        super().__init__(message)
        self.kind = kind

    @classmethod
    def invalid(cls, message: object) -> Self:
        """The arguments make no sense: the model can call again with others."""
        return cls(message, "invalid_arguments")

    @classmethod
    def denied(cls, message: object) -> Self:
        """Something is not granted: calling again does not help."""
        return cls(message, "denied")

    @classmethod
    def unavailable(cls, message: object) -> Self:
        """An external system did not answer: the same call may succeed later."""
        return cls(message, "unavailable")

    @classmethod
    def failed(cls, message: object) -> Self:
        """The operation failed."""
        return cls(message, "failed")


class Blob:
    """Bytes with a media type."""

    def __init__(self, media_type: str, data: bytes) -> None:
        self.media_type = media_type
        self.data = bytes(data)


class Link:
    """Reference to a resource."""

    def __init__(self, uri: str, name: str, media_type: str | None = None) -> None:
        self.uri = uri
        self.name = name
        self.media_type = media_type


class Result:
    """Result of several parts (texts, `Blob`s, `Link`s), and possibly a structured value."""

    def __init__(self, *parts: "str | Blob | Link", structured: Any = None) -> None:
        self.parts = list(parts)
        self.structured = structured
