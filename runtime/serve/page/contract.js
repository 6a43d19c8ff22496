// The API of the server (`runtime/serve/API.md`) as the views use it.
import { get, post, request } from "./api.js";

const path = (id, rest = "") => `/api/sessions/${encodeURIComponent(id)}${rest}`;
const ofSession = (session) => ({ ...session, title: session.name || session.title, updated: session.used_ms });
const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== "")).toString();

/** Maximum number of sessions in one answer. */
const SESSIONS = 200;
/** Number of events in one answer; a page ends early at its size. */
const EVENTS = 5000;

export const api = {
  async info() {
    const info = await get("/api/info");
    return { ...info, agents: info.agents.map((agent) => ({ ...agent, name: agent.id, stand_in: agent.is_stand_in })) };
  },

  async sessions({ query: q, cursor, limit }) {
    const page = await get("/api/sessions?" + query({ q, cursor, limit: Math.min(limit, SESSIONS) }));
    return { sessions: page.sessions.map(ofSession), cursor: page.next };
  },

  session: async (id) => ofSession(await get(path(id))),
  create: (agent) => post("/api/sessions", agent ? { agent } : {}),
  fork: (id, turn) => post(path(id, "/fork"), { before_turn: turn }),
  rename: (id, name) => request("PATCH", path(id), { name }),
  remove: (id) => request("DELETE", path(id)),
  exportPath: (id) => path(id, "/export"),

  /** Reads all stored events, and passes them on in pages. */
  async history(id, each) {
    for (let after = 0; ;) {
      const { events, events_total: total } = await get(path(id, `/events?after=${after}&limit=${EVENTS}`));
      if (!events.length) return;
      each(events);
      after = events.at(-1).seq;
      if (after >= total) return;
    }
  },

  eventsPath: (id) => path(id, "/events"),

  turn: (id, text, attachments) => post(path(id, "/turns"), attachments.length ? { text, attachments } : { text }),
  resume: (id) => post(path(id, "/resume")),
  abandon: (id) => post(path(id, "/abandon")),
  cancel: (id) => post(path(id, "/cancel")),
  cancelCall: (id, call) => post(path(id, `/calls/${encodeURIComponent(call)}/cancel`)),
  answer: (id, question, choice, words) =>
    post(path(id, `/questions/${encodeURIComponent(question.id)}`), choice.id === "refuse" && words ? { choice: choice.id, words } : { choice: choice.id }),

  tools: () => get("/api/tools"),
  async usage(days) {
    // Beside days with prices, the tokens of one without are missing in the cost.
    const isUnpriced = (day) => Boolean(day.usage.unpriced) || (day.cost_micros === undefined && day.usage.input + day.usage.output > 0);
    const answer = await get("/api/usage?days=" + days);
    return answer.days.map((day) => ({ ...day, agent: day.agent || "other commands", input: day.usage.input, output: day.usage.output, estimated: Boolean(day.usage.estimated), unpriced: isUnpriced(day), failures: day.failed_turns + day.failed_calls }));
  },
  scratches: async () => (await get("/api/scratch")).scratch,
  scratch: (name) => get("/api/scratch/" + encodeURIComponent(name)),
  scratchDecide: (name, what, files) => post(`/api/scratch/${encodeURIComponent(name)}/${what}`, { files }),
};
