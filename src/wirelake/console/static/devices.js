// The list of devices, polled, with their newest readings: from the gateway, or from the tables if none came since it started.

import { callApi, literal, query, repeat } from "./api.js";
import { find, given, handle, make, showMessage } from "./dom.js";
import { kindOf, formatReadings, formatStatus } from "./device_format.js";
import { Rows } from "./rows.js";
import { number, time } from "./format.js";

const EVERY_MS = 2000;
const TABLES_EVERY_MS = 10_000;
const ROWS_MAX = 200;
const READINGS_MAX = 4; // of a row; the page of the device shows them all
const { tables, type_names, typed_protocols } = given();
let listed = [];
let latest = new Map(); // serial → row of gold.device_latest

const newest = (row) => latest.get(row.serial)?.newest ?? latest.get(row.serial)?.readings;
const protocolOf = (row) => row.protocol || latest.get(row.serial)?.protocol;
const hasType = (row) => !protocolOf(row) || typed_protocols.includes(protocolOf(row));
const lastSeen = (row) => row.heard_at_ms ?? (latest.has(row.serial) ? Date.parse(latest.get(row.serial).received_at) : null);

const table = new Rows(find("#devices"), [
  ["serial", "name", (row) => make("a", { href: `/devices/${encodeURIComponent(row.serial)}` }, row.serial)],
  ["state", "", (row) => (row.heard ? "online" : "offline")],
  ["protocol", "", (row) => protocolOf(row) || "–"],
  ["last seen (UTC)", "", (row) => time(lastSeen(row))],
  ["newest readings", "wide", (row) => formatReadings(row.readings.length ? row.readings : newest(row), READINGS_MAX)],
  ...(tables.includes("gold.device_latest") ? [["latest status", "", (row) => formatStatus(latest.get(row.serial)?.status)]] : []),
  ["commands", "", (row) => (row.takes_commands ? "accepted" : "–")],
  ["address", "", (row) => row.address || "–"],
  ["type", "", (row) => (hasType(row) ? kindOf(row.type, type_names) : "–")],
  ["registered", "", (row) => (row.added_at_ms ? (row.has_key ? "with a key" : "yes") : "no")],
  ["reassembling", "n", (row) => (hasType(row) ? number(row.assembling) : "–")],
], (row) => row.serial);

async function refresh() {
  const here = new URLSearchParams(location.search);
  const wanted = new URLSearchParams({ limit: ROWS_MAX });
  if (here.get("after")) wanted.set("after", here.get("after"));
  try {
    const found = await callApi("GET", `/api/devices?${wanted}`);
    listed = found.devices;
    table.show(listed);
    find("#none").hidden = listed.length > 0;
    if (found.next) here.set("after", found.next);
    Object.assign(find("#next"), { hidden: !found.next, href: `/devices?${here}` });
    showMessage("");
  } catch (error) {
    showMessage(error.message, true);
  }
}

async function refreshLatest() {
  if (!listed.length) return;
  try {
    const [first, last] = [literal(listed[0].serial), literal(listed.at(-1).serial)];
    const rows = await query(`SELECT serial, received_at, protocol, status, readings, newest FROM gold.device_latest WHERE serial BETWEEN ${first} AND ${last}`);
    latest = new Map(rows.map((row) => [row.serial, row]));
    table.show(listed);
  } catch (error) {
    showMessage(error.message, true);
  }
}

handle(find("#open"), (form) => location.assign(`/devices/${encodeURIComponent(form.serial.value)}`));
await refresh();
repeat(refresh, EVERY_MS);
if (tables.includes("gold.device_latest")) repeat(refreshLatest, TABLES_EVERY_MS);
