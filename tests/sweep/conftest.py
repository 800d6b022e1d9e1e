"""Sweeps in tests: small, in a scratch folder, on the session's Ray."""

from __future__ import annotations

import pytest


@pytest.fixture
def tune(ray_session, workdir):
    """`rayfish.tune` with plain output, in a fresh folder."""
    import rayfish

    def call(*arguments, **settings):
        return rayfish.tune(*arguments, **{"plain": True, **settings})

    return call
