// LangChain's ChatOpenAI for JavaScript, with Chat Completions and Responses.
import assert from "node:assert/strict";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const weather = tool(async () => "rain", { name: "weather", description: "Weather of a city.", schema: z.object({ city: z.string() }) });
for (const useResponsesApi of [false, true]) {
  const of = (model) => new ChatOpenAI({ model, useResponsesApi, maxRetries: 0 });
  const plain = await of("default").invoke("Hi");
  assert.equal(plain.text, "Hello from the agent.");
  assert.ok(plain.usage_metadata.total_tokens > 0);
  let text = "";
  for await (const chunk of await of("counting").stream("Hi")) text += chunk.text;
  assert.equal(text, "It has three words.");

  const model = of("asking").bindTools([weather]);
  const asked = new HumanMessage("Does it rain?");
  const call = await model.invoke([asked]);
  assert.deepEqual(call.tool_calls.map(({ name, args }) => [name, args]), [["weather", { city: "Oslo" }]]);
  const result = new ToolMessage({ content: "rain", tool_call_id: call.tool_calls[0].id });
  assert.equal((await model.invoke([asked, call, result])).text, "It rains in Oslo.");
  await assert.rejects(of("gpt-4").invoke("Hi"), (error) => error.status === 404);
}
console.log("serve clients: LangChain for JavaScript: passed");
