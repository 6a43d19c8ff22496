// Components: what each can touch, in the words of `policy explain`, and its tools.
import { h, line, replace, words, box, foreign, ago } from "../dom.js";
import { receipt } from "./calls.js";
import { api } from "../contract.js";

const KINDS = { tool: "component", hook: "hook", server: "MCP server" };
const GUARDS = { ask: "The data-flow guard asks you before a call completes such a combination.", refuse: "The data-flow guard refuses a call that completes such a combination.", off: "The data-flow guard is off: nothing stops a call that completes such a combination." };

export class Tools {
  constructor(app) {
    this.app = app;
    this.content = h("div.cards");
    this.element = [h("div.page", null, h("div.inner", null, h("h1", null, "Tools"),
      h("p.faint", null, "What each component can touch: its imports against the grants of your configuration. Nothing can be granted on this page."), this.content))];
  }

  async open() {
    let tools;
    try { tools = await api.tools(); } catch (error) {
      replace(this.content, h("p.bad", null, "The tools could not be loaded: " + error.message));
      return;
    }
    this.app.tools = tools;
    replace(this.content,
      tools.combinations?.length > 0 && h("section.card", null, h("h2.warn", null, "⚠ In combination"),
        h("p", null, "These together can read private data, read what strangers can write, and send data out, which is how injected text leaks data."),
        h("ul", null, tools.combinations.map((names) => h("li", null, names.map((name, index) => [index ? " and " : "", h("code.name", null, foreign(name))])))),
        h("p", null, GUARDS[tools.guard])),
      tools.components.map((component) => this.component(component)));
    if (!tools.components.length) replace(this.content, h("p.faint", null, "This agent has no tools."));
  }

  component(component) {
    return h("section.card", null, h("h2", null, line(component.name, 100), h("span.faint.small", null, " ", KINDS[component.kind] || "", component.is_in_cell === false && ", outside of every cell")),
      component.access.length ? h("ul", null, component.access.map((access) => h("li", null, words(access)))) : h("p.good", null, "✓ can only compute and log"),
      component.denied?.length > 0 && h("p", null, "denied: ", component.denied.map((text) => [h("code.name", null, foreign(text)), " "])),
      component.digest && h("p.small.faint.mono", null, line(component.digest, 80), component.is_locked === undefined ? "" : component.is_locked ? " · locked" : " · not locked"),
      component.limits?.length > 0 && h("details", null, h("summary", null, "Limits"), h("ul", null, component.limits.map((limit) => h("li", null, line(limit, 200))))),
      (component.tools || []).map((tool) => h("details", null, h("summary", null, h("strong", null, line(tool.name, 80))), h("p", null, line(tool.description || "no description", 2000)),
        tool.schema && box(JSON.stringify(tool.schema, null, 2), { label: "Schema of the arguments" }))),
      component.receipts?.length > 0 && h("details", null, h("summary", null, "Last receipts"), component.receipts.map((one) => h("div", null, h("h3", null, line(one.tool, 80), " ", h("span.faint.small", null, [one.error && "failed", one.at_ms && ago(one.at_ms)].filter(Boolean).join(", "))), receipt(one.receipt)))));
  }

  close() {}
}
