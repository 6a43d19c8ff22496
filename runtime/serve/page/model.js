// A session as the page shows it: events become items, each of which a view draws and redraws when it changes.
//
// Live events and events of the journal take the same path, so that a reload shows the same as the stream did.

import { plural } from "./dom.js";

const MAX_LOG_LINES = 500;
const CUT_OFF = ["awaiting_approval", "cancelled", "aborted", "failing", "provider_failed", "host_failed"];
const ENDED = ["done", "failed", "refused", "cancelled"];

export class Session {
  constructor(id) {
    this.id = id;
    this.items = [];
    this.calls = new Map();
    this.seq = 0;
    this.events = [];
    this.plan = null;
    this.flow = null;
    this.turn = 0;
    this.running = false;
    this.outcome = null;
    this.model = "";
    this.provider = "";
    this.totals = { steps: 0, calls: 0, input: 0, output: 0, cached: 0, cost: null, estimated: false, unpriced: false, denials: 0, fuel: 0, wall: 0 };
    /** Tokens of the open turn that are part of the totals. */
    this.open = {};
    this.answer = null;
    this.reasoning = null;
    this.changed = new Set();
    this.added = [];
  }

  add(kind, fields) {
    const item = { kind, key: this.items.length, turn: this.turn, ...fields };
    this.items.push(item);
    this.added.push(item);
    return item;
  }

  touch(item) {
    if (item) this.changed.add(item);
  }

  /** Returns what was added and changed since the last time. */
  take() {
    const taken = { added: this.added, changed: [...this.changed].filter((item) => !this.added.includes(item)) };
    this.added = [];
    this.changed = new Set();
    return taken;
  }

  /** Applies an event: `{ seq, at_ms, event }`. One that is already known is ignored. */
  apply(entry) {
    const { seq, at_ms: at, event } = entry;
    if (seq !== undefined && seq !== null) {
      if (seq <= this.seq) return false;
      this.seq = seq;
      this.events.push(entry);
    }
    const handle = HANDLERS[event.type];
    if (handle) handle(this, event, at || 0, seq);
    return true;
  }

  call(id, at) {
    let call = this.calls.get(id);
    if (!call) {
      call = this.add("call", { id, tool: "", arguments: null, state: "waiting", at, log: [], nested: 0 });
      this.calls.set(id, call);
    }
    return call;
  }

  note(level, own, text) {
    return this.add("note", { level, own, text });
  }

  /** Adds the tokens of a step to the totals, until the end of the turn tells all of them. */
  count(usage) {
    for (const [total, name] of [["input", "input"], ["output", "output"], ["cached", "cache_read"]]) {
      const tokens = usage?.[name] || 0;
      this.totals[total] += tokens;
      this.open[total] = (this.open[total] || 0) + tokens;
    }
    this.totals.estimated ||= Boolean(usage?.estimated);
  }

  /** After a new connection, the first piece of text has everything of the step so far. */
  restart() {
    for (const item of [this.answer, this.reasoning]) if (item) item.again = true;
  }

  /** Appends a piece of text that grows. */
  grow(item, text) {
    item.text = item.again ? text : item.text + text;
    item.again = false;
    this.touch(item);
  }

  /** Ends the text in progress, which may be incomplete. */
  endStream() {
    for (const item of [this.answer, this.reasoning]) {
      if (!item || item.done) continue;
      item.done = true;
      this.touch(item);
    }
    this.answer = null;
    this.reasoning = null;
  }
}

export function textOf(message) {
  if (!message) return "";
  const parts = message.parts || message.content || [];
  return parts.filter((part) => part.type === "text").map((part) => part.text).join(message.parts ? "" : "\n");
}

const seconds = (ms) => (ms < 1000 ? `${ms} ms` : `${Math.round(ms / 100) / 10} s`);

const HANDLERS = {
  turn_started(session, event, at, seq) {
    session.turn += 1;
    session.running = true;
    session.outcome = null;
    session.model = event.model;
    session.provider = event.provider;
    session.endStream();
    const attachments = (event.message?.content || []).filter((part) => part.type !== "text");
    session.add("user", { text: textOf(event.message), attachments, at, seq });
  },
  imported(session, event) {
    for (const message of event.messages || []) {
      if (message.role === "user") session.add("user", { text: textOf(message), attachments: [] });
      else if (message.role === "assistant" && textOf(message)) session.add("answer", { text: textOf(message), done: true });
    }
  },
  prompt_changed(session) { session.note("info", "a hook changed the prompt of this turn"); },
  step_started(session, event, at) {
    session.running = true;
    session.totals.steps += 1;
    session.endStream();
    session.waiting = at;
  },
  text_delta(session, event) {
    session.running = true;
    session.answer ||= session.add("answer", { text: "", done: false });
    session.grow(session.answer, event.text);
  },
  reasoning_delta(session, event) {
    session.running = true;
    session.reasoning ||= session.add("reasoning", { text: "", done: false });
    session.grow(session.reasoning, event.text);
  },
  retry(session, event) { session.note("warning", `retrying in ${seconds(event.delay_ms)}:`, event.reason); },
  step_finished(session, event, at) {
    finishStep(session, event, at);
    session.count(event.usage);
    for (const part of event.message?.parts || []) {
      if (part.type !== "call") continue;
      // Some providers number the calls of each turn anew.
      if (ENDED.includes(session.calls.get(part.id)?.state)) session.calls.delete(part.id);
      const call = session.call(part.id, at);
      call.tool ||= part.name;
      if (call.arguments === null) call.written = part.arguments;
      session.touch(call);
    }
  },
  step_interrupted(session, event, at) {
    finishStep(session, event, at);
    session.note("warning", "the answer was interrupted:", event.reason);
  },
  reminder(session, event) { session.note("info", "note to the model:", event.text); },
  approval_requested(session, event, at) {
    const call = session.call(event.id, at);
    Object.assign(call, { tool: event.tool, arguments: event.arguments, state: event.cause === "client" ? "client" : "asked", reason: event.reason });
    session.touch(call);
  },
  approval_decided(session, event, at) {
    const call = session.call(event.id, at);
    Object.assign(call, { decided: event.approved, decision: event.reason, state: event.approved ? "waiting" : "refused" });
    session.touch(call);
  },
  call_started(session, event, at) {
    const call = session.call(event.id, at);
    Object.assign(call, { tool: event.tool, arguments: event.arguments, state: "running", started: at });
    // One that was suspended starts again.
    if (!call.suspended) session.totals.calls += 1;
    session.touch(call);
  },
  call_log(session, event, at) {
    const call = session.call(event.id, at);
    if (call.log.length < MAX_LOG_LINES) call.log.push(event);
    else call.lost = (call.lost || 0) + 1;
    session.touch(call);
  },
  call_progress(session, event, at) {
    const call = session.call(event.id, at);
    call.progress = event;
    session.touch(call);
  },
  call_retried(session, event, at) {
    const call = session.call(event.id, at);
    call.retried = event;
    session.touch(call);
  },
  call_suspended(session, event, at) {
    const call = session.call(event.id, at);
    Object.assign(call, { state: "waiting", progress: null, suspended: true });
    session.touch(call);
  },
  call_finished(session, event, at) {
    const call = session.call(event.id, at);
    Object.assign(call, {
      tool: event.tool, content: event.content || [], structured: event.structured, error: event.error, receipt: event.receipt,
      ended: at, state: event.not_run ? "refused" : event.error ? "failed" : "done", progress: null,
    });
    const receipt = event.receipt;
    if (receipt) {
      session.totals.denials += receipt.denials?.length || 0;
      session.totals.fuel += receipt.fuel || 0;
    }
    session.touch(call);
  },
  nested(session, event, at) {
    const call = session.call(event.id, at);
    call.nested += 1;
    const inner = event.event;
    if (inner.type === "call_started") call.inside = inner.tool;
    session.touch(call);
  },
  flow_changed(session, event) { session.flow = event.flow; },
  plan_updated(session, event) { session.plan = event.plan; },
  turn_undone(session) {
    session.outcome = null;
    session.note("info", "the last turn was undone");
  },
  compacted(session, event) { session.note("info", plural(event.removed, "older message was replaced by a summary", "older messages were replaced by a summary")); },
  summary_failed(session, event) { session.note("warning", "the conversation could not be summarised:", event.reason); },
  results_pruned(session, event) {
    session.note("info", `the results of ${plural(event.calls.length, "old call")} were removed from the conversation`);
  },
  notice(session, event) {
    const own = event.hook ? `the hook ${event.hook} says:` : "notice:";
    session.note(event.level, own, event.text);
  },
  hook_finished(session, event) {
    const denials = event.receipt?.denials?.length || 0;
    session.totals.denials += denials;
    if (denials) session.note("warning", "a hook was denied access:", event.hook);
  },
  turn_finished(session, event, at) {
    session.endStream();
    // The end of a turn can say more than the model did, such as a question; that of one that was cut off repeats what it said.
    const last = session.items.findLast((item) => item.kind === "answer" && item.turn === session.turn);
    const isNew = !last || (last.text !== event.text && !CUT_OFF.includes(event.outcome?.outcome));
    if (event.text && isNew) session.add("answer", { text: event.text, done: true });
    session.running = false;
    session.outcome = event.outcome;
    const usage = event.usage || {};
    const totals = session.totals;
    for (const [total, tokens] of Object.entries(session.open)) totals[total] -= tokens;
    session.open = {};
    totals.input += usage.input || 0;
    totals.output += usage.output || 0;
    totals.cached += usage.cache_read || 0;
    totals.wall += event.wall_ms || 0;
    totals.estimated ||= Boolean(usage.estimated);
    totals.unpriced ||= Boolean(usage.unpriced) || (event.cost_micros === undefined && (usage.input || 0) + (usage.output || 0) > 0);
    if (event.cost_micros !== undefined) totals.cost = (totals.cost || 0) + event.cost_micros;
    for (const call of session.calls.values()) {
      if (["running", "waiting", "asked", "client"].includes(call.state)) {
        call.state = "cancelled";
        session.touch(call);
      }
    }
    const calls = session.items.filter((item) => item.kind === "call" && item.turn === session.turn).length;
    session.add("end", { ...event, calls, at });
  },
};

function finishStep(session, event, at) {
  const text = textOf(event.message);
  const thought = (event.message?.parts || []).filter((part) => part.type === "reasoning").map((part) => part.text).join("");
  if (thought && !session.reasoning) session.reasoning = session.add("reasoning", { text: thought, done: true });
  if (session.reasoning) {
    session.reasoning.text = thought || session.reasoning.text;
    session.reasoning.done = true;
    session.touch(session.reasoning);
  }
  if (text && !session.answer) session.answer = session.add("answer", { text, done: true, at });
  if (session.answer) {
    // The complete answer replaces what was streamed.
    session.answer.text = text || session.answer.text;
    session.answer.done = true;
    session.touch(session.answer);
  }
  session.endStream();
}
