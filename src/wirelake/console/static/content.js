// Content in readable form: JSON indented, text as it is, hex for anything else.

const BYTES_A_GROUP = 2;
const GROUPS_A_LINE = 16;
const SHOWN_BYTES_MAX = 4096;

const hexOf = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/** Return the readable form of the API's `content` and `encoding`, and which of the three it is. */
export function readable({ content, encoding, truncated }) {
  const more = truncated ? "…" : "";
  if (encoding === "base64") return { kind: "hex", text: inLines(hexOf(bytesOf(content))) + more };
  if (!truncated && /^\s*[[{]/.test(content)) {
    try {
      JSON.parse(content);
      return { kind: "JSON", text: inBlocks(content) };
    } catch {
      // not JSON after all
    }
  }
  return { kind: "text", text: content + more };
}

/** Indent JSON without touching a value: a number may have more digits than JavaScript can represent. */
function inBlocks(json) {
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g);
  return tokens.map((token, place) => {
    if (token === ":") return ": ";
    if (token === ",") return `,${line()}`;
    if (token === "{" || token === "[") {
      if ("]}".includes(tokens[place + 1])) return token;
      depth++;
      return token + line();
    }
    if (token === "}" || token === "]") {
      if ("[{".includes(tokens[place - 1])) return token;
      depth--;
      return line() + token;
    }
    return token;
  }).join("");
}

/** Convert hex, as the tables return it, to the API's form: text if it is UTF-8, else base64. */
export function contentOfHex(hex) {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (byte) => parseInt(byte, 16));
  const shown = bytes.subarray(0, SHOWN_BYTES_MAX);
  const truncated = bytes.length > shown.length;
  try {
    return { content: new TextDecoder("utf-8", { fatal: true }).decode(shown, { stream: truncated }), truncated };
  } catch {
    return { content: btoa(String.fromCharCode(...shown)), encoding: "base64", truncated };
  }
}

const inLines = (hex) => (hex.match(new RegExp(`.{1,${2 * BYTES_A_GROUP * GROUPS_A_LINE}}`, "g")) ?? [])
  .map((line) => line.match(new RegExp(`.{1,${2 * BYTES_A_GROUP}}`, "g")).join(" ")).join("\n");

/** Convert pasted hex to base64; throw an Error if it is not hex. */
export function base64OfHex(text) {
  const digits = text.replaceAll(/0x|\\x|[\s:,-]/gi, "");
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) throw new Error("Content is not hex: enter two hex digits per byte.");
  return btoa((digits.match(/../g) ?? []).map((byte) => String.fromCharCode(parseInt(byte, 16))).join(""));
}
