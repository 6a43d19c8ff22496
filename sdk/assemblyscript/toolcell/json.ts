// Values of JSON. The host has checked their syntax.

/** Kinds of values. */
export enum JsonKind {
  Null,
  Boolean,
  Number,
  Text,
  Array,
  Object,
}

/** A value of JSON. Global, because the transform names it in classes of tools. */
// @ts-ignore: decorator
@global
export class JsonValue {
  constructor(public kind: JsonKind) {}
  /** Of a text; of a number its digits, and of a boolean its word. */
  private word: string = "";
  private values: JsonValue[] = [];
  private keys: string[] = [];

  /** The text; of other values an empty one. */
  text(): string {
    return this.kind == JsonKind.Text ? this.word : "";
  }
  number(): f64 {
    return this.kind == JsonKind.Number ? parseFloat(this.word) : 0;
  }
  /** The whole number, exact within 64 bits. */
  integer(): i64 {
    if (this.kind != JsonKind.Number) return 0;
    for (let i = 0; i < this.word.length; i++) {
      const c = this.word.charCodeAt(i);
      // A fraction or an exponent.
      if (c == 0x2e || (c | 0x20) == 0x65) return <i64>parseFloat(this.word);
    }
    return this.word.startsWith("-") ? I64.parseInt(this.word) : <i64>U64.parseInt(this.word);
  }
  boolean(): bool {
    return this.kind == JsonKind.Boolean && this.word == "true";
  }
  /** Elements of an array, or values of an object. */
  items(): JsonValue[] {
    return this.values;
  }
  /** Names of the members of an object, in the order of `items`. */
  names(): string[] {
    return this.keys;
  }
  /** Returns a member of an object, or `null`. */
  get(name: string): JsonValue | null {
    const at = this.keys.lastIndexOf(name);
    return at < 0 ? null : this.values[at];
  }

  static parse(text: string): JsonValue {
    return new Reader(text).value(0);
  }
  /** @internal */
  static word(kind: JsonKind, word: string): JsonValue {
    const value = new JsonValue(kind);
    value.word = word;
    return value;
  }
  /** @internal */
  add(key: string | null, value: JsonValue): void {
    if (key) this.keys.push(key);
    else if (this.kind == JsonKind.Object) this.keys.push("");
    this.values.push(value);
  }
}

/** Maximum nesting. The host accepts less. */
const MAX_DEPTH: i32 = 128;

class Reader {
  private at: i32 = 0;
  constructor(private source: string) {}

  private peek(): i32 {
    return this.at < this.source.length ? this.source.charCodeAt(this.at) : 0;
  }
  private skip(): void {
    for (let c = this.peek(); c == 0x20 || (c >= 0x09 && c <= 0x0d); c = this.peek()) this.at++;
  }
  private take(c: i32): bool {
    this.skip();
    if (this.peek() != c) return false;
    this.at++;
    return true;
  }

  value(depth: i32): JsonValue {
    this.skip();
    const c = this.peek();
    if (c == 0x22) return JsonValue.word(JsonKind.Text, this.text());
    if (c != 0x7b && c != 0x5b) return this.literal();
    const isObject = c == 0x7b;
    const value = new JsonValue(isObject ? JsonKind.Object : JsonKind.Array);
    const end = isObject ? 0x7d : 0x5d;
    this.at++;
    while (depth < MAX_DEPTH && this.at < this.source.length && !this.take(end)) {
      let key: string | null = null;
      if (isObject) {
        this.skip();
        key = this.text();
        this.take(0x3a);
      }
      value.add(key, this.value(depth + 1));
      this.take(0x2c);
    }
    return value;
  }

  /** Reads a number, `true`, `false` or `null`. */
  private literal(): JsonValue {
    const start = this.at;
    for (let c = this.peek(); c != 0 && c != 0x2c && c != 0x5d && c != 0x7d && c > 0x20; c = this.peek()) this.at++;
    const word = this.source.substring(start, this.at);
    if (word == "true" || word == "false") return JsonValue.word(JsonKind.Boolean, word);
    return JsonValue.word(word == "null" || word == "" ? JsonKind.Null : JsonKind.Number, word);
  }

  private text(): string {
    // Without escapes, which is usual, it is a part of the source.
    const start = ++this.at;
    for (let c = this.peek(); c != 0x22 && c != 0x5c && this.at < this.source.length; c = this.peek()) this.at++;
    if (this.peek() != 0x5c) return this.source.substring(start, this.at++);
    const units = new StaticArray<u16>(this.source.length - start);
    let size = this.at - start;
    for (let i = 0; i < size; i++) units[i] = <u16>this.source.charCodeAt(start + i);
    while (this.at < this.source.length) {
      let c = this.source.charCodeAt(this.at++);
      if (c == 0x22) break;
      if (c == 0x5c) c = this.escape();
      units[size++] = <u16>c;
    }
    return String.UTF16.decodeUnsafe(changetype<usize>(units), <usize>size << 1);
  }

  private escape(): i32 {
    const c = this.source.charCodeAt(this.at++);
    if (c == 0x6e) return 0x0a;
    if (c == 0x72) return 0x0d;
    if (c == 0x74) return 0x09;
    if (c == 0x62) return 0x08;
    if (c == 0x66) return 0x0c;
    if (c != 0x75) return c;
    this.at += 4;
    return <i32>parseInt(this.source.substring(this.at - 4, this.at), 16);
  }
}

/** Returns a text in JSON, with quotes. */
export function quote(text: string): string {
  const parts: string[] = [];
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c != 0x22 && c != 0x5c && c >= 0x20) continue;
    parts.push(text.substring(start, i));
    parts.push("\\u00" + (c < 0x10 ? "0" : "") + c.toString(16));
    start = i + 1;
  }
  parts.push(text.substring(start));
  return '"' + parts.join("") + '"';
}
