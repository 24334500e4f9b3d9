// Status and readings of devices as text.

import { number, time } from "./format.js";

export const kindOf = (type, names) => (names[type] ? `${type} (${names[type]})` : String(type));

/** Format a device's own time: 0 means unknown, 1 a failed clock. Its time zone is unknown too. */
export const deviceTime = (seconds) => (seconds > 1 ? time(seconds * 1000) : seconds === 1 ? "clock failed" : "unknown");

const parsed = (text) => (typeof text === "string" ? JSON.parse(text) : text);

export function formatStatus(value) {
  const status = parsed(value);
  return status ? `state ${status.state}, tariff ${status.tariff}` : "–";
}

/** Accept readings by type, as in gold.device_latest, or as a list, as in a response. */
export function formatReadings(value) {
  const readings = parsed(value);
  if (!readings) return "–";
  const pairs = Array.isArray(readings) ? readings.map((each) => [each.type, each.value]) : Object.entries(readings);
  return pairs.map(([type, each]) => `${type}: ${formatValue(each)}`).join(", ") || "–";
}

export const formatValue = (value) => (typeof value === "number" ? (Number.isInteger(value) ? number(value) : String(Number(value.toPrecision(7)))) : String(value));
