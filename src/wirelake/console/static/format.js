// Format numbers and times like page.py does on the server.

export const number = (value) =>
  value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");

export const rate = (value) => (value >= 10 || value === 0 ? number(value) : value.toFixed(1));

export function size(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? `${Math.round(value)} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

export const time = (ms) => (ms ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–");

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${unit}`;
  return `${seconds.toFixed(1)} s`;
}
