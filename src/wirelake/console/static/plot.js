// Small plots, as SVG, without a library.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const STEPS_MIN = 20;

function svg(name, attributes) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** A scrolling line: new values enter at the right, the oldest leave at the left. */
export class Moving {
  constructor(place, title, { shown = 120, height = 48 } = {}) {
    this.values = [];
    this.shown = shown;
    this.height = height;
    this.area = svg("path", { class: "area" });
    this.line = svg("path", { class: "line" });
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    picture.append(this.area, this.line);
    place.replaceChildren(picture);
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > this.shown) this.values.shift();
    const top = Math.max(...this.values, 1e-9);
    const step = WIDTH / (Math.max(this.values.length, STEPS_MIN) - 1); // at first the line is stretched
    const start = WIDTH - (this.values.length - 1) * step;
    const points = this.values.map((each, place) => `${(start + place * step).toFixed(1)},${(this.height - 2 - (each / top) * (this.height - 6)).toFixed(1)}`);
    this.line.setAttribute("d", `M${points.join("L")}`);
    this.area.setAttribute("d", `M${start.toFixed(1)},${this.height}L${points.join("L")}L${WIDTH},${this.height}Z`);
  }
}

/** Draw lines over a common x axis, with their ranges below: [{name, points: [[x, y], …]}, …]. */
export function lines(place, series, { height = 220, title = "plot", x = String, y = String } = {}) {
  const all = series.flatMap((each) => each.points);
  if (!all.length) return place.replaceChildren("Nothing to plot.");
  const [left, right] = range(all.map((point) => point[0]));
  const [bottom, top] = range(all.map((point) => point[1]));
  const wide = 800, pad = 8;
  const across = (value) => pad + ((value - left) / (right - left || 1)) * (wide - 2 * pad);
  const up = (value) => height - pad - ((value - bottom) / (top - bottom || 1)) * (height - 2 * pad);
  const picture = svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": title, class: "lines" });
  series.forEach((each, number) => {
    const points = [...each.points].sort((a, b) => a[0] - b[0]).map(([h, v]) => `${across(h).toFixed(1)},${up(v).toFixed(1)}`);
    picture.append(svg("path", { d: `M${points.join("L")}`, class: `line s${number % 6}` }));
    if (points.length < 60) for (const point of points) {
      const [cx, cy] = point.split(",");
      picture.append(svg("circle", { cx, cy, r: 2.5, class: `dot s${number % 6}` }));
    }
  });
  const legend = document.createElement("p");
  legend.className = "legend";
  series.forEach((each, number) => {
    const key = document.createElement("span");
    key.className = `key s${number % 6}`;
    key.textContent = each.name;
    legend.append(key);
  });
  const axes = document.createElement("p");
  axes.className = "hint";
  axes.textContent = `${x(left)} … ${x(right)}  ·  ${y(bottom)} … ${y(top)}`;
  place.replaceChildren(picture, legend, axes);
}

function range(values) {
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}
