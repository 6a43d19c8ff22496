// Granted environment variables, as `process.env`.

import { getEnvironment } from "host:cli/environment@0.2.12";
import { inCall } from "../toolcell.js";

globalThis.process = {
  get env() {
    inCall("`process.env`");
    return Object.fromEntries(getEnvironment());
  },
};
