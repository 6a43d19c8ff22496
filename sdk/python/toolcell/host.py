"""Functions of the host. Outside of a component, where tests run, messages are kept in `messages`."""

#: Messages that were logged, with their levels.
messages = []


def write(level, message):
    messages.append((level, message))


def report(done, total, message):
    del done, total, message
