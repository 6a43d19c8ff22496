// The exports of a component with tools. Each call runs in a new instance, so that nothing needs to be freed.

import { NOTHING, area, lift, liftAt, lower, lowerOption } from "./abi";
import { JsonValue } from "./json";
import "./runtime";
import { Call, Result, invalid, tools } from "./tool";

/** Sizes of records in bytes. */
const DEFINITION: usize = 60;
const PART: usize = 32;
const RETURNED: usize = 24;
const ENTRY: usize = 16;

export function cabi_realloc(old: usize, oldSize: usize, alignment: usize, size: usize): usize {
  if (size == 0) return alignment;
  return old == 0 ? heap.alloc(size) : heap.realloc(old, size);
}

export function definitions(): usize {
  const items = area(<usize>(tools.length + 1) * DEFINITION);
  for (let i = 0; i < tools.length; i++) {
    const tool = tools[i];
    const at = items + <usize>i * DEFINITION;
    lower(at, tool.name);
    lowerOption(at + 8, tool.title);
    lower(at + 20, tool.description);
    lower(at + 28, tool.input);
    lowerOption(at + 36, tool.output);
    store<u8>(at, tool.hints, 48);
    store<usize>(at, NOTHING, 52);
  }
  const list = area(8);
  store<usize>(list, items);
  store<i32>(list, tools.length, 4);
  return list;
}

export function run(
  id: usize,
  idSize: i32,
  name: usize,
  nameSize: i32,
  given: usize,
  givenSize: i32,
  context: usize,
  contextSize: i32,
): usize {
  const call = new Call();
  call.id = lift(id, idSize);
  for (let i = 0; i < contextSize; i++) {
    const at = context + <usize>i * ENTRY;
    call.values.set(liftAt(at), JsonValue.parse(liftAt(at + 8)));
  }
  return lowerResult(runNamed(lift(name, nameSize), lift(given, givenSize), call));
}

function runNamed(name: string, json: string, call: Call): Result {
  for (let i = 0; i < tools.length; i++) {
    if (tools[i].name != name) continue;
    const tool = tools[i].make();
    const given = JsonValue.parse(json);
    const names = given.names();
    for (let k = 0; k < names.length; k++) tool.__read(names[k], given.items()[k]);
    return tool.run(call);
  }
  return invalid("this component has no tool `" + name.substring(0, 64) + "`");
}

function lowerResult(result: Result): usize {
  const returned = area(RETURNED);
  if (result.isError()) {
    store<u8>(returned, 1);
    store<u8>(returned, <u8>result.kind, 4);
    lower(returned + 8, result.message);
    return returned;
  }
  const parts = area(<usize>(result.parts.length + 1) * PART);
  for (let i = 0; i < result.parts.length; i++) {
    const part = result.parts[i];
    const at = parts + <usize>i * PART;
    store<u8>(at, part.tag);
    lower(at + 4, part.first);
    const bytes = part.bytes;
    if (bytes !== null) {
      const copy = heap.alloc(max<usize>(bytes.byteLength, 1));
      memory.copy(copy, bytes.dataStart, bytes.byteLength);
      store<usize>(at, copy, 12);
      store<i32>(at, bytes.byteLength, 16);
    } else {
      lower(at + 12, part.second);
    }
  }
  store<usize>(returned, parts, 4);
  store<i32>(returned, result.parts.length, 8);
  lowerOption(returned + 12, result.json);
  return returned;
}
