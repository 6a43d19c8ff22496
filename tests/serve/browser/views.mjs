// What holds for every view, and views beside the conversation. A check fails by an exception.
import assert from "node:assert/strict";
import fs from "node:fs";
import { QUESTION, accessible, answer, ended, fits, ready, send, session } from "./steps.mjs";

const FRAMES = 120;

export const views = {
  async "hostile answers are inert"(t) {
    const page = await session(t, "Be hostile");
    await ended(page);
    assert.match(await answer(page), /The end of the hostile answer/);
    const found = await page.evaluate(() => {
      const body = document.querySelector("#main .scroll");
      return {
        ran: window.pwned,
        elements: [...body.querySelectorAll("script, style, link, img, svg, iframe, form, input, object, embed, [data-choice], [onerror], [onload], [style]")].map((one) => one.outerHTML),
        links: [...body.querySelectorAll("a[href]")].map((one) => [one.protocol, one.rel, one.target, one.querySelector(".host") !== null || one.textContent === one.href]),
        questions: document.querySelectorAll(".question").length,
        text: body.innerText,
      };
    });
    assert.equal(found.ran, undefined);
    assert.deepEqual(found.elements, []);
    assert.equal(found.questions, 0);
    assert.ok(found.links.length >= 4);
    for (const [protocol, rel, target, states] of found.links) {
      assert.equal(protocol, "http:");
      assert.match(rel, /noopener/);
      assert.equal(target, "_blank");
      assert.ok(states, "a link states its host");
    }
    for (const shown of ["U+202E", "U+200B", "U+E0041", "<script>", "javascript:window.pwned=1", "image, not loaded"]) assert.ok(found.text.includes(shown), shown);
    // The title of the session is foreign, too, and so is what a reload shows.
    await page.reload();
    await ended(page);
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(t.beacon.hits, 0, "nothing was fetched");
  },

  async "keys"(t) {
    const page = await session(t, "Say hello");
    await ended(page);
    await page.locator(".scroll").focus();
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog"));
    await page.locator(".scroll").focus();
    await page.keyboard.press("n");
    await page.waitForSelector(".empty");
    // Everything is reached by Tab, in the order of reading, and the focus is visible.
    await page.evaluate(() => { document.activeElement.blur(); window.getSelection().removeAllRanges(); });
    await page.locator(".skip").focus();
    const seen = [];
    for (let number = 0; number < 40; number += 1) {
      seen.push(await page.evaluate(() => document.activeElement.getAttribute("aria-label") || document.activeElement.textContent.trim()));
      await page.keyboard.press("Tab");
    }
    const order = ["Toolcell", "Chat", "New session", "Search sessions", "Message"].map((name) => seen.findIndex((one) => one === name));
    assert.ok(order.every((at, index) => at >= 0 && (index === 0 || at > order[index - 1])), JSON.stringify(seen));
  },

  async "long session"(t) {
    const page = await session(t, "Work long");
    await ended(page);
    await page.reload();
    await ended(page);
    const events = await page.evaluate(async () => (await (await fetch(`/api/sessions/${location.pathname.split("/")[2]}/events?after=0&limit=1`)).json()).events_total);
    assert.ok(events >= 5000, `${events} events`);
    assert.equal(await page.locator(".call").count(), 2500);
    // Scrolls fast, and measures the work of a frame: 60 of them in a second leave 16 ms for each.
    const devtools = await page.context().newCDPSession(page);
    await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
    const busy = async () => (await devtools.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
    const before = await busy();
    await page.evaluate(async (frames) => {
      const scroller = document.querySelector(".scroll");
      scroller.scrollTop = 0;
      for (let number = 0; number < frames; number += 1) {
        scroller.scrollTop += 120;
        await new Promise(requestAnimationFrame);
      }
    }, FRAMES);
    t.report(`${events} events: ${(((await busy()) - before) * 1000 / FRAMES).toFixed(1)} ms of work for a frame while scrolling`);
    await page.goto(page.url() + "/timeline");
    await page.waitForSelector(".time-row");
    assert.ok((await page.locator(".time-row").count()) < 100, "only rows near the screen are elements");
    await page.locator(".time-scroll").evaluate((rows) => { rows.scrollTop = rows.scrollHeight; });
    await page.waitForSelector(".time-row:has-text('model, step')");
  },

  async "agents are nested in the timeline"(t) {
    const page = await session(t, "Delegate this");
    await ended(page);
    await page.locator(".scroll").focus();
    await page.keyboard.press("t");
    await page.waitForSelector(".time-row");
    const rows = await page.locator(".time-row").evaluateAll((all) => all.map((row) => [
      row.querySelector(".what bdi").textContent, row.querySelector(".label").textContent.split(" · ").at(-1).split(" ").at(-1), row.querySelector(".span").className.split(" ")[1],
      row.querySelector(".what bdi").getBoundingClientRect().left - row.getBoundingClientRect().left,
    ]));
    const of = (name) => rows.filter((row) => row[0] === name);
    // Each call has one row, which its own end ends: neither that of an agent nor that of a call beside it.
    assert.deepEqual(of("helper").map((row) => row.slice(1)), [["done", "call", 8], ["done", "call", 8]]);
    assert.deepEqual(of("text_count").map((row) => row.slice(1)).sort((a, b) => a[2] - b[2]), [["done", "call", 8], ["done", "call", 20]]);
    assert.deepEqual(of("files_read").map((row) => row.slice(1)), [["run", "refused", 20]]);
    // What an agent did stands below its call.
    assert.deepEqual(rows.map(([name, , , left]) => (left > 8 ? "· " : "") + name).filter((name) => !name.includes("model")), ["helper", "· text_count", "· files_read", "text_count", "helper"]);
    assert.equal(of("model, step 1").filter((row) => row[3] === 20).length, 2);
    assert.equal(of("model, step 2").filter((row) => row[3] === 20).length, 1);
    await page.selectOption("select", "bad");
    assert.deepEqual(await page.locator(".time-row .what bdi").allInnerTexts(), ["files_read"]);
    await page.selectOption("select", "");
    for (const width of [360, 1280]) {
      await page.setViewportSize({ width, height: 740 });
      assert.deepEqual([...(await fits(page, "agents")), ...(await accessible(page, "agents"))], []);
      await t.picture(page, `agents ${width}`);
    }
  },

  async "the timeline follows the session"(t) {
    t.model.hold(0.6);
    const page = await session(t, "Answer slowly");
    await page.waitForSelector(".item.answer h3");
    await page.goto(page.url() + "/timeline");
    const row = page.locator(".time-row", { hasText: "model, step 1" });
    await row.filter({ hasText: "running" }).waitFor();
    await row.click();
    const width = () => row.locator(".label").innerText();
    const before = await width();
    await page.waitForFunction((text) => document.querySelector(".time-row .label").innerText !== text, before);
    assert.equal(await row.getAttribute("aria-current"), "true");
    t.model.hold(1);
    await row.filter({ hasNotText: "running" }).waitFor();
    assert.match(await page.locator(".totals").innerText(), /tokens\s+about [\d.]+ k in/);
    assert.ok(await row.evaluate((one) => one === document.activeElement), "the row keeps the focus");
    // Another turn of the session appears as well, and a range that was chosen stays.
    await page.getByRole("button", { name: "Zoom in" }).click();
    const axis = await page.locator(".axis").innerText();
    const { pathname } = new URL(page.url());
    await page.evaluate(async (path) => {
      const body = JSON.stringify({ text: "Count the words" });
      const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body });
      if (!answer.ok) throw new Error(await answer.text());
    }, "/api/sessions/" + pathname.split("/")[2] + "/turns");
    await page.locator(".time-row", { hasText: "text_count" }).waitFor();
    assert.equal(await page.locator(".axis").innerText(), axis);
    await page.getByRole("button", { name: "All", exact: true }).click();
    // A broken connection is told here as well.
    t.server.cut();
    await page.waitForSelector("#connection:has-text('connection lost')");
    t.server.mend();
    await page.getByRole("button", { name: "retry now" }).click();
    await page.waitForFunction(() => !document.querySelector("#connection").textContent);
  },

  async "the search of sessions is reached from every view"(t) {
    const page = await session(t, "Say hello");
    await ended(page);
    const { pathname } = new URL(page.url());
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 740 });
      for (const path of [pathname, pathname + "/timeline", "/usage", "/tools", "/scratch"]) {
        await page.goto(t.server.base + path);
        await page.waitForLoadState("networkidle", { timeout: 3000 }).catch(() => {});
        await page.locator("main").focus();
        await page.keyboard.type("/hello");
        await page.waitForFunction(() => document.activeElement.type === "search" && document.activeElement.value === "hello");
        // What is loaded afterwards does not take the focus away.
        await page.waitForLoadState("networkidle", { timeout: 3000 }).catch(() => {});
        assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Search sessions", path);
      }
    }
  },

  async "the list of older sessions keeps its length"(t) {
    const page = await t.open("/");
    await page.waitForSelector(".empty");
    const request = (method, path) => page.evaluate(async ([method, path]) => {
      const answer = await fetch(path, { method, headers: { "content-type": "application/json" }, body: method === "POST" ? "{}" : undefined });
      return answer.status === 204 ? null : answer.json();
    }, [method, path]);
    const made = [];
    for (let number = 0; number < 60; number += 1) made.push((await request("POST", "/api/sessions")).id);
    const rows = page.locator("#sessions .list a");
    await page.waitForFunction(() => document.querySelectorAll("#sessions .list a").length === 50);
    await page.getByRole("button", { name: "older sessions" }).click();
    await page.waitForFunction(() => document.querySelectorAll("#sessions .list a").length > 50);
    const before = await rows.count();
    // It is refreshed as the short one is: what another client creates comes, and nothing goes.
    const { id } = await request("POST", "/api/sessions");
    await page.waitForSelector(`#sessions .list a[href="/s/${id}"]`);
    assert.ok((await rows.count()) >= before, `${await rows.count()} of ${before} entries`);
    for (const one of [...made, id]) await request("DELETE", "/api/sessions/" + one);
  },

  async "scratch"(t) {
    for (const name of ["one.txt", "two.txt"]) fs.writeFileSync(t.server.work(name), "before\n");
    for (const name of ["one.txt", "two.txt", "three.txt"]) {
      t.server.run("call", "files_write", JSON.stringify({ path: name, content: "<b>after</b>\u202e\n", mode: "overwrite" }), "--grant", "write=.", "--scratch", t.server.scratch);
    }
    const page = await t.open("/scratch");
    await page.getByRole("link", { name: "scratch", exact: true }).click();
    const file = (name) => page.locator("section.card", { hasText: name });
    const decide = async (name, button) => {
      await file(name).getByRole("button", { name: button }).click();
      await page.getByRole("dialog").getByRole("button", { name: button }).click();
    };
    await file("one.txt").locator(".diff .plus").waitFor();
    assert.match(await file("one.txt").innerText(), /changed[\s\S]*-before\s+\+<b>after<\/b>/);
    await decide("one.txt", "Commit");
    await page.waitForSelector("text=✓ committed 1 file");
    assert.match(fs.readFileSync(t.server.work("one.txt"), "utf8"), /after/);
    await decide("two.txt", "Discard");
    await page.waitForSelector("text=✓ discarded 1 file");
    assert.equal(fs.readFileSync(t.server.work("two.txt"), "utf8"), "before\n");
    await page.waitForFunction(() => document.querySelectorAll("section.card").length === 1);
    await page.selectOption("select", "split");
    assert.deepEqual([...(await fits(page, "scratch")), ...(await accessible(page, "scratch"))], []);
    await t.picture(page, "scratch");
    await decide("three.txt", "Discard");
    await page.waitForSelector("text=No changes are left.");
  },

  async "every row of a diff is shown"(t) {
    fs.writeFileSync(t.server.work("a.sql"), "-- before\nselect 1;\n");
    const write = (path, content) => t.server.run("call", "files_write", JSON.stringify({ path, content, mode: "overwrite" }), "--grant", "write=.", "--scratch", t.server.scratch);
    write("a.sql", "++ after\nselect 1;\n");
    write("long.txt", Array.from({ length: 3500 }, (_, row) => `row ${row}\n`).join(""));
    const page = await t.open("/scratch/scratch");
    const file = (name) => page.locator("section.card", { hasText: name });
    await file("a.sql").locator(".diff .plus").waitFor();
    assert.deepEqual(await file("a.sql").locator(".diff div").allInnerTexts(), ["@@ -1,2 +1,2 @@", "--- before", "+++ after", " select 1;"]);
    assert.match(await file("long.txt").innerText(), /⚠ 501 more rows of this diff are not shown/);
    await file("long.txt").getByRole("button", { name: "Show all of it" }).click();
    await file("long.txt").getByText("+row 3499").waitFor();
    await page.getByRole("button", { name: "Discard all" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Discard" }).click();
    await page.waitForSelector("text=No changes are left.");
  },

  async "no layout shift, and a quick first paint"(t) {
    const page = await t.open("/");
    await page.waitForSelector(".empty");
    const paint = await page.evaluate(() => performance.getEntriesByType("paint")[0]?.startTime ?? 0);
    await page.evaluate(() => {
      window.shifted = 0;
      new PerformanceObserver((list) => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value; }).observe({ type: "layout-shift" });
    });
    await send(page, "Answer slowly");
    await ended(page);
    const shifted = await page.evaluate(() => window.shifted);
    t.report(`first paint after ${paint.toFixed(0)} ms, layout shift ${shifted.toFixed(3)}`);
    // What Chromium counts as good for a whole page.
    assert.ok(shifted < 0.1, `layout shift ${shifted}`);
    // The user reads above, and the text does not move on its own.
    t.model.hold(0.5);
    await send(page, "Answer slowly");
    await page.waitForFunction(() => document.querySelectorAll(".item.answer").length === 2);
    await page.locator(".scroll").hover();
    await page.mouse.wheel(0, -400);
    t.model.hold(0.9);
    await page.waitForSelector(".new-below:visible");
    const top = await page.locator(".scroll").evaluate((scroller) => scroller.scrollTop);
    await page.waitForTimeout(500);
    assert.equal(await page.locator(".scroll").evaluate((scroller) => scroller.scrollTop), top);
    t.model.hold(1);
    await page.click(".new-below");
    await ended(page, 2);
  },

  async "every view is accessible in both themes and at every width"(t) {
    const page = await session(t, "Count the words");
    await ended(page);
    await send(page, "Markdown please");
    await ended(page, 2);
    await page.locator(".call > button").first().click();
    const found = [];
    const { pathname } = new URL(page.url());
    await send(page, "Write a file");
    await page.waitForSelector(QUESTION);
    for (const theme of ["light", "dark"]) {
      for (const width of [360, 1280, 2560]) {
        await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
        await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
        for (const path of [pathname, pathname + "/timeline", "/", "/usage", "/tools", "/scratch"]) {
          await page.goto(t.server.base + path);
          await page.waitForLoadState("networkidle", { timeout: 3000 }).catch(() => {});
          if (path === pathname) await ready(page);
          // Everything that opens is open.
          const rows = page.locator(".time-row");
          if (await rows.count()) await rows.nth(1).click();
          for (const closed of ['.call > button[aria-expanded="false"]', "details:not([open]) > summary"]) await page.$$eval(closed, (all) => all.forEach((one) => one.click()));
          const name = `${path.replace(pathname, "session").replaceAll("/", "-")} ${theme} ${width}`;
          found.push(...(await fits(page, name)), ...(await accessible(page, name)));
          await t.picture(page, name);
        }
      }
    }
    await page.setViewportSize({ width: 360, height: 740 });
    await page.goto(t.server.base + pathname);
    await page.getByRole("button", { name: "Sessions" }).click();
    found.push(...(await accessible(page, "sheet of sessions")));
    assert.deepEqual(found, []);
    await t.picture(page, "sheet");
    await page.keyboard.press("Escape");
    await ready(page);
    await page.locator("[data-choice=refuse]").click();
    await ended(page, 3);
  },
};
