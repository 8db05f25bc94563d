// A map of two inputs, drawn from tiles of numbers. Only tiles whose ground has changed are fetched again.

import { ModelColours, TABLES, digits } from "./colours.js";
import { mapPath, request } from "./service.js";

const NODES = 65; // along a side of a tile; neighbouring tiles share their edges
const COARSE = 33; // of a new tile, which is drawn at once, and then fetched with all nodes
const [MEAN, STD, LATENT, MODEL, PRIOR] = [0, 1, 2, 3, 4]; // planes of a tile
const N_PLANES = 5;
// Ground is known if rows have reduced the standard deviation of the field there to this fraction. Its values set the colours, and
// other ground is paler: it has the least colour, PALEST, if the uncertainty is greater by FADING.
const KNOWN = { mean: 0.7, std: 0.3, model: 0.7 };
const [PALEST, FADING] = [0.15, 0.4];
const HIGHEST = 0.95; // quantile of the standard deviation that has the last colour; all above it have the same
const PAUSE = { change: 250, failure: 2000 }; // milliseconds before tiles are fetched again
const NARROWEST = 1 / 20; // of the ground: its shorter side by the longer, so that a single survey line is a strip
const ROUNDING = 1e-11; // of a coordinate: an extent below it counts as none
const METRES_OF_DEGREE = 111_320; // of a great circle
const L = () => window.L;

export class Surface {
  /** pointed(x, y) is called when the pointer moves; it has null if it leaves. */
  constructor(element, legend, summary, at, pointed) {
    this.summary = summary;
    this.legend = legend;
    this.layer = "mean";
    this.at = at;
    this.tiles = new Map(); // by canvas: canvas, coords, planes, path, etag
    this.colours = new ModelColours();
    this.range = null;
    this.stale = new Set();
    this.coarse = [];
    this.points = [];
    this.aspect = aspectOf(summary);
    const crs = L().extend({}, L().CRS.Simple, { transformation: new (L().Transformation)(1, 0, -1 / this.aspect, 0) });
    this.map = L().map(element, { crs, minZoom: -40, maxZoom: 40, zoomSnap: 0.25, attributionControl: false,
      preferCanvas: true, fadeAnimation: false, keyboardPanDelta: 60 });
    this.grid = this._gridLayer().addTo(this.map);
    if (this.aspect === (scaleOf(summary) ?? 1)) this._scaleBar().addTo(this.map);
    this.track = L().polyline([], { color: "#d55e00", weight: 2, opacity: 0.85, interactive: false, smoothFactor: 0.5 }).addTo(this.map);
    this.boat = L().circleMarker([0, 0], { radius: 6, color: "#fff", weight: 2, fillColor: "#d55e00", fillOpacity: 1,
      interactive: false });
    this.isFollowing = true;
    const stop = () => { this.isFollowing = false; };
    element.addEventListener("pointerdown", stop);
    element.addEventListener("wheel", stop, { passive: true });
    element.addEventListener("keydown", (event) => { if (event.key !== "Tab") stop(); });
    this.map.on("mousemove click", ({ latlng }) => pointed(latlng.lng, latlng.lat)); // a tap is a click
    this.map.on("mouseout", () => pointed(null, null));
    const pointAtCentre = () => { if (element.matches(":focus-visible")) this._pointAtCentre(pointed); }; // by keys only
    element.addEventListener("focus", pointAtCentre);
    this.map.on("moveend", pointAtCentre);
    element.setAttribute("aria-label", "Map; arrow keys move it, plus and minus zoom, the value is that at the centre");
    this.fit();
  }

  /** Later answers to requests for tiles are dropped. */
  remove() {
    clearTimeout(this.refreshing);
    this.stale.clear();
    this.map.remove();
    this.tiles.clear();
  }

  _pointAtCentre(pointed) {
    const centre = this.map.getCenter();
    pointed(centre.lng, centre.lat, true);
  }

  /** Whether the extent has grown so much that the axes need another scale. */
  get isOutOfShape() {
    return Math.abs(Math.log10(aspectOf(this.summary) / this.aspect)) >= 1;
  }

  /** Show the whole extent, unless the user has moved the map. */
  fit() {
    if (!this.summary.plane || !this.isFollowing) return;
    const [west, south, east, north] = this._ground();
    const bounds = L().latLngBounds([south, west], [north, east]);
    if (!this.bounds || !this.bounds.contains(bounds)) {
      this.bounds = bounds.pad(0.12);
      this.map.fitBounds(this.bounds, { animate: false });
    }
  }

  _gridLayer() {
    const surface = this;
    const Layer = L().GridLayer.extend({
      createTile(coords, done) {
        const canvas = document.createElement("canvas");
        canvas.width = canvas.height = NODES - 1;
        const tile = { canvas, coords, planes: null, path: "", etag: "" };
        surface.tiles.set(canvas, tile);
        surface.fetch(tile, COARSE).catch(() => {}).then(() => {
          done(null, canvas);
          surface.refineSoon(tile);
        });
        return canvas;
      },
    });
    const layer = new Layer({ tileSize: 256, keepBuffer: 1, updateWhenZooming: false, minZoom: -40, maxZoom: 40 });
    layer.on("tileunload", ({ tile }) => this.tiles.delete(tile));
    return layer;
  }

  /** A bar of a round length: metres if the inputs are degrees, or else in the unit of the first input's name. */
  _scaleBar() {
    const inMetres = areDegrees(this.summary);
    const metres = METRES_OF_DEGREE * this.aspect; // of a degree of longitude; the aspect is the cosine of the latitude
    const unit = unitsOf(this.summary)[0] ?? "";
    const Bar = L().Control.Scale.extend({
      _updateMetric(longest) {
        const most = inMetres ? longest * metres : longest;
        const power = 10 ** Math.floor(Math.log10(most));
        const length = power * [5, 2, 1].find((factor) => factor * power <= most * (1 + 1e-9));
        const isLong = inMetres && length >= 1000;
        const label = `${Number((isLong ? length / 1000 : length).toPrecision(1))} ${isLong ? "km" : inMetres ? "m" : unit}`;
        this._updateScale(this._mScale, "", length / most);
        this._mScale.textContent = label.trim(); // a name is no HTML
      },
    });
    return new Bar({ imperial: false, maxWidth: 120 });
  }

  _path({ x, y, z }, size) {
    const query = new URLSearchParams({ size, aspect: this.aspect });
    for (const [name, value] of Object.entries(this.at)) query.append("at", `${name}=${value}`);
    return mapPath(this.summary.name, `/tiles/all/${z}/${x}/${y}?${query}`);
  }

  /** Fetch the numbers of a tile. Answers for another slice, and coarse ones that come late, are dropped. */
  async fetch(tile, size = NODES) {
    const path = this._path(tile.coords, size);
    const headers = tile.path === path ? { "If-None-Match": tile.etag } : {};
    const response = await request(path, { headers, cache: "no-store" });
    if (response.status === 408 || response.status >= 500) throw new Error(`status ${response.status}`);
    if (response.status !== 200) return;
    const planes = new Float32Array(await response.arrayBuffer());
    if (path !== this._path(tile.coords, size) || (size === COARSE && tile.planes)) return;
    Object.assign(tile, { path, etag: response.headers.get("ETag"), planes: size === NODES ? planes : refined(planes) });
    tile.canvas.dataset.nodes = size;
    this.drawSoon();
  }

  /** Fetch all nodes of coarse tiles a little later, one after the other. */
  refineSoon(tile) {
    this.coarse.push(tile);
    this.refining ??= setTimeout(async () => {
      while (this.coarse.length) await this._update(this.coarse.shift());
      this.refining = null;
    }, 300);
  }

  /** Fetch a tile that is still shown; if that fails, again later. Whether it has not failed. */
  async _update(tile) {
    try {
      if (this.tiles.has(tile.canvas)) await this.fetch(tile);
      return true;
    } catch {
      this.stale.add(tile);
      this._refreshAfter(PAUSE.failure);
      return false;
    }
  }

  /** Fetch the tiles again that touch one of the boxes, all of them without boxes. */
  changed(boxes) {
    this.fit();
    for (const tile of this.tiles.values()) {
      const [west, south, east, north] = this._edges(tile.coords);
      const touches = ([low, high]) => low[0] <= east && high[0] >= west && low[1] <= north && high[1] >= south;
      if (!boxes || boxes.some(touches)) this.stale.add(tile);
    }
    this._refreshAfter(PAUSE.change);
  }

  _refreshAfter(pause) {
    this.refreshing ??= setTimeout(async () => {
      const tiles = [...this.stale];
      this.stale.clear();
      const areFetched = await Promise.all(tiles.map((tile) => this._update(tile)));
      this.refreshing = null;
      if (this.stale.size) this._refreshAfter(areFetched.every(Boolean) ? PAUSE.change : PAUSE.failure);
    }, pause);
  }

  _edges({ x, y, z }) {
    const width = 256 * 2 ** -z;
    return [x * width, -(y + 1) * width * this.aspect, (x + 1) * width, -y * width * this.aspect];
  }

  show(layer) {
    this.layer = layer;
    this.drawSoon();
  }

  setSlice(at) {
    this.at = at;
    this.changed(null);
  }

  drawSoon() {
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      this._draw();
    });
  }

  _draw() {
    const tiles = [...this.tiles.values()].filter((tile) => tile.planes);
    if (!tiles.length) return;
    const { low, high } = this._range(tiles);
    if (this.layer === "model") tiles.forEach((tile) => this.colours.note(plane(tile, MODEL), NODES));
    const back = getComputedStyle(this.map.getContainer()).backgroundColor.match(/[\d.]+/g).map(Number);
    for (const tile of tiles) {
      const isInside = insideOf(this._edges(tile.coords), this._ground());
      drawTile(tile, { layer: this.layer, low, high, back, isInside, colours: this.colours });
    }
    this._drawLegend(low, high);
  }

  /** The ground that is drawn: the extent of the rows and a little more; no narrower than a strip. */
  _ground() {
    const [[west, east], [south, north]] = this.summary.plane;
    const [width, height] = [east - west, (north - south) / this.aspect];
    const least = NARROWEST * Math.max(width, height);
    const [dx, dy] = [width, height].map((side) => Math.max(0.015 * side, (least - side) / 2));
    return [west - dx, south - dy * this.aspect, east + dx, north + dy * this.aspect];
  }

  /** The range of the colours: that of the known ground. It changes only if it must, so that colours do not flicker. */
  _range(tiles) {
    const known = this.range?.layer === this.layer ? this.range : null;
    const seen = this._seenRange(tiles, KNOWN[this.layer], 3) ?? this._seenRange(tiles, Infinity, 1);
    if (!seen) return known ?? { low: NaN, high: NaN };
    const [low, high] = seen;
    const width = high - low;
    const isFitting = known && low >= known.low - 0.02 * width && high <= known.high + 0.02 * width
      && width > 0.8 * (known.high - known.low);
    if (!isFitting) this.range = { layer: this.layer, low, high };
    return this.range;
  }

  /** The range of the layer where rows have reduced the uncertainty below a limit, at every few nodes; null if that is nowhere. */
  _seenRange(tiles, limit, step) {
    const seen = [];
    for (const tile of tiles) {
      const [values, latent, prior] = [this.layer === "std" ? STD : MEAN, LATENT, PRIOR].map((number) => plane(tile, number));
      const isInside = insideOf(this._edges(tile.coords), this._ground());
      for (let i = 0; i < values.length; i += step) {
        if (isInside(i) && latent[i] < limit * prior[i]) seen.push(values[i]);
      }
    }
    if (!seen.length) return null;
    seen.sort((a, b) => a - b);
    const [low, high] = [seen[0], seen[Math.floor((this.layer === "std" ? HIGHEST : 1) * (seen.length - 1))]];
    const margin = low < high ? 0 : Math.max(1, 1e-3 * Math.abs(low));
    return [low - margin, high + margin];
  }

  _drawLegend(low, high) {
    const { legend, layer, summary } = this;
    legend.hidden = layer === "model";
    legend.querySelector("figcaption").textContent = layer === "std" ? `standard deviation of ${summary.target}` : summary.target;
    const canvas = legend.querySelector("canvas");
    const context = canvas.getContext("2d");
    (TABLES[layer] ?? TABLES.mean).forEach((colour, index) => {
      context.fillStyle = `rgb(${colour.map(Math.round).join(" ")})`;
      context.fillRect(index, 0, 1, 1);
    });
    const labels = [low, (low + high) / 2, high].map((value) => digits(value, layer === "std" ? 3 : 4));
    if (layer === "std") labels[2] = `≥ ${labels[2]}`;
    legend.querySelectorAll("span").forEach((span, index) => { span.textContent = labels[index]; });
  }

  /** The track: places on the two axes. */
  setTrack(points) {
    this.points = [];
    this.addTrack(points);
  }

  addTrack(points) {
    this.points = [...this.points, ...points].slice(-2000);
    if (!this.points.length) return;
    this.track.setLatLngs(this._pieces().map((piece) => piece.map(([x, y]) => [y, x])));
    this.boat.setLatLng([...this.points.at(-1)].reverse());
  }

  /** The track in pieces: a jump is no line. A place alone is drawn as a point. */
  _pieces() {
    const [west, south, east, north] = this._ground();
    const farthest = 0.2 * Math.max(east - west, (north - south) / this.aspect);
    const pieces = [];
    this.points.forEach(([x, y], index) => {
      const [u, v] = this.points[index - 1] ?? [Infinity, Infinity];
      if (Math.hypot(x - u, (y - v) / this.aspect) > farthest) pieces.push([[x, y]]);
      pieces.at(-1).push([x, y]);
    });
    return pieces;
  }

  /** Places to measure next, the best first; each with its number. */
  setNext(places) {
    this.next?.remove();
    const icon = (number) => L().divIcon({ className: "next", html: String(number), iconSize: [22, 22] });
    const markers = places.map(([x, y], index) => L().marker([y, x], { icon: icon(index + 1), interactive: false, keyboard: false }));
    this.next = L().layerGroup(markers).addTo(this.map);
  }

  showTrack(isShown) {
    for (const layer of [this.track, this.boat]) {
      if (isShown && this.points.length) layer.addTo(this.map);
      else layer.remove();
    }
  }
}

const namesOf = ({ columns, inputs }) => columns.map((column) => inputs[column]);

/** The units that stand in the names of the inputs, in brackets. */
const unitsOf = (summary) => namesOf(summary).map((name) => /[[(](.*?)[\])]/.exec(name)?.[1]);

const [LONGITUDE, LATITUDE] = ["lon|lng|long|longitude", "lat|latitude"].map(
  (words) => new RegExp(`^(${words})(_?deg(rees)?|_?dd)?(?![a-z])`, "i"));

function areDegrees(summary) {
  const names = namesOf(summary);
  return Boolean(summary.plane) && LONGITUDE.test(names[0]) && LATITUDE.test(names[1]);
}

/**
 * Units of the second axis as long as one of the first. Inputs of the same unit are drawn to scale, unless one extent is so
 * short that it would be less than a pixel: that is the jitter of a survey line, beside which the map knows nothing.
 */
function aspectOf(summary) {
  const [width, height] = summary.plane.map(([low, high]) => (high - low > ROUNDING * Math.abs(low + high) ? high - low : 0));
  const scale = scaleOf(summary);
  const ratio = height / width / (scale ?? 1);
  const [most, longer] = scale ? [1000, 1 / NARROWEST] : [50, 1];
  if (!width || !height || Math.max(ratio, 1 / ratio) < most) return scale ?? 1;
  const shown = ratio > 1 ? longer : 1 / longer;
  return (scale ?? 1) * Number((ratio / shown).toPrecision(1));
}

/** The same of inputs that can be drawn to scale: one, or a cosine of the latitude; null for others. */
function scaleOf(summary) {
  if (areDegrees(summary)) {
    const [south, north] = summary.plane[1];
    return Number(Math.max(0.01, Math.cos(((south + north) * Math.PI) / 360)).toFixed(2));
  }
  const units = unitsOf(summary);
  const arePlaces = namesOf(summary).every((name) => /^(x|y|lon|long|lng|longitude|lat|latitude|east|easting|north|northing)\b/i.test(name));
  return arePlaces || (units[0] && units[0] === units[1]) ? 1 : null;
}

function plane(tile, number) {
  const size = NODES * NODES;
  return tile.planes.subarray(number * size, (number + 1) * size);
}

/** Planes of a coarse tile with all nodes: those between are the mean of their neighbours, or of the same model. */
function refined(planes) {
  const [half, fine] = [COARSE * COARSE, NODES * NODES];
  const values = new Float32Array(N_PLANES * fine);
  for (let number = 0; number < N_PLANES; number++) {
    for (let i = 0; i < fine; i++) {
      const [row, column] = [Math.floor(i / NODES), i % NODES];
      const [low, left] = [row >> 1, column >> 1];
      const [high, right] = number === MODEL || number === PRIOR ? [low, left] : [(row + 1) >> 1, (column + 1) >> 1];
      const at = (r, c) => planes[number * half + r * COARSE + c];
      values[number * fine + i] = (at(low, left) + at(low, right) + at(high, left) + at(high, right)) / 4;
    }
  }
  return values;
}

/** Whether node i of a tile lies on the ground. */
function insideOf(edges, ground) {
  const [width, height] = [(edges[2] - edges[0]) / (NODES - 1), (edges[3] - edges[1]) / (NODES - 1)];
  return (i) => {
    const [x, y] = [edges[0] + (i % NODES) * width, edges[3] - Math.floor(i / NODES) * height];
    return x >= ground[0] && x <= ground[2] && y >= ground[1] && y <= ground[3];
  };
}

/**
 * Draw a tile: its nodes are pixels of a small picture, which is stretched so that edge nodes lie on the edges. Ground of which
 * little is known has a colour near that of the back, and is opaque: tiles overlap, and a line would show between them.
 */
function drawTile(tile, { layer, low, high, back, isInside, colours }) {
  const [values, latent, owners, prior] = [layer === "std" ? STD : MEAN, LATENT, MODEL, PRIOR].map((number) => plane(tile, number));
  const image = new ImageData(NODES, NODES);
  const table = TABLES[layer] ?? TABLES.mean;
  for (let i = 0; i < values.length; i++) {
    if (!isInside(i)) continue; // transparent
    const share = Math.max(0, Math.min(1, (values[i] - low) / (high - low)));
    const colour = layer === "model" ? colours.of(owners[i]) : table[Math.round(255 * share)];
    const excess = (latent[i] / prior[i] - KNOWN[layer]) / FADING;
    const strength = 1 - (1 - PALEST) * Math.max(0, Math.min(1, excess));
    image.data.set([...colour.map((value, channel) => back[channel] + strength * (value - back[channel])), 255], 4 * i);
  }
  const { canvas } = tile;
  canvas.style.imageRendering = layer === "model" ? "pixelated" : "auto";
  const side = layer === "model" ? NODES - 1 : 256;
  if (canvas.width !== side) canvas.width = canvas.height = side;
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = layer !== "model";
  context.clearRect(0, 0, side, side);
  context.drawImage(small, 0.5, 0.5, NODES - 1, NODES - 1, 0, 0, side, side);
}

const small = document.createElement("canvas");
small.width = small.height = NODES;
