// The client under test of the conformance suite: `toolcell run` with the server of a scenario, and a scripted model that
// calls its tools. The suite appends the address of the server to the command.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const toolcell = process.env.TOOLCELL;
const url = process.argv.at(-1);
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const home = mkdtempSync(join(tmpdir(), "toolcell-conformance-"));

// Runs a command with a home of its own. Standard output is returned also if it fails.
function run(...args) {
  const options = { cwd: home, env: { HOME: home, PATH: process.env.PATH }, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] };
  try {
    return execFileSync(toolcell, ["--config", "config.toml", ...args], options);
  } catch (error) {
    process.exitCode = 1;
    return error.stdout ?? "";
  }
}

// A value that fits a schema.
function example(schema = {}) {
  const types = { number: 5, integer: 5, boolean: true, array: [], object: {}, null: null };
  return schema.default ?? schema.enum?.[0] ?? types[schema.type] ?? "x";
}

function argumentsOf(tool, tools) {
  const { properties = {}, required = [] } = tool.input;
  // The tool that gets the schema of another one as it is.
  const other = tools.find((one) => one !== tool);
  const value = (name) => (name === "schema" && other ? other.input : example(properties[name]));
  return Object.fromEntries(required.map((name) => [name, value(name)]));
}

try {
  writeFileSync(join(home, "config.toml"), `[mcp.c]\nurl = ${JSON.stringify(url)}\ntimeout = "20s"\n`);
  const listed = run("mcp", "test", "c", "--json");
  const tools = listed ? JSON.parse(listed).tools : [];
  const wanted = context.toolCalls?.map(({ name, arguments: args }) => ({ name: `c_${name}`, arguments: args }));
  const calls = wanted ?? tools.map((tool) => ({ name: tool.name, arguments: argumentsOf(tool, tools) }));
  if (calls.length > 0) {
    // One after the other, so that the answers of one do not depend on another.
    const steps = [...calls.map((call) => ({ calls: [call] })), { text: "Done." }];
    writeFileSync(join(home, "script.json"), JSON.stringify({ model: "demo", steps }));
    const script = ["--provider", "scripted", "--model", "script.json", "--no-session"];
    console.log(run("run", "Go.", ...script, "--tool", "c", "--flow", "off", "--json"));
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
