// Elements of the page. Everything foreign (text of models, tools, files and servers) becomes text nodes here and nowhere is
// HTML made of a string: the page runs under `require-trusted-types-for 'script'` without any policy.

/** Characters that control, hide or reorder text, or have no glyph. */
const HIDDEN =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u2800\u3164\ufe00-\ufe0d\uffa0\ufffc\u{e0100}-\u{e01ef}]/u;
const JOINED = /^[\u200c\u200d]$/;

/** Creates an element: `h("p.note", { title: "x", onclick: f }, "text", child)`. Strings become text nodes. */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

/** Text of the page, never of others: what stands between backticks is code. */
export const own = (text) => text.split("`").map((part, place) => (place % 2 ? h("code", null, part) : part));

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function replace(element, ...children) {
  const fragment = append(document.createDocumentFragment(), children);
  element.replaceChildren(fragment);
  return element;
}

/** Creates elements of SVG, whose attributes are numbers and names of ours. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  return append(element, children);
}

function mark(character) {
  const code = character.codePointAt(0);
  // Fonts often lack the control pictures of Unicode.
  const name = "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  return h("span.hidden-char", { title: "hidden character" }, name);
}

/** Foreign text as nodes: hidden characters are shown by name. With `ends`, line ends are visible. */
export function foreign(text, ends = false) {
  const all = document.createDocumentFragment();
  let plain = "";
  const flush = () => { if (plain) { all.append(plain); plain = ""; } };
  const source = String(text ?? "");
  // Most texts have nothing to show; the loop below costs more than the test.
  if (!ends && !HIDDEN.test(source.replace(/[\n\t]/g, ""))) { all.append(source); return all; }
  let before = "";
  for (const character of source) {
    const joins = JOINED.test(character) && before > "\u007f";
    if (character === "\n") {
      if (ends) { flush(); all.append(h("span.line-end", { "aria-hidden": "true" }, "↵")); }
      plain += "\n";
    } else if (character === "\t" && !ends) plain += character;
    else if (HIDDEN.test(character) && !joins) { flush(); all.append(mark(character)); }
    else plain += character;
    before = character;
  }
  flush();
  return all;
}

/** Foreign text on one line, cut to `most` characters. */
export function line(text, most = 160) {
  const flat = String(text ?? "").slice(0, most * 4).replace(/\s+/g, " ").trim();
  const characters = [...flat];
  const cut = characters.length > most ? characters.slice(0, most).join("") + "…" : flat;
  return h("bdi.foreign", null, foreign(cut));
}

/** Parts of a message: our own words, and quoted or foreign ones in frames of their own. */
export function words(parts) {
  if (typeof parts === "string") return h("bdi.foreign", null, foreign(parts));
  return (parts || []).map((part, index, all) => {
    if (part.own !== undefined) {
      // The frame of a quoted part stands for the backticks that a terminal has around it.
      let { own } = part;
      if (all[index + 1]?.own === undefined && index + 1 < all.length) own = own.replace(/`$/, "");
      if (all[index - 1]?.own === undefined && index > 0) own = own.replace(/^`/, "");
      return document.createTextNode(own);
    }
    if (part.quoted !== undefined) return h("code.name", null, h("bdi", null, foreign(part.quoted)));
    return h("bdi.foreign", null, foreign(part.foreign ?? ""));
  });
}

// Rendered Markdown: the server returns a tree of these elements, and any other becomes its text.
const PLAIN = { p: "p", h3: "h3", h4: "h4", h5: "h5", blockquote: "blockquote", ul: "ul", li: "li", code: "code", em: "em",
  strong: "strong", del: "del", hr: "hr", br: "br", tr: "tr" };
const CLASSES = { math: "code.math", tk: "span.tk", ts: "span.ts", tc: "span.tc", tn: "span.tn" };

export function tree(node) {
  if (typeof node === "string") return document.createTextNode(node);
  if (!Array.isArray(node)) return document.createTextNode("");
  const [tag, second, ...rest] = node;
  const has = second && typeof second === "object" && !Array.isArray(second);
  const attributes = has ? second : {};
  const children = (has ? rest : node.slice(1)).map(tree);
  if (Object.hasOwn(PLAIN, tag)) return h(PLAIN[tag], null, children);
  if (Object.hasOwn(CLASSES, tag)) return h(CLASSES[tag], null, children);
  switch (tag) {
    case "hidden": return h("span.hidden-char", { title: "hidden character" }, children);
    case "task": return h("span.task", null, node[1] === "done" ? "☑ " : "☐ ");
    case "ol": return h("ol", { start: /^\d{1,9}$/.test(attributes.start) ? attributes.start : "1" }, children);
    case "pre": return codeBlock(attributes.lang, children);
    case "table": return h("div.table-box", { tabindex: "0", role: "group", "aria-label": "Table" }, h("table", null, children));
    case "th": return h("th." + align(attributes.align), { scope: "col" }, children);
    case "td": return h("td." + align(attributes.align), null, children);
    case "a": return link(attributes, children);
    case "image": return h("span.image", null, h("span.tag", null, "image, not loaded"), " ", link(attributes, children));
    default: return h("span", null, children);
  }
}

const align = (to) => (to === "right" || to === "center" ? "to-" + to : "to-left");

function link({ href, host }, children) {
  // The server lets no other schemes pass; this is the second check.
  if (!/^(https?:\/\/|mailto:)/.test(href || "")) return h("span", null, children);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, h("bdi", null, children),
    host && h("span.host", null, " (" + host + ")"));
}

export function codeBlock(language, children) {
  const code = h("code", null, children);
  return h("div.code", null,
    h("div.code-head", null, h("span", null, language || "text"), copyButton(() => code.textContent)),
    h("pre", { tabindex: "0", role: "group", "aria-label": "Code" }, code));
}

export function copyButton(text) {
  const button = h("button.quiet", {
    onclick: async () => {
      let done = true;
      try { await navigator.clipboard.writeText(text()); } catch { done = false; }
      button.textContent = done ? "copied" : "could not copy";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    },
  }, "copy");
  return button;
}

/** Foreign text in a box, folded to `lines` lines. */
export function box(text, { lines = 12, label = "Text of others", ends = false } = {}) {
  const all = String(text ?? "");
  const rows = all.split("\n");
  const short = rows.length > lines || all.length > lines * 200 ? rows.slice(0, lines).join("\n").slice(0, lines * 200) : all;
  const pre = h("pre.foreign-box", { tabindex: "0", role: "group", "aria-label": label }, foreign(short, ends));
  if (short === all) return pre;
  const button = h("button.quiet", {
    "aria-expanded": "false",
    onclick: () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      replace(pre, foreign(open ? short : all, ends));
      button.textContent = open ? more : "show less";
    },
  });
  const more = `show all (${plural(rows.length, "line")}, ${plural([...all].length, "character")})`;
  button.textContent = more;
  return h("div", null, pre, button);
}

// Numbers as the terminal shows them.
const rounded = (value, size, unit) => {
  const tenths = Math.floor((value * 10) / size) / 10;
  return `${tenths >= 10 || Number.isInteger(tenths) ? Math.floor(tenths) : tenths.toFixed(1)} ${unit}`;
};
function scaled(value, units, plain) {
  for (const [unit, size] of units) if (value >= size) return rounded(value, size, unit);
  return `${Math.round(value)}${plain}`;
}
export const count = (value) => scaled(value || 0, [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]], "");
export const bytes = (value) => scaled(value || 0, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]], " B");
export const plural = (number, one, many = one + "s") => `${count(number)} ${number === 1 ? one : many}`;
export function span(us) {
  const ms = Math.floor((us || 0) / 1000);
  if (ms === 0 && us) return `${Math.round(us)} µs`;
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return ms % 1000 === 0 ? `${ms / 1000} s` : `${Math.floor(ms / 100) / 10} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return ms % 60_000 < 1000 ? `${minutes} min` : `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return minutes % 60 === 0 ? `${minutes / 60} h` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
export const money = (micros) => (micros / 1e6).toFixed(micros >= 1e6 ? 2 : 4);
export function ago(ms) {
  const seconds = Math.max(0, (Date.now() - ms) / 1000);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Announces a text to screen readers. */
export function announce(text, urgent = false) {
  const region = document.getElementById(urgent ? "alert" : "live");
  region.textContent = "";
  requestAnimationFrame(() => { region.textContent = text; });
}
