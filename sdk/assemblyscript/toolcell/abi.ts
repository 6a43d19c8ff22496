// Values in the layout of the canonical ABI, in which strings are UTF-16.

/** What the host reads after a function has returned. */
const kept: string[] = [];

/** What empty lists point to, aligned for every type. */
export const NOTHING: usize = memory.data(8, 8);

/** Returns zeroed memory that stays until the end of the call. */
export function area(size: usize): usize {
  const at = heap.alloc(size);
  memory.fill(at, 0, size);
  return at;
}

/** Stores a text. */
export function lower(at: usize, text: string): void {
  const whole = wellFormed(text);
  kept.push(whole);
  store<usize>(at, changetype<usize>(whole));
  store<i32>(at, whole.length, 4);
}

/** Stores a text or its absence: a tag and the text. */
export function lowerOption(at: usize, text: string | null): void {
  store<u8>(at, text === null ? 0 : 1);
  lower(at + 4, text === null ? "" : text);
}

/** Returns a text of the host. */
export function lift(at: usize, size: i32): string {
  return String.UTF16.decodeUnsafe(at, <usize>size << 1);
}

/** Returns the text whose address and size are stored. */
export function liftAt(at: usize): string {
  return lift(load<usize>(at), load<i32>(at, 4));
}

/** Returns bytes whose address and size are stored. */
export function bytesAt(at: usize): Uint8Array {
  const size = load<i32>(at, 4);
  const bytes = new Uint8Array(size);
  memory.copy(bytes.dataStart, load<usize>(at), size);
  return bytes;
}

/** Replaces halves of surrogate pairs, which the host would refuse. */
export function wellFormed(text: string): string {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if ((c & 0xf800) != 0xd800) continue;
    if (c < 0xdc00 && i + 1 < text.length && (text.charCodeAt(i + 1) & 0xfc00) == 0xdc00) {
      i++;
      continue;
    }
    return wellFormed(text.substring(0, i) + "\ufffd" + text.substring(i + 1));
  }
  return text;
}
