// The conformance fixture in AssemblyScript.

import { Call, Result, Tool, denied, failed, invalid, log, progress, structured, text, unavailable } from "../toolcell";
import { readFile } from "../toolcell/files";
import { Request } from "../toolcell/http";

let calls = 0;

@tool("echo", "Returns a text.")
class Echo extends Tool {
  @parameter("The text.")
  text: string = "";

  run(_: Call): Result {
    let characters = 0;
    for (let i = 0; i < this.text.length; i++) if ((this.text.charCodeAt(i) & 0xfc00) != 0xdc00) characters++;
    log(`echoing ${characters}`);
    progress(1, 2, "half");
    return text(this.text);
  }
}

@tool("add", "Adds two numbers.", "read-only")
class Add extends Tool {
  @parameter("The first.")
  left: i32 = 0;
  @parameter("The second.")
  right: i32 = 0;
  @optional("Negate the sum.")
  negate: bool = false;

  run(_: Call): Result {
    const sum = this.left + this.right;
    return structured(`{"sum":${this.negate ? -sum : sum}}`);
  }
}

@tool("fail", "Fails.")
class Fail extends Tool {
  @parameter("The kind.", '"enum":["invalid_arguments","denied","unavailable","failed"]')
  kind: string = "";

  run(_: Call): Result {
    const message = `as asked: ${this.kind} é`;
    if (this.kind == "invalid_arguments") return invalid(message);
    if (this.kind == "denied") return denied(message);
    return this.kind == "unavailable" ? unavailable(message) : failed(message);
  }
}

@tool("parts", "Returns several parts.")
class Parts extends Tool {
  run(_: Call): Result {
    const bytes = new Uint8Array(3);
    bytes[1] = 255;
    bytes[2] = 128;
    return text("text").blob("image/png", bytes).link("https://example.org/x", "an example");
  }
}

@tool("count", "Counts its calls.")
class Count extends Tool {
  run(_: Call): Result {
    return text((++calls).toString());
  }
}

@tool("crash", "Crashes.")
class Crash extends Tool {
  run(_: Call): Result {
    throw new RangeError("out of cheese 42");
  }
}

@tool("read_file", "Reads a file.")
class ReadFile extends Tool {
  @parameter("The file.")
  path: string = "";

  run(_: Call): Result {
    const file = readFile(this.path);
    const error = file.error;
    return error !== null ? error : text(file.text());
  }
}

@tool("get_url", "Sends a request.")
class GetUrl extends Tool {
  @parameter("The address.")
  url: string = "";
  @optional("What is sent; without it nothing is.")
  body: string = "";

  run(_: Call): Result {
    const request = new Request(this.url);
    if (this.body != "") {
      request.method = "POST";
      request.body = Uint8Array.wrap(String.UTF8.encode(this.body));
    }
    const response = request.send();
    const error = response.error;
    return error !== null ? error : text(`${response.status} ${response.text()}`);
  }
}
