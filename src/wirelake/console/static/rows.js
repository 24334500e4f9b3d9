// A table that is refreshed in place, so that selection, hover and focus survive.

import { make } from "./dom.js";

/** `columns` are [title, class, cell(row)], `key` identifies a row. A row stays the same element as long as its key is present:
 * its text is updated, and an element returned by a cell stays as first created. */
export class Rows {
  constructor(table, columns, key) {
    this.columns = columns;
    this.key = key;
    this.body = make("tbody");
    this.shown = new Map(); // key → row
    const titles = columns.map(([title, kind]) => (title ? make("th", { class: kind, scope: "col" }, title) : make("td")));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...titles)), this.body);
  }

  show(rows) {
    const rowsByKey = new Map();
    for (const row of rows) {
      const key = this.key(row);
      rowsByKey.set(key, this.shown.get(key) ?? make("tr", {}, ...this.columns.map(([, kind]) => make("td", { class: kind }))));
      this.columns.forEach(([, , cell], place) => update(rowsByKey.get(key).cells[place], cell(row)));
    }
    for (const [key, element] of this.shown) if (!rowsByKey.has(key)) element.remove();
    let place = this.body.firstElementChild;
    for (const element of rowsByKey.values()) {
      if (element === place) place = place.nextElementSibling;
      else this.body.insertBefore(element, place);
    }
    this.shown = rowsByKey;
  }
}

function update(cell, value) {
  if (value instanceof Node) {
    if (!cell.firstElementChild) cell.replaceChildren(value);
  } else if (cell.textContent !== String(value)) {
    cell.textContent = value;
  }
}
