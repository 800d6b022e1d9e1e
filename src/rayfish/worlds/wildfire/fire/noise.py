"""Simplex noise for landscapes, number for number that of the C package `noise` (its `snoise2`).

The method is Ken Perlin's with his table of permutations, as Stefan Gustavson wrote it down in "Simplex
noise demystified" (2005). SimFire takes its noise from that package, in 32-bit arithmetic; every step
here is rounded in the same place, so that a seed gives the same hills.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_PERIOD = 256
_EXACT = 4096
"""Largest offset that leaves 32-bit positions finer than a two-thousandth of a noise unit."""

# fmt: off
_PERMUTATION = np.array([
    151, 160, 137, 91, 90, 15, 131, 13, 201, 95, 96, 53, 194, 233, 7, 225, 140, 36, 103, 30, 69, 142, 8,
    99, 37, 240, 21, 10, 23, 190, 6, 148, 247, 120, 234, 75, 0, 26, 197, 62, 94, 252, 219, 203, 117, 35,
    11, 32, 57, 177, 33, 88, 237, 149, 56, 87, 174, 20, 125, 136, 171, 168, 68, 175, 74, 165, 71, 134,
    139, 48, 27, 166, 77, 146, 158, 231, 83, 111, 229, 122, 60, 211, 133, 230, 220, 105, 92, 41, 55, 46,
    245, 40, 244, 102, 143, 54, 65, 25, 63, 161, 1, 216, 80, 73, 209, 76, 132, 187, 208, 89, 18, 169, 200,
    196, 135, 130, 116, 188, 159, 86, 164, 100, 109, 198, 173, 186, 3, 64, 52, 217, 226, 250, 124, 123, 5,
    202, 38, 147, 118, 126, 255, 82, 85, 212, 207, 206, 59, 227, 47, 16, 58, 17, 182, 189, 28, 42, 223,
    183, 170, 213, 119, 248, 152, 2, 44, 154, 163, 70, 221, 153, 101, 155, 167, 43, 172, 9, 129, 22, 39,
    253, 19, 98, 108, 110, 79, 113, 224, 232, 178, 185, 112, 104, 218, 246, 97, 228, 251, 34, 242, 193,
    238, 210, 144, 12, 191, 179, 162, 241, 81, 51, 145, 235, 249, 14, 239, 107, 49, 192, 214, 31, 181,
    199, 106, 157, 184, 84, 204, 176, 115, 121, 50, 45, 127, 4, 150, 254, 138, 236, 205, 93, 222, 114, 67,
    29, 24, 72, 243, 141, 128, 195, 78, 66, 215, 61, 156, 180], dtype=np.int64)
# fmt: on
_PERM = np.concatenate([_PERMUTATION, _PERMUTATION])

_GRAD_X = np.array([1, -1, 1, -1, 1, -1, 1, -1, 0, 0, 0, 0], dtype=np.float32)
_GRAD_Y = np.array([1, 1, -1, -1, 0, 0, 0, 0, 1, -1, 1, -1], dtype=np.float32)

_SKEW = np.float32(0.3660254037844386)  # (sqrt(3) - 1) / 2
_UNSKEW = np.float32(0.21132486540518713)  # (3 - sqrt(3)) / 6
_ZERO, _HALF, _ONE, _TWO, _SIZE = (np.float32(value) for value in (0.0, 0.5, 1.0, 2.0, 70.0))


@njit(cache=True)
def _corner(x: np.float32, y: np.float32, gradient: int) -> np.float32:
    """What one corner of the simplex adds at (x, y) from it."""
    fall = _HALF - x * x - y * y
    if fall <= _ZERO:
        return _ZERO
    return fall * fall * fall * fall * (_GRAD_X[gradient] * x + _GRAD_Y[gradient] * y)


@njit(cache=True)
def _simplex(x: np.float32, y: np.float32) -> np.float32:
    """Noise in [-1, 1] at one point."""
    skew = (x + y) * _SKEW
    i = np.float32(np.floor(x + skew))
    j = np.float32(np.floor(y + skew))
    unskew = (i + j) * _UNSKEW
    x0, y0 = x - (i - unskew), y - (j - unskew)
    across, down = (1, 0) if x0 > y0 else (0, 1)
    x1, y1 = x0 - np.float32(across) + _UNSKEW, y0 - np.float32(down) + _UNSKEW
    x2, y2 = x0 + _UNSKEW * _TWO - _ONE, y0 + _UNSKEW * _TWO - _ONE
    column, row = int(i) & 255, int(j) & 255
    near = _corner(x0, y0, _PERM[column + _PERM[row]] % 12)
    side = _corner(x1, y1, _PERM[column + across + _PERM[row + down]] % 12)
    far = _corner(x2, y2, _PERM[column + 1 + _PERM[row + 1]] % 12)
    return (near + side + far) * _SIZE


@njit(cache=True)
def _fractal(x: np.float32, y: np.float32, octaves: int, shape: NDArray[np.float32]) -> np.float32:
    """Noise of several octaves at one point, over the sum of their weights."""
    persistence, lacunarity, offset_x, offset_y = shape[0], shape[1], shape[2], shape[3]
    frequency, weight, weights = _ONE, _ONE, _ONE
    total = _simplex(x + offset_x, y + offset_y)
    for _ in range(1, octaves):
        frequency = frequency * lacunarity
        weight = weight * persistence
        weights = weights + weight
        total = total + _simplex(x * frequency + offset_x, y * frequency + offset_y) * weight
    return total / weights


@njit(cache=True)
def _fill(
    out: NDArray[np.float64],
    xs: NDArray[np.float32],
    ys: NDArray[np.float32],
    octaves: int,
    shape: NDArray[np.float32],
) -> None:
    for row in range(ys.size):
        for column in range(xs.size):
            out[row, column] = _fractal(xs[column], ys[row], octaves, shape)


def grid(
    shape: tuple[int, int],
    *,
    scale: float = 1.0,
    octaves: int = 1,
    persistence: float = 0.5,
    lacunarity: float = 2.0,
    offset: tuple[float, float] = (0.0, 0.0),
) -> NDArray[np.float64]:
    """Noise in about [-1, 1] for every cell of a map, [rows, columns].

    :param shape: rows and columns
    :param scale: cells per unit of noise: hills are about this wide; at 1 the map is white noise
    :param octaves: layers of finer and finer detail
    :param persistence: weight of each octave, in weights of the one before
    :param lacunarity: fineness of each octave, in that of the one before
    :param offset: where the map lies on the endless noise, (x, y); see `offset_of`
    """
    out = np.empty(shape, dtype=np.float64)
    xs = (np.arange(shape[1]) / scale).astype(np.float32)
    ys = (np.arange(shape[0]) / scale).astype(np.float32)
    _fill(out, xs, ys, octaves, np.array([persistence, lacunarity, *offset], dtype=np.float32))
    return out


def offset_of(seed: int) -> tuple[float, float]:
    """Where the map of `seed` lies: as with `snoise2(..., base=seed)`, while 32-bit numbers can tell cells
    apart there; beyond that at a place drawn from the seed.
    """
    if abs(seed) <= _EXACT:
        return float(seed), float(seed)
    return random_offset(np.random.default_rng(abs(seed)))


def random_offset(rng: np.random.Generator) -> tuple[float, float]:
    """A place on the endless noise, which repeats itself after a few hundred units."""
    x, y = rng.uniform(0, 2 * _PERIOD, size=2)
    return float(x), float(y)
