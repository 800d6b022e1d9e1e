"""`gym.utils.seeding` as it was: a generator that has the methods of NumPy's older one too."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


class RandomNumberGenerator(np.random.Generator):
    """NumPy's generator, with what environments for gym 0.21 and before call on it."""

    def rand(self, *size: int) -> Any:
        """Uniform in [0, 1)."""
        return self.random(size or None)

    random_sample = np.random.Generator.random

    def randn(self, *size: int) -> Any:
        """Normal."""
        return self.standard_normal(size or None)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        """Whole numbers below `high`."""
        return self.integers(low, high, size=size, dtype=dtype)

    random_integers = randint

    def __reduce__(self) -> tuple[Any, ...]:
        """As itself; NumPy's own way would come back as a plain Generator."""
        return RandomNumberGenerator, (self.bit_generator,)


RNG = RandomNumberGenerator


def np_random(seed: int | None = None) -> tuple[RandomNumberGenerator, int]:
    """A generator and the seed it has."""
    sequence: Any = np.random.SeedSequence(seed)
    return RandomNumberGenerator(np.random.PCG64(sequence)), int(sequence.entropy) % 2**64


def create_seed(a: Any = None, max_bytes: int = 8) -> int:
    """A whole number out of anything."""
    return hash_seed(a, max_bytes)


def hash_seed(seed: Any = None, max_bytes: int = 8) -> int:
    """A whole number that has nothing to do with its neighbours' any more."""
    given = np.random.SeedSequence().entropy if seed is None else seed
    return int.from_bytes(hashlib.sha512(str(given).encode()).digest()[:max_bytes], "little")
