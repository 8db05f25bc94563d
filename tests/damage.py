"""Ways to damage a saved map: what a bad disk, a broken transfer or a curious person does to it."""

import json

import numpy as np

from wgpr.io import container


def flipped_bit(data, rng):
    damaged = bytearray(data)
    damaged[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(damaged)


def truncated(data, rng):
    return data[: rng.integers(len(data))]


def extended(data, rng):
    return data + rng.bytes(rng.integers(1, 100))


def overwritten(data, rng):
    """A block of the file is garbage."""
    start = rng.integers(len(data))
    block = rng.bytes(rng.integers(1, 512))
    return data[:start] + block + data[start + len(block) :]


def edited_text(data, rng):
    """A character of the head is another one; lengths and check sum stay as they are."""
    n_head = int.from_bytes(data[:8], "little")
    damaged = bytearray(data)
    damaged[8 + rng.integers(n_head)] = rng.choice(list(b'0123456789{}[]",:eE-.aZ '))
    return bytes(damaged)


def forged_header(data, rng):
    """Somebody edits one value of the header and makes the check sum right again."""
    contents = container.decode(data)
    header = json.loads(json.dumps(contents.header))
    _spoil(header, rng)
    return container.encode(contents._replace(header=header))


def forged_array(data, rng):
    """Somebody edits, cuts, reshapes or drops an array and makes the check sum right again."""
    contents = container.decode(data)
    arrays = {name: array.copy() for name, array in contents.arrays.items()}
    name = rng.choice(sorted(arrays))
    arrays[name] = _spoiled_array(arrays[name], rng)
    if rng.random() < 0.1:
        del arrays[name]
    return container.encode(contents._replace(arrays=arrays))


IN_TRANSIT = [flipped_bit, truncated, extended, overwritten, edited_text]
FORGED = [forged_header, forged_array]

_VALUES = [None, True, -1, 0, 2**40, 10**30, 1e308, -0.5, "", "WGPRegressor", "\x00", [], [1], {}, {"array": ["x"]},
           {"number": "inf"}, {"object": "Units"}, {"object": "eval"}, {"array": [[1.0], [2.0, 3.0]]}]  # fmt: skip


def _spoil(table, rng):
    name = rng.choice(sorted(table))
    if isinstance(table[name], dict) and table[name] and rng.random() < 0.7:
        _spoil(table[name], rng)
    elif rng.random() < 0.15:
        del table[name]
    else:
        table[name] = _VALUES[rng.integers(len(_VALUES))]


def _spoiled_array(array, rng):
    kind = rng.integers(5)
    if kind == 0 and array.size:
        array.flat[rng.integers(array.size)] = rng.choice([0, -1, 2**31 - 1, 10**6])
    elif kind == 1 and array.dtype == np.float64 and array.size:
        array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, 1e300, -1e-300])
    elif kind == 2:
        return array[: len(array) // 2]
    elif kind == 3:
        return np.concatenate([array, array])
    else:
        return array.reshape(-1, 1) if array.ndim == 1 else array.ravel()
    return array
