// Changes that tools left in a scratch overlay: as a diff, to commit or to discard by file.
import { h, line, own, replace, foreign, plural } from "../dom.js";
import { api } from "../contract.js";

const CHANGES = { added: "+ added", modified: "~ changed", changed: "~ changed", removed: "− removed", deleted: "− removed" };

/** Rows of a unified diff: `[kind, text]`. The names of the files stand before the first part, and only there. */
function rowsOf(diff) {
  const rows = String(diff || "").replace(/\n$/, "").split("\n");
  const first = Math.max(0, rows.findIndex((row) => row.startsWith("@@")));
  return rows.slice(first).map((row) => [{ "+": "plus", "-": "minus", "@": "hunk" }[row[0]] || "same", row]);
}

/** Rows of a diff that are shown at first. */
const FIRST_ROWS = 3000;

/** Shows a diff, of which the rest follows when it is asked for. */
function shown(diff, show) {
  const rows = rowsOf(diff);
  const rest = rows.length - FIRST_ROWS;
  if (rest <= 0) return show(rows);
  const part = h("div", null, show(rows.slice(0, FIRST_ROWS)),
    h("p.warn", null, `⚠ ${plural(rest, "more row")} of this diff ${rest === 1 ? "is" : "are"} not shown. `,
      h("button", { onclick: () => { replace(part, show(rows)); part.firstChild.focus(); } }, "Show all of it")));
  return part;
}

function unified(rows) {
  return h("div.diff", { tabindex: "0", role: "group", "aria-label": "Diff" }, rows.map(([kind, row]) => h("div." + kind, null, foreign(row))));
}

function sideBySide(rows) {
  const [before, after] = [[], []];
  const level = () => {
    while (before.length < after.length) before.push(["same", ""]);
    while (after.length < before.length) after.push(["same", ""]);
  };
  for (const [kind, row] of rows) {
    if (kind === "minus") before.push([kind, row]);
    else if (kind === "plus") after.push([kind, row]);
    else { level(); before.push([kind, row]); after.push([kind, row]); }
  }
  level();
  const column = (rows, name) => h("div.diff", { tabindex: "0", role: "group", "aria-label": name }, rows.map(([kind, row]) => h("div." + kind, null, foreign(row))));
  return h("div.split", null, column(before, "Before"), column(after, "After"));
}

export class Scratch {
  constructor(app) {
    this.app = app;
    this.content = h("div.cards");
    this.status = h("p", { role: "status" });
    this.form = h("select", { "aria-label": "Form of the diff", onchange: () => this.draw() }, h("option", { value: "unified" }, "unified"), h("option", { value: "split" }, "side by side"));
    this.heading = h("h1", null, "Scratch");
    this.element = [h("div.page", null, h("div.inner", null, h("div.row", null, this.heading, h("span.grow"), this.form), this.status, this.content))];
  }

  async open(name) {
    this.name = name;
    this.files = null;
    replace(this.heading, name ? line(name, 60) : "Scratch");
    try {
      if (!name) {
        const names = await api.scratches();
        replace(this.content, names.length ? h("ul", null, names.map((one) => h("li", null, h("a", { href: "/scratch/" + encodeURIComponent(one.name), "data-nav": true }, line(one.name, 100)), one.directory && [" in ", line(one.directory, 100)], ` ${plural(one.files, "change")}`)))
          : h("p.faint", null, own("No tool has a scratch directory. With `scratch = \"DIR\"` of a tool in your configuration, its changes stand here to be reviewed.")));
        return;
      }
      const { files, more, skipped } = await api.scratch(name);
      Object.assign(this, { files, more, skipped });
      this.draw();
    } catch (error) {
      replace(this.content, h("p.bad", null, "The changes could not be loaded: " + error.message));
    }
  }

  draw() {
    if (!this.files) return;
    const show = this.form.value === "split" ? sideBySide : unified;
    replace(this.content, this.files.length === 0 && h("p.faint", null, "No changes are left."),
      this.files.length > 1 && h("div.row", null, h("button", { onclick: () => this.decide("commit", this.files) }, "Commit all"), h("button", { onclick: () => this.decide("discard", this.files) }, "Discard all")),
      this.files.map((file) => h("section.card", null, h("div.row", null, h("h2", null, line(file.path, 200)), h("span.small.faint", null, CHANGES[file.change] || file.change), h("span.grow"),
        h("button", { onclick: () => this.decide("commit", [file]) }, "Commit"), h("button", { onclick: () => this.decide("discard", [file]) }, "Discard")),
        file.conflict && h("p.warn", null, "⚠ conflict: ", typeof file.conflict === "string" ? line(file.conflict, 300) : "others changed this file in the meantime"),
        file.diff ? shown(file.diff, show) : h("p.faint", null, line(file.about || "no difference in content", 200)))),
      this.more > 0 && h("p.warn", null, `⚠ ${plural(this.more, "more change")} are not listed: commit or discard some of these first`),
      this.skipped.length > 0 && h("section.card", null, h("h2", null, "Not committed here"),
        h("p.faint", null, own("Denied files, links that lead out, and files that start programs, which `toolcell scratch commit --dangerous` commits.")),
        h("ul", null, this.skipped.slice(0, 100).map((one) => h("li", null, line(one.path, 200), " ", line(one.reason, 300))))));
  }

  decide(what, files) {
    const title = what === "commit" ? `Commit ${plural(files.length, "file")}?` : `Discard ${plural(files.length, "file")}?`;
    const text = what === "commit" ? "The files of your directory are replaced by those of the overlay." : "The changes are deleted and cannot be restored.";
    this.app.confirm(title, text, what === "commit" ? "Commit" : "Discard", async () => {
      try {
        const answer = await api.scratchDecide(this.name, what, files.map((file) => file.path));
        replace(this.status, `✓ ${what === "commit" ? "committed" : "discarded"} ${plural(answer.files, "file")}`,
          answer.skipped.length > 0 && `, and not ${plural(answer.skipped.length, "other")}, listed below`);
      } catch (error) {
        replace(this.status, h("span.bad", null, "✗ ", line(error.message, 400)), error.hints?.map((hint) => h("div", null, "hint: ", line(hint, 300))));
      }
      this.open(this.name);
    });
  }

  close() {}
}
