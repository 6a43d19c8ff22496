"""Messages in place of crashes in a tool that was built without WASI. `toolcell tool build` imports this first."""

import builtins
import os
import random
import time

from toolcell.values import ToolError


def _missing(what, wasi):
    def missing(*_arguments, **_named):
        raise ToolError.failed(f'this tool was built without {what}: add "{wasi}" to `wasi` in tool.toml')

    return missing


for _name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"):
    setattr(time, _name, _missing("a clock", "clock"))

# The state of the generator is that of the build: numbers would be the same in each call.
os.urandom = _missing("random numbers", "random")
for _name in dir(random):
    if getattr(getattr(random, _name), "__self__", None) is random._inst and _name != "seed":
        setattr(random, _name, _missing("random numbers", "random"))

builtins.open = _missing("files", "files")
