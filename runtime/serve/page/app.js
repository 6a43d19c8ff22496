// The shell: paths, views, theme, keys and dialogs.
import { h, line, own, replace } from "./dom.js";
import { api } from "./contract.js";
import { Sessions } from "./views/sessions.js";
import { Chat } from "./views/chat.js";
import { Timeline } from "./views/timeline.js";
import { Usage } from "./views/usage.js";
import { Tools } from "./views/tools.js";
import { Scratch } from "./views/scratch.js";

const byId = (id) => document.getElementById(id);
const VIEWS = [["/", "Chat"], ["/usage", "Usage"], ["/tools", "Tools"], ["/scratch", "Scratch"]];
const KEYS = [["/", "search sessions"], ["n", "new session"], ["j / k", "next or previous call"], ["o", "open or close the call"], ["t", "timeline of the session"],
  ["Esc", "close, or cancel the turn (asks)"], ["?", "this help"], ["+ − 0 ← →", "zoom and move the timeline"]];

class App {
  constructor() {
    this.info = { agents: [], limits: {} };
    this.tools = null;
    this.view = null;
    this.main = byId("main");
    this.frame = document.querySelector(".frame");
  }

  async start() {
    this.theme();
    byId("help").addEventListener("click", () => this.help());
    this.sheet("open-sessions", "sessions");
    this.sheet("open-side", "side");
    document.addEventListener("click", (event) => this.clicked(event));
    document.addEventListener("keydown", (event) => this.key(event));
    addEventListener("popstate", () => this.route());
    try {
      this.info = await api.info();
    } catch (error) {
      this.locked(error);
      return;
    }
    this.agent = this.info.agents[0]?.name;
    this.sessions = new Sessions(byId("sessions"), (path) => this.go(path));
    this.views = { chat: new Chat(this), timeline: new Timeline(this), usage: new Usage(this), tools: new Tools(this), scratch: new Scratch(this) };
    this.sessions.load();
    await this.route();
    api.tools().then((tools) => { this.tools = tools; if (this.view === this.views.chat && this.view.session) this.view.draw(); }, () => {});
  }

  locked(error) {
    const isOut = error.status === 401 || error.status === 403;
    this.frame.dataset.view = "wide";
    replace(this.main, h("div.page", null, h("section.failure", { role: "alert" }, h("h1", null, isOut ? "Sign in with the link of the terminal" : "The server does not answer"),
      h("p", null, own(isOut ? "`toolcell serve` prints a link that signs a browser in, once, and another one when it was used." : "Check that `toolcell serve` is running.")),
      h("p.faint", null, line(error.message, 300)), h("button", { onclick: () => location.reload() }, "Try again"))));
  }

  go(path) {
    history.pushState(null, "", path);
    return this.route();
  }

  async route() {
    const path = location.pathname;
    const parts = path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
    const [name, argument] = parts[0] === "s" ? [parts[2] === "timeline" ? "timeline" : "chat", parts[1]] : [{ usage: "usage", tools: "tools", scratch: "scratch" }[parts[0]] || "chat", parts[0] === "scratch" ? parts[1] : undefined];
    this.view?.close();
    this.view = this.views[name];
    this.frame.dataset.view = name === "chat" ? "chat" : "wide";
    for (const id of ["sessions", "side"]) this.close(id);
    byId("open-sessions").hidden = name !== "chat";
    byId("open-side").hidden = name !== "chat";
    const current = name === "timeline" ? "/" : "/" + (name === "chat" ? "" : name);
    replace(byId("nav"), VIEWS.map(([to, text]) => h("a", { href: to === "/" && this.lastChat ? this.lastChat : to, "data-nav": true, "aria-current": to === current ? "page" : null }, text)));
    if (name === "chat" && argument) this.lastChat = path;
    else if (path === "/") this.lastChat = null;
    document.title = { chat: argument ? "Conversation" : "New session", timeline: "Timeline", usage: "Usage", tools: "Tools", scratch: "Scratch" }[name] + " · Toolcell";
    this.sessions.select(name === "chat" ? argument : null);
    replace(this.main, this.view.element);
    await this.view.open(argument);
    // The user may have gone on to another field meanwhile.
    if (this.view === this.views.chat && document.activeElement !== this.sessions.search) this.view.composer.focus();
  }

  /** Goes to the search of sessions, from a view without their list to the one that has it. */
  search() {
    if (this.view !== this.views.chat) this.go(this.lastChat || "/");
    this.openSheet("sessions");
    this.sessions.search.focus();
  }

  side(content) { replace(byId("side"), content); }
  exportPath(id) { return api.exportPath(id); }

  connection(text, retry) {
    const place = byId("connection");
    if (place.dataset.text === text) return;
    place.dataset.text = text;
    replace(place, text, retry && h("button.quiet", { onclick: retry }, "retry now"));
  }

  remove(id) {
    this.confirm("Delete this session?", "Its events and receipts are deleted and cannot be restored.", "Delete", async () => {
      try { await api.remove(id); } catch (error) { this.confirm("Not deleted", error.message, "Close", () => {}); return; }
      this.go("/");
      this.sessions.load();
    });
  }

  /** Asks for the name of a session; without one it is called by its first request. */
  rename(id, name, done) {
    const input = h("input.wide", { type: "text", value: name, "aria-label": "Name", autocomplete: "off", spellcheck: "false" });
    const refused = h("p.bad", { role: "alert" });
    const save = async (event) => {
      event.preventDefault();
      try {
        await api.rename(id, input.value.trim() || null);
      } catch (error) {
        replace(refused, line(error.message, 300));
        input.focus();
        return;
      }
      dialog.close();
      done();
      this.sessions.load();
    };
    const dialog = this.dialog("Rename the session", h("form", { onsubmit: save }, h("p.small.faint", null, "Without a name it is called by its first request."), input, refused,
      h("div.row", null, h("button", { type: "button", onclick: () => dialog.close() }, "Back"), h("button", { type: "submit" }, "Save"))));
    input.select();
  }

  clicked(event) {
    const anchor = event.target.closest?.("a[data-nav]");
    if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.go(anchor.getAttribute("href"));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && document.querySelector("aside.open")) { for (const id of ["sessions", "side"]) this.close(id, true); return; }
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (isTyping && event.key !== "Escape") return;
    // Keys on the way to the input, when a question takes its place, are no commands.
    if (event.target.matches?.(".question") && event.key !== "Escape") return;
    const actions = { "/": () => this.search(), n: () => this.go("/"), "?": () => this.help() };
    const done = Object.hasOwn(actions, event.key) ? (actions[event.key](), true) : this.view?.key?.(event);
    if (done) event.preventDefault();
  }

  sheet(buttonId, id) {
    byId(buttonId).addEventListener("click", () => (byId(id).classList.contains("open") ? this.close(id) : this.openSheet(id)));
  }

  openSheet(id) {
    byId(id).classList.add("open");
    byId("open-" + id).setAttribute("aria-expanded", "true");
  }

  close(id, isFocused = false) {
    if (byId(id).classList.contains("open") && isFocused) byId("open-" + id).focus();
    byId(id).classList.remove("open");
    byId("open-" + id).setAttribute("aria-expanded", "false");
  }

  dialog(title, ...content) {
    const dialog = h("dialog", { "aria-label": title, onclose: () => dialog.remove() }, h("h2", null, title), content);
    document.body.append(dialog);
    dialog.showModal();
    return dialog;
  }

  confirm(title, text, yes, action) {
    const dialog = this.dialog(title, h("p", null, text), h("div.row", null,
      h("button", { onclick: () => dialog.close() }, "Back"), h("button", { onclick: () => { dialog.close(); action(); } }, yes)));
  }

  help() {
    const dialog = this.dialog("Keyboard", h("dl.keys", null, KEYS.map(([key, text]) => [h("dt", null, h("kbd", null, key)), h("dd", null, text)])),
      h("p.small.faint", null, `Toolcell ${this.info.version || ""}`), h("button", { onclick: () => dialog.close() }, "Close"));
  }

  theme() {
    const order = ["system", "light", "dark"];
    const button = byId("theme");
    const set = (theme) => {
      if (theme === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = theme;
      button.setAttribute("aria-label", "Theme: " + (theme === "system" ? "as the system" : theme));
      button.textContent = { system: "◐", light: "○", dark: "●" }[theme];
      try { localStorage.setItem("theme", theme); } catch { /* private mode */ }
    };
    let now = "system";
    try { now = localStorage.getItem("theme") || "system"; } catch { /* private mode */ }
    set(order.includes(now) ? now : "system");
    button.addEventListener("click", () => { now = order[(order.indexOf(now) + 1) % 3]; set(now); });
  }
}

new App().start();
