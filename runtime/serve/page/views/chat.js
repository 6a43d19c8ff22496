// The conversation: items, the question above the input, and the input.
import { h, line, own, replace, announce } from "../dom.js";
import { ApiError } from "../api.js";
import { api } from "../contract.js";
import { Session } from "../model.js";
import { Stream } from "../stream.js";
import { itemView } from "./items.js";
import { modelQuestion, questionCard } from "./question.js";
import { Composer } from "./composer.js";
import { side } from "./side.js";

/** Distance from the end at which the view still counts as being there, in pixels. */
const AT_END = 48;
/** Number of items in a group. */
const CHUNK = 20;

/** Files of a message that was sent, to be sent again. */
const filesOf = (user) => (user.attachments || []).filter((part) => part.type === "blob" && typeof part.data === "string")
  .map((part, index) => ({ name: part.name || `file ${index + 1}`, media_type: part.media_type, data: part.data }));

export class Chat {
  constructor(app) {
    this.app = app;
    this.column = h("div.column", { role: "log", "aria-label": "Conversation", "aria-live": "off" });
    this.waiting = h("div.column.waiting", { "aria-hidden": "true" });
    this.scroller = h("div.scroll", { tabindex: "0", "aria-label": "Conversation", role: "region" }, h("h1.unseen", null, "Conversation"), this.column, this.waiting);
    this.below = h("button.new-below", { hidden: true, onclick: () => { this.atEnd = true; this.toEnd(); } }, "↓ new below");
    this.asked = h("div.asked");
    this.composer = new Composer({ send: (...message) => this.send(...message), cancel: () => this.cancel(), limits: app.info.limits });
    this.dock = h("div.dock", null, this.below, this.asked, this.composer.element);
    this.element = [this.scroller, this.dock];
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.sizes = new ResizeObserver(() => { if (this.atEnd) this.toEnd(); });
    this.sizes.observe(this.column);
    this.near = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        this.near.unobserve(entry.target);
        this.views.get(entry.target.item)?.show?.();
      }
    }, { root: this.scroller, rootMargin: "600px" });
  }

  async open(id) {
    this.close();
    this.atEnd = true;
    this.views = new Map();
    this.below.hidden = true;
    this.questions = [];
    replace(this.asked);
    replace(this.column);
    replace(this.waiting);
    this.session = new Session(id);
    this.composer.open(id);
    this.composer.running(false);
    this.editing = null;
    this.app.connection("");
    if (!id) return this.empty();
    const opened = this.session;
    const stream = this.stream = new Stream(opened, {
      connection: (...told) => this.app.connection(...told),
      onEvent: (entry) => this.event(entry.event),
      onState: (told) => this.state(told),
      onDeleted: () => this.problem(new ApiError(404, "not_found", "the session was deleted")),
    });
    try {
      if (!await stream.load()) return;
    } catch (error) {
      if (!stream.isStopped) this.problem(error);
      return;
    }
    // While its first message is on the way, the view of a first visit would only flash.
    if (!opened.items.length && opened.info.state === "new" && !this.isSending) this.empty();
    this.draw();
    this.toEnd();
    stream.start();
  }

  close() {
    this.stream?.stop();
    this.stream = null;
    this.session = null;
    this.near.disconnect();
  }

  /** The stand-in says what it is, and examples work without a key. */
  empty() {
    const agent = this.app.info.agents[0] || {};
    replace(this.column, h("div.empty", null, h("h2", null, "What should the agent do?"),
      agent.stand_in && h("p.banner", null, "No model is configured: the offline stand-in answers. It picks one tool by the words of a request. ",
        "Set a key, for example OPENAI_API_KEY, and restart the server to use a model."),
      this.agents(),
      h("p.faint", null, "Each call of a tool runs in a cell of its own, with what your configuration grants and nothing else."),
      h("div.examples", null, (this.app.info.examples || []).map((text) => h("button", { onclick: () => this.send(text, []) }, text)))));
    this.app.side(side(this.session, this.app));
  }

  /** Choice of the agent of a new session, if there are several. */
  agents() {
    const { agents } = this.app.info;
    if (agents.length < 2) return null;
    return h("label.row", null, "Agent ", h("select", { onchange: (event) => { this.app.agent = event.target.value; this.app.side(side(this.session, this.app)); this.composer.focus(); } },
      agents.map(({ name, description }) => h("option", { value: name, selected: name === this.app.agent }, name + (description ? ": " + description : "")))));
  }

  problem(error) {
    const words = {
      401: ["You are not signed in", "Open the link that `toolcell serve` printed in the terminal; it signs this browser in."],
      403: ["You may not open this session", "It belongs to another user of this server."],
      404: ["There is no such session", "It may have been deleted. The list on the left has those that are there."],
    }[error.status] || ["The session could not be loaded", "Check that the server is running."];
    replace(this.column, h("section.failure", { role: "alert" }, h("h2", null, words[0]), h("p", null, own(words[1])), h("p.faint", null, line(error.message, 300)),
      h("button", { onclick: () => this.open(this.session?.id) }, "Retry")));
  }

  event({ type, text }) {
    if (type === "turn_started") this.composer.accepted();
    if (type === "step_finished") this.reload();
    if (type === "turn_finished") {
      announce("Answer complete. " + (text || "").slice(0, 600));
      this.app.sessions.load();
      this.reload();
    }
    if (["turn_started", "turn_finished", "turn_undone"].includes(type)) this.drawQuestions();
    this.schedule();
  }

  /** The state, and all open questions: the first message of a stream, and whenever one of them changes. */
  state({ questions }) {
    this.questions = questions || [];
    this.drawQuestions();
    this.app.sessions.load();
    this.schedule();
  }

  /** Budget and title, as of the end of a step or turn. */
  async reload() {
    const { session } = this;
    try {
      session.info = await api.session(session.id);
      if (session === this.session) this.schedule();
    } catch { /* the next turn tries again */ }
  }

  schedule() {
    if (this.drawing) return;
    this.drawing = true;
    const draw = () => { this.drawing = false; if (this.session) this.draw(); };
    // Without frames, as in a tab in the background, once a second is enough.
    if (document.hidden) setTimeout(draw, 1000);
    else requestAnimationFrame(draw);
  }

  draw() {
    const { session } = this;
    const { added, changed } = session.take();
    if (added.length) {
      this.column.querySelector(".empty")?.remove();
      for (const item of added) {
        const view = itemView(item, {
          onCancel: (call) => this.cancelCall(call), onRetry: (end) => this.retry(end), onEdit: (user) => this.edit(user),
        });
        view.element.item = item;
        this.views.set(item, view);
        this.chunk().append(view.element);
        if (view.show) this.near.observe(view.element);
      }
    }
    for (const item of changed) this.views.get(item)?.update();
    const busy = [...session.calls.values()].find((call) => call.state === "running");
    const waits = session.state === "waiting" ? "waiting for your answer …" : busy || session.answer ? "" : "waiting for the model …";
    replace(this.waiting, h("span", null, session.running ? waits : ""));
    this.composer.running(session.running);
    if (this.atEnd) this.toEnd();
    else if (added.length || changed.length) this.below.hidden = false;
    this.app.side(side(session, this.app));
  }

  /** Items stand in groups, and a browser lays out only those near the screen (`content-visibility`). */
  chunk() {
    let last = this.column.lastElementChild;
    if (!last?.classList.contains("chunk") || last.childElementCount >= CHUNK) this.column.append((last = h("div.chunk")));
    return last;
  }

  toEnd() {
    this.below.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < AT_END;
    // A growing text moves the end away from the view; only the user moves the view up.
    if (isAtEnd) this.atEnd = true;
    else if (scrollTop < (this.lastTop ?? 0)) this.atEnd = false;
    this.lastTop = scrollTop;
    if (isAtEnd) this.below.hidden = true;
  }

  /** A turn that is open, or runs in another process. */
  banner() {
    const { session } = this;
    const act = (action) => async () => {
      try { await action(session.id); } catch (error) { this.composer.failed("Not done: " + error.message, error.hints); }
    };
    if (session.state === "elsewhere") return h("div.banner", { role: "status" }, "Another process uses this session. Its new events appear when it has ended; you can continue it then.");
    const end = h("button", { onclick: act(api.abandon) }, "End it");
    if (session.state === "client") {
      return h("div.banner", { role: "status" }, "The last turn waits for the client of /v1 that asked, which runs a tool itself. It goes on with the result that the client sends. ", h("div.row", null, end));
    }
    if (session.state !== "open") return null;
    return h("div.banner", { role: "status" }, "The last turn is not over: it was interrupted, or waits for an approval. Calls that have finished do not run again. ",
      h("div.row", null, h("button", { onclick: act(api.resume) }, "Continue the turn"), end));
  }

  /** One question at a time: the next one comes when this one is answered. */
  drawQuestions() {
    const { session, questions: waiting } = this;
    const [first] = waiting;
    const shown = this.asked.querySelector(".question")?.dataset.question;
    if (first && first.id === shown) return;
    // The input is hidden meanwhile: keys that were meant for it go to the card, where none of them does anything.
    const hadFocus = this.dock.contains(document.activeElement);
    this.dock.classList.toggle("asking", Boolean(first));
    if (!first) { replace(this.asked, modelQuestion(session, (text) => this.composer.put(text)) || this.banner()); return; }
    replace(this.asked, questionCard(first, {
      answer: async (choice, words) => {
        await api.answer(session.id, first, choice, words);
        this.questions = this.questions.filter((question) => question.id !== first.id);
        this.drawQuestions();
        this.composer.focus();
      },
    }), waiting.length > 1 && h("p.small.faint", null, `${waiting.length - 1} more after this one`));
    if (hadFocus) this.asked.querySelector(".question").focus({ preventScroll: true });
  }

  async send(text, attachments) {
    let { session } = this;
    this.isSending = true;
    try {
      if (!session.id) {
        const created = await api.create(this.app.agent);
        await this.app.go("/s/" + encodeURIComponent(created.id));
        session = this.session;
      } else if (this.editing) {
        const fork = await api.fork(session.id, this.editing);
        this.editing = null;
        await this.app.go("/s/" + encodeURIComponent(fork.id));
        session = this.session;
      }
      this.atEnd = true;
      const before = session.turn;
      await api.turn(session.id, text, attachments);
      this.composer.accepted();
      // The events of a short turn can all be here before this answer.
      if (session.turn === before) session.running = true;
      this.schedule();
      this.app.sessions.load();
    } catch (error) {
      if (session === this.session && !session.items.length) this.empty();
      this.composer.put(text);
      this.composer.failed(error.code === "offline" ? "The server does not answer. Your text is kept; send it again." : "Not sent: " + error.message, error.hints);
    } finally {
      this.isSending = false;
    }
  }

  edit(user) {
    this.editing = user.turn;
    this.composer.put(user.text);
    this.composer.attach(filesOf(user));
    this.composer.note("Sending this starts a copy of the session from before that message.", () => { this.editing = null; });
  }

  /** Sends the message of a turn again. */
  retry(end) {
    const user = this.session.items.findLast((item) => item.kind === "user" && item.turn === end.turn);
    if (user) this.send(user.text, filesOf(user));
  }

  async cancelCall(call) {
    // One that has ended meanwhile needs no word: its card shows the end.
    try { await api.cancelCall(this.session.id, call.id); } catch (error) { if (error.code !== "no_call") this.composer.failed("Not cancelled: " + error.message); }
  }

  async cancel() {
    const { session } = this;
    if (!session?.id) return;
    try { await api.cancel(session.id); } catch (error) { this.composer.failed("Not cancelled: " + error.message); }
  }

  /** Keys: `j` and `k` move between calls, `o` opens one, `Escape` asks before it cancels. */
  key(event) {
    const calls = [...this.column.querySelectorAll(".call > button")];
    const at = calls.indexOf(document.activeElement);
    if (event.key === "j" || event.key === "k") {
      const next = at < 0 ? (event.key === "j" ? 0 : calls.length - 1) : at + (event.key === "j" ? 1 : -1);
      calls[Math.max(0, Math.min(calls.length - 1, next))]?.focus();
      return calls.length > 0;
    }
    if (event.key === "o" && at >= 0) { calls[at].click(); return true; }
    if (event.key === "t" && this.session?.id) { this.app.go(`/s/${encodeURIComponent(this.session.id)}/timeline`); return true; }
    if (event.key === "Escape" && this.session?.running) {
      this.app.confirm("Cancel the running turn?", "What its calls have done stays done.", "Cancel the turn", () => this.cancel());
      return true;
    }
    return false;
  }
}
