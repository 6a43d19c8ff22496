"""Functions of the host. Outside of a component, where tests run, messages are kept in `messages`."""

#: Messages that were logged, with their levels.
messages: list[tuple[str, str]] = []


def write(level: str, message: str) -> None:
    messages.append((level, message))


def report(done: int, total: int | None, message: str | None) -> None:
    del done, total, message
