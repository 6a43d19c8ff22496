// Without `wasi = ["random"]` there are no random numbers: those of the engine are the same in each call.

import { ToolError } from "../toolcell.js";

Math.random = () => {
  throw ToolError.failed('this tool was built without random numbers: add "random" to `wasi` in tool.toml');
};
