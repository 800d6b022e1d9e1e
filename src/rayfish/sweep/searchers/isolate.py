"""Other people's libraries, kept from changing this program's random numbers and from talking in between."""

from __future__ import annotations

import io
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np


@contextmanager
def isolated(*seed: Any) -> Iterator[None]:
    """Python's and NumPy's global random numbers set from `seed`, and as they were again afterwards.

    Log lines below an error, warnings and what is printed are left out meanwhile.
    """
    words, numbers, disabled = random.getstate(), np.random.get_state(), logging.root.manager.disable
    random.seed(" ".join(str(part) for part in seed))
    np.random.seed(random.getrandbits(32))
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(words)
        np.random.set_state(numbers)
        logging.disable(disabled)
