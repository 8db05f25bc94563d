// Colour maps of matplotlib (CC0), as a few colours to interpolate between; and colours of models.

const STOPS = {
  mean: ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"],
  std: ["#fcfdbf", "#feca8d", "#fd9668", "#f1605d", "#cd4071", "#9e2f7f", "#721f81", "#440f76", "#180f3d", "#000004"],
};

function parsed(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

function table(stops) {
  const colours = stops.map(parsed);
  return Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (colours.length - 1);
    const first = Math.min(Math.floor(place), colours.length - 2);
    return colours[first].map((value, channel) => value + (place - first) * (colours[first + 1][channel] - value));
  });
}

export const TABLES = { mean: table(STOPS.mean), std: table(STOPS.std) };

/** A colour for the number of a model; neighbouring numbers get different ones. */
export function modelColour(number) {
  const hue = (number * 137.508) % 360;
  const [chroma, light] = [0.35, 0.5 + 0.14 * (number % 3)];
  return [0, 120, 240].map((shift) => 255 * (light + chroma * 0.5 * Math.cos(((hue - shift) * Math.PI) / 180)));
}

/** Four significant digits, without an exponent where one can do without. */
export function digits(value, count = 4) {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(count - 1);
  return value.toFixed(Math.max(0, Math.min(6, count - 1 - Math.floor(Math.log10(size || 1)))));
}
