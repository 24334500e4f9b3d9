// Decode hex into a tree. Hovering over a field highlights its bytes, and over a byte its field.

import { callApi } from "./api.js";
import { fill, find, given, make, showMessage } from "./dom.js";
import { time } from "./format.js";

const BYTES_A_LINE = 16;
const { protocols } = given();
const form = find("#ask");

// ── the request

function transports() {
  const names = protocols[find("#protocol").value]?.transports ?? [];
  find("#transport").replaceChildren(...names.map((name) => make("option", {}, name)));
  find("#transport").disabled = names.length < 2;
  find("#transport").parentElement.hidden = !names.length;
}

async function guess(hex) {
  const { guesses } = await callApi("POST", "/api/identify", { hex });
  const place = find("#guesses");
  place.hidden = false;
  if (!guesses.length) {
    place.textContent = "No known protocol matches these bytes.";
    return null;
  }
  const [best, ...others] = guesses;
  place.textContent = `Looks like ${best.protocol}, sent by the ${best.sender}: ${best.reasons.join("; ")}.`
    + (others.length ? ` Less likely: ${others.map((each) => `${each.protocol} (${each.sender})`).join(", ")}.` : "");
  return best;
}

async function decode() {
  showMessage("");
  find("#guesses").hidden = true;
  const hex = find("#hex").value.trim();
  try {
    if (!hex) throw new Error("Enter some bytes.");
    if (!find("#protocol").value) {
      const best = await guess(hex);
      if (!best) return;
      find("#protocol").value = best.protocol;
      transports();
      find("#from").value = best.sender;
      find("#transport").value = best.carrier;
    }
    const request = { protocol: find("#protocol").value, hex, from: find("#from").value };
    if (find("#transport").value) request.transport = find("#transport").value;
    show(await callApi("POST", "/api/decode", request), bytesOf(hex));
    const address = `/inspector?${new URLSearchParams({ ...request, hex: hex.replaceAll(/[^0-9a-fA-F]/g, "") })}`;
    history.replaceState(null, "", address);
    Object.assign(find("#link"), { href: address, hidden: false });
  } catch (error) {
    showMessage(error.message, true);
  }
}

// Two digits a byte; separators (spaces, colons, commas, 0x, \x) are ignored.
const bytesOf = (hex) => hex.replaceAll(/0x|\\x/gi, " ").match(/[0-9a-f]{2}/gi) ?? [];

// ── the result

function show(found, bytes) {
  find("#shown").hidden = false;
  const fault = find("#fault");
  fault.hidden = !found.error;
  if (found.error) fault.textContent = `${found.error.message} (byte ${found.error.offset}, ${found.error.code})`;
  const cells = drawBytes(bytes, found);
  const light = (field, on) => cells.slice(field.offset, field.offset + field.size).forEach((cell) => cell.classList.toggle("lit", on));
  const owners = new Array(bytes.length);
  const tree = find("#tree");
  tree.replaceChildren(...found.frames.map((frame) => branch(frame, light, owners, 1)));
  if (found.rest) tree.append(make("li", { class: "bad", role: "treeitem", tabindex: -1 }, `${found.rest.length / 2} bytes of an incomplete frame`));
  const first = tree.querySelector("[role=treeitem]");
  if (first) first.tabIndex = 0;
  cells.forEach((cell, place) => {
    const owner = () => owners[place];
    cell.addEventListener("mouseenter", () => owner()?.classList.add("lit"));
    cell.addEventListener("mouseleave", () => owner()?.classList.remove("lit"));
    cell.addEventListener("click", () => owner()?.focus());
  });
}

function drawBytes(bytes, found) {
  const bad = found.error?.offset;
  const restFrom = bytes.length - found.rest.length / 2;
  const cells = bytes.map((byte, place) => make("span", {
    class: `byte${place === bad ? " bad-byte" : ""}${found.rest && place >= restFrom ? " rest" : ""}`,
    title: `byte ${place}`, "data-offset": place,
  }, byte.toLowerCase()));
  const lines = [];
  for (let start = 0; start < cells.length; start += BYTES_A_LINE)
    lines.push(make("div", { class: "line" }, make("span", { class: "offset" }, start.toString().padStart(5)), ...cells.slice(start, start + BYTES_A_LINE)));
  find("#bytes").replaceChildren(...lines);
  return cells;
}

function branch(field, light, owners, level) {
  const children = field.children ?? [];
  const value = field.value === undefined ? "" : typeof field.value === "object" ? JSON.stringify(field.value) : String(field.value);
  const label = make("span", { class: "field" },
    make("span", { class: "name" }, field.name), value === "" ? null : make("span", { class: "value mono" }, value),
    field.note ? make("span", { class: "hint" }, field.note) : null,
    make("span", { class: "where hint" }, field.size > 1 ? `${field.offset}…${field.offset + field.size - 1}` : `${field.offset}`));
  const item = make("li", { role: "treeitem", tabindex: -1, "aria-level": level, "aria-expanded": children.length ? "true" : null, "data-field": field.name, "data-offset": field.offset, "data-size": field.size }, label);
  for (let place = field.offset; place < field.offset + field.size; place++) owners[place] = item;
  if (children.length) item.append(make("ul", { role: "group" }, ...children.map((child) => branch(child, light, owners, level + 1))));
  const on = () => light(field, true), off = () => light(field, false);
  label.addEventListener("mouseenter", on);
  label.addEventListener("mouseleave", off);
  item.addEventListener("focus", on);
  item.addEventListener("blur", off);
  label.addEventListener("click", () => { if (children.length) fold(item); item.focus(); });
  item.addEventListener("keydown", (event) => walk(event, item));
  return item;
}

function fold(item, open = item.getAttribute("aria-expanded") !== "true") {
  if (item.hasAttribute("aria-expanded")) item.setAttribute("aria-expanded", String(open));
}

// The usual keys of a tree: up and down move, right expands, left collapses.
function walk(event, item) {
  if (event.target !== item) return;
  const seen = [...find("#tree").querySelectorAll("[role=treeitem]")].filter((each) => !each.parentElement.closest("[aria-expanded=false]"));
  const place = seen.indexOf(item);
  const open = item.getAttribute("aria-expanded");
  const go = { ArrowDown: seen[place + 1], ArrowUp: seen[place - 1], Home: seen[0], End: seen.at(-1) };
  if (event.key in go) go[event.key]?.focus();
  else if (event.key === "ArrowRight" && open !== null) open === "true" ? seen[place + 1]?.focus() : fold(item, true);
  else if (event.key === "ArrowLeft") open === "true" ? fold(item, false) : item.parentElement.closest("[role=treeitem]")?.focus();
  else return;
  event.preventDefault();
}

// ── frames from the log

async function records(event) {
  event?.preventDefault();
  const wanted = new URLSearchParams({ limit: "25" });
  for (const name of ["protocol", "session"]) if (find(`#log-${name}`).value) wanted.set(name, find(`#log-${name}`).value);
  try {
    const listed = await callApi("GET", `/api/log?${wanted}`);
    const rows = listed.records.filter((record) => record.bytes && protocols[record.protocol]).reverse();
    fill(find("#records"), [
      ["seq", "n", (record) => record.seq],
      ["at (UTC)", "", (record) => time(record.at_ms)],
      ["protocol", "", (record) => record.protocol],
      ["event", "", (record) => `${record.event} ${record.direction}`],
      ["session", "", (record) => record.session],
      ["identity", "", (record) => record.identity],
      ["bytes", "n", (record) => record.bytes],
      ["", "", (record) => make("button", { type: "button", onclick: () => open(record) }, "Open")],
    ], rows);
    find("#records").hidden = !rows.length;
    find("#no-records").hidden = rows.length > 0;
  } catch (error) {
    showMessage(error.message, true);
  }
}

function open(record) {
  find("#hex").value = record.hex;
  find("#protocol").value = record.protocol;
  transports();
  find("#from").value = record.direction === "out" ? "server" : "client";
  // The log stores messages without the framing of a stream transport.
  const bare = ["websocket", "udp"].find((name) => protocols[record.protocol].transports.includes(name));
  if (bare) find("#transport").value = bare;
  decode();
  form.scrollIntoView();
}

async function start() {
  const wanted = new URLSearchParams(location.search);
  transports();
  find("#protocol").addEventListener("change", transports);
  form.addEventListener("submit", (event) => { event.preventDefault(); decode(); });
  find("#filter")?.addEventListener("submit", records);
  if (find("#records")) {
    find("#log-session").value = wanted.get("session") ?? "";
    records();
  }
  if (wanted.has("seq")) {
    try {
      open(await callApi("GET", `/api/log/${encodeURIComponent(wanted.get("seq"))}`));
    } catch (error) {
      showMessage(error.message, true);
    }
  } else if (wanted.has("hex")) {
    find("#hex").value = wanted.get("hex");
    find("#protocol").value = wanted.get("protocol") ?? "";
    transports();
    find("#from").value = wanted.get("from") === "server" ? "server" : "client";
    if (wanted.has("transport")) find("#transport").value = wanted.get("transport");
    decode();
  }
}

start();
