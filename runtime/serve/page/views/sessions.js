// The list of sessions: search, names, age and state.
import { h, line, replace, ago } from "../dom.js";
import { api } from "../contract.js";

const STATES = {
  new: ["new", ""], idle: ["✓ done", ""], asked: ["? asks you", "warn"], running: ["◌ running", ""], waiting: ["? waits for you", "warn"], open: ["! interrupted", "warn"], client: ["… waits for its client", ""],
  elsewhere: ["in another process", ""], failed: ["✗ failed", "bad"],
};
const REFRESH = 5_000;
/** Number of sessions in the list at first, and number of those that are added on request. */
const SOME = 50;

export class Sessions {
  constructor(aside, navigate) {
    this.aside = aside;
    this.navigate = navigate;
    this.current = null;
    this.list = h("ul.list");
    this.more = h("button.quiet", { hidden: true, onclick: () => { this.wanted = this.sessions.length + SOME; this.load(); } }, "older sessions");
    this.status = h("p.small.faint", { role: "status" });
    this.search = h("input", { type: "search", placeholder: "Search ( / )", "aria-label": "Search sessions", oninput: () => this.typed() });
    replace(aside, h("button.main", { onclick: () => navigate("/") }, "New session"), this.search, this.status, this.list, this.more);
    this.sessions = [];
    this.wanted = SOME;
    this.loads = 0;
    this.shown = 0;
    setInterval(() => { if (!document.hidden) this.load(); }, REFRESH);
  }

  typed() {
    clearTimeout(this.timer);
    this.wanted = SOME;
    this.timer = setTimeout(() => this.load(), 200);
  }

  select(id) {
    this.current = id;
    this.draw();
  }

  /** Reads the list anew, as long as it is. */
  async load() {
    const query = this.search.value.trim();
    const load = (this.loads += 1);
    const { wanted } = this;
    try {
      const all = [];
      let cursor;
      do {
        const page = await api.sessions({ query, cursor, limit: wanted - all.length });
        // Of two answers on the way, the later request has the newer one.
        if (load < this.shown || query !== this.search.value.trim()) return;
        all.push(...page.sessions);
        cursor = page.cursor;
      } while (cursor && all.length < wanted);
      this.shown = load;
      this.sessions = all;
      this.more.hidden = !cursor;
      this.status.textContent = all.length ? "" : query ? "No session has these words." : "No sessions yet.";
      this.draw();
    } catch (error) {
      this.status.textContent = error.status === 401 ? "Not signed in." : "The list could not be loaded: " + error.message;
    }
  }

  draw() {
    const drawn = JSON.stringify([this.sessions, this.current, Math.floor(Date.now() / 60_000)]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    replace(this.list, this.sessions.map((session) => {
      const [word, color] = STATES[session.state] || STATES.idle;
      const path = "/s/" + encodeURIComponent(session.id);
      return h("li", null, h("a", { href: path, "data-nav": true, "aria-current": session.id === this.current ? "page" : null },
        h("span.name", null, line(session.title || "untitled", 80)), session.matches?.[0] && h("span.meta", null, line(session.matches[0].text, 80)),
        h("span.meta", null, h("span" + (color && "." + color), null, word), h("span", null, ago(session.updated)))));
    }));
    if (focused) this.list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}
