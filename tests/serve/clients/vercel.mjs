// The AI SDK of Vercel, with the Responses and the Chat Completions of OpenAI's provider.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
for (const [name, of] of [["Responses", (id) => openai.responses(id)], ["Chat Completions", (id) => openai.chat(id)]]) {
  const plain = await generateText({ model: of("default"), prompt: "Hi", maxRetries: 0 });
  assert.equal(plain.text, "Hello from the agent.", name);
  assert.ok(plain.usage.totalTokens > 0, name);

  const streamed = streamText({ model: of("counting"), prompt: "Hi", maxRetries: 0 });
  let text = "";
  for await (const delta of streamed.textStream) text += delta;
  assert.equal(text, "It has three words.", name);
  assert.equal(await streamed.finishReason, "stop", name);

  const asked = [];
  const weather = tool({ description: "Weather of a city.", inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => { asked.push(city); return "rain"; } });
  const settings = { model: of("asking"), prompt: "Does it rain?", tools: { weather }, stopWhen: isStepCount(4), maxRetries: 0 };
  const called = await generateText(settings);
  assert.equal(called.text, "It rains in Oslo.", name);
  const both = streamText(settings);
  assert.equal(await both.text, "It rains in Oslo.", name);
  assert.deepEqual(asked, ["Oslo", "Oslo"], name);

  const form = Output.object({ schema: z.object({ city: z.string(), rain: z.boolean() }) });
  const structured = await generateText({ model: of("structured"), prompt: "Hi", output: form, maxRetries: 0 });
  assert.deepEqual(structured.output, { city: "Oslo", rain: true }, name);

  await assert.rejects(generateText({ model: of("gpt-4"), prompt: "Hi", maxRetries: 0 }), (error) => APICallError.isInstance(error) && error.statusCode === 404, name);
  console.log(`serve clients: AI SDK with ${name}: passed`);
}
const wrong = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: "x".repeat(40) });
await assert.rejects(generateText({ model: wrong.chat("default"), prompt: "Hi", maxRetries: 0 }), (error) => error.statusCode === 401);
