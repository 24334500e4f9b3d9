// The list of topics, polled.

import { callApi, repeat } from "./api.js";
import { find, handle, make, showMessage } from "./dom.js";
import { Rows } from "./rows.js";
import { number } from "./format.js";

const EVERY_MS = 2000;
const ROWS_MAX = 200;
const address = (topic) => `/topics/${encodeURIComponent(topic)}`;

const table = new Rows(find("#topics"), [
  ["topic", "name", (row) => make("a", { href: address(row.topic) }, row.topic)],
  ["kind", "", (row) => (row.durable ? "durable" : "live")],
  ["subscribers", "n", (row) => number(row.subscribers)],
  ["connected", "n", (row) => number(row.connected)],
  ["published", "n", (row) => (row.durable ? number(row.head) : "–")],
  ["lag", "n", (row) => (row.durable ? number(row.lag) : "–")],
], (row) => row.topic);

async function refresh() {
  const here = new URLSearchParams(location.search);
  const wanted = new URLSearchParams({ limit: ROWS_MAX });
  for (const field of ["prefix", "after"]) if (here.get(field)) wanted.set(field, here.get(field));
  try {
    const found = await callApi("GET", `/api/topics?${wanted}`);
    table.show(found.topics);
    find("#none").hidden = found.topics.length > 0;
    if (found.next) here.set("after", found.next);
    Object.assign(find("#next"), { hidden: !found.next, href: `/topics?${here}` });
    showMessage("");
  } catch (error) {
    showMessage(error.message, true);
  }
}

handle(find("#open"), (form) => location.assign(address(form.topic.value)));
repeat(refresh, EVERY_MS);
