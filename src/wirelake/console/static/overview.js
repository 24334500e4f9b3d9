// Figures updated once a second, and the ledger.

import { live, query } from "./api.js";
import { fill, find, given, make, showMessage } from "./dom.js";
import { Moving } from "./plot.js";
import { number, rate, size, time } from "./format.js";

const LEDGER_EVERY_MS = 10_000;
const TILES = {
  frames: ["Frames per second", rate],
  connections: ["Connections", number],
  delivered: ["Deliveries per second", rate],
  errors: ["Errors per second", rate],
  log: ["Log bytes not on disk yet", size],
  lag: ["Pipeline lag in records", number],
};
const plots = Object.fromEntries(Object.entries(TILES).map(([id, [title]]) => [id, new Moving(find(`#${id}-plot`), title)]));
const listeners = Object.fromEntries([...document.querySelectorAll(".listener")].map(({ dataset }) => [dataset.listener, dataset.address]));
let before = given();

const sum = (snapshot, field) => Object.values(snapshot.protocols).reduce((total, each) => total + each[field], 0);

function show(id, value) {
  find(`#${id}`).textContent = value === null ? "–" : TILES[id][1](value);
  if (value !== null) plots[id].add(value);
}

function seen(now) {
  const seconds = (now.at_ms - before.at_ms) / 1000;
  if (seconds <= 0) return;
  const perSecond = (field) => Math.max(0, (sum(now, field) - sum(before, field)) / seconds);
  show("frames", perSecond("frames_in") + perSecond("frames_out"));
  show("connections", sum(now, "connections"));
  show("delivered", Math.max(0, (now.delivered - before.delivered) / seconds));
  show("errors", perSecond("errors"));
  show("log", now.log_waiting_bytes);
  show("lag", now.pipeline ? Math.max(0, now.log_next_seq - now.pipeline.next_seq) : null);
  find("#lag-note").textContent = now.pipeline ? "The pipeline is not running." : "No pipeline has run yet.";
  find("#lag-note").hidden = now.pipeline?.running ?? false;
  protocols(now, seconds);
  before = now;
  showMessage("");
}

function protocols(now, seconds) {
  const rows = Object.entries(now.protocols).map(([name, each]) => ({ name, each, old: before.protocols[name] ?? each }));
  const per = (field, shown = rate) => ({ each, old }) => shown(Math.max(0, (each[field] - old[field]) / seconds));
  fill(find("#protocols"), [
    ["protocol", "", ({ name }) => make("a", { href: `/sessions?protocol=${encodeURIComponent(name)}` }, name)],
    ["listener", "", ({ name }) => listeners[name] ?? ""],
    ["connections", "n", ({ each }) => number(each.connections)],
    ["frames in /s", "n", per("frames_in")],
    ["frames out /s", "n", per("frames_out")],
    ["bytes in /s", "n", per("bytes_in", size)],
    ["bytes out /s", "n", per("bytes_out", size)],
    ["frames in, total", "n", ({ each }) => number(each.frames_in)],
    ["errors", "n", ({ each }) => number(each.errors)],
    ["quarantined", "n", ({ each }) => number(each.quarantined)],
  ], rows);
}

async function ledger() {
  const verdict = find("#verdict");
  let rows;
  try {
    rows = await query("SELECT * FROM gold.ledger ORDER BY hour DESC, protocol LIMIT 50");
  } catch (error) {
    verdict.className = "verdict bad";
    verdict.textContent = error.message;
    return;
  }
  if (!rows.length) {
    verdict.textContent = "No ledger yet: the pipeline has not written one.";
    return;
  }
  const wrong = rows.filter((row) => !row.balanced);
  verdict.className = `verdict ${wrong.length ? "bad" : "good"}`;
  verdict.textContent = wrong.length
    ? `Not balanced: ${wrong.map((row) => `${row.protocol}, ${time(Date.parse(row.hour))}: ${row.why}`).join("; ")}`
    : `Balanced: ${number(rows.reduce((total, row) => total + row.received, 0))} frames received, each in exactly one state.`;
  const figure = (name) => [name.replaceAll("_", " "), "n", (row) => number(row[name])];
  fill(find("#ledger"), [
    ["hour (UTC)", "", (row) => time(Date.parse(row.hour)).slice(0, 16)],
    ["protocol", "", (row) => row.protocol],
    ...["counted", "uncounted", "received", "decoded", "quarantined", "waiting", "commands", "deliveries"].map(figure),
    ["", "", (row) => make("span", { class: row.balanced ? "good" : "bad" }, row.balanced ? "balanced" : "not balanced")],
  ], rows);
}

live(seen, () => showMessage("The gateway does not respond; retrying.", true));
if (find("#ledger-card").dataset.query === "yes") {
  ledger();
  setInterval(ledger, LEDGER_EVERY_MS);
}
