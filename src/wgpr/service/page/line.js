// A map of one input: the mean with its interval, and the latest rows as points.

import { getJson, mapPath } from "./service.js";

const HALF_WIDTH = 1.959964;

export class Line {
  constructor(element, summary, pointed) {
    this.element = element;
    this.summary = summary;
    this.points = [];
    this.pointed = pointed;
    this.resized = new ResizeObserver(() => this.plot?.setSize(this._size()));
    this.resized.observe(element);
    this.update();
  }

  remove() {
    this.isRemoved = true;
    clearTimeout(this.waiting);
    this.resized.disconnect();
    this.plot?.destroy();
  }

  _size() {
    return { width: this.element.clientWidth - 32, height: this.element.clientHeight - 72 };
  }

  isOutOfShape = false;
  fit() {}
  show() {}
  setSlice() {}
  showTrack(isShown) {
    this.plot?.setSeries(4, { show: isShown });
  }

  setTrack(points) {
    this.points = [];
    this.addTrack(points);
  }

  addTrack(points) {
    this.points = [...this.points, ...points].slice(-1000);
  }

  changed() {
    this.waiting ??= setTimeout(() => this.update(), 300);
  }

  async update() {
    this.waiting = null; // a change while the answer is under way is asked for again
    const path = mapPath(this.summary.name, `/grid?width=400&bbox=${this.summary.extents[0].join(",")}`);
    const grid = await getJson(path, { headers: { Accept: "application/prs.coverage+json" } });
    if (this.isRemoved) return;
    if (!grid) {
      this.waiting ??= setTimeout(() => this.update(), 2000);
      return;
    }
    const places = Object.values(grid.domain.axes)[0].values;
    const [mean, std] = [grid.ranges.mean.values, grid.ranges.std.values];
    const rows = [...places.map((x, i) => [x, mean[i], mean[i] - HALF_WIDTH * std[i], mean[i] + HALF_WIDTH * std[i], null]),
      ...this.points.map(([x, y]) => [x, null, null, null, y])].sort((a, b) => a[0] - b[0]);
    const data = [0, 1, 2, 3, 4].map((column) => rows.map((row) => row[column]));
    if (this.plot) this.plot.setData(data);
    else this._draw(data);
  }

  _draw(data) {
    const style = getComputedStyle(document.body);
    const front = style.getPropertyValue("--front").trim();
    const axis = { stroke: front, grid: { stroke: "#8883" }, ticks: { stroke: "#8883" } };
    const band = { spanGaps: true, points: { show: false }, stroke: "#0072b255", width: 1 };
    this.plot = new window.uPlot({
      ...this._size(),
      scales: { x: { time: false } },
      legend: { show: false },
      axes: [{ ...axis, label: this.summary.inputs[0] }, { ...axis, label: this.summary.target, size: 60 }],
      series: [{}, { label: "mean", stroke: "#0072b2", width: 2, spanGaps: true, points: { show: false } },
        { ...band, label: "lower" }, { ...band, label: "upper" },
        { label: "rows", paths: () => null, points: { show: true, size: 4, stroke: "#d55e00", fill: "#d55e00" } }],
      bands: [{ series: [3, 2], fill: "#0072b233" }],
      hooks: { setCursor: [(plot) => this.pointed(plot.cursor.left < 0 ? null : plot.posToVal(plot.cursor.left, "x"), null)] },
    }, data, this.element);
  }
}
