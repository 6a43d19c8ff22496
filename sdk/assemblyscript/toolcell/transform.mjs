// Makes tools of classes with decorators, while `asc` compiles: their fields become the schema, and arguments are read into them.

import { realpathSync } from "node:fs";
import { pathToFileURL } from "node:url";

// Of the compiler that runs this, which can be installed elsewhere than beside the tool.
const asc = pathToFileURL(realpathSync(process.argv[1]));
const { NodeKind, Parser, Source, SourceKind, Tokenizer } = await import(new URL("../dist/assemblyscript.js", asc));

/** Names of the exports of a component, by those in `component.ts`. */
const EXPORTS = {
  definitions: "toolcell:tool/tools@0.1.0#definitions",
  run: "toolcell:tool/tools@0.1.0#run",
};

/** Hints of a tool in the order of their bits, as in the contract. */
const HINTS = ["read-only", "destructive", "idempotent", "open-world"];

/** Schemas of types, and how a value of JSON becomes one. */
const TYPES = {
  bool: [{ type: "boolean" }, "boolean"],
  string: [{ type: "string" }, "text"],
  f32: [{ type: "number" }, "number"],
  f64: [{ type: "number" }, "number"],
  i8: [{ type: "integer", minimum: -128, maximum: 127 }, "integer"],
  i16: [{ type: "integer", minimum: -32768, maximum: 32767 }, "integer"],
  i32: [{ type: "integer", minimum: -2147483648, maximum: 2147483647 }, "integer"],
  i64: [{ type: "integer" }, "integer"],
  u8: [{ type: "integer", minimum: 0, maximum: 255 }, "integer"],
  u16: [{ type: "integer", minimum: 0, maximum: 65535 }, "integer"],
  u32: [{ type: "integer", minimum: 0, maximum: 4294967295 }, "integer"],
  u64: [{ type: "integer", minimum: 0 }, "integer"],
  JsonValue: [{}, ""],
};

/** Stops with a message about a place in a source. */
function refuse(node, message) {
  const { source, start } = node.range;
  const error = new Error(message);
  error.stack = `${source.normalizedPath}:${source.lineAt(start)}: ${message}`;
  throw error;
}

const isText = (node) => node.kind === NodeKind.Literal && typeof node.value === "string";

/** Returns the texts of a decorator, or `undefined` if a node has none of this name. */
function texts(node, name) {
  const found = node.decorators?.find((decorator) => decorator.name.text === name);
  return found && (found.args ?? []).map((arg) => (isText(arg) ? arg.value : refuse(arg, `@${name} takes texts in quotes`)));
}

/** Returns the members of a schema that a decorator adds. */
function members(node, text) {
  try {
    return JSON.parse(`{${text ?? ""}}`);
  } catch {
    return refuse(node, `not members of a JSON Schema: ${text}`);
  }
}

/** Returns the schema of a type, and the expression that makes one of `value`, an expression with a `JsonValue`. */
function conversion(type, value) {
  const name = type?.name?.identifier.text;
  const element = name === "Array" && type.typeArguments?.[0]?.name?.identifier.text;
  const [schema, method] = (!type?.isNullable && TYPES[element || name]) || [];
  if (!schema) {
    const allowed = `${Object.keys(TYPES).join(", ")}, or an Array of one of these`;
    return refuse(type, `a parameter has one of the types ${allowed}`);
  }
  const cast = method === "integer" || name === "f32" || element === "f32";
  const one = (of, as) => `${cast ? `<${as}>` : ""}${of}${method ? `.${method}()` : ""}`;
  if (!element) return { schema: { ...schema }, statement: (to) => `${to} = ${one(value, name)};` };
  const statement = (to) =>
    `const list = ${value}.items(); const read = new Array<${element}>(); ` +
    `for (let i = 0; i < list.length; i++) read.push(${one("list[i]", element)}); ${to} = read;`;
  return { schema: { type: "array", items: schema }, statement };
}

/** Returns the value of an initializer if it can be told. */
function literal(node) {
  const text = node?.range.toString() ?? "";
  return /^(true|false|-?\d+(\.\d+)?)$/.test(text) ? JSON.parse(text) : node && isText(node) ? node.value : undefined;
}

/** Parses a text as if it stood in a source. */
function parsed(source, text, read) {
  const parser = new Parser([], []);
  const own = new Source(SourceKind.User, source.normalizedPath, text);
  parser.currentSource = own;
  return read(parser, new Tokenizer(own));
}

/** Completes the class of a tool and returns the statement that registers it. */
function complete(source, of, [name, description, hints = ""]) {
  if (!name || !description) refuse(of, "@tool takes a name and a description");
  if (!of.extendsType) refuse(of, `the class \`${of.name.text}\` has to extend \`Tool\``);
  const properties = {};
  const required = [];
  let reads = "";
  for (const field of of.members.filter((member) => member.kind === NodeKind.FieldDeclaration)) {
    const [needed, optional] = [texts(field, "parameter"), texts(field, "optional")];
    if (!needed && !optional) continue;
    const [text, rules] = needed ?? optional;
    const key = field.name.text;
    const { schema, statement } = conversion(field.type, "value");
    const value = optional && literal(field.initializer);
    const told = value === undefined ? {} : { default: value };
    properties[key] = { ...schema, ...(text ? { description: text } : {}), ...told, ...members(field, rules) };
    if (needed) required.push(key);
    reads += `if (name == ${JSON.stringify(key)}) { ${statement(`this.${key}`)} return; } `;
    field.decorators = null;
  }
  const input = { type: "object", properties, required, additionalProperties: false };
  const unknown = hints.split(" ").find((hint) => hint && !HINTS.includes(hint));
  if (unknown) refuse(of, `the hints of a tool are ${HINTS.join(", ")}: ${unknown}`);
  const bits = HINTS.reduce((sum, hint, bit) => sum + (hints.split(" ").includes(hint) ? 1 << bit : 0), 0);
  const [title, output] = [texts(of, "title")?.[0], texts(of, "output")?.[0]];
  of.decorators = null;
  const setter = `__read(name: string, value: JsonValue): void { ${reads}}`;
  of.members.push(parsed(source, setter, (parser, tokenizer) => parser.parseClassMember(tokenizer, of)));
  const quoted = [name, description, JSON.stringify(input)].map((text) => JSON.stringify(text)).join(", ");
  const further = [title, output && `{${output}}`].map((text) => (text ? JSON.stringify(text) : "null")).join(", ");
  const call = `__toolcellRegister(${quoted}, ${bits}, ${further}, () => new ${of.name.text}());`;
  return parsed(source, call, (parser, tokenizer) => parser.parseTopLevelStatement(tokenizer));
}

export default class {
  afterParse(parser) {
    for (const source of parser.sources.filter((source) => !source.isLibrary)) {
      const classes = source.statements.filter((statement) => statement.kind === NodeKind.ClassDeclaration);
      for (const of of classes) {
        const given = texts(of, "tool");
        if (given) source.statements.push(complete(source, of, given));
      }
    }
  }

  afterCompile(module) {
    for (const [from, to] of Object.entries(EXPORTS)) {
      module.removeExport(from);
      module.addFunctionExport(`toolcell/component/${from}`, to);
    }
  }
}
