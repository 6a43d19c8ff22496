// The openai package for JavaScript: Chat Completions and Responses, streamed and not, tools of both sides, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const messages = [{ role: "user", content: "Hi" }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.deepEqual(models, ["default", "asking", "counting", "structured"]);
assert.equal((await client.models.retrieve("counting")).owned_by, "toolcell");

// Chat Completions.
const chat = await client.chat.completions.create({ model: "default", messages });
assert.equal(chat.choices[0].message.content, "Hello from the agent.");
assert.equal(chat.choices[0].finish_reason, "stop");
assert.ok(chat.usage.total_tokens > 0);

const stream = client.chat.completions.stream({ model: "default", messages, stream_options: { include_usage: true } });
let text = "";
stream.on("content", (delta) => { text += delta; });
const whole = await stream.finalChatCompletion();
assert.equal(text, "Hello from the agent.");
assert.equal(whole.choices[0].message.content, text);
assert.ok((await stream.totalUsage()).total_tokens > 0);

const counted = await client.chat.completions.create({ model: "counting", messages });
assert.equal(counted.choices[0].message.content, "It has three words.");
assert.equal(counted.choices[0].message.tool_calls, undefined);
const told = await client.chat.completions.create({ model: "counting", messages, toolcell: { calls: true } });
assert.match(told.choices[0].message.content, /text_count/);

let asked = 0;
const weather = { type: "function", function: { name: "weather", parameters, parse: JSON.parse, function: ({ city }) => { asked += 1; assert.equal(city, "Oslo"); return "rain"; } } };
for (const stream of [false, true]) {
  const runner = client.chat.completions.runTools({ model: "asking", messages: [...messages], tools: [weather], stream });
  assert.equal(await runner.finalContent(), "It rains in Oslo.");
}
assert.equal(asked, 2);

// Responses.
const first = await client.responses.create({ model: "default", input: "Hi", metadata: { of: "suite" } });
assert.equal(first.output_text, "Hello from the agent.");
assert.equal(first.metadata.of, "suite");
const second = await client.responses.create({ model: "default", input: "More", previous_response_id: first.id });
assert.equal(second.output_text, "The second answer.");

const kinds = [];
const responses = client.responses.stream({ model: "default", input: "More", previous_response_id: second.id });
for await (const event of responses) kinds.push(event.type);
assert.equal((await responses.finalResponse()).output_text, "The third answer.");
for (const kind of ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]) {
  assert.ok(kinds.includes(kind), `${kind} of ${kinds}`);
}

const tools = [{ type: "function", name: "weather", parameters, strict: true }];
for (const store of [true, false]) {
  const call = await client.responses.create({ model: "asking", input: "Hi", tools, store });
  const wanted = call.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(wanted.arguments), { city: "Oslo" });
  const output = { type: "function_call_output", call_id: wanted.call_id, output: "rain" };
  const next = store
    ? await client.responses.create({ model: "asking", tools, previous_response_id: call.id, input: [output] })
    : await client.responses.create({ model: "asking", tools, store, input: [{ role: "user", content: "Hi" }, ...call.output, output] });
  assert.equal(next.output_text, "It rains in Oslo.");
}
const streamed = await client.responses.stream({ model: "asking", input: "Hi", tools }).finalResponse();
assert.equal(streamed.output.find((item) => item.type === "function_call").name, "weather");

// Errors.
const wrong = new OpenAI({ apiKey: "x".repeat(40), maxRetries: 0 });
await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
const create = (body) => client.chat.completions.create(body);
await assert.rejects(create({ model: "gpt-4", messages }), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
await assert.rejects(create({ model: "default", messages: [] }), OpenAI.BadRequestError);
await assert.rejects(create({ model: "default", messages: "Hi" }), OpenAI.BadRequestError);
await assert.rejects(create({ model: "gpt-4", messages, stream: true }), OpenAI.NotFoundError);
await assert.rejects(client.responses.create({ model: "default", input: "Hi", previous_response_id: "resp_1" }), OpenAI.NotFoundError);
await assert.rejects(client.responses.create({ model: "default", input: 1 }), OpenAI.BadRequestError);
await assert.rejects(client.embeddings.create({ model: "default", input: "Hi" }), OpenAI.NotFoundError);

// A client that leaves.
const left = await client.chat.completions.create({ model: "default", messages, stream: true });
for await (const _ of left) break;
left.controller.abort();
console.log("serve clients: openai for JavaScript: passed");
