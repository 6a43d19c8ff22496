// Steps that checks share.
import fs from "node:fs";
import { createRequire } from "node:module";

const AXE = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const QUESTION = ".question";
export const ENDS = ".item.end";

export async function send(page, text) {
  await page.fill("textarea", text);
  // Enter does nothing while a turn runs or a message is on its way.
  await page.waitForSelector(".composer button.main:enabled");
  await page.keyboard.press("Enter");
}

/** Waits until `number` turns have ended and their answers are rendered. */
export async function ended(page, number = 1) {
  await page.waitForFunction((count) => document.querySelectorAll(".item.end").length === count, number);
  await page.waitForFunction(() => [...document.querySelectorAll(".item.answer")].slice(-1).every((answer) => answer.ariaBusy === "false"));
}

export const answer = (page) => page.locator(".item.answer .body").last().innerText();
export const ready = (page) => page.waitForFunction(() => document.querySelector(".question .buttons")?.dataset.ready === "yes");

export async function session(t, text) {
  const page = await t.open("/");
  await page.waitForSelector(".empty");
  await send(page, text);
  await page.waitForURL(/\/s\//);
  return page;
}

/** Returns what axe finds. */
export async function accessible(page, name) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map((one) => `${name}: ${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

/** Returns a finding if the page scrolls sideways. */
export async function fits(page, name) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  return wide > 0 ? [`${name} is ${wide} pixels wider than the window`] : [];
}
