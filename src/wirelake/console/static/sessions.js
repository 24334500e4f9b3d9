// Sessions, polled: the difference of two responses is a rate.

import { callApi, repeat } from "./api.js";
import { find, given, make, showMessage } from "./dom.js";
import { Rows } from "./rows.js";
import { duration, number, rate, size } from "./format.js";

const EVERY_MS = 1500;
const ROWS_MAX = 200;
const { pending_bytes_max, device_protocols, own, may_disconnect, sees_log } = given();
const form = find("#filter");
const dialog = find("#confirm");
let before = { atMs: 0, rows: new Map() };
let chosen = null;

// ── texts

/** Describe whether a session is up to date and, if not, why. */
function health(row) {
  if (row.slow) return `slow consumer: not reading, ${size(row.pending_bytes)} queued (limit ${size(pending_bytes_max)})`;
  if (row.lag) return `catching up: ${number(row.lag)} notifications behind`;
  if (!row.identity) return `not logged in (${row.state})`;
  return row.pending_bytes ? `${size(row.pending_bytes)} queued` : "up to date";
}

const isDevice = (row) => device_protocols.includes(row.protocol);
const both = (into, out) => `${into} / ${out}`;
const identity = (row) => (isDevice(row) && row.identity
  ? make("a", { href: `/devices/${encodeURIComponent(row.identity)}` }, row.identity)
  : make("span", { title: row.identity || null }, row.identity || "–"));

const table = new Rows(find("#sessions"), [
  ["identity", "person", identity],
  ["protocol, state", "", (row) => `${row.protocol}, ${row.state}`],
  ["address", "", (row) => row.address],
  ["connected for", "n", (row) => duration((Date.now() - row.opened_at_ms) / 1000)],
  ["frames/s in / out", "n", (row) => both(rate(row.per.frames_in), rate(row.per.frames_out))],
  ["bytes/s in / out", "n", (row) => both(size(row.per.bytes_in), size(row.per.bytes_out))],
  ["pending", "n", (row) => size(row.pending_bytes)],
  ["lag", "n", (row) => number(row.lag)],
  ["health", "health", health],
  ...(sees_log ? [["", "", (row) => make("a", { href: `/inspector?session=${encodeURIComponent(row.id)}`, "aria-label": `Frames of ${name(row)}` }, "Frames")]] : []),
  ["", "", (row) => (may_disconnect || (row.identity === own && !isDevice(row))
    ? make("button", { type: "button", onclick: () => confirm(row), "aria-label": `Disconnect ${name(row)}` }, "Disconnect")
    : "")],
], (row) => `${row.id} ${row.identity}`); // a login starts a new row

const name = (row) => `${row.identity || "Not logged in"} at ${row.address}`;

// ── polling

function withRates(rows) {
  const atMs = performance.now();
  const seconds = (atMs - before.atMs) / 1000;
  for (const row of rows) {
    const old = before.rows.get(row.id) ?? row;
    const per = (field) => Math.max(0, (row[field] - old[field]) / seconds);
    row.per = { frames_in: per("frames_in"), frames_out: per("frames_out"), bytes_in: per("bytes_in"), bytes_out: per("bytes_out") };
  }
  before = { atMs, rows: new Map(rows.map((row) => [row.id, row])) };
  return rows;
}

async function refresh() {
  const wanted = new URLSearchParams({ limit: ROWS_MAX });
  for (const field of ["protocol", "identity"]) if (form.elements[field].value) wanted.set(field, form.elements[field].value);
  if (new URLSearchParams(location.search).has("after")) wanted.set("after", new URLSearchParams(location.search).get("after"));
  try {
    const found = await callApi("GET", `/api/sessions?${wanted}`);
    const rows = withRates(found.sessions);
    table.show(rows);
    for (const [key, element] of table.shown) element.classList.toggle("slow", before.rows.get(key.split(" ")[0]).slow);
    find("#none").hidden = rows.length > 0;
    find("#count").textContent = found.next ? `first ${number(rows.length)}` : `${number(rows.length)} connected`;
    const next = new URLSearchParams(location.search);
    next.set("after", found.next ?? "");
    Object.assign(find("#next"), { hidden: !found.next, href: `/sessions?${next}` });
    if (find("#message").classList.contains("bad")) showMessage("");
  } catch (error) {
    showMessage(error.message, true);
  }
}

// ── disconnecting

function confirm(row) {
  chosen = row;
  find("#session-name").textContent = `${name(row)} (${row.protocol})`;
  dialog.showModal();
}

dialog.addEventListener("close", async () => {
  if (dialog.returnValue !== "yes") return;
  dialog.returnValue = "";
  try {
    await callApi("DELETE", `/api/sessions/${encodeURIComponent(chosen.id)}`);
    showMessage(`${name(chosen)} was disconnected.`);
  } catch (error) {
    showMessage(error.message, true);
  }
  refresh();
});

form.addEventListener("change", () => form.requestSubmit());
repeat(refresh, EVERY_MS);
