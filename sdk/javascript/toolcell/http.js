// HTTP requests to granted hosts. `wasi = ["http"]` in tool.toml.

import { needs } from "./toolcell.js";

/** Sends a request and waits for the whole response. */
export const request = (url, options) => needs("http").request(url, options);
