// The list of devices, polled, with their latest status and readings from the tables.

import { callApi, literal, query, repeat } from "./api.js";
import { find, given, handle, make, showMessage } from "./dom.js";
import { kindOf, formatReadings, formatStatus } from "./device_format.js";
import { Rows } from "./rows.js";
import { number, time } from "./format.js";

const EVERY_MS = 2000;
const TABLES_EVERY_MS = 10_000;
const ROWS_MAX = 200;
const { tables, type_names } = given();
let listed = [];
let latest = new Map(); // serial → row of gold.device_latest

const lastSeen = (row) => row.heard_at_ms ?? (latest.has(row.serial) ? Date.parse(latest.get(row.serial).at) : null);

const table = new Rows(find("#devices"), [
  ["serial", "name", (row) => make("a", { href: `/devices/${encodeURIComponent(row.serial)}` }, row.serial)],
  ["state", "", (row) => (row.heard ? "online" : "offline")],
  ["type", "", (row) => kindOf(row.type, type_names)],
  ["key", "", (row) => (row.has_key ? "sealed" : "–")],
  ["last seen (UTC)", "", (row) => time(lastSeen(row))],
  ["address", "", (row) => row.address || "–"],
  ["reassembling", "n", (row) => number(row.assembling)],
  ...(tables.includes("gold.device_latest") ? [
    ["latest status", "", (row) => formatStatus(latest.get(row.serial)?.status)],
    ["latest readings", "wide", (row) => formatReadings(latest.get(row.serial)?.readings)],
  ] : []),
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
    const rows = await query(`SELECT serial, at, status, readings FROM gold.device_latest WHERE serial BETWEEN ${first} AND ${last}`);
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
