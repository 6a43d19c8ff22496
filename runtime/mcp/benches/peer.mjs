// Minimal server on the TypeScript SDK: one tool, no sandbox. Over standard input and output, or with --http over HTTP.
import { createServer } from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { randomUUID } from "node:crypto";
import { z } from "zod";

const server = () => {
  const server = new McpServer({ name: "peer", version: "1" });
  const tool = { description: "Returns its arguments.", inputSchema: { text: z.string() } };
  server.registerTool("echo", tool, async (given) => ({ content: [{ type: "text", text: JSON.stringify(given) }] }));
  return server;
};

if (process.argv.includes("--http")) {
  const sessions = new Map();
  const listener = createServer(async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await server().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  listener.listen(0, "127.0.0.1", () => console.error(`http://127.0.0.1:${listener.address().port}/mcp`));
} else {
  await server().connect(new StdioServerTransport());
}
