// Questions to the user. The card stands above the input, outside of the conversation: our own words come first and say who
// asks, and everything foreign is in a box with its length and digest, or on a button that only writes it into the input.
import { h, box, foreign, line, words, announce } from "../dom.js";

/** No answer is taken before the user can have read the title, in milliseconds: a key or a click that was meant for
 *  something else does not answer. */
export const READING_TIME = 500;

const SHOWN_CHARACTERS = 1200;
const SHOWN_LINES = 12;

/** Foreign text with visible line ends, its length and digest. */
function subject(question) {
  const text = question.subject || "";
  const rows = text.split("\n");
  const isLong = rows.length > SHOWN_LINES || text.length > SHOWN_CHARACTERS;
  const short = isLong ? rows.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_CHARACTERS) : text;
  const pre = h("pre.foreign-box", { tabindex: "0", role: "group", "aria-label": "Arguments as they will be used" }, foreign(short, true));
  const length = question.length ?? [...text].length;
  const about = h("span.faint", null, `${length.toLocaleString("en")} ${length === 1 ? "character" : "characters"}`, question.digest && [`, digest `, line(question.digest.slice(0, 24) + "…", 40)]);
  const all = isLong && h("button.quiet", {
    onclick: (event) => { pre.replaceChildren(foreign(text, true)); event.target.remove(); pre.focus(); },
  }, "show all");
  return [h("p.small.faint", null, "The arguments, as they will be used:"), pre, h("div.row.small", null, about, all)];
}

/** A card for a question. `answer(choice, words)` sends it and may fail. */
export function questionCard(question, { answer }) {
  const failed = h("p.bad.small", { role: "alert" });
  const say = h("input", { type: "text", maxlength: "4000", "aria-label": "What the model should do instead", placeholder: "what to do instead (optional)", autocomplete: "off" });
  const buttons = h("div.buttons");
  const title = h("h2", { id: "question-title" }, words(question.title));
  const card = h("section.question", { role: "group", tabindex: "-1", "aria-labelledby": title.id, "data-question": question.id },
    // What is in our words comes first: on a small screen, what stands above the choices is cut off at its end.
    h("div.who", null, "Toolcell asks you"), title,
    h("ul", null, (question.facts || []).map((fact) => h("li" + (fact.is_warning ? ".warn" : ""), null, fact.is_warning && "⚠ ", words(fact.text)))),
    question.subject && subject(question),
    h("div.decide", null, buttons, failed));
  let sent = false;
  const send = async (choice) => {
    if (sent || buttons.dataset.ready !== "yes") return;
    sent = true;
    failed.textContent = "";
    for (const button of buttons.querySelectorAll("button")) button.setAttribute("aria-disabled", "true");
    try {
      await answer(choice, say.value.trim());
    } catch (error) {
      sent = false;
      for (const button of buttons.querySelectorAll("button")) button.removeAttribute("aria-disabled");
      failed.textContent = error.code === "offline" ? "The server does not answer. Nothing was decided; try again." : "Not answered: " + error.message;
    }
  };
  for (const choice of question.choices || []) {
    const refuses = choice.id === "refuse";
    const button = h("button", {
      "aria-disabled": "true", "data-choice": choice.id,
      onclick: () => send(choice),
      // Enter is the key with which a message is sent, so it never allows anything; the space bar presses a button.
      onkeydown: (event) => { if (event.key === "Enter" && !refuses) event.preventDefault(); },
    }, choice.label);
    if (refuses) say.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); if (say.value.trim()) send(choice); } });
    buttons.append(h("div.choice", null, button, refuses ? say : h("span.small.faint", null, words(choice.covers))));
  }
  // Counted from when the card is on the screen: in a tab in the background no time passes.
  const arm = () => {
    let seen = 0;
    let last = 0;
    const tick = (now) => {
      if (!card.isConnected) { if (seen) return; last = 0; requestAnimationFrame(tick); return; }
      if (last) seen += Math.min(now - last, 100);
      last = now;
      if (seen < READING_TIME) { requestAnimationFrame(tick); return; }
      buttons.dataset.ready = "yes";
      for (const button of buttons.querySelectorAll("[data-choice]")) button.removeAttribute("aria-disabled");
    };
    requestAnimationFrame(tick);
  };
  arm();
  announce("Toolcell asks you: " + title.textContent, true);
  return card;
}

const MOST_SUGGESTIONS = 12;

/** A card for a question with which the model ended its turn, or null. The user answers with a message. */
export function modelQuestion(session, suggest) {
  const { outcome } = session;
  if (session.running || outcome?.outcome !== "asked") return null;
  const suggestions = (outcome.suggestions || []).slice(0, MOST_SUGGESTIONS);
  return h("div.question", { role: "group", "aria-label": "Question of the model" },
    h("div.who", null, "The model asks you"), box(outcome.question || "", { label: "Question of the model" }),
    suggestions.length > 0 && h("div.row", null, suggestions.map((text) => h("button", { onclick: () => suggest(text) }, line(text, 120)))));
}
