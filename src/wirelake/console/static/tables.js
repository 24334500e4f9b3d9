// SQL with its result as rows or as a plot: the first column is the x axis, every numeric column a line.

import { callApi, live } from "./api.js";
import { fill, find, given, showMessage } from "./dom.js";
import { lines } from "./plot.js";
import { duration, number, size, time } from "./format.js";

const ROWS = 1000;
const SERIES_MAX = 6;
const PHASES = ["latest_offset", "query_planning", "ingest", "reduce", "manifest", "delta"];
const isTime = (column) => column.type.startsWith("TIMESTAMP") || column.type === "DATE";
const isNumber = (column) => /INT|DOUBLE|FLOAT|DECIMAL/.test(column.type);
let answer = null;
let lost = false; // whether the gateway is unreachable

async function run(event) {
  event?.preventDefault();
  showMessage("");
  find("#about").textContent = "…";
  find("#plot").replaceChildren();
  try {
    answer = await callApi("POST", "/api/lake/query", { sql: find("#sql").value, rows: ROWS });
  } catch (error) {
    find("#about").textContent = "";
    showMessage(error.message, true);
    return;
  }
  const { columns, rows, truncated, elapsed_ms } = answer;
  find("#about").textContent = `${number(rows.length)} rows${truncated ? " (there are more)" : ""} in ${Math.round(elapsed_ms)} ms`;
  find("#answer").hidden = false;
  find("#plot-button").hidden = !plottable();
  const asText = (value) => (value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
  fill(find("#rows"), columns.map((column, place) => [column.name, isNumber(column) ? "n" : "", (row) => asText(row[place])]), rows);
  history.replaceState(null, "", `/tables?${new URLSearchParams({ sql: find("#sql").value })}`);
}

const plottable = () => answer.rows.length > 1 && (isTime(answer.columns[0]) || isNumber(answer.columns[0])) && answer.columns.slice(1).some(isNumber);

function plot() {
  const { columns, rows } = answer;
  const across = (row) => (isTime(columns[0]) ? Date.parse(row[0]) : row[0]);
  const text = columns.findIndex((column, place) => place && !isNumber(column) && !isTime(column));
  const numbers = columns.map((column, place) => [column, place]).filter(([column, place]) => place && isNumber(column));
  const series = new Map(); // one line for each column of numbers and, where there is one, value of the column of text
  for (const row of rows) for (const [column, place] of numbers) {
    if (row[place] === null || row[0] === null) continue;
    const name = text > 0 ? `${row[text]}${numbers.length > 1 ? ` ${column.name}` : ""}` : column.name;
    if (!series.has(name)) series.set(name, []);
    series.get(name).push([across(row), row[place]]);
  }
  const most = [...series].map(([name, points]) => ({ name, points })).slice(0, SERIES_MAX);
  lines(find("#plot"), most, { title: "Plot of the result", x: isTime(columns[0]) ? time : String, y: number });
}

function phases(seconds) {
  const known = PHASES.filter((name) => name in seconds);
  return known.map((name) => `${name} ${duration(seconds[name])}`).join(", ") || "no phases yet";
}

function stream(now) {
  if (lost) showMessage("");
  lost = false;
  const place = find("#stream");
  const { pipeline } = now;
  if (!pipeline) {
    place.textContent = "No pipeline has run on this data folder yet. Start one with wirelake up or wirelake pipeline run.";
    return;
  }
  const behind = Math.max(0, now.log_next_seq - pipeline.next_seq);
  const state = pipeline.running ? "Running" : "Not running (start it with wirelake up or wirelake pipeline run)";
  place.textContent = `${state}: batch ${number(pipeline.batch)}, ${number(pipeline.rows_s)} records/s, ${number(behind)} records behind the log`
    + `, last batch took ${duration(pipeline.batch_s)} (${phases(pipeline.phases_s)}) and added ${number(pipeline.files)} files`
    + ` of ${size(pipeline.bytes)}; state ${size(pipeline.state_bytes)}, ${number(pipeline.open_rows)} open rows${pipeline.last_error ? `; last error: ${pipeline.last_error}` : ""}.`;
}

find("#ask").addEventListener("submit", run);
find("#plot-button").addEventListener("click", plot);
find("#example").addEventListener("change", (event) => {
  if (event.target.value) find("#sql").value = event.target.value;
  event.target.value = "";
  run();
});
for (const button of document.querySelectorAll(".look")) button.addEventListener("click", () => {
  find("#sql").value = `SELECT * FROM ${button.dataset.table} LIMIT 100`;
  run().then(() => find("#ask").scrollIntoView());
});
find("#sql").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});
if (given().sees_pipeline) live(stream, () => {
  lost = true;
  showMessage("The gateway does not respond; retrying.", true);
});
// SQL in the URL only fills in the form: a link must not make the browser run it.
if (new URLSearchParams(location.search).has("sql")) find("#about").textContent = "SQL from the URL, not run yet.";
