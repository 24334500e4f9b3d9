// One topic. A durable one is polled, which neither subscribes nor acks; a live one, which stores nothing, is subscribed
// to. Notifications that the gateway no longer stores come from the tables.

import { callApi, literal, query, repeat } from "./api.js";
import { base64OfHex, contentOfHex, readable } from "./content.js";
import { find, given, handle, make, showMessage } from "./dom.js";
import { Rows } from "./rows.js";
import { number, size, time } from "./format.js";

const EVERY_MS = 1500;
const SHOWN_MAX = 50;
const { topic, durable, shown, may_subscribe, in_tables } = given();
const path = `/api/topics/${encodeURIComponent(topic)}`;
let received = 0; // of a live topic; numbers its notifications

// ── notifications

function item(each) {
  const { kind, text } = readable(each);
  const about = [time(each.ts), `type ${each.type}`, each.publisher ? `by ${each.publisher}` : "", each.bytes === undefined ? "" : size(each.bytes), kind];
  return make("li", {},
    make("p", { class: "hint" }, about.filter(Boolean).join(" · "), " · ", each.id ? trace(each.id) : "not stored"),
    make("pre", { tabindex: 0, role: "region", "aria-label": `Content, ${time(each.ts)}` }, text || "(empty)"));
}

const trace = (id) => make("a", { href: `/trace?id=${encodeURIComponent(id)}` }, id);

/** Insert those that are not shown yet, in order, and drop the oldest. Elements already shown stay untouched. */
function add(some) {
  const list = find("#last");
  for (const each of some) {
    const place = each.position ?? ++received;
    const before = [...list.children].find((other) => Number(other.dataset.place) <= place);
    if (Number(before?.dataset.place) === place) continue;
    const element = item(each);
    element.dataset.place = place;
    list.insertBefore(element, before ?? null);
  }
  for (const element of [...list.children].slice(SHOWN_MAX)) element.remove();
  find("#nothing").hidden = list.children.length > 0;
}

/** Add notifications that the gateway no longer stores. */
async function older() {
  try {
    const rows = await query(`SELECT id, received_at, position, type, publisher, content FROM silver.notifications WHERE topic = ${literal(topic)} ORDER BY position DESC LIMIT ${SHOWN_MAX}`);
    add(rows.map((row) => ({ ...row, ...contentOfHex(row.content ?? ""), ts: Date.parse(row.received_at), bytes: (row.content ?? "").length / 2 })));
  } catch (error) {
    showMessage(error.message, true);
  }
}

// ── subscribers

const who = find("#who") && new Rows(find("#who"), [
  ["identity", "", (row) => row.identity || "–"],
  ["connected", "n", (row) => number(row.connected)],
  ...(durable ? [
    ["lag", "n", (row) => number(row.lag)],
    ["acked", "n", (row) => number(row.acked)],
    ["expired", "n", (row) => number(row.expired)],
  ] : []),
], (row) => row.identity);

async function refresh() {
  try {
    const found = await callApi("GET", path);
    for (const field of durable ? ["subscribers", "connected", "head", "lag"] : ["subscribers", "connected"])
      find(`#${field}`).textContent = number(found[field]);
    who.show(found.who);
    find("#nobody").hidden = found.who.length > 0;
    find("#who").hidden = !found.who.length;
    add(found.last);
    if (found.retained) retain(found.retained);
    showMessage("");
  } catch (error) {
    showMessage(error.message, true);
  }
}

function retain(value) {
  const place = find("#retained");
  if (place.dataset.id === value.id) return;
  place.dataset.id = value.id;
  place.hidden = false;
  find("ul", place).replaceChildren(item(value));
}

function listen() {
  const source = new EventSource(`/api/subscribe?${new URLSearchParams({ topic, keep: "false" })}`);
  source.onopen = () => { find("#subscription").textContent = "Subscribed."; };
  source.onmessage = (event) => add([JSON.parse(event.data)]);
  source.onerror = () => { find("#subscription").textContent = "Not subscribed; retrying."; };
  addEventListener("pagehide", () => source.close());
}

// ── publishing

async function publish(form) {
  const answer = find("#answer");
  try {
    const body = { content: form.content.value, type: Number(form.type.value), retain: form.retain?.checked ?? false };
    if (form.as.value === "hex") Object.assign(body, { content: base64OfHex(form.content.value), encoding: "base64" });
    const published = await callApi("POST", `${path}/notifications`, body);
    answer.className = "good";
    const noun = published.receivers === 1 ? "receiver" : "receivers";
    const reached = published.receivers === undefined ? "on disk" : `${number(published.receivers)} ${noun}`;
    answer.replaceChildren(`Published, ${reached}: `, trace(published.id));
    if (shown && durable) refresh();
  } catch (error) {
    answer.className = "bad";
    answer.replaceChildren(error.message);
  }
}

if (find("#publish")) handle(find("#publish"), publish);
if (shown) repeat(refresh, EVERY_MS);
if (!durable && may_subscribe) listen();
if (in_tables) older();
