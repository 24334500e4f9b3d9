// What devices say, in words.

import { number, time } from "./words.js";

export const kindOf = (type, names) => (names[type] ? `${type} (${names[type]})` : String(type));

/** A device's own clock: 0 is unknown, 1 a clock that failed. Its zone is not known either. */
export const deviceTime = (seconds) => (seconds > 1 ? time(seconds * 1000) : seconds === 1 ? "the clock failed" : "unknown");

const parsed = (text) => (typeof text === "string" ? JSON.parse(text) : text);

export function statusInWords(value) {
  const status = parsed(value);
  return status ? `state ${status.state}, tariff ${status.tariff}` : "–";
}

/** By type, as gold.device_latest has them, or one after the other, as an answer has them. */
export function readingsInWords(value) {
  const readings = parsed(value);
  if (!readings) return "–";
  const pairs = Array.isArray(readings) ? readings.map((each) => [each.type, each.value]) : Object.entries(readings);
  return pairs.map(([type, each]) => `${type}: ${valueInWords(each)}`).join(", ") || "–";
}

export const valueInWords = (value) => (typeof value === "number" ? (Number.isInteger(value) ? number(value) : String(Number(value.toPrecision(7)))) : String(value));
