// Readings by name, from the tables and from the gateway. One plot for each name.

import { formatMeasured, formatValue } from "./device_format.js";
import { make } from "./dom.js";
import { lines } from "./plot.js";
import { time } from "./format.js";

const PLOTS_MAX = 12;
const POINTS_MAX = 5000; // of each name

export class Readings {
  constructor(place) {
    this.place = place;
    this.byName = new Map(); // name → {unit, points: time in ms → value}
  }

  get empty() {
    return !this.byName.size;
  }

  add(name, unit, atMs, value) {
    if (typeof value !== "number" || !Number.isFinite(atMs)) return;
    if (!this.byName.has(name)) this.byName.set(name, { unit: "", points: new Map() });
    const reading = this.byName.get(name);
    reading.unit = unit || reading.unit;
    reading.points.set(atMs, value);
  }

  draw() {
    const names = [...this.byName.keys()].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).slice(0, PLOTS_MAX);
    names.forEach((name, number) => {
      const reading = this.byName.get(name);
      const points = [...reading.points].sort((a, b) => a[0] - b[0]).slice(-POINTS_MAX);
      reading.points = new Map(points);
      const figure = this.place.children[number] ?? this.place.appendChild(make("div"));
      const title = `${name}: ${formatMeasured(points.at(-1)[1], reading.unit)}`;
      lines(figure, [{ name: title, points }], { height: 180, title: `${name} over time`, x: time, y: formatValue });
    });
  }
}
