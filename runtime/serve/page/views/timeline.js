// The timeline of a session: a row for each request to the model, hook and call; bars are durations. Only rows near the screen
// are elements, so that a session may have as many as it likes.
import { h, line, replace, span, count, bytes, money, box } from "../dom.js";
import { api } from "../contract.js";
import { Session } from "../model.js";
import { Stream } from "../stream.js";
import { details } from "./calls.js";
import { about, price, tokens } from "./items.js";

const ROW = 28;
/** Pause between two drawings of a turn that runs, in milliseconds: bars grow meanwhile. */
const PAUSE = 500;

/** State of the work that the end of a turn leaves undone, by its outcome. */
const leftBy = (outcome) => (outcome?.outcome === "awaiting_approval" ? "paused" : "cancelled");

/** A turn with its rows: what is in progress of it, and the turns of agents in it by the calls that run them. */
const scope = (depth, rows) => ({ depth, rows, open: new Map(), inner: new Map() });

/** Returns the rows of a session, those of an agent behind its call: `{ number, kind, name, from, to, state, depth, entries }`, times
 *  in milliseconds. A row keeps its number when others follow. Work in progress ends `now`, or with the last event if that is 0. */
export function rowsOf(entries, now = 0) {
  let made = 0;
  const add = (within, row) => {
    const added = { number: made, to: null, depth: within.depth, inner: [], ...row };
    made += 1;
    within.rows.push(added);
    return added;
  };
  const begin = (within, key, row) => { const added = add(within, row); within.open.set(key, added); return added; };
  const end = (within, key, at, fields) => {
    const row = within.open.get(key);
    within.open.delete(key);
    if (row) Object.assign(row, { to: at }, fields);
    return row;
  };
  /** Ends what is open in a turn, and in the agents of it. */
  const endAll = (within, at, state) => {
    for (const row of within.open.values()) Object.assign(row, { to: at, state });
    within.open.clear();
    for (const turn of within.inner.values()) endAll(turn, at, state);
    within.inner.clear();
  };
  const visit = (event, at, within, entry) => {
    switch (event.type) {
      case "step_started":
        begin(within, "step", { kind: "model", name: `model, step ${event.step}`, from: at, state: "running", entries: [entry] });
        break;
      case "step_finished": case "step_interrupted":
        end(within, "step", at, { state: event.type === "step_finished" ? "done" : "failed", usage: event.usage })?.entries.push(entry);
        break;
      case "call_started":
        begin(within, "call " + event.id, { kind: "call", name: event.tool, id: event.id, from: at, state: "running", entries: [entry] });
        break;
      case "call_suspended": case "call_finished": {
        const key = "call " + event.id;
        const row = within.open.get(key) || begin(within, key, { kind: "call", name: event.tool || "call", id: event.id, from: at, entries: [] });
        row.entries.push(entry);
        const state = event.type === "call_suspended" ? "paused" : event.not_run ? "refused" : event.error ? "failed" : "done";
        end(within, key, at, { state, receipt: event.receipt });
        // What an agent did not end is over with its call.
        const turn = within.inner.get(event.id);
        if (turn) endAll(turn, at, state === "paused" ? "paused" : "cancelled");
        within.inner.delete(event.id);
        break;
      }
      case "hook_finished":
        add(within, { kind: "hook", name: `hook ${event.hook}, ${event.moment}`, from: at - (event.receipt?.wall_us || 0) / 1000, to: at, state: "done", receipt: event.receipt, entries: [entry] });
        break;
      case "approval_requested":
        begin(within, "ask " + event.id, { kind: "wait", name: `approval of ${event.tool}`, from: at, state: "running", entries: [entry] });
        break;
      case "approval_decided":
        end(within, "ask " + event.id, at, { state: event.approved ? "done" : "refused" })?.entries.push(entry);
        break;
      case "nested":
        if (!within.inner.has(event.id)) within.inner.set(event.id, scope(within.depth + 1, within.open.get("call " + event.id)?.inner || within.rows));
        visit(event.event, at, within.inner.get(event.id), entry);
        break;
      case "turn_finished":
        endAll(within, at, leftBy(event.outcome));
        break;
    }
  };
  const session = scope(0, []);
  let last = 0;
  // The time between turns is no work, and is cut.
  let cut = 0;
  for (const entry of entries) {
    const at = entry.at_ms || last;
    if (last && entry.event.type === "turn_started") cut += Math.max(0, at - last);
    last = at;
    visit(entry.event, at - cut, session, entry);
  }
  const rows = [];
  const flatten = (all) => { for (const row of all) { rows.push(row); flatten(row.inner); } };
  flatten(session.rows);
  for (const row of rows) {
    row.to ??= Math.max(now - cut, last - cut, row.from);
    // The times of events are whole milliseconds, and those of receipts are finer.
    row.from = Math.min(row.from, row.to - inside(row));
  }
  return rows;
}

/** Time in the cell or the server, in milliseconds; an agent has none of its own. */
const inside = (row) => (row.kind === "call" && row.receipt?.wall_us && !row.receipt.agent ? row.receipt.wall_us / 1000 : 0);

/** Duration of a row, and what else is measured: tokens, and the part of it that a receipt has. */
function measured(row) {
  if (row.kind === "hook") return [span(row.receipt?.wall_us), " in its cell"];
  const whole = row.to - row.from;
  const part = inside(row);
  const used = row.usage ? ` · ${tokens(row.usage)}` : "";
  return [whole <= 1 ? "≤ 1 ms" : span(whole * 1000), `${used}${part ? ` · ${span(part * 1000)} in its ${row.receipt.server ? "server" : "cell"}` : ""}`];
}

const WORDS = { done: "done", failed: "failed", refused: "not run", running: "running", cancelled: "cancelled", paused: "paused" };
const DECIDED = { done: "approved", refused: "refused", running: "waiting", cancelled: "not decided", paused: "not decided" };
const wordOf = (row) => (row.kind === "wait" ? DECIDED : WORDS)[row.state];

/** Most levels of agents that are indented, so that names have room. */
const MOST_LEVELS = 4;
/** Width of a level, in pixels. */
const INDENT = 12;

export class Timeline {
  constructor(app) {
    this.app = app;
    this.filter = h("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows", oninput: () => this.refresh() });
    this.only = h("select", { "aria-label": "Kind", onchange: () => this.refresh() },
      [["", "all kinds"], ["model", "model"], ["call", "calls"], ["hook", "hooks"], ["wait", "approvals"], ["bad", "failed or not run"]].map(([value, text]) => h("option", { value }, text)));
    this.axis = h("div.axis", { "aria-hidden": "true" });
    this.space = h("div");
    this.space.style.position = "relative";
    this.rows = h("div.time-scroll", { role: "region", "aria-label": "Rows of the timeline. Plus and minus zoom, arrows move.", tabindex: "0", onscroll: () => this.draw(), onkeydown: (event) => this.key(event) }, this.space);
    this.chosen = h("div", { "aria-live": "polite" });
    this.totals = h("dl.totals");
    this.heading = h("h1", null, "Timeline");
    this.back = h("a", { "data-nav": true }, "← Conversation");
    this.element = [h("div.page.full", null, h("div.inner", null, this.heading, this.back, this.totals,
      h("div.row", null, this.filter, this.only, h("button", { onclick: () => this.zoom(0.5), "aria-label": "Zoom in" }, "+"), h("button", { onclick: () => this.zoom(2), "aria-label": "Zoom out" }, "−"), h("button", { onclick: () => this.all() }, "All")),
      h("p.small.faint", null, "A bar is the time from start to end; its filled part is as long as the time in the cell or the server. The time between turns is left out."),
      this.axis, this.rows, this.chosen))];
    this.rows.addEventListener("pointerdown", (event) => this.drag(event));
    new ResizeObserver(() => this.draw()).observe(this.rows);
  }

  async open(id) {
    this.close();
    this.id = id;
    this.back.setAttribute("href", "/s/" + encodeURIComponent(id));
    replace(this.chosen);
    replace(this.space);
    this.current = null;
    this.app.connection("");
    const session = this.session = new Session(id);
    const stream = this.stream = new Stream(session, {
      connection: (...told) => this.app.connection(...told),
      onEvent: () => this.changed(),
      onState: () => this.changed(),
      onDeleted: () => this.problem("it was deleted"),
    });
    try {
      if (!await stream.load()) return;
    } catch (error) {
      if (!stream.isStopped) this.problem(error.message);
      return;
    }
    session.running = ["running", "waiting"].includes(session.info.state);
    this.read();
    this.all();
    stream.start();
  }

  problem(why) { replace(this.totals, h("p.bad", null, "The session could not be loaded: " + why)); }

  /** Draws soon, and as long as a turn runs. */
  changed() {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      const isWhole = this.from === this.first && this.to === this.last;
      this.read();
      if (isWhole) this.all();
      else { this.extent(); this.refresh(); }
      if (this.current !== null) this.show();
      if (this.session.running) this.changed();
    }, PAUSE);
  }

  /** Makes rows and totals of the events. */
  read() {
    const { session } = this;
    this.all_rows = rowsOf(session.events, session.running ? Date.now() : 0);
    const { totals } = session;
    let peak = 0;
    let moved = 0;
    for (const row of this.all_rows) {
      peak = Math.max(peak, row.receipt?.peak_memory || 0);
      moved += (row.receipt?.bytes_in || 0) + (row.receipt?.bytes_out || 0);
    }
    const numbers = [["time", span(totals.wall * 1000)], ["tokens", `${about(totals)}${count(totals.input)} in, ${count(totals.output)} out`], ["cost", totals.cost === null ? "no prices" : price(totals, totals.cost)],
      ["calls", count(totals.calls)], ["fuel", count(totals.fuel)], ["peak memory", bytes(peak)], ["bytes", bytes(moved)], ["denials", (totals.denials ? "⊘ " : "") + count(totals.denials)]];
    replace(this.totals, numbers.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
  }

  close() {
    this.stream?.stop();
    clearTimeout(this.timer);
    this.timer = null;
    this.all_rows = [];
  }

  /** Finds the time from the first row to the last. */
  extent() {
    const rows = this.all_rows;
    this.first = rows.length ? Math.min(...slices(rows, (row) => row.from)) : 0;
    this.last = rows.length ? Math.max(...slices(rows, (row) => row.to)) : 1;
    if (this.last <= this.first) this.last = this.first + 1;
  }

  all() {
    this.extent();
    [this.from, this.to] = [this.first, this.last];
    this.refresh();
  }

  refresh() {
    const words = this.filter.value.toLowerCase();
    const kind = this.only.value;
    this.shown = (this.all_rows || []).filter((row) =>
      row.name.toLowerCase().includes(words) && (!kind || (kind === "bad" ? ["failed", "refused"].includes(row.state) : row.kind === kind)));
    this.space.style.height = `${this.shown.length * ROW}px`;
    this.drawn = "";
    this.draw();
  }

  draw() {
    if (!this.shown) return;
    const length = this.to - this.from;
    replace(this.axis, [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", null, span((this.from - this.first + part * length) * 1000))));
    const top = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 10);
    const end = Math.min(this.shown.length, Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / ROW) + 10);
    const drawn = `${top} ${end} ${this.from} ${this.to} ${this.shown.length}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const focused = document.activeElement?.dataset?.number;
    replace(this.space, this.shown.length ? this.shown.slice(top, end).map((row, index) => this.row(row, top + index)) : h("p.faint", null, "Nothing to show."));
    if (focused) this.space.querySelector(`[data-number="${focused}"]`)?.focus({ preventScroll: true });
  }

  row(row, index) {
    const scale = 100 / (this.to - this.from);
    const bar = h(`div.span.${row.state === "done" ? row.kind : row.state}`);
    const part = inside(row);
    if (part) {
      const filled = h("div.part");
      filled.style.width = `${Math.min(100, (part * 100) / (row.to - row.from))}%`;
      bar.classList.add("whole");
      bar.append(filled);
    }
    const left = (row.from - this.from) * scale;
    const width = Math.max((row.to - row.from) * scale, 0);
    bar.style.left = `${left}%`;
    bar.style.width = `${width}%`;
    const [time, more] = measured(row);
    const label = h("span.label", null, time, more && h("span.more", null, more), row.state === "done" ? h("span.unseen", null, " done") : " · " + wordOf(row));
    const end = left + width;
    const room = this.rows.clientWidth < 600 ? 55 : 25;
    if (end < 100 - room) label.style.left = `calc(${Math.max(0, end)}% + 4px)`;
    else if (left > room) label.style.right = `calc(${Math.max(0, 100 - left)}% + 4px)`;
    else label.classList.add("over");
    const button = h("button.time-row", { "data-row": String(index), "data-number": String(row.number), onclick: () => this.choose(row, index), onkeydown: (event) => this.rowKey(event, index) },
      h("span.what", null, row.depth > 0 && h("span.unseen", null, `in an agent, level ${row.depth}: `), line(row.name, 60)), h("span.lane", null, bar, label));
    button.firstChild.style.paddingLeft = `${8 + INDENT * Math.min(row.depth, MOST_LEVELS)}px`;
    button.style.top = `${index * ROW}px`;
    if (this.current === row.number) button.setAttribute("aria-current", "true");
    return button;
  }

  choose(row) {
    this.current = row.number;
    this.shownAs = "";
    this.drawn = "";
    this.draw();
    this.show();
  }

  /** Shows the chosen row below the others; what is open in it stays open as long as nothing of it changes. */
  show() {
    const row = this.all_rows.find(({ number }) => number === this.current);
    const shownAs = `${this.current} ${row.entries.length} ${row.state}`;
    if (shownAs === this.shownAs) return;
    this.shownAs = shownAs;
    const call = row.kind === "call" && !row.depth && [...this.session.calls.values()].find((one) => one.id === row.id);
    replace(this.chosen, h("section.card", null, h("h2", null, line(row.name, 100)),
      row.kind === "call" && h("p", null, row.state === "running" ? "it runs" : `from start to result: ${measured(row).join("")}`), call ? details(call) : row.receipt && h("p", null, `${span(row.receipt.wall_us)} · ${count(row.receipt.fuel)} fuel · ${bytes(row.receipt.peak_memory)} memory`),
      row.usage && h("p", null, tokens(row.usage)),
      h("details", null, h("summary", null, "Events as JSON"), row.entries.map((entry) => box(JSON.stringify(entry, null, 2), { label: "Event" })))));
  }

  rowKey(event, index) {
    const to = { ArrowDown: index + 1, ArrowUp: index - 1 }[event.key];
    if (to === undefined || to < 0 || to >= this.shown.length) return;
    event.preventDefault();
    event.stopPropagation();
    const top = to * ROW;
    if (top < this.rows.scrollTop) this.rows.scrollTop = top;
    else if (top + ROW > this.rows.scrollTop + this.rows.clientHeight) this.rows.scrollTop = top + ROW - this.rows.clientHeight;
    this.draw();
    this.space.querySelector(`[data-row="${to}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    const length = this.to - this.from;
    const steps = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.all(), ArrowLeft: () => this.move(-length / 4), ArrowRight: () => this.move(length / 4) };
    if (event.ctrlKey || event.metaKey || !steps[event.key]) return;
    event.preventDefault();
    steps[event.key]();
  }

  zoom(factor) {
    const middle = (this.from + this.to) / 2;
    const half = Math.max(0.5, ((this.to - this.from) * factor) / 2);
    this.range(middle - half, middle + half);
  }

  move(by) { this.range(this.from + by, this.to + by); }

  range(from, to) {
    const length = Math.min(to - from, this.last - this.first);
    this.from = Math.max(this.first, Math.min(from, this.last - length));
    this.to = this.from + length;
    this.draw();
  }

  /** Dragging over the lanes zooms to that time. */
  drag(event) {
    const lane = event.target.closest(".lane");
    if (!lane || event.button !== 0) return;
    const box = lane.getBoundingClientRect();
    const at = (x) => this.from + ((x - box.left) / box.width) * (this.to - this.from);
    const start = event.clientX;
    addEventListener("pointerup", (up) => {
      if (Math.abs(up.clientX - start) < 8) return;
      this.range(at(Math.min(start, up.clientX)), at(Math.max(start, up.clientX)));
    }, { once: true });
  }
}

// Arguments of a call are limited to some ten thousand.
function slices(rows, of) {
  const all = [];
  for (let at = 0; at < rows.length; at += 10_000) all.push(...rows.slice(at, at + 10_000).map(of));
  return all.length > 50_000 ? [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))] : all;
}
