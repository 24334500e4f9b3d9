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

/** Return readings as a list: as the API has them, or by name or type, as in gold.device_latest. */
function asList(value) {
  const readings = parsed(value) ?? [];
  if (Array.isArray(readings)) return readings;
  return Object.entries(readings).map(([name, each]) => (each !== null && typeof each === "object" ? { name, ...each } : { type: name, value: each }));
}

export const readingName = (reading) => reading.name ?? `reading ${reading.type}`;

export const formatMeasured = (value, unit) => (unit ? `${formatValue(value)} ${unit}` : formatValue(value));

export function formatReadings(value, max = Infinity) {
  const readings = asList(value);
  const shown = readings.slice(0, max).map((each) => `${readingName(each)} ${formatMeasured(each.value, each.unit)}`);
  if (readings.length > max) shown.push(`and ${readings.length - max} more`);
  return shown.join(", ") || "–";
}

export const formatValue = (value) => (typeof value === "number" ? (Number.isInteger(value) ? number(value) : String(Number(value.toPrecision(7)))) : String(value));
