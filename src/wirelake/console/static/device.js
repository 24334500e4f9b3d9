// One device: its state and history, commands being reassembled, and commands to it.

import { callApi, literal, query, repeat } from "./api.js";
import { deviceTime, kindOf, formatMeasured, formatReadings, formatStatus, readingName } from "./device_format.js";
import { fill, find, given, handle, make, showMessage } from "./dom.js";
import { Readings } from "./readings.js";
import { Rows } from "./rows.js";
import { size, time } from "./format.js";

const EVERY_MS = 1500;
const TABLES_EVERY_MS = 10_000;
const POINTS_MAX = 5000;
const COMMANDS_SHOWN = 25;
const { serial, tables, type_names, command_names, reading_names, typed_protocols, sees_reports } = given();
const path = `/api/devices/${encodeURIComponent(serial)}`;

// ── now

const reassembly = new Rows(find("#reassembly"), [
  ["command", "n", (row) => row.command_no],
  ["", "", (row) => (row.answer ? "response" : "report")],
  ["packets", "n", (row) => `${row.packets} of ${row.packets_in_all ?? "?"}`],
  ["missing", "", (row) => row.missing.join(", ") || "the last ones"],
  ["bytes", "n", (row) => size(row.bytes)],
  ["since (UTC)", "", (row) => time(row.began_at_ms)],
  ["expires (UTC)", "", (row) => time(row.expires_at_ms)],
], (row) => `${row.command_no} ${row.answer}`);

async function refresh() {
  try {
    const found = await callApi("GET", path);
    find("#online").textContent = found.heard ? "online" : "offline";
    find("#online").className = `figure ${found.heard ? "good" : "warn"}`;
    find("#last-seen").textContent = found.heard_at_ms ? `last seen ${time(found.heard_at_ms)} UTC` : "not seen since the gateway started";
    find("#address").textContent = found.address || "–";
    const isTyped = !found.protocol || typed_protocols.includes(found.protocol);
    find("#protocol").textContent = found.protocol || "–";
    const registered = found.added_at_ms ? (found.has_key ? "registered with a key; commands are sealed" : "registered, no key") : "not registered";
    find("#kind").textContent = isTyped ? `type ${kindOf(found.type, type_names)}; ${registered}` : registered;
    adapt(found, isTyped);
    const link = find("#topic");
    if (found.topic && !link.firstChild) link.append(make("a", { href: `/topics/${encodeURIComponent(found.topic)}` }, found.topic));
    units = new Map(found.readings.map((each) => [each.name, each.unit]));
    if (find("#plots") && found.topic && sees_reports) await reported(found.topic, isTyped);
    reassembly.show(found.under_way);
    find("#reassembly").hidden = !found.under_way.length;
    find("#whole").hidden = found.under_way.length > 0;
    showMessage("");
  } catch (error) {
    showMessage(error.message, true);
  }
}

// ── reports: the complete history from the tables, the latest ones from the gateway without delay

/** Return null for text that is not JSON, or truncated: anyone may publish to the topic. */
function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Show the reports on the device's topic, which are JSON: numbered readings, or every numeric field. */
async function reported(topic, isTyped) {
  const { last } = await callApi("GET", `/api/topics/${encodeURIComponent(topic)}`);
  for (const each of last) {
    const report = each.position > readUpTo && (each.publisher === serial || !isTyped) ? asJson(each.content) : null;
    if (!report || typeof report !== "object") continue;
    if (!isTyped) {
      for (const [name, value] of Object.entries(report)) plots.add(name, units.get(name), each.ts, typeof value === "boolean" ? Number(value) : value);
      continue;
    }
    const atMs = report.device_time > 1 ? report.device_time * 1000 : each.ts;
    if (report.status) showStatus(report.status, each.ts);
    for (const reading of named(report.readings)) plots.add(reading.name, reading.unit, atMs, reading.value);
  }
  if (last.length && last[0].position > readUpTo) {
    readUpTo = last[0].position;
    draw();
  }
}

/** Return numbered readings with their names and units. */
function named(readings) {
  return (readings ?? []).map((each) => {
    const [name, unit] = reading_names[each.type] ?? [];
    return { ...each, name: readingName({ type: each.type, name: each.name ?? name }), unit: each.unit ?? unit };
  });
}

const plots = new Readings(find("#plots"));
let units = new Map(); // of the newest readings, by name
let statusAtMs = -1;
let readUpTo = 0; // position in its topic

async function readings() {
  const rows = await query(`SELECT coalesce(device_time, received_at) AS t, type, name, unit, value FROM silver.readings WHERE serial = ${literal(serial)} ORDER BY received_at DESC LIMIT ${POINTS_MAX}`, POINTS_MAX);
  for (const row of rows) {
    const [reading] = named([row]); // rows of earlier versions have numbers only
    plots.add(reading.name, reading.unit, Date.parse(row.t), row.value);
  }
  draw();
}

async function latest() {
  const [row] = await query(`SELECT * FROM gold.device_latest WHERE serial = ${literal(serial)}`);
  if (row?.status) showStatus(row.status, Date.parse(row.status_at ?? row.received_at));
}

function draw() {
  find("#no-readings").hidden = !plots.empty;
  plots.draw();
}

function showStatus(status, atMs) {
  if (atMs <= statusAtMs) return;
  statusAtMs = atMs;
  find("#status").textContent = formatStatus(status);
  find("#status-at").textContent = `at ${time(atMs)} UTC`;
}

async function commands() {
  const rows = await query(`SELECT received_at, direction, answer, command_no, command_type, packets, state, error, reason, fields, data FROM silver.device_commands WHERE serial = ${literal(serial)} ORDER BY received_at DESC LIMIT ${COMMANDS_SHOWN}`);
  fill(find("#commands"), [
    ["at (UTC)", "", (row) => time(Date.parse(row.received_at))],
    ["", "", (row) => `${row.direction === "out" ? "to the device" : "from the device"}${row.answer ? ", response" : ""}`],
    ["no", "n", (row) => row.command_no],
    ["type", "", (row) => (row.command_type === null ? "–" : commandName(row.command_type))],
    ["packets", "n", (row) => row.packets],
    ["state", "wide", (row) => make("span", { class: row.state === "complete" ? null : "warn" }, row.reason ? `${row.state}: ${row.reason}` : row.state)],
    ["error", "", (row) => row.error || "–"],
    ["content", "wide mono", (row) => content(row)],
  ], rows);
  find("#no-commands").hidden = rows.length > 0;
}

const commandName = (type) => (command_names[type & 0x7f] ? `${type} (${command_names[type & 0x7f]})` : String(type));

function content(row) {
  const fields = row.fields ? JSON.parse(row.fields) : {};
  if (fields.readings) return formatReadings(named(fields.readings));
  return fields.status ? formatStatus(fields.status) : row.data ?? "";
}

const REFRESH = { "silver.readings": readings, "gold.device_latest": latest, "silver.device_commands": commands };

async function refreshTables() {
  try {
    for (const name of tables) await REFRESH[name](); // one at a time: concurrent queries are limited
    find("#trouble").hidden = true;
  } catch (error) {
    Object.assign(find("#trouble"), { textContent: error.message, hidden: false });
  }
}

// ── commands to it

/** Show what the protocol of the device has: numbered commands in packets and a status, or named commands with fields. */
function adapt(found, isTyped) {
  find("#reassembly-card").hidden = !isTyped;
  if (find("#status-card")) find("#status-card").hidden = !isTyped;
  if (!find("#send")) return;
  find("#known-row").hidden = !isTyped;
  find("#fields-row").hidden = isTyped;
  if (!isTyped && !find("#type").dataset.adapted) Object.assign(find("#type"), { value: "", placeholder: "name, or 128 to 255" });
  find("#type").dataset.adapted = "yes";
  find("#no-commands-now").hidden = !found.heard || found.takes_commands;
}

async function send(form) {
  const type = form.type.value.trim();
  const body = { type: /^\d+$/.test(type) ? Number(type) : type, data: form.data.value.trim(), wait_ms: Number(form.wait.value) };
  const place = find("#answer");
  const fields = form.fields.value.trim();
  if (fields) body.fields = asJson(fields);
  if (fields && body.fields === null) {
    place.replaceChildren(make("p", { class: "bad" }, "The fields are not valid JSON."));
    return;
  }
  form.go.disabled = true;
  place.replaceChildren(make("p", { class: "hint" }, "Waiting for the device…"));
  try {
    place.replaceChildren(answered(await callApi("POST", `${path}/commands`, body)));
  } catch (error) {
    place.replaceChildren(make("p", { class: "bad" }, error.message));
  } finally {
    form.go.disabled = false;
  }
}

function answered(answer) {
  const facts = answer.type === undefined ? [] : [["type", commandName(answer.type)], ["device time", deviceTime(answer.device_time)]];
  if (answer.error) facts.push(["error", `${answer.error}: ${answer.error_text ?? ""}`]);
  if (answer.status) facts.push(...Object.entries(answer.status).map(([name, value]) => [name.replaceAll("_", " "), name.endsWith("_at") ? deviceTime(value) : value]));
  for (const each of answer.readings ?? []) facts.push([readingName(each), formatMeasured(each.value, each.unit)]);
  for (const [name, value] of Object.entries(answer.fields ?? {})) facts.push([name, typeof value === "string" ? value : JSON.stringify(value)]);
  if (answer.data !== undefined) facts.push(["data", answer.data || "none"]);
  return make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { class: answer.error && name === "error" ? "bad" : "mono" }, value)]));
}

if (find("#send")) {
  find("#known").addEventListener("change", (event) => {
    if (event.target.value) find("#type").value = event.target.value;
  });
  find("#type").addEventListener("input", (event) => {
    find("#known").value = event.target.value;
    if (find("#known").selectedIndex < 0) find("#known").selectedIndex = 0;
  });
  handle(find("#send"), send);
}
repeat(refresh, EVERY_MS);
if (tables.length) repeat(refreshTables, TABLES_EVERY_MS);
