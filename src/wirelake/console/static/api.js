// Asking the gateway's API, as the person who is logged in.

const AGAIN_MS = 2000;

/** The answer's JSON; throws an Error with the gateway's own words. */
export async function ask(method, path, body) {
  const request = { method, headers: {}, credentials: "same-origin" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers["content-type"] = "application/json";
  }
  const response = await fetch(path, request).catch(() => { throw new Error("The gateway does not answer; trying again."); });
  if (response.status === 401) location.assign(`/login?to=${encodeURIComponent(location.pathname + location.search)}`);
  const text = await response.text();
  const answer = text ? JSON.parse(text, exact) : null;
  if (!response.ok) throw new Error(answer?.error?.message ?? `${response.status} ${response.statusText}`);
  return answer;
}

/** Whole numbers that JavaScript would round stay text, where the browser shows us theirs. */
const exact = (_, value, read) => (Number.isInteger(value) && !Number.isSafeInteger(value) ? read?.source ?? value : value);

/** Do it now, and again so long after it was done, for as long as the page is looked at. */
export function repeat(work, everyMs) {
  const again = async () => {
    if (!document.hidden) await work();
    setTimeout(again, everyMs);
  };
  again();
}

/** Text as a literal of SQL. */
export const literal = (text) => `'${text.replaceAll("'", "''")}'`;

/** Rows of the tables as objects. */
export async function query(sql, rows = 1000) {
  const answer = await ask("POST", "/api/lake/query", { sql, rows });
  const names = answer.columns.map((column) => column.name);
  return answer.rows.map((row) => Object.fromEntries(row.map((value, place) => [names[place], value])));
}

/** A snapshot a second, until the page goes. The browser calls again by itself when the gateway was away, but not once
 * it was refused: a gateway that was started anew wants to know who asks. */
export function live(seen, lost = () => {}) {
  const source = new EventSource("/console/live");
  source.onmessage = (event) => seen(JSON.parse(event.data));
  source.onerror = () => {
    lost();
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(() => ask("GET", "/api/topics?limit=1").catch(lost).then(() => live(seen, lost)), AGAIN_MS);
  };
  addEventListener("pagehide", () => source.close());
}
