// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Line charts.

// Returns round numbers that divide [low, high] into about `n` parts of at least
// `least`, and the number of decimals that distinguishes them.
function ticks(low, high, n, least = 0) {
  const raw = Math.max(least, (high - low) / n) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const marks = [];
  for (let i = Math.ceil(low / step); i * step <= high + step / 1e6; ++i) {
    marks.push(i * step);
  }
  return { marks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

// Returns [position, label] of the marks of an axis.
function axisMarks(low, high, n, unit, least = 0) {
  const { size, name } = unit;
  const { marks, digits } = ticks(low / size, high / size, n, least);
  return marks.map((mark) => [mark * size, mark === 0 ? "0" :
    mark.toLocaleString(undefined, { minimumFractionDigits: digits,
      maximumFractionDigits: digits }) + name]);
}

// Returns the marks of an axis that spans several powers of ten.
function logMarks(low, high) {
  const marks = [];
  for (let i = Math.floor(Math.log10(low)); 10 ** i <= high; ++i) {
    for (const m of [1, 2, 5]) {
      const mark = m * 10 ** i;
      if (mark >= low && mark <= high) marks.push([mark, +mark.toPrecision(1) + ""]);
    }
  }
  return marks;
}

// The space above a plot, for the title of its y axis.
const kTop = 20;

// Lines over the inner steps. A series is {name, color, points: [[x, y]...]},
// with `thin` for one of many. Arrow keys and the pointer move a cursor that
// shows the values. The options are {label, axis: title of the y axis,
// unit(high) of its marks, value(y): text, at(x): text, empty: text,
// height(width), zero: whether y begins at 0, most: where it ends, sums: whether
// the legend shows the last values}.
class Chart {
  constructor(host, options) {
    this.host = host;
    this.options = options;
    this.series = [];
    this.cursor = null;
    this.plot = el("div", { class: "plot", tabindex: "0", role: "img" });
    this.tip = el("div", { class: "tip", hidden: "" });
    this.legend = el("ul", { class: "legend" });
    host.append(this.plot, this.legend);
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      this.point((event.clientX - box.left - this.left) / this.width);
    });
    this.plot.addEventListener("pointerleave", () => this.hide());
    this.plot.addEventListener("blur", () => this.hide());
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      if (this.plot.clientWidth !== this.drawnWidth) this.draw();
    }).observe(this.plot);
  }

  set(series) {
    this.series = series.filter((one) => one.points.length > 0);
    this.legend.replaceChildren(...this.series.filter((one) => !one.unnamed)
      .map((one) => {
        const swatch = el("i");
        swatch.style.background = one.color;
        return el("li", {}, swatch, one.name + (this.options.sums
          ? " " + this.options.value(last(one.points)[1]) : ""));
      }));
    this.draw();
  }

  // Switches between a linear and a logarithmic y axis.
  setLog(log) {
    this.log = log;
    this.draw();
  }

  domain() {
    const all = this.series.flatMap((one) => one.points);
    const least = (list) => list.reduce((a, b) => Math.min(a, b));
    const most = (list) => list.reduce((a, b) => Math.max(a, b));
    const xs = all.map((point) => point[0]);
    const ys = all.map((point) => point[1]);
    [this.x0, this.x1] = [least(xs), most(xs)];
    // Put a single point in the middle.
    if (this.x1 <= this.x0) [this.x0, this.x1] = [Math.max(0, this.x0 - 1), this.x1 + 1];
    const { zero, most: end } = this.options;
    let [low, high] = [zero ? 0 : least(ys), end || most(ys)];
    this.f = this.log && low > 0 ? Math.log : (y) => y;
    if (zero) {
      if (!end) high = high > 0 ? high * 1.05 : 1;
    } else if (high <= low) {
      [low, high] = [low - Math.abs(low) * 0.1, low + (Math.abs(low) || 1) * 0.1];
    } else if (this.f === Math.log) {
      const room = (high / low) ** 0.04;
      [low, high] = [low / room, high * room];
    } else {
      const room = (high - low) * 0.04;
      [low, high] = [low - room, high + room];
    }
    [this.y0, this.y1] = [low, high];
  }

  draw() {
    const width = this.plot.clientWidth;
    this.drawnWidth = width;
    if (width === 0) return;
    if (this.series.length === 0) {
      this.plot.replaceChildren(el("p", { class: "empty" }, this.options.empty));
      return;
    }
    this.domain();
    const height = this.options.height(width);
    this.left = 60;
    this.width = width - this.left - 10;
    this.height = height - 36;
    const [y0, y1] = [this.f(this.y0), this.f(this.y1)];
    this.x = (x) => this.left + this.width * (x - this.x0) / (this.x1 - this.x0);
    this.y = (y) => kTop + (this.height - kTop) * (y1 - this.f(y)) / (y1 - y0);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    this.axes(root, width, height);
    for (const one of this.series) root.append(this.curve(one));
    this.line = svg("line", { class: "cursor", y1: kTop, y2: this.height,
      visibility: "hidden" });
    root.append(this.line);
    this.plot.replaceChildren(root, this.tip);
    this.plot.setAttribute("aria-label", this.summary());
    if (this.cursor !== null) this.show();
  }

  axes(root, width, height) {
    const isWide = this.f === Math.log && this.y1 > 10 * this.y0;
    for (const [mark, label] of isWide ? logMarks(this.y0, this.y1)
      : axisMarks(this.y0, this.y1, this.height > 160 ? 5 : 4,
        this.options.unit(this.y1))) {
      const y = this.y(mark);
      root.append(
        svg("line", { class: "grid", x1: this.left, x2: width - 10, y1: y, y2: y }),
        svg("text", { class: "y", x: this.left - 7, y: y + 4, "text-anchor": "end" },
          label));
    }
    const unit = this.x1 < 1e5 ? { size: 1, name: "" } : unitOf(this.x1, kCounts);
    // Steps are whole.
    for (const [mark, label] of axisMarks(this.x0, this.x1, width > 500 ? 7 : 5,
      unit, 1 / unit.size)) {
      root.append(svg("text", { class: "x", x: Math.min(this.x(mark), width - 16),
        y: this.height + 15, "text-anchor": "middle" }, label));
    }
    root.append(
      svg("text", { class: "name", x: 0, y: 10 }, this.options.axis),
      svg("text", { class: "name", x: width - 10, y: height - 4,
        "text-anchor": "end" }, "inner step"));
  }

  curve(one) {
    const most = one.thin ? 240 : 1200;
    const stride = Math.ceil(one.points.length / most);
    const points = one.points.filter(
      (_, i) => i % stride === 0 || i === one.points.length - 1);
    const path = points.map(([x, y]) =>
      this.x(x).toFixed(1) + " " + this.y(y).toFixed(1)).join("L");
    const group = svg("g");
    const curve = svg("path", { class: "curve", d: "M" + path });
    curve.style.stroke = one.color;
    if (one.thin) {
      curve.style.strokeWidth = 1;
      curve.style.opacity = 0.2;
    }
    group.append(curve);
    // A line of one point cannot be seen.
    if (one.dots || points.length === 1) {
      for (const [x, y] of points) {
        const dot = svg("circle", { cx: this.x(x), cy: this.y(y), r: 3 });
        dot.style.fill = one.color;
        group.append(dot);
      }
    }
    return group;
  }

  summary() {
    return this.options.label + ". " + this.series.filter((one) => !one.thin)
      .map((one) => one.name + " " + this.options.value(last(one.points)[1]))
      .join(", ") + ". Arrow keys show values.";
  }

  key(event) {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step) return;
    event.preventDefault();
    this.point((this.cursor === null ? 1 : this.cursor) + step);
  }

  point(share) {
    this.cursor = Math.min(1, Math.max(0, share));
    this.show();
  }

  hide() {
    this.cursor = null;
    this.tip.hidden = true;
    if (this.line) this.line.setAttribute("visibility", "hidden");
  }

  show() {
    if (this.series.length === 0) return;
    const x = this.x0 + this.cursor * (this.x1 - this.x0);
    const rows = [el("div", {}, this.options.at(x))];
    for (const one of this.series.filter((s) => !s.thin)) {
      const nearest = one.points.reduce((best, point) =>
        (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
      rows.push(el("div", {}, el("span", {}, one.name),
        el("b", {}, this.options.value(nearest[1]))));
    }
    this.tip.replaceChildren(...rows);
    this.tip.hidden = false;
    const at = this.x(x);
    const left = at > this.plot.clientWidth / 2;
    this.tip.style.left = left ? "auto" : at + 10 + "px";
    this.tip.style.right =
      left ? this.plot.clientWidth - at + 10 + "px" : "auto";
    this.line.setAttribute("x1", at);
    this.line.setAttribute("x2", at);
    this.line.setAttribute("visibility", "visible");
  }
}

