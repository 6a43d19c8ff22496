/** Functions of the host. */
export interface Host {
  log(level: string, message: string): void;
  progress(done: bigint, total: bigint | undefined, message: string | undefined): void;
  [wasi: string]: unknown;
}
export function connect(functions: Partial<Host>): void;
export function needs(name: string): any;

export type ErrorKind = "invalid-arguments" | "denied" | "unavailable" | "failed";

/** Error of a tool, with a message for the model. Its kind says what may help. */
export class ToolError extends Error {
  readonly kind: ErrorKind;
  constructor(kind: ErrorKind, message: string);
  /** The arguments make no sense: the model can call again with others. */
  static invalid(message: string): ToolError;
  /** Something is not granted: calling again does not help. */
  static denied(message: string): ToolError;
  /** An external system did not answer: the same call may succeed later. */
  static unavailable(message: string): ToolError;
  /** The operation failed. */
  static failed(message: string): ToolError;
}

declare const type: unique symbol;
declare const left: unique symbol;
/** JSON Schema of a value of type `T`. */
export interface Schema<T> {
  readonly [type]?: T;
  readonly [keyword: string]: unknown;
}
/** Schema of a value that may be left out. */
export interface Optional<T, D = undefined> extends Schema<T> {
  readonly [left]: D;
}
export type Value<S> = S extends Optional<infer T, infer D> ? T | (D extends undefined ? undefined : never) : S extends Schema<infer T> ? T : never;
type Properties = Record<string, Schema<any>>;
type Given<P, K extends keyof P> = P[K] extends Optional<any, infer D> ? (undefined extends D ? true : false) : false;
type Simplified<T> = { [K in keyof T]: T[K] } & {};
/** Arguments of a tool with this input: what has a default is always there. */
export type Arguments<P extends Properties> = Simplified<
  { [K in keyof P as Given<P, K> extends true ? never : K]: Value<P[K]> } & {
    [K in keyof P as Given<P, K> extends true ? K : never]?: Value<P[K]>;
  }
>;
/** Arguments that a caller passes: what is optional can be left out. */
export type Passed<P extends Properties> = Simplified<
  { [K in keyof P as P[K] extends Optional<any, any> ? never : K]: Value<P[K]> } & {
    [K in keyof P as P[K] extends Optional<any, any> ? K : never]?: Value<P[K]>;
  }
>;

export interface TextRules {
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  format?: "path" | "uri" | (string & {});
}
export interface NumberRules {
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
}
export function string(description?: string, rules?: TextRules): Schema<string>;
export function number(description?: string, rules?: NumberRules): Schema<number>;
export function integer(description?: string, rules?: NumberRules): Schema<number>;
export function boolean(description?: string): Schema<boolean>;
export function oneOf<const V extends readonly string[]>(values: V, description?: string): Schema<V[number]>;
export function array<T>(items: Schema<T>, description?: string, rules?: { minItems?: number; maxItems?: number }): Schema<T[]>;
export function object<P extends Properties>(properties: P, description?: string): Schema<Arguments<P>>;
/** A value that may be left out. */
export function optional<T>(of: Schema<T>): Optional<T>;
/** A value that may be left out; then it is `value`. */
export function optional<T>(of: Schema<T>, value: T): Optional<T, T>;

/** One call of a tool. */
export interface Call {
  /** Identifier, unique in the session. */
  readonly id: string;
  /** Values of the session, by name. */
  readonly values: Readonly<Record<string, unknown>>;
}

export interface Part {
  readonly tag: "text" | "blob" | "link";
}
export interface Result {
  readonly content: Part[];
}
export function text(value: unknown): Part;
export function blob(mediaType: string, data: Uint8Array): Part;
export function link(uri: string, name: string, mediaType?: string): Part;
/** A result of several parts, and possibly a structured value. */
export function result(parts: (Part | string)[], structured?: object): Result;

export interface Definition<P extends Properties> {
  /** 1 to 64 letters, digits, `_` and `-`, the first one a letter. */
  name: string;
  title?: string;
  /** Purpose of the tool and when to use it, in plain words for the model. */
  description: string;
  /** The parameters. */
  input?: P;
  /** JSON Schema of the structured result. */
  output?: Schema<unknown>;
  /** The tool changes nothing outside itself. */
  readOnly?: boolean;
  /** The tool may delete or overwrite data. */
  destructive?: boolean;
  /** Repeating a call has no further effect. */
  idempotent?: boolean;
  /** The tool uses systems that its policy cannot list beforehand. */
  openWorld?: boolean;
  /** Other names of parameters that models guess, each with the parameter's own name. */
  aliases?: Record<string, keyof P & string>;
  /** A text, a value that becomes JSON, or a `result`; thrown errors are errors of the tool. */
  run(given: Arguments<P>, call: Call): unknown;
}
export interface Tool<P extends Properties> {
  readonly name: string;
  /** Calls the tool as the host does, for tests. */
  call(values: Passed<P>, call?: Call): unknown;
}
export function tool<P extends Properties = {}>(definition: Definition<P>): Tool<P>;
export function component(tools: Tool<any> | Tool<any>[]): unknown;

/** Messages for the user. The model does not read them. */
export const log: Record<"trace" | "debug" | "info" | "warn" | "error", (message: unknown) => void>;
/** Reports to the user that `done` of `total` steps are completed. */
export function progress(done: number, total?: number, message?: string): void;
