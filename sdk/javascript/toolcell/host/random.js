// Random numbers of the host.

import { getRandomBytes } from "host:random/random@0.2.12";
import { inCall } from "../toolcell.js";

const randomBytes = (length) => {
  inCall("random numbers");
  return getRandomBytes(length);
};

/** Bits of a number between 0 and 1. */
const BITS = 53;

Math.random = () => {
  const bytes = randomBytes(7);
  // 5 bits and 48 bits: more do not fit into a number.
  let value = bytes[0] & 31;
  for (const byte of bytes.subarray(1)) value = value * 256 + byte;
  return value / 2 ** BITS;
};
globalThis.crypto = {
  getRandomValues(array) {
    const bytes = randomBytes(array.byteLength);
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(bytes);
    return array;
  },
};
