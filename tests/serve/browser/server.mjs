// The real server, with a home of its own, behind a relay: the server can be killed and started again at the same address, and the
// connection can be broken as a network does.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";

/** Time limit of the start, in milliseconds: components are compiled in it. */
const START = 300_000;

export class Server {
  constructor(home, model) {
    this.home = home;
    fs.rmSync(home, { recursive: true, force: true });
    this.folder = path.join(home, "work");
    fs.mkdirSync(path.join(home, "config", "toolcell"), { recursive: true });
    fs.mkdirSync(this.folder, { recursive: true });
    fs.writeFileSync(path.join(home, "config", "toolcell", "config.toml"), `
[provider]
name = "openai"
base_url = "${model}"
model = "scripted"

[loop]
max_steps = 100

[tools.files]
grants = ["write=."]

[tools.text]
grants = []
scratch = "${path.join(home, "scratch")}"

[agents.helper]
description = "Works on a part of the task"
tools = ["text"]

[[approval.rules]]
tool = "files_write"
verdict = "ask"
`);
    this.address = "127.0.0.1:0";
    this.sockets = new Set();
    this.isBroken = false;
  }

  /** Relays connections of the browser to the server, from an address that stays the same. */
  async relay() {
    this.relayed = net.createServer((socket) => {
      if (this.isBroken) { socket.destroy(); return; }
      const to = net.connect(Number(this.address.split(":")[1]), "127.0.0.1");
      for (const [one, other] of [[socket, to], [to, socket]]) {
        this.sockets.add(one);
        one.pipe(other);
        one.on("error", () => {});
        one.on("close", () => { other.destroy(); this.sockets.delete(one); });
      }
    });
    await new Promise((resolve) => this.relayed.listen(0, "127.0.0.1", resolve));
    this.base = `http://127.0.0.1:${this.relayed.address().port}`;
  }

  /** Breaks all connections, and takes no new ones until it is mended. */
  cut() {
    this.isBroken = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend() { this.isBroken = false; }

  env() {
    const at = (name) => path.join(this.home, name);
    return { PATH: process.env.PATH, HOME: this.home, XDG_CONFIG_HOME: at("config"), XDG_DATA_HOME: at("data"), XDG_STATE_HOME: at("state"), XDG_CACHE_HOME: at("cache"),
      OPENAI_API_KEY: "sk-suite-key-of-the-scripted-model" };
  }

  /** Runs a command of the same user. */
  run(...args) { execFileSync(process.env.TOOLCELL, args, { cwd: this.folder, env: this.env(), stdio: "pipe" }); }

  work(name) { return path.join(this.folder, name); }

  get scratch() { return path.join(this.home, "scratch"); }

  /** Starts the server, and returns the one-time link that it prints. */
  async start(...flags) {
    this.child = spawn(process.env.TOOLCELL, ["serve", "--http", this.address, "--allow-host", new URL(this.base).host, "--allow-origin", this.base, ...flags], { cwd: this.folder, env: this.env(), stdio: ["ignore", "pipe", "pipe"] });
    let printed = "";
    const link = await new Promise((resolve, reject) => {
      const read = (piece) => {
        printed += piece;
        const found = /http:\/\/127\.0\.0\.1:\d+\/login\?code=\S+/.exec(printed);
        if (found) resolve(found[0].replace(/[`.]+$/, ""));
      };
      this.child.stdout.on("data", read);
      this.child.stderr.on("data", read);
      this.child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${printed}`)));
      setTimeout(() => reject(new Error(`the server printed no link: ${printed}`)), START).unref();
    });
    this.address = new URL(link).host;
    return link.replace(new URL(link).origin, this.base);
  }

  /** Ends the server as a crash does. */
  async kill() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
  }
}
