// The page: the list of maps, the map that is shown, and what happens in it.

import { Chart } from "./charts.js";
import { digits } from "./colours.js";
import { Line } from "./line.js";
import { getJson, listen, mapPath, request } from "./service.js";
import { Surface } from "./surface.js";

const element = (id) => document.getElementById(id);
const state = { name: null, opening: null, summary: null, view: null, at: {}, forecasts: null, rates: [] };
let errors, rates;

function describe(summary) {
  const { inputs, target } = summary.definition;
  const columns = summary.axes?.map((name) => inputs.indexOf(name)); // of the axes of the view, west to east first
  const extents = summary.extent && inputs.map((name) => summary.extent[name]);
  return { ...summary, inputs, target, columns, extents, plane: extents && columns.map((column) => extents[column]) };
}

async function showMaps() {
  const maps = await getJson("maps");
  if (!maps) return;
  const select = element("maps");
  if (!maps.length) closeView();
  select.replaceChildren(...maps.map(({ name }) => new Option(name, name, false, name === state.name)));
  select.disabled = !maps.length;
  if (!maps.length) message("There is no map yet.\nMake one with PUT /maps/NAME, or wgpr stream --to.");
  const wanted = state.opening ?? decodeURIComponent(location.hash.slice(1));
  if (!state.name && maps.length) await open(maps.some(({ name }) => name === wanted) ? wanted : maps[0].name);
}

function closeView() {
  state.view?.remove();
  state.view = null;
  pointing = null;
  element("legend").hidden = true;
}

async function open(name) {
  state.opening = name;
  const summary = await getJson(mapPath(name));
  if (!summary || state.opening !== name) return; // another one was opened since
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  document.title = `${name} - WGPR`;
  element("maps").value = name;
  Object.assign(state, { name, summary: describe(summary), forecasts: null, at: {}, rates: [] });
  closeView();
  errors.clear();
  rates.clear();
  element("value").textContent = "move the pointer over the map";
  element("rate").textContent = "0";
  element("decisions").replaceChildren(...summary.decisions.map(({ text }) => listItem(text)));
  showNumbers(summary);
  await showView();
}

async function showView() {
  const { summary } = state;
  const isLine = summary.inputs.length === 1;
  element("surface").hidden = isLine;
  element("line").hidden = !isLine;
  element("layers").hidden = isLine;
  element("legend").hidden = true;
  showGain("");
  if (!summary.extents || summary.extents.every(([low, high]) => low === high)) {
    message(`${summary.name} has learned nothing yet.\nIt appears here as rows come in.`);
    return;
  }
  message("");
  showSliders();
  state.view = isLine
    ? new Line(element("line"), summary, (x) => point(x === null ? null : [x]))
    : new Surface(element("surface"), element("legend"), summary, state.at, (x, y, isCentre) => point(x === null ? null : [x, y], isCentre));
  state.view.show(document.querySelector("input[name=layer]:checked").value);
  await readTrack();
  askNextSoon();
}

let arrived = []; // rows of events since the track was asked for

async function readTrack() {
  const { view, summary } = state;
  arrived = [];
  const rows = await getJson(mapPath(summary.name, "/track"));
  if (!rows || !view || view !== state.view) return;
  const last = JSON.stringify(rows.at(-1));
  const later = arrived.slice(arrived.findLastIndex((row) => JSON.stringify(row) === last) + 1);
  view.setTrack([...rows, ...later].map(onPlane));
  view.showTrack(element("track").checked);
}

let reading = null;

/** Read the track anew a little later: an event has only a few of many rows. */
function readTrackSoon() {
  reading ??= setTimeout(() => {
    reading = null;
    readTrack();
  }, 1000);
}

/** A row as the view takes it: inputs of the axes, or input and target of a line. */
function onPlane(row) {
  return state.summary.inputs.length === 1 ? row.slice(0, 2) : state.summary.columns.map((column) => row[column]);
}

function showSliders() {
  const { inputs, extents, columns } = state.summary;
  const others = inputs.map((name, index) => [name, index]).filter(([, index]) => !columns.includes(index));
  const field = element("sliders");
  field.hidden = !others.length;
  field.querySelectorAll("label").forEach((label) => label.remove());
  state.at = {};
  for (const [name, index] of others) {
    const [low, high] = extents[index];
    const label = document.createElement("label");
    const [text, slider] = [document.createElement("span"), document.createElement("input")];
    Object.assign(slider, { type: "range", min: low, max: high, step: (high - low) / 100 || 1, value: (low + high) / 2 });
    const change = () => {
      state.at = { ...state.at, [name]: Number(slider.value) };
      text.textContent = `${name}: ${digits(state.at[name])}`;
      state.view?.setSlice(state.at);
      askNextSoon();
    };
    slider.addEventListener("input", change);
    label.append(text, slider);
    field.append(label);
    state.at[name] = Number(slider.value);
    text.textContent = `${name}: ${digits(state.at[name])}`;
  }
}

function message(text) {
  const place = element("message");
  place.hidden = !text;
  place.innerText = text;
}

function listItem(text) {
  const item = document.createElement("li");
  item.textContent = text;
  return item;
}

function showNumbers({ rows_seen, rows_learned, models, forecasts }) {
  const waiting = rows_seen - rows_learned;
  element("rows").textContent = rows_learned.toLocaleString("en") + (waiting > 1000 ? ` (+${waiting.toLocaleString("en")})` : "");
  element("models").textContent = models.toLocaleString("en");
  element("coverage").textContent = forecasts?.coverage == null ? "-" : `${(100 * forecasts.coverage).toFixed(1)} %`;
  showOffset(forecasts?.offset);
}

function showOffset(offset) {
  const { target } = state.summary;
  const amount = offset && `${digits(Math.abs(offset.amount), 3)} ${offset.amount > 0 ? "more" : "less"}`;
  element("offset").textContent = offset ? `after ${offset.n_rows.toLocaleString("en")} rows, ${target} is at least ${amount} than the map says where it knows the field` : "";
  element("offset").hidden = !offset;
}

// The value under the pointer

let [pointing, isAsking] = [null, false];

function point(place, isCentre = false) {
  element("where").textContent = isCentre ? "At the centre" : "Under the pointer";
  pointing = place;
  if (!isAsking) askValues();
}

/** Ask for the value at the latest place until it is known, one request at a time. */
async function askValues() {
  isAsking = true;
  for (let place = null; pointing && pointing !== place;) {
    place = pointing;
    await showValue(place).catch(() => {}); // the connection is lost
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  isAsking = false;
}

async function showValue(place) {
  const { inputs, columns, target, name } = state.summary;
  const asked = Object.fromEntries(Object.entries(state.at).map(([key, value]) => [key, [value]]));
  place.forEach((value, index) => { asked[inputs[columns[index]]] = [value]; });
  const response = await request(mapPath(name, "/predict"), {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked),
  });
  if (!response.ok) return;
  const answer = await response.json();
  if (state.name !== name) return;
  const output = element("value");
  const value = document.createElement("b");
  value.textContent = digits(answer.mean[0], 5);
  const places = Object.entries(asked).map(([key, [number]]) => `${key} ${digits(number, 5)}`).join(", ");
  output.replaceChildren(value, ` ± ${digits(1.959964 * answer.std[0], 3)}  ${target}\n`,
    `${digits(answer.lower[0])} to ${digits(answer.upper[0])} (95 %), model ${answer.model[0]}\n`, places);
  Object.assign(output.dataset, { mean: answer.mean[0], place: JSON.stringify(place) });
}

// Events

function receive(kind, event) {
  if (["hello", "reset", "made", "deleted"].includes(kind)) {
    if (kind === "reset" || event.map === state.name) state.name = null;
    showMaps();
  }
  if (event.map !== state.name || !state.summary) return;
  if (kind === "rows") {
    if (event.rows_seen - state.summary.rows_seen > event.points.length) readTrackSoon();
    state.summary.rows_seen = event.rows_seen;
    arrived = [...arrived, ...event.points].slice(-2000);
    state.view?.addTrack(event.points.map(onPlane));
    if (state.view && element("track").checked) state.view.showTrack(true);
    addRate(event.rows_seen);
  } else if (kind === "learned") {
    learned(event);
  } else if (kind === "decision") {
    const list = element("decisions");
    list.prepend(listItem(event.text));
    while (list.children.length > 12) list.lastChild.remove();
  }
}

function learned(event) {
  const { summary } = state;
  if (!summary.axes) { // these are its first rows
    if (state.opening === state.name) open(state.name);
    return;
  }
  const extent = Object.fromEntries(summary.inputs.map((name, index) => [name, event.extent[index]]));
  Object.assign(summary, describe({ ...summary, ...event, name: summary.name, extent }));
  showNumbers(summary);
  addError(event);
  if (state.view?.isOutOfShape) {
    closeView();
    showView();
  } else if (state.view) {
    state.view.changed(event.boxes?.map((box) => box.map((corner) => summary.columns.map((column) => corner[column]))) ?? null);
  } else showView();
  askNextSoon();
}

/** The error of the forecasts since the last event, from the scores of all of them. */
function addError({ rows_learned, forecasts }) {
  const before = state.forecasts;
  if (!forecasts) return;
  if (before && forecasts.rows < before.rows + 20) return;
  state.forecasts = forecasts;
  if (!before || forecasts.rows < before.rows) return;
  const squares = forecasts.rows * forecasts.rmse ** 2 - before.rows * before.rmse ** 2;
  errors.add(rows_learned, Math.sqrt(Math.max(0, squares) / (forecasts.rows - before.rows)));
}

/** Rows a second, over the last five seconds. */
function addRate(rows) {
  const now = performance.now() / 1000;
  state.rates = [...state.rates, [now, rows]].filter(([time]) => time > now - 5);
  const [[time, count]] = state.rates;
  if (now - time > 0.5) rates.add(rows, showRate((rows - count) / (now - time)));
}

function showRate(rate) {
  element("rate").textContent = rate > 0 && rate < 10 ? digits(rate, 2) : Math.round(rate).toLocaleString("en");
  return rate;
}

function showSilence() {
  const last = state.rates.at(-1);
  if (last && performance.now() / 1000 > last[0] + 3) {
    showRate(0);
    state.rates = [];
  }
}

// Where next: asked again while rows come in, with a pause after each answer

const PAUSE = 4000;
let [asking, wanted] = [false, 0]; // wanted : counts what makes another question necessary

function askNextSoon() {
  wanted += 1;
  if (!asking && element("next").checked && state.view?.setNext) askNext();
}

async function askNext() {
  const { view, name } = state;
  const asked = wanted;
  let isAnswered = false;
  asking = true;
  try {
    const query = new URLSearchParams(Object.entries(state.at).map(([key, value]) => ["at", `${key}=${value}`]));
    const response = await request(mapPath(name, `/next?${query}`));
    const answer = await response.json();
    isAnswered = response.status !== 429;
    if (isAnswered && view === state.view && element("next").checked) {
      if (response.ok) showNext(view, answer.wgpr);
      else showGain(answer.detail ?? "");
    }
  } catch { /* asked again after the pause */ }
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  asking = false;
  if (wanted !== asked || !isAnswered) askNextSoon();
}

function showNext(view, { points, std_before, std_after, target }) {
  view.setNext(points);
  showGain(`${points.length} measurements there are expected to reduce the uncertainty of ${target} from ${digits(std_before, 3)} to ${digits(std_after, 3)}`);
}

function showGain(text) {
  element("gain").textContent = text;
  element("gain").hidden = !text;
}

// Begin

start();

function start() {
  errors = new Chart(element("errors"), "error of forecasts (RMSE), by rows", "#0072b2");
  rates = new Chart(element("rates"), "rows a second, by rows", "#009e73");
  element("maps").addEventListener("change", ({ target }) => open(target.value));
  element("layers").addEventListener("change", ({ target }) => {
    if (target.id === "track") state.view?.showTrack(target.checked);
    else if (target.id === "next") {
      if (!target.checked) {
        showGain("");
        state.view?.setNext?.([]);
      }
      askNextSoon();
    }
    else state.view?.show(target.value);
  });
  setInterval(showSilence, 1000);
  listen(receive, (isConnected) => {
    element("status").textContent = isConnected ? "live" : "connection lost, trying again";
  });
}
