// Readings by type, from the tables and from the gateway. One plot for each type.

import { formatValue } from "./device_format.js";
import { make } from "./dom.js";
import { lines } from "./plot.js";
import { time } from "./format.js";

const PLOTS_MAX = 12;
const POINTS_MAX = 5000; // of each type

export class Readings {
  constructor(place) {
    this.place = place;
    this.byType = new Map(); // type → time in ms → value
  }

  get empty() {
    return !this.byType.size;
  }

  add(type, atMs, value) {
    if (typeof value !== "number" || !Number.isFinite(atMs)) return;
    if (!this.byType.has(type)) this.byType.set(type, new Map());
    this.byType.get(type).set(atMs, value);
  }

  draw() {
    const types = [...this.byType.keys()].sort((a, b) => a - b).slice(0, PLOTS_MAX);
    types.forEach((type, number) => {
      const points = [...this.byType.get(type)].sort((a, b) => a[0] - b[0]).slice(-POINTS_MAX);
      this.byType.set(type, new Map(points));
      const figure = this.place.children[number] ?? this.place.appendChild(make("div"));
      const name = `reading ${type}: ${formatValue(points.at(-1)[1])}`;
      lines(figure, [{ name, points }], { height: 180, title: `Readings of type ${type} over time`, x: time, y: formatValue });
    });
  }
}
