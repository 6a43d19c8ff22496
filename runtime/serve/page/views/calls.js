// Calls as lines that open to everything that is known about them.
import { h, foreign, line, box, replace, span, bytes, count, plural, append } from "../dom.js";

const STATES = {
  waiting: ["…", "waiting", ""], asked: ["?", "waits for you", "warn"], client: ["…", "waits for its client", "warn"], running: ["◌", "running", ""], done: ["✓", "done", "good"],
  failed: ["✗", "failed", "bad"], refused: ["⊘", "not run", "warn"], cancelled: ["■", "cancelled", "warn"],
};

/** Words for the kinds of errors; the text of the tool stands below, in a box. */
const ERRORS = {
  invalid_arguments: "the arguments were not accepted", unknown_tool: "there is no such tool", denied: "not allowed",
  unavailable: "not available at the moment", failed: "the tool reported a failure", limit: "a limit ended the call",
  crashed: "the tool crashed", cancelled: "the call was cancelled", host: "internal error of the host",
};

/** Limits of a call, in the words of the terminal. */
const LIMITS = {
  fuel: (most) => `${count(most)} units of fuel used up`, wall_time_ms: (most) => `not finished after ${span(most * 1000)}`, memory: (most) => `more than ${bytes(most)} of memory`,
  table_elements: (most) => `more than ${plural(most, "table element")}`, instances: (most) => `more than ${count(most)} instances, memories or tables`,
  handles: (most) => `more than ${plural(most, "handle")}`, output: (most) => `more than ${bytes(most)} of output`, stack: (most) => `recursion deeper than a stack of ${bytes(most)}`,
};

function limitText(limit) {
  const [[name, most]] = Object.entries(limit || { "": 0 });
  return Object.hasOwn(LIMITS, name) ? LIMITS[name](most) : name;
}

export function errorText(error) {
  if (error.kind === "limit") return limitText(error.limit);
  return error.message || error.cause || error.name || error.output || "";
}

/** Time of a call from its start to its result; that in the cell alone is in the receipt. */
export function took(call) {
  const whole = call.started && call.ended ? (call.ended - call.started) * 1000 : 0;
  return whole > 1000 ? span(whole) : call.receipt?.wall_us ? span(call.receipt.wall_us) : whole ? span(whole) : "";
}

/** Arguments on one line: values of an object without its braces. */
function short(call) {
  const value = call.arguments ?? call.written;
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  const entries = Object.entries(value);
  return entries.map(([key, one]) => `${key}: ${typeof one === "string" ? one : JSON.stringify(one)}`).join(", ");
}

/** The line of a call; it opens below itself. */
export function callCard(call, options = {}) {
  const button = h("button", { "aria-expanded": "false", onclick: () => toggle() });
  const card = h("div.call", null, button);
  let opened = null;
  const toggle = () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    opened?.remove();
    opened = null;
    if (!open) card.append((opened = h("div.call-open", null, details(call, options))));
  };
  const update = () => {
    const [icon, word, color] = STATES[call.state] || STATES.waiting;
    const progress = call.state === "running" && call.progress;
    const doing = progress ? `${progress.done}${progress.total ? "/" + progress.total : ""}` : call.inside && call.state === "running" ? "agent" : "";
    const about = progress?.message || short(call);
    replace(button,
      h("span." + (color || "faint"), { "aria-hidden": "true" }, icon),
      h("span.tool", null, line(call.tool, 60)), " ",
      h("span.short", null, about && line(about, 120)), " ",
      doing && h("span.faint", null, doing + " "),
      h("span.state." + (color || "faint"), null, word), " ",
      h("span.took", null, took(call)));
    if (opened) replace(opened, details(call, options));
  };
  update();
  return { element: card, update, toggle, focus: () => button.focus() };
}

const json = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const section = (title, ...content) => [h("h3", null, title), ...content];

/** Everything about a call, each foreign text in a box of its own. */
export function details(call, options = {}) {
  const parts = [];
  const value = call.arguments ?? call.written;
  if (value !== null && value !== undefined) parts.push(section("Arguments", box(json(value), { label: "Arguments" })));
  if (call.decided !== undefined) {
    parts.push(h("p", null, call.decided ? "approved" : "not approved", call.decision && [": ", line(call.decision, 400)]));
  }
  if (call.state === "client") parts.push(h("p", null, "It waits for the client of /v1 that asked, which runs the tool itself. It cannot be allowed here."));
  if (call.retried) parts.push(h("p", null, `attempt ${call.retried.attempt}: `, line(call.retried.reason, 400)));
  if (call.error) {
    const text = errorText(call.error);
    parts.push(section(`Failed: ${ERRORS[call.error.kind] || "error"}`, text && box(text, { label: "Error" })));
    // A hint is for the user: the line of the configuration that would allow it.
    if (call.error.hint) parts.push(h("p", null, "To allow it: ", h("code.name", null, foreign(call.error.hint))));
  }
  if (call.content?.length) parts.push(section("Result", call.content.map((part) => contentPart(part, options))));
  if (call.structured !== undefined) parts.push(section("Structured result", box(json(call.structured), { label: "Structured result" })));
  if (call.log?.length) {
    const rows = call.log.map((row) => `${row.level} ${row.source} ${row.message}`).join("\n");
    parts.push(section(`Log${call.lost ? `, without the last ${plural(call.lost, "line")}` : ""}`, box(rows, { label: "Log" })));
  }
  if (call.nested) parts.push(h("p.faint", null, `${plural(call.nested, "event")} of an agent`, call.inside && [", last tool: ", line(call.inside, 60)]));
  if (call.receipt) parts.push(section("Receipt", receipt(call.receipt)));
  if (call.state === "running" && options.onCancel) {
    parts.push(h("div.row", null, h("button", { onclick: () => options.onCancel(call) }, "Cancel this call"), h("span.small.faint", null, "The turn goes on, and the model is told.")));
  }
  return parts;
}

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Content of a message or a result. Images are part of the session, and nothing else is fetched. */
export function contentPart(part) {
  if (part.type === "text") return box(part.text, { label: "Result" });
  if (part.type === "link") return h("p", null, h("span.tag", null, "link, not opened"), " ", line(part.uri, 300));
  if (part.type === "blob" && IMAGES.includes(part.media_type) && typeof part.data === "string") {
    const image = h("img", { alt: "image of the session" });
    try {
      const data = Uint8Array.from(atob(part.data), (character) => character.charCodeAt(0));
      image.src = URL.createObjectURL(new Blob([data], { type: part.media_type }));
      image.onload = () => URL.revokeObjectURL(image.src);
    } catch { return h("p.faint", null, "the image cannot be read"); }
    return h("div.attached", null, image);
  }
  const size = part.data ? bytes(Math.floor((part.data.length * 3) / 4)) : "";
  return h("p", null, h("span.tag", null, "file"), " ", line(part.name || part.media_type || "", 80), " ", size);
}

/** A receipt in the words of the terminal, and then everything in it. */
export function receipt(used) {
  const parts = [`${span(used.wall_us)}${used.agent ? "" : used.server ? " in the server" : " in the cell"}`];
  if (used.server) {
    parts.push(`${bytes(used.bytes_in)} sent, ${bytes(used.bytes_out)} received`);
    parts.push([used.server_in_cell ? "in a cell of its own" : "not in a cell", ": MCP server ", line(used.server, 60)]);
  } else {
    parts.push(`${count(used.fuel)} fuel`, `${bytes(used.peak_memory)} memory`, `${bytes(used.bytes_in)} in, ${bytes(used.bytes_out)} out`);
  }
  const all = h("p", null);
  parts.forEach((part, index) => append(all, [index ? " · " : "", part]));
  const list = h("ul");
  const add = (title, values) => {
    if (values?.length) append(list, [h("li", null, title + " ", values.map((value, index) => [index ? ", " : "", h("code.name", null, h("bdi", null, foreign(value)))]))]);
  };
  add("read", used.files?.filter((file) => !file.write).map((file) => file.path));
  add("wrote", used.files?.filter((file) => file.write).map((file) => file.path));
  add("contacted", used.hosts);
  add("read bucket", used.buckets?.filter((bucket) => !bucket.write).map((bucket) => bucket.bucket));
  add("wrote bucket", used.buckets?.filter((bucket) => bucket.write).map((bucket) => bucket.bucket));
  for (const denial of used.denials || []) {
    append(list, [h("li.bad", null, "⊘ denied ", line(denial.what, 40), " ", h("code.name", null, foreign(denial.target)),
      denial.allow_with && h("span.faint", null, " — the grant ", h("code.name", null, foreign(denial.allow_with)), " in your configuration would allow it"))]);
  }
  if (used.omitted) append(list, [h("li", null, plural(used.omitted, "more entry was left out", "more entries were left out"))]);
  if (used.agent) append(list, [h("li", null, `agent: ${plural(used.agent.steps, "step")}, ${plural(used.agent.calls, "call")}`)]);
  return [all, list.childNodes.length ? list : h("p.faint", null, "touched nothing")];
}
