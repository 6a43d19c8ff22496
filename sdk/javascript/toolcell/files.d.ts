/** Reads a file as text in UTF-8. */
export function readText(path: string): string;
/** Reads a file as bytes. */
export function read(path: string): Uint8Array;
/** Writes a text or bytes to a file, in place of what it contains. */
export function write(path: string, content: string | Uint8Array): void;
/** Returns the names in a directory, sorted. */
export function list(path: string): string[];
