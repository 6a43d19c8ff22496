// The client under test of the conformance suite: `toolcell run` with the server of a scenario, and a scripted model that
// calls its tools. The suite appends the address of the server to the command.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const toolcell = process.env.TOOLCELL;
const url = process.argv.at(-1);
// Address of a metadata document for this client, which is not read by the suite.
const DOCUMENT = "https://conformance-test.local/client-metadata.json";
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

// Logs in as a user with a browser: opens the address that is printed, whose redirects end at the port of the login.
async function login() {
  const options = { cwd: home, env: { HOME: home, PATH: process.env.PATH }, stdio: ["ignore", "pipe", "inherit"] };
  const child = spawn(toolcell, ["--config", "config.toml", "mcp", "login", "c", "--no-browser"], options);
  const ended = new Promise((resolve) => child.on("close", resolve));
  for await (const line of createInterface({ input: child.stdout })) await fetch(line);
  return (await ended) === 0;
}

// The client that the user has registered, or whose metadata document the operator of the suite publishes.
function registered() {
  const { client_id: id, issuer } = context;
  if (!id) return `client_id = ${JSON.stringify(DOCUMENT)}\n`;
  const named = `client_id = ${JSON.stringify(id)}\nissuer = ${JSON.stringify(issuer)}\nclient_secret = { secret = "c" }\n`;
  return `${named}[secrets.c]\nfile = "secret"\n`;
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

function calls() {
  const listed = run("mcp", "test", "c", "--json");
  const tools = listed ? JSON.parse(listed).tools : [];
  const wanted = context.toolCalls?.map(({ name, arguments: args }) => ({ name: `c_${name}`, arguments: args }));
  return wanted ?? tools.map((tool) => ({ name: tool.name, arguments: argumentsOf(tool, tools) }));
}

// Calls all tools one after the other, so that the answers of one do not depend on another.
function call() {
  const steps = [...calls().map((call) => ({ calls: [call] })), { text: "Done." }];
  if (steps.length === 1) return "";
  writeFileSync(join(home, "script.json"), JSON.stringify({ model: "demo", steps }));
  const script = ["--provider", "scripted", "--model", "script.json", "--no-session"];
  return run("run", "Go.", ...script, "--tool", "c", "--flow", "off", "--json");
}

try {
  const isLogin = process.env.MCP_CONFORMANCE_SCENARIO?.startsWith("auth/");
  const oauth = isLogin ? `[mcp.c.oauth]\nfile = "tokens.json"\n${registered()}` : "";
  if (context.client_secret) writeFileSync(join(home, "secret"), context.client_secret);
  writeFileSync(join(home, "config.toml"), `[mcp.c]\nurl = ${JSON.stringify(url)}\ntimeout = "20s"\n${oauth}`);
  if (!isLogin) {
    console.log(call());
  } else {
    // As a user who does what the hint says, twice at most: a refused request names the login.
    let seen = call();
    for (let logins = 0; logins < 2 && (seen === "" || seen.includes("toolcell mcp login c")); logins += 1) {
      if (!(await login())) break;
      process.exitCode = 0;
      seen = call();
    }
    console.log(seen);
  }
} finally {
  rmSync(home, { recursive: true, force: true });
}
