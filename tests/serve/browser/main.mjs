// Runs the checks. Arguments: home of the server, then names of checks.
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { chromium } from "playwright-core";
import { checks } from "./checks.mjs";
import { startModel } from "./model.mjs";
import { Server } from "./server.mjs";

/** Time limit of one step in the browser, in milliseconds: it only ends a check that hangs. */
const STEP = 60_000;

const [home, ...names] = process.argv.slice(2);

// Nothing an answer says may reach this server.
const beacon = { hits: 0 };
const beaconServer = http.createServer((request, response) => { beacon.hits += 1; response.end(); });
await new Promise((resolve) => beaconServer.listen(0, "127.0.0.1", resolve));
const model = await startModel(`http://127.0.0.1:${beaconServer.address().port}`);
const server = new Server(home, model.url);
await server.relay();
server.link = await server.start();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

const problems = [];
async function newContext({ anonymous } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, storageState: anonymous ? undefined : signedIn });
  context.setDefaultTimeout(STEP);
  context.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== "blob:" && origin !== server.base) problems.push(`a request to ${request.url()}`);
  });
  context.on("console", (message) => {
    // A connection that is broken on purpose is told by the browser as well.
    const isExpected = /Failed to load resource|ERR_/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isExpected) problems.push(`console: ${message.text()}`);
  });
  context.on("weberror", (error) => problems.push(`error: ${error.error().stack}`));
  return context;
}

let signedIn;
{
  const context = await newContext();
  const page = await context.newPage();
  await page.goto(server.link);
  await page.waitForSelector(".empty");
  signedIn = await context.storageState();
  const [cookie] = signedIn.cookies;
  if (!cookie?.httpOnly || cookie.sameSite !== "Strict") problems.push(`the cookie is not HttpOnly and SameSite=Strict: ${JSON.stringify(cookie)}`);
  await context.close();
}

const unknown = names.filter((name) => !checks[name]);
if (unknown.length) throw new Error(`no such check: ${unknown.join(", ")}; there are ${Object.keys(checks).join(", ")}`);
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  if (names.length && !names.includes(name)) continue;
  const contexts = [];
  const context = async (options) => { const one = await newContext(options); contexts.push(one); return one; };
  const main = await context();
  const pages = [];
  const t = {
    server, model, beacon, context, written: path.join(server.folder, "out.txt"),
    report: (text) => console.log(`browser: ${name}: ${text}`),
    async open(at) { const page = await main.newPage(); pages.push(page); await page.goto(server.base + at); return page; },
    async picture(page, of) {
      if (!process.env.SCREENSHOTS) return;
      fs.mkdirSync(process.env.SCREENSHOTS, { recursive: true });
      await page.screenshot({ path: path.join(process.env.SCREENSHOTS, `${of.trim().replaceAll(/[^a-z0-9]+/gi, "-")}.png`) });
    },
  };
  problems.length = 0;
  model.hold(1);
  try {
    await check(t);
    if (problems.length) throw new Error(problems.join("\n"));
    console.log(`browser: ${name}: passed`);
  } catch (error) {
    failed += 1;
    console.error(`browser: ${name}: FAILED: ${error.stack}`);
    const [page] = pages.slice(-1);
    if (page && process.env.SCREENSHOTS) await t.picture(page, `failed ${name}`).catch(() => {});
  }
  for (const one of contexts) await one.close().catch(() => {});
}
if (beacon.hits) { failed += 1; console.error("browser: something was fetched from another host"); }
await browser.close();
await server.kill();
process.exit(failed ? 1 : 0);
