// Colour maps of matplotlib (CC0), as a few colours to interpolate between; and colours of models.

const STOPS = {
  mean: ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"],
  std: ["#fcfdbf", "#feca8d", "#fd9668", "#f1605d", "#cd4071", "#9e2f7f", "#721f81", "#440f76"],
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

// Of models: ten colours of Tableau, each unlike all others.
const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f", "#ff9da7", "#bab0ac"].map(parsed);

/** Colours of models: each gets the first one that none of its neighbours has, and keeps it as long as none does. */
export class ModelColours {
  neighbours = new Map(); // numbers of models by number
  chosen = new Map(); // numbers of colours by number

  /** Note which models are neighbours in a square of their numbers. */
  note(owners, side) {
    for (let i = 0; i < owners.length; i++) {
      if ((i + 1) % side && owners[i] !== owners[i + 1]) this._meet(owners[i], owners[i + 1]);
      if (i + side < owners.length && owners[i] !== owners[i + side]) this._meet(owners[i], owners[i + side]);
    }
  }

  _meet(first, second) {
    if (this.neighbours.get(first)?.has(second)) return;
    for (const [one, other] of [[first, second], [second, first]]) {
      if (!this.neighbours.has(one)) this.neighbours.set(one, new Set());
      this.neighbours.get(one).add(other);
    }
    if (this.chosen.get(first) === this.chosen.get(second)) this.chosen.delete(Math.max(first, second));
  }

  of(number) {
    if (!this.chosen.has(number)) {
      const taken = new Set([...(this.neighbours.get(number) ?? [])].map((other) => this.chosen.get(other)));
      const free = PALETTE.findIndex((_, index) => !taken.has(index));
      this.chosen.set(number, free < 0 ? number % PALETTE.length : free);
    }
    return PALETTE[this.chosen.get(number)];
  }
}

/** Four significant digits, without an exponent where one can do without. */
export function digits(value, count = 4) {
  if (!Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(count - 1);
  return value.toFixed(Math.max(0, Math.min(6, count - 1 - Math.floor(Math.log10(size || 1)))));
}
