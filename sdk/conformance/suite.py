"""Conformance of the SDKs: builds the fixture tool of each language and calls it. `run` installs the toolchains.

With `--measure` it measures the tools that `tool new` writes instead, for the table in the README of the SDKs.
"""

import http.server
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent
LANGUAGES = ["rust", "js", "ts", "python", "c", "cpp", "zig", "go", "assemblyscript"]
#: Languages in which nothing is left of the message of a crash.
SILENT = ["c", "cpp", "zig", "assemblyscript"]
#: Tests of the templates. Those of Rust are those of the guide.
TESTS = {
    "js": ["node --test"],
    "ts": [
        "tsc --noEmit && esbuild src/tool.ts --bundle --format=esm --outfile=build/test/src/tool.js --log-level=warning",
        "node --test",
    ],
    "python": ["python3 -m unittest discover tests"],
    "go": ["go test ./..."],
}
#: Packages of others that the fixture uses, as their package managers write them.
NPM = {
    "node_modules/bundled/package.json": '{"name": "bundled", "version": "1.0.0", "type": "module", "main": "index.js", "types": "index.d.ts"}',
    "node_modules/bundled/index.js": "export const next = (number) => number + 1;\n",
    "node_modules/bundled/index.d.ts": "export function next(number: number): number;\n",
}
BUNDLED = {
    "js": NPM,
    "ts": NPM,
    "python": {"deps/bundled/__init__.py": "from bundled.step import STEP\n\n\ndef next(number):\n    return number + STEP\n", "deps/bundled/step.py": "STEP = 1\n"},
}
#: Formatters and linters that come with a toolchain: what `tool new` wrote passes them as it is.
LINTERS = {
    "rust": ["cargo fmt --check", "cargo clippy --quiet --all-targets --target wasm32-wasip2 -- -D warnings"],
    "python": ["pip wheel --quiet --no-deps --wheel-dir build/wheels ."],
    "zig": ["$(command -v zig || command -v python-zig) fmt --check src toolcell"],
    "go": ['test -z "$("$(go env GOROOT)/bin/gofmt" -l .)"', "go vet ./..."],
}
NAME = "conformance"
MIB = 1 << 20

TOOLCELL, WORK = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
BUILDS = WORK / "tools"


def toolcell(*arguments, given=None):
    """Runs a command with a home of its own, so that the user's configuration has no influence."""
    home = WORK / "home"
    home.mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    # The caches and toolchains of compilers stay those of the user.
    keep = {"RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo", "ZIG_GLOBAL_CACHE_DIR": ".cache/zig", "GOCACHE": ".cache/go-build"}
    user = pathlib.Path.home()
    inherited.update({name: str(user / path) for name, path in keep.items() if name not in os.environ})
    inherited["HOME"] = str(home)
    inherited.pop("CARGO_TARGET_DIR", None)
    given = given.encode() if given is not None else None
    return subprocess.run([TOOLCELL, *arguments], input=given, capture_output=True, env=inherited, cwd=BUILDS)


class Broken(Exception):
    pass


def expect(condition, what, seen):
    if not condition:
        raise Broken(f"{what}: {str(seen)[:2000]}")


class Fixture:
    def __init__(self, language, host):
        self.language = language
        self.host = host
        self.dir = BUILDS / language
        self.file = str(self.dir / f"{NAME}.wasm")

    def new(self):
        """Writes the tool with `tool new`."""
        # What an earlier SDK had and this one has not; what package managers installed stays.
        for stale in ("src", "toolcell", "toolcell-sdk"):
            shutil.rmtree(self.dir / stale, ignore_errors=True)
        new = BUILDS / NAME
        shutil.rmtree(new, ignore_errors=True)
        made = toolcell("tool", "new", NAME, "--lang", self.language)
        expect(made.returncode == 0, "tool new failed", made.stderr)
        # What builds leave behind is kept: they are faster the next time.
        shutil.copytree(new, self.dir, dirs_exist_ok=True, copy_function=shutil.copy)
        shutil.rmtree(new)

    def build(self):
        """Makes the tool. Returns `False` if the toolchain is missing."""
        self.new()
        if not self.template():
            return False
        for file in self.dir.glob("main*.go"):
            file.unlink()
        if self.language != "rust":
            shutil.rmtree(self.dir / "src", ignore_errors=True)
        # With the time of now: compilers compare it.
        shutil.copytree(HERE / self.language, self.dir, dirs_exist_ok=True, copy_function=shutil.copy)
        if self.language != "rust":
            with (self.dir / "tool.toml").open("a") as manifest:
                manifest.write('version = "1.2.0"\nwants = [{ grant = "env=CONFORMANCE", reason = "a check" }]\n')
        for path, content in BUNDLED.get(self.language, {}).items():
            (self.dir / path).parent.mkdir(parents=True, exist_ok=True)
            (self.dir / path).write_text(content)
        built = toolcell("tool", "build", str(self.dir), "--json")
        expect(built.returncode == 0, "tool build failed", built.stderr.decode())
        self.built = json.loads(built.stdout)
        return True

    def template(self):
        """Builds the tool as `tool new` wrote it, and runs its tests. Returns `False` if the toolchain is missing."""
        built = toolcell("tool", "build", str(self.dir))
        said = built.stderr.decode()
        if "is not installed" in said and not os.environ.get("CI"):
            print(f"{self.language}: skipped, its toolchain is not installed", flush=True)
            return False
        expect(built.returncode == 0, "tool build failed", said)
        arguments = {"dividend": 7, "divisor": 2, "remainder": True}
        seen = self.text(NAME, arguments)
        expect(seen == "3 remainder 1", "the result of the template", seen)
        self.error(NAME, {"dividend": 7, "divisor": 0}, "invalid_arguments", "`divisor` is zero")
        self.imports = self.inspect()["imports"]
        if self.language != "rust":
            expect(not [name for name in self.imports if "wasi:" in str(name)], "imports of WASI", self.imports)
        path = f"{pathlib.Path(TOOLCELL).resolve().parent}:{os.environ['PATH']}"
        for command in [*LINTERS.get(self.language, []), *TESTS.get(self.language, []), "toolcell tool test ."]:
            ran = subprocess.run(["sh", "-c", command], capture_output=True, cwd=self.dir, env=dict(os.environ, PATH=path))
            expect(ran.returncode == 0, command, (ran.stdout + ran.stderr).decode())
        return True

    def inspect(self):
        return json.loads(toolcell("tool", "inspect", self.file, "--json").stdout)

    def call(self, tool, arguments, *flags):
        called = toolcell("call", f"{self.file}#{tool}", "--json", *flags, given=json.dumps(arguments, ensure_ascii=False))
        try:
            result = json.loads(called.stdout)
        except ValueError:
            raise Broken(f"{tool} gave no JSON: {called.stdout[:500]} {called.stderr[:2000]}") from None
        result["stderr"] = called.stderr.decode()
        return result

    def text(self, tool, arguments, *flags):
        result = self.call(tool, arguments, *flags)
        expect(result["error"] is None, f"{tool} failed", result)
        return result["content"][0]["text"]

    def error(self, tool, arguments, kind, words, *flags):
        error = self.call(tool, arguments, *flags)["error"]
        expect(error and error["kind"] == kind and words in error["message"], f"{tool} should be {kind}, {words}", error)


def cpu_seconds():
    """Returns the CPU time of all processes that ran and ended, which other processes of the machine do not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(of):
    """Prints the row of a language, with CPU times: of the first call, which compiles the component, and of calls after it."""
    of.new()
    if not of.template():
        return
    of.imports = [name for name in of.inspect()["imports"] if "wasi:" in str(name)]
    arguments = {"dividend": 7, "divisor": 2, "remainder": True}
    processes, calls = [], []
    for _ in range(12):
        if not processes:
            # Without the code of earlier runs.
            shutil.rmtree(WORK / "home" / ".cache", ignore_errors=True)
        before = cpu_seconds()
        result = of.call(NAME, arguments)
        processes.append(cpu_seconds() - before)
        calls.append(result["receipt"])
    first, later = processes[0], statistics.median(processes[1:])
    receipt = calls[-1]
    cells = [
        of.language,
        f"{pathlib.Path(of.file).stat().st_size / 1024:.0f} KiB",
        f"{len(of.imports)}",
        f"{first - later:.2f} s",
        f"{first:.2f} s",
        f"{statistics.median(call['cpu_us'] for call in calls[1:]) / 1000:.2f} ms",
        f"{receipt['fuel'] / 1000:.0f} k",
        f"{receipt['peak_memory'] / MIB:.1f} MiB",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def definitions(of):
    inspected = of.inspect()
    tools = {tool["name"]: tool for tool in inspected["tools"]}
    expected = ["echo", "add", "fail", "parts", "count", "crash", "read_file", "get_url"]
    expect(list(tools) == expected, "tools in their order", list(tools))
    schema = tools["add"]["input"]
    expect(schema["required"] == ["left", "right"], "required parameters", schema)
    expect(schema["properties"]["left"]["type"] == "integer", "type of a parameter", schema)
    expect(schema["properties"]["negate"]["description"] == "Negate the sum.", "description", schema)
    expect(tools["add"]["description"].startswith("Adds two numbers"), "description of a tool", tools["add"])
    expect(tools["add"]["hints"].get("read_only") is True, "hints", tools["add"]["hints"])
    cannot = " ".join(inspected["cannot"])
    expect("access files" not in cannot and "HTTP" not in cannot, "imports of files and HTTP", inspected["cannot"])


def manifest(of):
    wants = [{"grant": "env=CONFORMANCE", "reason": "a check"}]
    seen = of.inspect()["manifest"]
    expect(seen == {"name": NAME, "version": "1.2.0", "wants": wants}, "the section `toolcell:manifest`", seen)


def unicode_and_size(of):
    for text in ["", "héllo ☃ 𝄞 \"quoted\"\n\t\\ \u0007", "🧪" * 100, "\u202e\u0000x"]:
        seen = of.text("echo", {"text": text}) if text else of.call("echo", {"text": text})
        expect((seen == text) if text else seen["error"] is None, f"echo of {text!r}", seen)
    # The host takes arguments of 1 MiB at most, with the JSON around them.
    large = "0123456789abcdé " * ((MIB - 100) // 17)
    seen = of.text("echo", {"text": large}, "--limit", "output=4MiB")
    expect(seen == large, "echo of 1 MiB", len(seen))


def log_and_progress(of):
    seen = of.call("echo", {"text": "x"})
    expect("log │ echoing 1" in seen["stderr"], "a message of the log", seen["stderr"])


def structured(of):
    for arguments, total in [({"left": 2, "right": 3}, 5), ({"left": 2, "right": 3, "negate": True}, -5), ({"left": -7, "right": 0}, -7)]:
        result = of.call("add", arguments)
        expect(result["structured"] == {"sum": total}, f"add {arguments}", result)
    for arguments in [{"left": "2", "right": 3}, {"left": 2}, {"left": 2, "right": 3, "other": 1}]:
        result = of.call("add", arguments)
        expect(result["error"]["kind"] == "invalid_arguments" and result["receipt"] is None, f"refused {arguments}", result)


def errors(of):
    for kind in ["invalid_arguments", "denied", "unavailable", "failed"]:
        of.error("fail", {"kind": kind}, kind, f"as asked: {kind} é")


def parts(of):
    content = of.call("parts", {})["content"]
    expect([part["type"] for part in content] == ["text", "blob", "link"], "parts", content)
    expect(content[1]["media_type"] == "image/png" and content[1]["data"] == "AP+A", "bytes", content[1])
    expect(content[2]["uri"] == "https://example.org/x" and content[2]["name"] == "an example", "link", content[2])


def no_state(of):
    seen = [of.text("count", {}), of.text("count", {})]
    expect(seen == ["1", "1"], "calls share no state", seen)


def crash(of):
    error = of.call("crash", {})["error"]
    expect(error is not None, "a crash is an error", error)
    if of.language not in SILENT:
        expect("out of cheese 42" in error["message"], "the message of a crash", error)
    expect(of.text("echo", {"text": "next"}) == "next", "a call after a crash", None)


def files(of):
    (BUILDS / "granted").mkdir(exist_ok=True)
    (BUILDS / "granted" / "a.txt").write_text("a file, ä")
    (BUILDS / "other.txt").write_text("private")
    seen = of.text("read_file", {"path": "granted/a.txt"}, "--grant", "read=granted")
    expect(seen == "a file, ä", "a granted file", seen)
    for path in ["other.txt", "granted/../other.txt", "/etc/passwd"]:
        result = of.call("read_file", {"path": path}, "--grant", "read=granted")
        expect(result["error"], f"`{path}` is not granted", result)
    expect(of.call("read_file", {"path": "granted/a.txt"})["error"], "nothing is granted", None)


def http_requests(of):
    url = f"http://{of.host}/page"
    seen = of.text("get_url", {"url": url}, "--grant", f"http=http://{of.host}")
    expect(seen == "200 a page, ä", "a granted host", seen)
    expect(of.text("get_url", {"url": f"http://{of.host}/missing"}, "--grant", f"http=http://{of.host}").startswith("404"), "404", None)
    of.error("get_url", {"url": url}, "denied", "")
    # More than a stream of WASI takes at once.
    body = "0123456789é" * 1000
    seen = of.text("get_url", {"url": url, "body": body}, "--grant", f"http=POST http://{of.host}")
    expect(seen == f"201 {len(body.encode())} {body}", "a body", seen)
    of.error("get_url", {"url": url, "body": body}, "denied", "", "--grant", f"http=GET http://{of.host}")


CHECKS = [definitions, manifest, unicode_and_size, log_and_progress, structured, errors, parts, no_state, crash, files, http_requests]


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = "a page, ä".encode()
        self.send_response(200 if self.path == "/page" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        # As many servers do, it takes no body without its length.
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        body = f"{len(body)} ".encode() + body
        self.send_response(201)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def packages():
    """Makes the packages of the SDKs without publishing them, and returns the number of those that fail."""
    sdk = HERE.parent
    python = WORK / "packages" / "python"
    shutil.rmtree(python.parent, ignore_errors=True)
    # What the build of a wheel leaves behind would be in the sources.
    shutil.copytree(sdk / "python", python)
    failed = 0
    for folder, command, file in [
        (sdk / "javascript", ["npm", "pack", "--dry-run"], "toolcell/toolcell.js"),
        (sdk / "assemblyscript", ["npm", "pack", "--dry-run"], "toolcell/transform.mjs"),
        (python, ["pip", "wheel", "--no-deps", "--wheel-dir", "wheels", "."], "toolcell-0.1.0-py3-none-any.whl"),
        (sdk / "go", ["go", "list", "./..."], "github.com/toolcell/toolcell/sdk/go/toolcell"),
        (sdk / "rust", ["cargo", "package", "--list", "--allow-dirty", "-p", "toolcell-sdk"], "src/lib.rs"),
    ]:
        if not shutil.which(command[0]):
            print(f"package of {folder.name}: skipped, `{command[0]}` is not installed", flush=True)
            continue
        made = subprocess.run(command, cwd=folder, capture_output=True)
        said = (made.stdout + made.stderr).decode()
        if made.returncode or file not in said:
            print(f"package of {folder.name}: FAILED: {said[:2000]}", flush=True)
            failed += 1
    return failed


def main():
    named = [argument for argument in sys.argv[3:] if argument != "--measure"]
    is_measuring = len(named) < len(sys.argv[3:])
    languages = named or LANGUAGES
    unknown = [name for name in languages if name not in LANGUAGES]
    if unknown:
        sys.exit(f"conformance: no such language: {', '.join(unknown)}")
    BUILDS.mkdir(parents=True, exist_ok=True)
    if is_measuring:
        print("| language | component | WASI imports | compile | first call | next calls | fuel | memory |\n|---|---|---|---|---|---|---|---|")
        for language in languages:
            measure(Fixture(language, ""))
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = 0 if named else packages()
    for language in languages:
        of = Fixture(language, f"127.0.0.1:{server.server_port}")
        started = time.monotonic()
        try:
            if not of.build():
                continue
        except Broken as broken:
            print(f"{language}: FAILED to build: {broken}", flush=True)
            failed += 1
            continue
        built = time.monotonic()
        passed = 0
        for check in CHECKS:
            try:
                check(of)
                passed += 1
            except Broken as broken:
                print(f"{language}: {check.__name__} FAILED: {broken}", flush=True)
                failed += 1
        seconds = f"{built - started:.1f} s to build, {time.monotonic() - built:.1f} s to check"
        size = f"{of.built['size'] / 1024:.0f} KiB"
        print(f"{language}: {passed} of {len(CHECKS)} passed; {size}, {len(of.built['imports'])} imports; {seconds}", flush=True)
    if failed:
        sys.exit(f"conformance: {failed} failed")


main()
