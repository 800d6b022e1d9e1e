"""Private names of Gymnasium, OmegaConf and Optuna; each says what breaks without it."""

from __future__ import annotations

from typing import Any


def omegaconf_loader() -> Any:
    """OmegaConf's YAML loader. Without it `1e-3` is a text and a key that is written twice is no error."""
    from omegaconf._utils import get_yaml_loader

    return get_yaml_loader()


def async_worker() -> Any:
    """The loop of a process of Gymnasium's `AsyncVectorEnv`.

    Its public `worker` argument replaces all of it. Without it the processes' protocol is written again.
    """
    from gymnasium.vector.async_vector_env import _async_worker

    return _async_worker


def cached_spec(wrapper: Any) -> Any:
    """The spec that a Gymnasium wrapper keeps; see `set_cached_spec`."""
    return wrapper._cached_spec


def set_cached_spec(wrapper: Any, spec: Any) -> None:
    """Without it, a saved environment holds the function that made it, with all that it refers to."""
    wrapper._cached_spec = spec


def atari_settings(game: Any) -> tuple[str, Any]:
    """(obs_type, frameskip) of an Atari game. Without it frames are skipped twice, by game and wrapper."""
    return game._obs_type, game._frameskip


def seed_sampler(sampler: Any, seed: list[int]) -> None:
    """Seeds the random generators of an Optuna sampler and forgets its last fit.

    Optuna's `reseed_rng` takes no seed. Without this, a resumed search proposes other points.
    """
    if hasattr(sampler, "_gprs_cache_list"):
        sampler._gprs_cache_list = None  # a resumed search would not have it
    for name in ("_rng", "_cma_rng"):
        if hasattr(sampler, name):
            getattr(sampler, name).rng.seed(seed)
    for name in ("_random_sampler", "_independent_sampler"):
        inner: Any = getattr(sampler, name, None)
        if hasattr(inner, "_rng"):
            inner._rng.rng.seed([*seed, 1])
