// Imports of the host that every tool can use.

import * as hostLog from "toolcell:tool/log@0.1.0";
import * as hostProgress from "toolcell:tool/progress@0.1.0";
import "./utf8.js";
import { connect, log } from "../toolcell.js";

connect({ log: hostLog.write, progress: hostProgress.report });

const print = (level) => (...values) => log[level](values.map((v) => (typeof v === "string" ? v : JSON.stringify(v))).join(" "));
globalThis.console = { log: print("info"), info: print("info"), debug: print("debug"), warn: print("warn"), error: print("error") };
