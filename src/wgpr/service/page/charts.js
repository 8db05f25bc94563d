// Small charts of the progress: the error of forecasts, and rows a second.

const MOST = 600; // points of a chart

export class Chart {
  constructor(element, title, colour) {
    const axis = { stroke: "#888", grid: { stroke: "#8883" }, ticks: { show: false }, font: "11px system-ui" };
    this.data = [[], []];
    this.element = element;
    this.plot = new window.uPlot({
      title, width: element.clientWidth || 300, height: 86, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false }, y: { range: (_, __, high) => [0, (high || 1) * 1.1] } },
      axes: [{ ...axis, size: 22 }, { ...axis, size: 48, space: 26 }],
      series: [{}, { stroke: colour, width: 1.5, points: { show: false } }],
    }, this.data, element);
    element.hidden = true;
    new ResizeObserver(() => this.plot.setSize({ width: element.clientWidth, height: 86 })).observe(element);
  }

  clear() {
    this.element.hidden = true;
    this.data = [[], []];
    this.plot.setData(this.data);
  }

  add(x, y) {
    if (this.data[0].length && x <= this.data[0].at(-1)) return;
    this.data[0].push(x);
    this.data[1].push(y);
    if (this.data[0].length > MOST) this.data = this.data.map((values) => values.filter((_, index) => index % 2));
    this.element.hidden = this.data[0].length < 2;
    this.plot.setData(this.data);
  }
}
