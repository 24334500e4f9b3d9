// Call the gateway's API as the logged-in user.

const RETRY_MS = 2000;

/** Return the response's JSON; throw an Error with the gateway's message. */
export async function callApi(method, path, body) {
  const request = { method, headers: {}, credentials: "same-origin" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers["content-type"] = "application/json";
  }
  const response = await fetch(path, request).catch(() => { throw new Error("The gateway does not respond; retrying."); });
  if (response.status === 401) location.assign(`/login?to=${encodeURIComponent(location.pathname + location.search)}`);
  const text = await response.text();
  const answer = text ? JSON.parse(text, exact) : null;
  if (!response.ok) throw new Error(answer?.error?.message ?? `${response.status} ${response.statusText}`);
  return answer;
}

/** Keep integers that JavaScript would round as text, where the browser provides the source. */
const exact = (_, value, read) => (Number.isInteger(value) && !Number.isSafeInteger(value) ? read?.source ?? value : value);

/** Run `work` now and again `everyMs` after it has finished, while the page is visible. */
export function repeat(work, everyMs) {
  const again = async () => {
    if (!document.hidden) await work();
    setTimeout(again, everyMs);
  };
  again();
}

/** Quote text as an SQL literal. */
export const literal = (text) => `'${text.replaceAll("'", "''")}'`;

/** Run a query and return its rows as objects. */
export async function query(sql, rows = 1000) {
  const answer = await callApi("POST", "/api/lake/query", { sql, rows });
  const names = answer.columns.map((column) => column.name);
  return answer.rows.map((row) => Object.fromEntries(row.map((value, place) => [names[place], value])));
}

/** Pass a snapshot a second to `seen` until the page closes. The browser reconnects by itself when the gateway was
 * unreachable, but not after a refusal: a restarted gateway requires a new login. */
export function live(seen, lost = () => {}) {
  const source = new EventSource("/console/live");
  source.onmessage = (event) => seen(JSON.parse(event.data));
  source.onerror = () => {
    lost();
    if (source.readyState !== EventSource.CLOSED) return;
    source.close();
    setTimeout(() => callApi("GET", "/api/topics?limit=1").catch(lost).then(() => live(seen, lost)), RETRY_MS);
  };
  addEventListener("pagehide", () => source.close());
}
