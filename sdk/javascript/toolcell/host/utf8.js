// TextEncoder and TextDecoder for UTF-8, which the engine lacks.

/** Units or bytes that are converted at once: arguments of one call. */
const CHUNK = 8192;
const REPLACEMENT = 0xfffd;

globalThis.TextEncoder ??= class TextEncoder {
  encoding = "utf-8";
  encode(text = "") {
    const string = String(text);
    const bytes = new Uint8Array(string.length * 3);
    let size = 0;
    for (let i = 0; i < string.length; i++) {
      let code = string.codePointAt(i);
      if (code > 0xffff) i++;
      if (code >= 0xd800 && code <= 0xdfff) code = REPLACEMENT;
      if (code < 0x80) {
        bytes[size++] = code;
        continue;
      }
      if (code < 0x800) {
        bytes[size++] = 0xc0 | (code >> 6);
      } else {
        if (code < 0x10000) {
          bytes[size++] = 0xe0 | (code >> 12);
        } else {
          bytes[size++] = 0xf0 | (code >> 18);
          bytes[size++] = 0x80 | ((code >> 12) & 63);
        }
        bytes[size++] = 0x80 | ((code >> 6) & 63);
      }
      bytes[size++] = 0x80 | (code & 63);
    }
    return bytes.slice(0, size);
  }
};

globalThis.TextDecoder ??= class TextDecoder {
  encoding = "utf-8";
  #isFatal;
  constructor(label = "utf-8", { fatal = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`the encoding ${label} is not supported`);
    this.#isFatal = fatal;
  }
  decode(input = new Uint8Array()) {
    const bytes = input instanceof Uint8Array ? input : new Uint8Array(input.buffer ?? input);
    const parts = [];
    let codes = [];
    let at = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    while (at < bytes.length) {
      const first = bytes[at++];
      const more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : -1;
      let code = more > 0 ? first & (63 >> more) : first;
      let isValid = more >= 0;
      for (let i = 0; i < more && isValid; i++) {
        const byte = bytes[at];
        // The first continuation excludes longer forms than needed, surrogates, and what is beyond Unicode.
        const low = i > 0 ? 0x80 : first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
        const high = i > 0 ? 0xbf : first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
        isValid = byte >= low && byte <= high;
        if (isValid) {
          code = (code << 6) | (byte & 63);
          at++;
        }
      }
      if (!isValid && this.#isFatal) throw new TypeError("the bytes are not UTF-8");
      codes.push(isValid ? code : REPLACEMENT);
      if (codes.length >= CHUNK) {
        parts.push(String.fromCodePoint(...codes));
        codes = [];
      }
    }
    return parts.join("") + String.fromCodePoint(...codes);
  }
};
