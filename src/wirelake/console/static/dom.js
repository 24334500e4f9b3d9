// Create elements. Text is always set as text, so that nothing from the wire is parsed as HTML.

export const find = (selector, root = document) => root.querySelector(selector);

/** Create an element with attributes (`class`, `href`, `onclick` …) and children, which are elements or text. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Fill a table: `columns` are [title, class, cell(row)]. */
export function fill(table, columns, rows) {
  const head = make("thead", {}, make("tr", {}, ...columns.map(([title, kind]) => make("th", { class: kind, scope: "col" }, title))));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...columns.map(([, kind, cell]) => make("td", { class: kind }, cell(row))))));
  table.replaceChildren(head, body);
  table.hidden = false;
}

/** Handle a form in JavaScript. Its button is disabled until then, so that the browser never submits it itself. */
export function handle(form, work) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    work(form.elements);
  });
  form.elements.go.disabled = false;
}

/** Return the data that the page was rendered with. */
export const given = () => JSON.parse(find("#data")?.textContent ?? "null");

/** Show a message, which screen readers announce too; hide it if the text is empty. */
export function showMessage(text, bad = false) {
  const place = find("#message");
  place.textContent = text;
  place.className = bad ? "bad" : "good";
  place.hidden = !text;
}
