// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Line charts.

// Returns round numbers that divide [low, high] into about `n` parts.
function ticks(low, high, n) {
  const raw = (high - low) / n || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const marks = [];
  for (let i = Math.ceil(low / step); i * step <= high + step / 1e6; ++i) {
    marks.push(i * step);
  }
  return marks;
}

// Lines over one x axis. A series is {name, color, points: [[x, y]...]}, with
// `thin` for one of many. Arrow keys and the pointer move a cursor that shows
// the values.
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
        return el("li", {}, swatch, one.name);
      }));
    this.draw();
  }

  domain() {
    const all = this.series.flatMap((one) => one.points);
    const ys = all.map((point) => point[1]);
    this.x0 = Math.min(...[all[0][0]], ...this.series.map((s) => s.points[0][0]));
    this.x1 = Math.max(...this.series.map((one) => last(one.points)[0]));
    if (this.x1 <= this.x0) this.x1 = this.x0 + 1;
    let low = this.options.zero ? 0 : ys.reduce((a, b) => Math.min(a, b));
    let high = ys.reduce((a, b) => Math.max(a, b));
    if (this.options.most) high = this.options.most;
    if (high <= low) high = low + (Math.abs(low) || 1) * 0.1;
    if (!this.options.zero) {
      low -= (high - low) * 0.04;
      high += (high - low) * 0.04;
    }
    this.y0 = low;
    this.y1 = high * (this.options.zero && !this.options.most ? 1.05 : 1);
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
    this.left = 54;
    this.width = width - this.left - 10;
    this.height = height - 24;
    this.x = (x) => this.left + this.width * (x - this.x0) / (this.x1 - this.x0);
    this.y = (y) => 6 + (this.height - 6) * (this.y1 - y) / (this.y1 - this.y0);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    this.axes(root, width, height);
    for (const one of this.series) root.append(this.curve(one));
    this.line = svg("line", { class: "cursor", y1: 6, y2: this.height,
      visibility: "hidden" });
    root.append(this.line);
    this.plot.replaceChildren(root, this.tip);
    this.plot.setAttribute("aria-label", this.summary());
    if (this.cursor !== null) this.show();
  }

  axes(root, width, height) {
    for (const mark of ticks(this.y0, this.y1, this.height > 160 ? 5 : 3)) {
      const y = this.y(mark);
      root.append(
        svg("line", { class: "grid", x1: this.left, x2: width - 10, y1: y, y2: y }),
        svg("text", { x: this.left - 7, y: y + 4, "text-anchor": "end" },
          this.options.tick(mark)));
    }
    for (const mark of ticks(this.x0, this.x1, width > 500 ? 7 : 4)) {
      root.append(svg("text", { x: Math.min(this.x(mark), width - 16),
        y: height - 6, "text-anchor": "middle" }, whole(mark)));
    }
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
    if (one.dots) {
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

