// A table that is filled again and again while somebody reads it, points at it, or stands on a button in it.

import { make } from "./dom.js";

/** `columns` are [title, class, cell(row)], `key` tells rows apart. A row stays the same element while its key is there:
 * text in it follows, and an element that a cell gave stays as it was first made. */
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
    const kept = new Map();
    for (const row of rows) {
      const key = this.key(row);
      kept.set(key, this.shown.get(key) ?? make("tr", {}, ...this.columns.map(([, kind]) => make("td", { class: kind }))));
      this.columns.forEach(([, , cell], place) => update(kept.get(key).cells[place], cell(row)));
    }
    for (const [key, element] of this.shown) if (!kept.has(key)) element.remove();
    let place = this.body.firstElementChild;
    for (const element of kept.values()) {
      if (element === place) place = place.nextElementSibling;
      else this.body.insertBefore(element, place);
    }
    this.shown = kept;
  }
}

function update(cell, value) {
  if (value instanceof Node) {
    if (!cell.firstElementChild) cell.replaceChildren(value);
  } else if (cell.textContent !== String(value)) {
    cell.textContent = value;
  }
}
