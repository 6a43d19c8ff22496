// Items of a conversation: text of the user and the model, calls, notices and ends of turns.
import { h, foreign, line, own, box, tree, replace, plural, count, money, span, copyButton, append } from "../dom.js";
import { markdown } from "../api.js";
import { callCard, contentPart } from "./calls.js";

/** Pause between two renderings of an answer that grows, in milliseconds. */
const PAUSE = 80;
/** Pause after a rendering that failed, in milliseconds. */
const AGAIN = 2000;

/** Markdown that grows. Blocks before the last two are final; the rest is rendered anew and replaced where it differs. */
class Answer {
  constructor(item) {
    this.item = item;
    this.body = h("div.body", null, h("div.raw", null, foreign(item.text)));
    this.tools = h("div.tools", null, copyButton(() => this.item.text));
    // Busy until all of the answer is rendered (WAI-ARIA 1.2).
    this.element = h("div.item.answer", { "aria-busy": "true" }, this.body, this.tools);
    this.blocks = [];
    this.rendered = null;
    this.visible = false;
  }

  show() {
    this.visible = true;
    this.render();
  }

  update() {
    // Until something is rendered, the text stands as it is.
    if (!this.blocks.length) replace(this.body.firstChild, foreign(this.item.text));
    if (this.visible) this.render();
  }

  async render() {
    // A new connection can bring the text once more.
    const isWhole = () => this.rendered === this.item.text && (this.isFinal || !this.item.done);
    if (this.busy || isWhole() || !this.element.isConnected) return;
    this.busy = true;
    try {
      while (!isWhole() && this.element.isConnected) {
        const { text, done } = this.item;
        const from = done ? 0 : this.blocks.at(-2)?.start || 0;
        this.place(from, await markdown(text.slice(from)));
        this.rendered = text;
        this.isFinal = done;
        this.element.setAttribute("aria-busy", String(!isWhole() || !done));
        if (!this.item.done) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      }
    } catch {
      // The plain text stays meanwhile.
      setTimeout(() => this.render(), AGAIN);
    } finally {
      this.busy = false;
    }
  }

  place(from, blocks) {
    if (!this.blocks.length) replace(this.body);
    const kept = this.blocks.filter((block) => block.start < from);
    const old = this.blocks.slice(kept.length);
    const added = blocks.map(([start, node], index) => {
      const json = JSON.stringify(node);
      const same = old[index];
      if (same && same.json === json) return { ...same, start: from + start };
      const element = tree(node);
      if (same) same.element.replaceWith(element);
      else this.body.append(element);
      return { start: from + start, json, element };
    });
    for (const block of old.slice(blocks.length)) block.element.remove();
    this.blocks = [...kept, ...added];
    if (!this.blocks.length) append(this.body, [h("div.raw", null, foreign(this.item.text))]);
  }
}

class User {
  constructor(item, { onEdit }) {
    this.element = h("div.item.user", null, h("h2.unseen", null, "Your message"),
      h("div.said", null, h("bdi.foreign", null, foreign(item.text)),
        (item.attachments || []).map((part) => contentPart(part))),
      h("div.tools", null, copyButton(() => item.text), item.seq !== undefined && h("button.quiet", { onclick: () => onEdit(item) }, "edit and resend")));
  }
  update() {}
}

class Reasoning {
  constructor(item) {
    this.item = item;
    this.text = h("pre");
    this.count = h("span");
    this.element = h("details.item.reasoning", null, h("summary", null, "reasoning of the model ", this.count), this.text);
    this.element.addEventListener("toggle", () => this.update());
    this.update();
  }
  update() {
    const { length } = this.item.text;
    this.count.textContent = this.item.done ? `(${plural(length, "character")})` : "…";
    if (this.element.open) replace(this.text, foreign(this.item.text));
  }
}

class Note {
  constructor(item) {
    const icon = { warning: "! ", error: "✗ " }[item.level] || "";
    this.element = h(`div.item.note.${["warning", "error"].includes(item.level) ? item.level : "info"}`, null, icon, item.own,
      item.text && (item.text.length > 200 ? box(item.text, { lines: 4, label: "Notice" }) : [" ", line(item.text, 400)]));
  }
  update() {}
}

class Call {
  constructor(item, options) {
    this.card = callCard(item, options);
    this.element = h("div.item.call-item", null, this.card.element);
  }
  update() { this.card.update(); }
}

/** Word before what has estimates. */
export const about = (usage) => (usage.estimated ? "about " : "");

/** A cost, which is higher than known if some of the tokens have no price. */
export const price = (usage, cost) => (usage.unpriced ? "at least " : "") + about(usage) + money(cost);

export function tokens(usage) {
  const cached = usage.cache_read ? ` (${count(usage.cache_read)} cached)` : "";
  return `${about(usage)}${count(usage.input)} tokens in${cached}, ${count(usage.output)} out`;
}

/** Tokens and cost as in the last line of a turn on the terminal. */
export function used(usage, cost) {
  const parts = [];
  if (usage && usage.input + usage.output > 0) parts.push(tokens(usage));
  if (cost !== undefined && cost !== null) parts.push("cost " + price(usage || {}, cost));
  return parts;
}

/** Reasons for which a model stopped, and what to do. */
const STOPS = {
  max_tokens: ["it was cut at the maximum number of tokens of an answer", "Allow longer answers with `[provider] max_output_tokens`, or ask for a shorter one."],
  refused: ["the model or a filter of the provider refused", "Change the request, or use another model."],
  paused: ["it paused", "Send a message to continue."],
  malformed_call: ["it wrote a call that the provider could not read, even when asked again", "Try again, or use another model."],
};

/** What to do after an error of a provider, by its kind, as the terminal says it. */
const ADVICE = {
  unauthorized: "Check the key of the provider; `toolcell config check` shows where it comes from.",
  context_length: "The conversation is longer than the model can read: start a new session, or use a model with a longer context.",
  rate_limited: "Try again later, or check the limits of your account.",
  quota_exceeded: "Waiting a little does not help: check the plan and balance of the account, or use another key, model or provider.",
  timeout: "Try again later, or allow more time with `idle_timeout` or `request_timeout` in `[provider]`.",
  unavailable: "Try again later.",
  truncated: "Try again later.",
};

/** Why the wait that a server asks for was not waited, by the limit in the way. */
const UNMET = { longest: "no request waits longer than 2 min", request_timeout: "it is beyond `request_timeout` in `[provider]`" };

/** Why a request to a provider failed, and what to do. A server that says when to try again is heard. */
function ofProvider(error) {
  const asked = error.retry_after_ms ? span(error.retry_after_ms * 1000) : "";
  const unmet = asked && Object.hasOwn(UNMET, error.wait_limit) && UNMET[error.wait_limit];
  const waits = asked && ["rate_limited", "unavailable"].includes(error.kind);
  return {
    asks: unmet && `The server asks to wait ${asked}, and ${unmet}.`,
    todo: waits ? `Try again in ${asked}${error.wait_limit === "request_timeout" ? ", or allow more time with `request_timeout` in `[provider]`" : ""}.`
      : Object.hasOwn(ADVICE, error.kind) ? ADVICE[error.kind] : "Try again, or check the provider with `toolcell doctor`.",
  };
}

/** What failed, why, and what to do, for each outcome that is no answer. `said` is true if the turn has a text all the same. */
function failureOf(outcome, said) {
  const of = (what, why, todo) => ({ what, why, todo });
  const error = outcome.error || {};
  switch (outcome.outcome) {
    case "provider_failed": {
      const { asks, todo } = ofProvider(error);
      return { ...of(["request to provider ", h("code.name", null, foreign(error.provider)), " failed", error.status ? ` (HTTP ${error.status})` : ""], error.message, todo), asks };
    }
    case "host_failed": return of("internal error of Toolcell", outcome.message, "Try again; `toolcell doctor` checks the installation.");
    case "budget": return of("the turn exhausted a budget", outcome.reason, "Raise the limit in the configuration, `[budget]`, or start a new session.");
    case "deadline": return of(`the turn reached its deadline of ${span(outcome.ms * 1000)}`, "", "Raise it with `[loop] deadline`, or send a message to continue.");
    case "failing": return of(`the same error occurred ${outcome.times} times in a row`, outcome.error, "Change the request, and try again.");
    case "repeating": return of(["the model called ", h("code.name", null, foreign(outcome.tool)), ` ${outcome.times} times with the same arguments and the same result`], "", "Change the request, and try again.");
    case "aborted": return of(["the hook ", h("code.name", null, foreign(outcome.by)), " ended the turn"], outcome.reason, "");
    case "stopped": {
      const { stop } = outcome;
      const [why, todo] = Object.hasOwn(STOPS, stop) ? STOPS[stop] : [typeof stop === "object" ? stop.other : stop, "Try again."];
      return of(said ? "the answer is incomplete" : "the model stopped without an answer", why, todo);
    }
    default: return null;
  }
}

class End {
  constructor(item, { onRetry }) {
    const outcome = item.outcome || {};
    const parts = [plural(item.steps || 0, "step"), plural(item.calls || 0, "call"), ...used(item.usage, item.cost_micros), span((item.wall_ms || 0) * 1000)];
    const failure = failureOf(outcome, Boolean(item.text?.trim()));
    const words = { cancelled: "■ cancelled · ", step_limit: `! the turn reached its limit of ${plural(outcome.steps || 0, "step")} · `, tools_failed: "! every call failed, and the answer was given without tools · " };
    this.element = h("div.item.end", null,
      failure && h("div.failure", { role: "group", "aria-label": "The turn failed" }, h("h3", null, "✗ ", failure.what),
        failure.why && box(failure.why, { lines: 6, label: "Reason" }), failure.asks && h("p", null, own(failure.asks)), failure.todo && h("p", null, own(failure.todo)),
        h("button", { onclick: () => onRetry(item) }, "Retry")),
      words[outcome.outcome] || "", parts.join(" · "));
  }
  update() {}
}

const VIEWS = { answer: Answer, user: User, reasoning: Reasoning, note: Note, call: Call, end: End };

/** Creates the view of an item: `element`, `update()`, and `show()` when it comes near the screen. */
export const itemView = (item, options) => new VIEWS[item.kind](item, options);
