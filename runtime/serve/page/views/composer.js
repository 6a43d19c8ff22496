// The input: text, files and images, send and cancel. What was typed survives reloads and failures.
import { h, line, replace, bytes } from "../dom.js";

const MOST_FILES = 8;

export class Composer {
  constructor({ send, cancel, limits }) {
    this.onSend = send;
    this.limits = limits || {};
    this.files = [];
    /** Files of the messages that are written in other sessions, by the keys of the drafts. */
    this.kept = new Map();
    this.area = h("textarea", { rows: "1", "aria-label": "Message", placeholder: "Message", oninput: () => this.typed(), onkeydown: (event) => this.key(event), onpaste: (event) => this.take(event.clipboardData?.files, event) });
    this.list = h("div.files");
    this.problem = h("div.small.bad", { role: "alert" });
    this.about = h("div.small.faint");
    this.picker = h("input", { type: "file", multiple: true, hidden: true, tabindex: "-1", "aria-hidden": "true", onchange: () => { this.take(this.picker.files); this.picker.value = ""; } });
    this.submit = h("button.main", { onclick: () => this.send() }, "Send");
    this.stop = h("button", { hidden: true, onclick: cancel }, "Cancel");
    this.element = h("div.composer", { ondragover: (event) => event.preventDefault(), ondrop: (event) => this.take(event.dataTransfer?.files, event) },
      this.about, this.problem, this.list, this.area,
      h("div.row", null, h("button.quiet.typing", { onclick: () => this.picker.click() }, "Attach files"), this.picker,
        h("span.grow"), h("span.small.faint.hint.typing", { "aria-hidden": "true" }, "Enter sends, Shift+Enter is a new line"), this.stop, this.submit));
    this.submit.classList.add("typing");
  }

  draftKey() { return "draft:" + (this.id || "new"); }

  open(id) {
    // Files wait for their message like its text does, but not over a reload.
    this.kept.set(this.draftKey(), this.files);
    this.id = id;
    this.files = this.kept.get(this.draftKey()) || [];
    this.drawFiles();
    this.problem.textContent = "";
    replace(this.about);
    let draft = "";
    try { draft = sessionStorage.getItem(this.draftKey()) || ""; } catch { /* private mode */ }
    this.area.value = draft;
    this.typed();
  }

  typed() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
    this.submit.disabled = this.isRunning || this.sending || (!this.area.value.trim() && !this.files.length);
    try { sessionStorage.setItem(this.draftKey(), this.area.value); } catch { /* private mode */ }
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); }
  }

  put(text) { this.area.value = text; this.typed(); this.focus(); }
  focus() { this.area.focus(); }
  /** Attaches files that were sent before. */
  attach(files) {
    this.files = files.map((file) => ({ ...file, size: Math.floor((file.data.length * 3) / 4), url: null }));
    this.drawFiles();
    this.typed();
  }
  failed(text, hints = []) { replace(this.problem, text, hints.map((hint) => h("div", null, "hint: ", line(hint, 300)))); }

  note(text, undo) {
    replace(this.about, text, " ", h("button.quiet", { onclick: () => { replace(this.about); this.attach([]); this.put(""); undo(); } }, "do not"));
  }

  running(isRunning) {
    if (isRunning === this.isRunning) return;
    this.isRunning = isRunning;
    this.stop.hidden = !isRunning;
    this.typed();
  }

  accepted() { this.problem.textContent = ""; }

  async send() {
    const text = this.area.value;
    if (this.isRunning || this.sending || (!text.trim() && !this.files.length)) return;
    this.sending = true;
    const { files } = this;
    this.area.value = "";
    this.typed();
    this.files = [];
    this.drawFiles();
    replace(this.about);
    this.problem.textContent = "";
    try {
      await this.onSend(text, files.map(({ name, media_type, data }) => ({ name, media_type, data })));
    } finally {
      this.sending = false;
      this.typed();
      if (this.problem.textContent && files.length) { this.files = files; this.drawFiles(); }
    }
  }

  async take(list, event) {
    // The list of an input or of an event changes while files are read.
    const files = [...(list || [])];
    if (!files.length) return;
    event?.preventDefault();
    const most = this.limits.attachment_bytes || 10 << 20;
    for (const file of files) {
      if (this.files.length >= MOST_FILES) { this.failed(`A message has at most ${MOST_FILES} files.`); break; }
      if (file.size > most) { this.failed(`A file is larger than ${bytes(most)} and was not attached.`); continue; }
      const data = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.onload = () => resolve(String(reader.result).split(",", 2)[1] || "");
        reader.onerror = () => resolve(null);
        reader.readAsDataURL(file);
      });
      if (data === null) { this.failed("A file could not be read."); continue; }
      this.files.push({ name: file.name, media_type: file.type || "application/octet-stream", data, size: file.size, url: file.type.startsWith("image/") ? URL.createObjectURL(file) : null });
    }
    this.drawFiles();
    this.typed();
  }

  drawFiles() {
    replace(this.list, this.files.map((file, index) => h("div.file", null, file.url && h("img", { src: file.url, alt: "" }), line(file.name, 40), " ", bytes(file.size),
      h("button.quiet", { "aria-label": "Remove the file", onclick: () => { this.files.splice(index, 1); this.drawFiles(); this.typed(); } }, "✕"))));
  }
}
