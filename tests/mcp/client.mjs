// Drives `toolcell mcp serve` with the official TypeScript SDK, versions 1 and 2, over stdio and HTTP.
//
// Arguments: URL of the server over HTTP, then the command that starts one over stdio.
import assert from "node:assert/strict";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";

const [url, command, ...args] = process.argv.slice(2);
const me = { name: "toolcell-suite", version: "1" };
// The home of the run is passed on: both SDKs give a server few variables by default.
const child = { command, args, env: process.env, stderr: "ignore" };

const peers = {
  "SDK 1, stdio": () => [new Client1(me), new Stdio1(child)],
  "SDK 1, HTTP": () => [new Client1(me), new Http1(new URL(url))],
  "SDK 2, stdio, initialize": () => [new Client2(me), new Stdio2(child)],
  "SDK 2, stdio, 2026": () => [new Client2(me, { versionNegotiation: { mode: "auto" } }), new Stdio2(child)],
  "SDK 2, HTTP, initialize": () => [new Client2(me), new Http2(new URL(url))],
  "SDK 2, HTTP, 2026": () => [new Client2(me, { versionNegotiation: { mode: "auto" } }), new Http2(new URL(url))],
};

for (const [name, peer] of Object.entries(peers)) {
  const [client, transport] = peer();
  await client.connect(transport);
  const call = (tool, given = {}, options) =>
    client instanceof Client1
      ? client.callTool({ name: tool, arguments: given }, undefined, options)
      : client.callTool({ name: tool, arguments: given }, options);

  const { tools } = await client.listTools();
  assert.ok(tools.some((tool) => tool.name === "test_simple_text"));

  const text = await call("test_simple_text");
  assert.equal(text.content[0].text, "This is a simple text response for testing.");
  assert.ok(text._meta["io.github.toolcell/receipt"].fuel > 0);
  assert.equal((await call("test_image_content")).content[0].mimeType, "image/png");

  const failed = await call("test_error_handling");
  assert.equal(failed.isError, true);
  const refused = await call("test_x_mcp_header", { region: 7 });
  assert.equal(refused.isError, true);
  await assert.rejects(call("no_such_tool"));

  const steps = [];
  await call("test_tool_with_progress", {}, { onprogress: (progress) => steps.push(progress.progress) });
  assert.deepEqual(steps, [0, 50, 100]);

  const stop = new AbortController();
  const cancelled = call("test_tool_with_progress", {}, { signal: stop.signal, onprogress: () => stop.abort() });
  await assert.rejects(cancelled);

  const many = await Promise.all(
    Array.from({ length: 64 }, (_, index) => call("test_x_mcp_header", { region: `r${index}` })),
  );
  many.forEach((result, index) => assert.equal(result.content[0].text, `The region is r${index}.`));

  await client.close();
  console.log(`mcp clients: ${name}: passed`);
}
process.exit(0);
