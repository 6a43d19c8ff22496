// Usage per day and agent: charts, and below each a table with the same numbers.
import { h, line, replace, svg, count, money, span } from "../dom.js";
import { api } from "../contract.js";
import { about, price } from "./items.js";

const CHARTS = [
  ["Tokens", [["in", (row) => row.input], ["out", (row) => row.output]], count],
  ["Turns and calls", [["turns", (row) => row.turns], ["calls", (row) => row.calls]], count],
  ["Cost", [["cost", (row) => row.cost_micros || 0]], money],
  ["Time of a call", [["p50", (row) => row.p50_us || 0], ["p95", (row) => row.p95_us || 0]], span],
];

function chart(title, days, series, show) {
  const [width, height, left, bottom] = [960, 160, 0, 1];
  const most = Math.max(1, ...days.flatMap((day) => series.map(([, of]) => of(day))));
  const slot = (width - left) / Math.max(1, days.length);
  const bar = Math.max(1, Math.min(24, (slot - 2) / series.length));
  const y = (value) => (height - bottom) * (1 - value / most);
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} per day, at most ${show(most)}; the table below has the numbers` });
  for (const part of [0, 0.5, 1]) {
    const at = (height - bottom) * (1 - part);
    root.append(svg("line", { x1: left, x2: width, y1: at, y2: at }));
  }
  days.forEach((day, index) => series.forEach(([, of], place) => {
    const value = of(day);
    if (value > 0) root.append(svg("rect", { class: `bar-mark${place ? " second" : ""}`, x: left + index * slot + (slot - bar * series.length) / 2 + place * bar, y: y(value), width: bar, height: Math.max(1, height - bottom - y(value)) }));
  }));
  return h("div", null,
    h("div.row.small.faint", null, `highest ${show(most)}`, h("span.grow"), series.map(([name], place) => h("span", null, h(place ? "span.swatch.second" : "span.swatch"), series.length > 1 && (place ? "right bar: " : "left bar: "), name))),
    root, h("div.row.small.faint", null, h("span", null, days[0]?.day || ""), h("span.grow"), h("span", null, days.at(-1)?.day || "")));
}

/** Sums of the agents for each day; the slowest agent stands for the times. */
function byDay(rows) {
  const days = new Map();
  for (const row of rows) {
    const day = days.get(row.day) || { day: row.day, turns: 0, input: 0, output: 0, calls: 0, failures: 0, cost_micros: 0, estimated: false, unpriced: false, p50_us: 0, p95_us: 0 };
    for (const name of ["turns", "input", "output", "calls", "failures", "cost_micros"]) day[name] += row[name] || 0;
    for (const name of ["estimated", "unpriced"]) day[name] ||= row[name];
    for (const name of ["p50_us", "p95_us"]) day[name] = Math.max(day[name], row[name] || 0);
    days.set(row.day, day);
  }
  return [...days.values()].sort((a, b) => (a.day < b.day ? -1 : 1));
}

export class Usage {
  constructor() {
    this.content = h("div.cards");
    this.days = h("select", { "aria-label": "Period", onchange: () => this.open() }, [7, 30, 90].map((days) => h("option", { value: days, selected: days === 30 }, `${days} days`)));
    this.element = [h("div.page", null, h("div.inner", null, h("div.row", null, h("h1", null, "Usage"), h("span.grow"), this.days), this.content))];
  }

  async open() {
    let rows;
    try { rows = await api.usage(this.days.value); } catch (error) {
      replace(this.content, h("p.bad", null, "The usage could not be loaded: " + error.message));
      return;
    }
    if (!rows.length) { replace(this.content, h("p.faint", null, "No turn ran in this period.")); return; }
    const days = byDay(rows);
    const total = byDay(rows.map((row) => ({ ...row, day: "" })))[0];
    const numbers = [["turns", count(total.turns)], ["tokens in", about(total) + count(total.input)], ["tokens out", about(total) + count(total.output)], ["cost", rows.some((row) => row.cost_micros !== undefined) ? price(total, total.cost_micros) : "no prices"], ["calls", count(total.calls)], ["failures", (total.failures ? "✗ " : "") + count(total.failures)]];
    replace(this.content, h("dl.totals", null, numbers.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
      CHARTS.filter(([, series]) => days.some((day) => series.some(([, of]) => of(day) > 0))).map(([title, series, show]) => h("section.card", null, h("h2", null, title), chart(title, days, series, show),
        h("details", null, h("summary", null, "Numbers"), h("div.table-box", { tabindex: "0", role: "group", "aria-label": title + " in numbers" }, h("table", null,
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "day"), h("th", { scope: "col" }, "agent"), series.map(([name]) => h("th.number", { scope: "col" }, name)), h("th.number", { scope: "col" }, "failures"))),
          h("tbody", null, rows.map((row) => h("tr", null, h("td", null, row.day), h("td", null, line(row.agent, 60)), series.map(([, of]) => h("td.number", null, show(of(row)))), h("td.number", null, count(row.failures)))))))))));
  }

  close() {}
}
