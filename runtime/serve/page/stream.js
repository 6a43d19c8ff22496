// A session that a view has open: what is stored of it, and then what happens. There is one way to follow a session.
import { announce } from "./dom.js";
import { follow } from "./api.js";
import { api } from "./contract.js";

/** Time for which a lost connection is no news, in milliseconds: a stream that the server ends is opened again within a second. */
const SHORT = 400;

export class Stream {
  /** `onEvent(entry)` gets each event that is new to the session, `onState({ state, questions })` the first message and each change,
   *  `onDeleted()` the end of a session that was deleted. */
  constructor(session, { connection, onEvent, onState, onDeleted }) {
    Object.assign(this, { session, connection, onEvent, onState, onDeleted, isStopped: false });
  }

  /** Reads what is stored; false if the view has left the session meanwhile. */
  async load() {
    const { session } = this;
    session.info = await api.session(session.id);
    await api.history(session.id, (entries) => { for (const entry of entries) session.apply(entry); });
    return !this.isStopped;
  }

  start() {
    if (this.isStopped) return;
    this.following = follow(api.eventsPath(this.session.id), {
      last: () => this.session.seq,
      onMessage: (message) => { if (!this.isStopped) this.message(message); },
      onState: (state, detail) => { if (!this.isStopped) this.connected(state, detail); },
    });
  }

  stop() {
    this.isStopped = true;
    this.following?.stop();
  }

  message(message) {
    let entry;
    try { entry = JSON.parse(message.data); } catch { return; }
    if (message.event === "state") {
      this.session.state = entry.state;
      this.session.running = entry.state === "running" || entry.state === "waiting";
      this.onState(entry);
    } else if (message.event === "end") {
      if (entry.reason !== "deleted") return;
      this.stop();
      this.onDeleted();
    } else if (entry.event && this.session.apply(entry)) this.onEvent(entry);
  }

  connected(state, detail) {
    if (state === "live") {
      if (this.wasLost) announce("Connection restored.");
      this.wasLost = false;
      this.connection("");
      // The text of the step comes once more from its start.
      this.session.restart();
      return;
    }
    if (state === "refused") { this.connection("not connected: " + detail.message); return; }
    if (!this.wasLost && detail > 0) { this.wasLost = true; this.lostAt = Date.now(); }
    if (Date.now() - this.lostAt > SHORT || detail > 1) this.connection(`connection lost, retrying in ${detail} s`, () => this.following.retry());
  }
}
