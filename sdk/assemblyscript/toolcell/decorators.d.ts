// Decorators, for editors: `transform.mjs` reads and removes them.

/** Makes a tool of a class that extends `Tool`. Hints are `read-only`, `destructive`, `idempotent`, `open-world`, with blanks between. */
declare function tool(name: string, description: string, hints?: string): (of: Function) => void;
/** Display name of a tool for the user. */
declare function title(text: string): (of: Function) => void;
/** JSON Schema of the structured result: the members of an object, such as `"type":"object"`. */
declare function output(members: string): (of: Function) => void;
/** A parameter. Rules are further members of its JSON Schema, such as `"minimum":1`. */
declare function parameter(description: string, rules?: string): (of: object, field: string) => void;
/** A parameter that may be left out; then the field keeps its initial value. */
declare function optional(description: string, rules?: string): (of: object, field: string) => void;
