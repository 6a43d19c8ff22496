// What users do in a conversation, each with a session of its own. A check fails by an exception.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { HELLO } from "./model.mjs";
import { ENDS, QUESTION, accessible, answer, ended, fits, ready, send, session } from "./steps.mjs";

export const conversation = {
  async "first visit to answer"(t) {
    const page = await t.open("/");
    await page.waitForSelector(".empty .examples button");
    assert.ok(await page.evaluate(() => document.activeElement.tagName === "TEXTAREA"), "the input has the focus");
    await send(page, "Say hello");
    await ended(page);
    assert.match(page.url(), /\/s\/.+/);
    assert.equal((await answer(page)).trim(), HELLO.replaceAll("*", ""));
    assert.equal(await page.locator(".item.answer em").innerText(), "it works");
    assert.match(await page.locator(ENDS).innerText(), /1 step · 0 calls/);
    await page.waitForSelector("#sessions a[aria-current]");
    // The one-time link is used up, and a browser without the cookie sees nothing.
    const other = await t.context({ anonymous: true });
    const stranger = await other.newPage();
    await stranger.goto(t.server.base + "/");
    await stranger.waitForSelector("text=Sign in with the link of the terminal");
    const again = await other.request.get(t.server.link);
    assert.equal(again.status(), 403, "the link works once");
    await other.close();
  },

  async "markdown, code and copy"(t) {
    const page = await session(t, "Markdown please");
    await ended(page);
    const body = page.locator(".item.answer .body").last();
    assert.equal(await body.locator("h3").innerText(), "Heading");
    assert.equal(await body.locator("td").count(), 2);
    assert.equal(await body.locator(".code-head span").innerText(), "rust");
    assert.ok((await body.locator(".tk").count()) >= 1, "code is highlighted");
    assert.equal(await body.locator("li").count(), 30);
  },

  async "calls open to everything about them"(t) {
    const page = await session(t, "Count the words");
    await ended(page);
    const calls = page.locator(".call > button");
    assert.equal(await calls.count(), 2);
    assert.match(await calls.nth(0).innerText(), /✓\s*text_count[\s\S]*done/);
    assert.match(await calls.nth(1).innerText(), /✗\s*files_read[\s\S]*failed/);
    // By keys alone: leave the input, go to the second call, open it.
    await page.locator(".scroll").focus();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("o");
    const opened = page.locator(".call-open");
    await opened.waitFor();
    assert.match(await opened.innerText(), /Arguments[\s\S]*\/etc\/passwd[\s\S]*Failed: /);
    await page.keyboard.press("o");
    assert.equal(await opened.count(), 0);
    await calls.nth(0).click();
    assert.match(await opened.innerText(), /"words": ?3[\s\S]*Receipt[\s\S]*fuel/);
    await page.keyboard.press("t");
    await page.waitForSelector(".time-row");
    assert.match(await page.locator(".time-scroll").innerText(), /model, step 1[\s\S]*text_count[\s\S]*files_read[\s\S]*model, step 2/);
    // The label of a bar is its length, and says apart what was measured in the cell, which is the filled part.
    const row = page.locator(".time-row", { hasText: "text_count" });
    assert.match(await row.locator(".label").innerText(), /^(≤ 1|\d+) ms · [\d.]+ (µs|ms) in its cell/);
    const [bar, filled] = await row.evaluate((one) => [".span", ".part"].map((name) => one.querySelector(name).getBoundingClientRect().width));
    assert.ok(filled <= bar, `the filled part has ${filled} of ${bar} pixels`);
  },

  async "approval"(t) {
    const page = await session(t, "Write a file");
    await page.waitForSelector(QUESTION);
    const card = page.locator(QUESTION);
    // Keys that were meant for the input, which the card replaces, do nothing.
    assert.ok(await page.evaluate(() => document.activeElement.matches(".question")), "the card has the focus");
    const asked = page.url();
    await page.keyboard.type("nt/ ");
    assert.equal(page.url(), asked);
    assert.equal(await card.count(), 1);
    // Our words come first, and hidden characters are named in the foreign ones.
    assert.match(await card.innerText(), /^Toolcell asks you\s+files_write\s+wants to run/);
    const box = card.locator(".foreign-box");
    assert.ok((await box.innerText()).includes("U+202E") || (await box.innerText()).includes("\\u202e"), "the hidden character is named");
    assert.ok(!(await box.innerText()).includes("x".repeat(2500)), "a long text is folded");
    await card.getByRole("button", { name: "show all" }).click();
    assert.ok((await box.innerText()).includes("x".repeat(3000)), "and shown on request");
    // No button is the default, and Enter allows nothing.
    await ready(page);
    const allow = card.locator("[data-choice=allow]");
    assert.ok(await page.evaluate(() => !document.activeElement.closest(".question .buttons")));
    await allow.focus();
    await page.keyboard.press("Enter");
    await page.waitForTimeout(300);
    assert.equal(await card.count(), 1, "Enter does not allow");
    await page.keyboard.press("Space");
    await ended(page);
    assert.equal(await card.count(), 0);
    assert.match(await answer(page), /The tool said: /);
    assert.ok(fs.existsSync(t.written), "the call ran");
    fs.rmSync(t.written);

    await send(page, "Write a file");
    // A click at the moment at which the card appears is for something else.
    await page.waitForSelector(QUESTION);
    const early = await page.evaluate(() => {
      const buttons = document.querySelector(".question .buttons");
      if (buttons.dataset.ready === "yes") return "late";
      buttons.querySelector("[data-choice=allow]").click();
      return "early";
    });
    if (early === "early") {
      await ready(page);
      assert.equal(await card.count(), 1, "an early click does not allow");
    }
    await card.locator("input").fill("write to b.txt instead");
    await card.locator("[data-choice=refuse]").click();
    await ended(page, 2);
    assert.match(await answer(page), /write to b.txt instead/);
    assert.ok(!fs.existsSync(t.written), "the refused call did not run");
    assert.match(await page.locator(".call > button").last().innerText(), /not run/);
  },

  async "turn that waits for a client of v1"(t) {
    const token = fs.readFileSync(path.join(t.server.home, "state", "toolcell", "serve-token"), "utf8").trim();
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const ask = async (method, at, body) => (await fetch(`http://${t.server.address}${at}`, { method, headers, body: body && JSON.stringify(body) })).json();
    const tools = [{ type: "function", name: "weather_in_the_city_where_the_user_lives", parameters: { type: "object" } }];
    const first = await ask("POST", "/v1/responses", { model: "default", input: "Ask the client", tools });
    const [session] = (await ask("GET", "/api/sessions")).sessions;
    assert.equal(session.state, "client");
    const page = await t.open("/s/" + session.id);
    const banner = page.locator(".banner:has-text('waits for the client of /v1 that asked')");
    await banner.waitFor();
    assert.equal(await page.locator(QUESTION).count(), 0, "nothing can be allowed");
    assert.deepEqual(await banner.locator("button").allInnerTexts(), ["End it"]);
    const call = page.locator(".call > button");
    // A group has no text before the browser lays it out.
    await page.waitForFunction(() => document.querySelector(".call > button")?.innerText);
    assert.match(await call.innerText(), /weather_in[\s\S]*city: Oslo, days: 3[\s\S]*waits for its client/);
    assert.match(await page.locator("#sessions a[aria-current]").innerText(), /waits for its client/);
    for (const width of [360, 1280]) {
      await page.setViewportSize({ width, height: 740 });
      // Nothing of the line is cut off but the end of a long text, which the opened call has.
      const seen = await call.evaluate((button) => [".tool", ".short", ".state"].map((name) => {
        const { width, height, right } = button.querySelector(name).getBoundingClientRect();
        return width > 40 && height > 10 && right <= button.getBoundingClientRect().right;
      }));
      assert.deepEqual(seen, [true, true, true], `the line of a call at ${width}`);
      assert.deepEqual([...(await fits(page, "client")), ...(await accessible(page, "client"))], []);
      await t.picture(page, `client ${width}`);
    }
    const [{ call_id }] = first.output.filter((item) => item.type === "function_call");
    const second = await ask("POST", "/v1/responses", { model: "default", previous_response_id: first.id, input: [{ type: "function_call_output", call_id, output: "rain" }] });
    assert.equal(second.status, "completed");
    await ended(page);
    assert.equal(await banner.count(), 0);
  },

  async "question of the model"(t) {
    await t.server.kill();
    await t.server.start("--preset", "stepwise");
    try {
      const page = await session(t, "Ask me");
      await ended(page);
      assert.match(await page.locator("[role=log]").innerText(), /I need to know something\.[\s\S]*Which directory\?/);
      const card = page.locator(QUESTION);
      assert.match(await card.innerText(), /^The model asks you\s+Which directory\?/);
      await card.getByRole("button", { name: "docs" }).click();
      assert.equal(await page.inputValue("textarea"), "docs");
      await page.waitForSelector("#sessions a[aria-current]:has-text('? asks you')");
      await page.reload();
      await card.waitFor();
      await send(page, "docs");
      await card.waitFor({ state: "detached" });
      await ended(page, 2);
      await send(page, "Ask me at length");
      await page.waitForSelector(".question button:has-text('show all (1 line, 3.4 k characters)')");
    } finally {
      await t.server.kill();
      await t.server.start();
    }
  },

  async "choices of an approval stay in view"(t) {
    const page = await t.open("/");
    await page.setViewportSize({ width: 360, height: 740 });
    await page.waitForSelector(".empty");
    await send(page, "Write a file");
    await ready(page);
    for (const choice of ["allow", "later", "refuse"]) {
      const seen = await page.locator(`[data-choice=${choice}]`).evaluate((button) => {
        const { left, top, width, height } = button.getBoundingClientRect();
        return button.contains(document.elementFromPoint(left + width / 2, top + height / 2));
      });
      assert.ok(seen, `${choice} is in view`);
    }
    await page.locator("[data-choice=refuse]").click();
    await ended(page);
  },

  async "new text below"(t) {
    t.model.hold(0.85);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer li:nth-child(12)");
    await page.setViewportSize({ width: 1280, height: 400 });
    await page.locator(".scroll").hover();
    await page.mouse.wheel(0, -3000);
    await page.waitForFunction(() => document.querySelector(".scroll").scrollTop === 0);
    t.model.hold(0.95);
    await page.waitForSelector(".new-below:not([hidden])");
    assert.equal(await page.locator(ENDS).count(), 0, "it is told while the answer grows");
    t.model.hold(1);
    await page.locator(".new-below").click();
    await ended(page);
  },

  async "cancel"(t) {
    t.model.hold(0.6);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer h3");
    await page.locator(".scroll").focus();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Cancel the turn" }).click();
    await page.waitForSelector(ENDS);
    assert.match(await page.locator(ENDS).innerText(), /cancelled/);
    await page.waitForSelector("textarea:enabled");
  },

  async "one call is cancelled"(t) {
    const page = await session(t, "Call without end");
    await page.locator(".call .state", { hasText: "running" }).waitFor();
    await page.locator(".call > button").click();
    await page.getByRole("button", { name: "Cancel this call" }).click();
    await ended(page);
    assert.match(await page.locator(".call").innerText(), /the call was cancelled/);
    assert.match(await answer(page), /cancelled/, "the model is told");
  },

  async "broken connection"(t) {
    t.model.hold(0.6);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer h3");
    await page.fill("textarea", "typed meanwhile");
    t.server.cut();
    await page.waitForSelector("#connection:has-text('connection lost')");
    t.model.hold(1);
    t.server.mend();
    await page.getByRole("button", { name: "retry now" }).click();
    await ended(page);
    assert.equal(await page.locator("#connection").innerText(), "");
    assert.equal(await page.locator(".item.answer li").count(), 30);
    assert.equal(await page.locator(".item.answer").count(), 1, "nothing comes twice");
    assert.ok((await answer(page)).trim().endsWith("The last line."));
    assert.equal(await page.inputValue("textarea"), "typed meanwhile");
  },

  async "reload in the middle"(t) {
    t.model.hold(0.6);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer h3");
    await page.reload();
    await page.waitForSelector(".item.answer h3");
    t.model.hold(1);
    await ended(page);
    assert.equal(await page.locator(".item.answer").count(), 1);
    assert.equal(await page.locator(".item.user").count(), 1);
    const whole = await answer(page);
    await page.reload();
    await ended(page);
    assert.equal(await answer(page), whole, "a stored answer looks like a streamed one");
  },

  async "killed server"(t) {
    t.model.hold(0.6);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer h3");
    await t.server.kill();
    t.model.hold(1);
    await page.waitForSelector("#connection:has-text('connection lost')");
    await t.server.start();
    await page.getByRole("button", { name: "retry now" }).click({ timeout: 2000 }).catch(() => {});
    await page.waitForSelector(".banner:has-text('not over')", { timeout: 60_000 });
    await page.getByRole("button", { name: "Continue the turn" }).click();
    await ended(page);
    assert.ok((await answer(page)).trim().endsWith("The last line."));
    assert.equal(await page.locator(".item.user").count(), 1);
  },

  async "two tabs"(t) {
    const one = await session(t, "Write a file");
    await one.waitForSelector(QUESTION);
    const two = await t.open(new URL(one.url()).pathname);
    await two.waitForSelector(QUESTION);
    await ready(two);
    await two.locator("[data-choice=refuse]").click();
    await ended(one);
    await ended(two);
    assert.equal(await one.locator(QUESTION).count(), 0, "the answer of one tab is that of both");
    assert.equal(await answer(one), await answer(two));
    await send(one, "Say hello");
    await ended(two, 2);
    assert.equal((await answer(two)).trim(), HELLO.replaceAll("*", ""));
  },

  async "edit, search, export and delete"(t) {
    const page = await session(t, "Say hello to the aardvark");
    await ended(page);
    const first = page.url();
    await page.locator(".item.user").hover();
    await page.getByRole("button", { name: "edit and resend" }).click();
    assert.equal(await page.inputValue("textarea"), "Say hello to the aardvark");
    await page.fill("textarea", "Say hello to the zebra");
    await page.keyboard.press("Enter");
    await page.waitForFunction((url) => location.href !== url, first);
    await ended(page);
    assert.match(await page.locator(".item.user").innerText(), /zebra/);
    assert.equal(await page.locator(".item.user").count(), 1);
    await page.locator(".scroll").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("aardvark");
    await page.waitForFunction(() => document.querySelectorAll("#sessions .list a").length === 1);
    await page.locator("#sessions .list a").click();
    await page.waitForURL(first);
    await ended(page);
    const exported = await page.evaluate(async () => (await fetch(document.querySelector("#side a[download]").href)).text());
    assert.ok(exported.includes("turn_finished"));
    const named = () => page.locator("#sessions .list a[aria-current=page] .name").innerText();
    const rename = async (name) => {
      await page.getByRole("button", { name: "Rename" }).click();
      await page.locator("dialog input").fill(name);
      await page.keyboard.press("Enter");
    };
    await page.locator("#sessions input").fill("");
    await page.waitForFunction(() => document.querySelectorAll("#sessions .list a").length > 1);
    const title = await named();
    await rename("plans");
    await page.waitForFunction(() => document.querySelector("#sessions .list a[aria-current=page] .name").innerText === "plans");
    // A name that the server refuses stays in the field, with the reason.
    await rename("x".repeat(5000));
    await page.waitForFunction(() => document.querySelector("dialog [role=alert]").innerText.includes("it has 5000 characters, of at most 64"));
    assert.equal((await page.inputValue("dialog input")).length, 5000);
    await page.locator("dialog").getByRole("button", { name: "Back" }).click();
    assert.equal(await named(), "plans");
    await rename("");
    await page.waitForFunction((title) => document.querySelector("#sessions .list a[aria-current=page] .name").innerText === title, title);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.locator("dialog").getByRole("button", { name: "Delete" }).click();
    await page.waitForSelector(".empty");
  },

  async "files of a message are sent again"(t) {
    const page = await t.open("/");
    await page.waitForSelector(".empty");
    const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    await page.setInputFiles("input[type=file]", { name: "dot.png", mimeType: "image/png", buffer: png });
    await page.waitForSelector(".composer .file");
    await send(page, "Say hello to the picture");
    await page.waitForURL(/\/s\//);
    await ended(page);
    await page.locator(".item.user").hover();
    await page.getByRole("button", { name: "edit and resend" }).click();
    assert.equal(await page.locator(".composer .file").count(), 1);
    const before = page.url();
    await send(page, "Say hello to the same picture");
    await page.waitForFunction((url) => location.href !== url, before);
    await ended(page);
    assert.ok(JSON.stringify(t.model.requests.at(-1)).includes("data:image/png;base64,iVBOR"), "the copy has the picture");
    assert.equal(await page.locator(".item.user img").count(), 1);
  },

  async "several files are attached at once"(t) {
    const page = await t.open("/");
    await page.waitForSelector(".empty");
    const file = (name) => ({ name, mimeType: "text/plain", buffer: Buffer.from(name) });
    await page.setInputFiles("input[type=file]", [file("a.txt"), file("b.txt"), file("c.txt")]);
    const waits = (count) => page.waitForFunction((count) => document.querySelectorAll(".file").length === count, count);
    await waits(3);
    // They wait for their message, as its text does.
    await page.locator("#nav").getByRole("link", { name: "Usage" }).click();
    await page.getByRole("link", { name: "Toolcell" }).click();
    await page.waitForSelector(".empty");
    await waits(3);
  },

  async "a failed turn is sent again by its own button"(t) {
    const page = await session(t, "Fail at first");
    await ended(page);
    assert.match(await page.locator(".failure").innerText(), /HTTP 400/);
    await send(page, "Say hello");
    await ended(page, 2);
    await page.locator(".failure").getByRole("button", { name: "Retry" }).click();
    await ended(page, 3);
    assert.deepEqual(await page.locator(".item.user .said").allInnerTexts(), ["Fail at first", "Say hello", "Fail at first"]);
    await send(page, "Stop at the limit");
    await ended(page, 4);
    const last = await page.locator(".failure").last().innerText();
    assert.match(last, /the answer is incomplete[\s\S]*it was cut at the maximum number of tokens/);
  },

  async "a failed turn says when to try again"(t) {
    const page = await session(t, "Wait an hour");
    await ended(page);
    const told = await page.locator(".failure").innerText();
    assert.match(told, /HTTP 429[\s\S]*slow down[\s\S]*The server asks to wait 1 h, and no request waits longer than 2 min\.\s+Try again in 1 h\./);
    await t.picture(page, "wait");
  },

  async "a lost connection leaves the bar usable"(t) {
    const page = await session(t, "Say hello");
    await ended(page);
    await page.setViewportSize({ width: 360, height: 740 });
    t.server.cut();
    await page.getByRole("button", { name: "retry now" }).waitFor();
    await page.waitForSelector("#connection:has-text('retrying in')");
    const cut = await page.locator(".bar button:visible, #nav a, #connection").evaluateAll((all) => all.map((one) => [one.getBoundingClientRect(), one.textContent])
      .filter(([{ left, right, width }]) => left < 0 || right > 360 || width < 20).map(([, text]) => text));
    assert.deepEqual(cut, []);
    const nav = await page.locator("#nav").evaluate((nav) => nav.scrollWidth - nav.clientWidth);
    assert.ok(nav <= 0, `${nav} pixels of the views are cut off`);
    assert.deepEqual([...(await fits(page, "lost")), ...(await accessible(page, "lost"))], []);
    await t.picture(page, "lost 360");
    await page.setViewportSize({ width: 1280, height: 740 });
    await t.picture(page, "lost 1280");
    t.server.mend();
    await page.getByRole("button", { name: "retry now" }).click();
    await page.waitForFunction(() => !document.querySelector("#connection").textContent);
  },
};
