// Granted environment variables, as `process.env`.

import { getEnvironment } from "host:cli/environment@0.2.12";

globalThis.process = {
  get env() {
    return Object.fromEntries(getEnvironment());
  },
};
