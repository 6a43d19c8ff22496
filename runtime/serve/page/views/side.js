// Beside the conversation: plan, budget, and what the tools of the session can touch.
import { h, line, count, money, plural, span, words } from "../dom.js";
import { price, tokens } from "./items.js";

function plan(session) {
  const { steps = [], goal } = session.plan;
  return [h("h2", null, "Plan"), goal && h("p", null, line(goal, 300)),
    h("ul", null, steps.slice(0, 100).map((step) => h("li", null, h("span", { "aria-hidden": "true" }, step.completed ? "☑ " : "☐ "),
      h("span.unseen", null, step.completed ? "done: " : "open: "), line(step.description, 300), step.result && h("div.faint", null, line(step.result, 300)))))];
}

const BUDGETS = { tokens: ["tokens", count], calls: ["calls", count], steps: ["steps", count], wall_ms: ["time", (ms) => span(ms * 1000)], cost_micros: ["cost", money] };

const FLOW = { reads_private: "has read private data", untrusted_content: "has read what strangers can write", can_send_out: "can send data out",
  reads_service: "has read data of a service", can_send_elsewhere: "can send data to another service" };

export function side(session, app) {
  const parts = [];
  if (session?.plan) parts.push(plan(session));
  if (session?.id) {
    const { totals } = session;
    parts.push(h("h2", null, "Used"), h("ul", null,
      h("li", null, tokens(totals)),
      totals.cost !== null && h("li", null, "cost " + price(totals, totals.cost)),
      h("li", null, `${plural(totals.steps, "step")}, ${plural(totals.calls, "call")}, ${span(totals.wall * 1000)}`),
      totals.denials > 0 && h("li.bad", null, `⊘ ${plural(totals.denials, "denial")}`)));
    const limits = Object.entries(session.info?.budget || {}).filter(([name, budget]) => budget.limit && BUDGETS[name]);
    if (limits.length) {
      parts.push(h("h2", null, "Budget"), h("ul", null, limits.map(([name, budget]) => {
        const [word, show] = BUDGETS[name];
        const is_used = budget.used >= budget.limit;
        return h("li" + (is_used ? ".bad" : ""), null, `${word}: ${show(budget.used || 0)} of ${show(budget.limit)}${is_used ? ", ✗ used up" : ""}`);
      })));
    }
    if (session.flow) {
      const flows = Object.entries(FLOW).filter(([name]) => session.flow[name]);
      if (flows.length) parts.push(h("h2", null, "Data flow of this session"), h("ul", null, flows.map(([, text]) => h("li", null, text))));
    }
    parts.push(h("h2", null, "This session"), h("ul", null,
      session.model && h("li", null, "model ", line(session.model, 60)),
      h("li", null, h("a", { href: `/s/${encodeURIComponent(session.id)}/timeline`, "data-nav": true }, "Timeline")),
      h("li", null, h("a", { href: app.exportPath(session.id), download: `session-${session.id}.jsonl` }, "Export")),
      h("li", null, h("button.quiet", { onclick: () => app.rename(session.id, session.info?.name || "", () => app.views.chat.reload()) }, "Rename")),
      h("li", null, h("button.quiet", { onclick: () => app.remove(session.id) }, "Delete"))));
  }
  // A session of another command has no agent, and the main one continues it.
  const agent = session?.id ? session.info?.agent || app.info.agents[0]?.name : app.agent;
  const components = (app.tools?.components || []).filter((component) => !component.agents || component.agents.includes(agent));
  if (components.length) {
    parts.push(h("h2", null, "What this agent can touch"), h("ul", null, components.map((component) => h("li", null, h("strong", null, line(component.name, 60)),
      component.access.length ? component.access.map((access) => h("div.access", null, words(access))) : h("div.access", null, "can only compute and log")))));
  }
  return parts;
}
