"""The flags of `rllib rollout` and `rllib evaluate` that old scripts carry, for the verbs that took over.

What they ask for is done, or a line says why not; nothing is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rayfish.errors import RayfishError
from rayfish.experiment.words import word

_KEYS = {"env": "environment.env", "horizon": "rollouts.horizon"}
_EXAMPLE = '{"env_config": {"size": 5}}'
_EXAMPLES = {"--stop": '{"training_iteration": 100}', "--resources-per-trial": '{"cpu": 2}'}
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


@dataclass
class OldFlags:
    """What old flags mean today.

    :param overrides: settings to add
    :param notes: lines to tell the user
    :param explore: what --config says of exploration, None when nothing
    """

    overrides: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explore: bool | None = None

    @classmethod
    def read(
        cls,
        *,
        config: str | None,
        num_workers: int,
        num_gpus: float,
        render: bool,
        monitor: bool,
        video_dir: str | None,
    ) -> OldFlags:
        """The flags as overrides and notes."""
        found, without = cls(), "in this version, the episodes are played without"
        asked = [f"--num-workers {num_workers}"] if num_workers else []
        asked += [f"--num-gpus {num_gpus:g}"] if num_gpus else []
        recorded = ["--monitor"] if monitor else []
        recorded += [f"--video-dir {video_dir}"] if video_dir else []
        for flags, why in (
            (asked, "the policy plays in this process, on the CPU"),
            (["--render"] if render else [], f"no window is opened {without}"),
            (recorded, f"no video is made {without}"),
        ):
            found.notes += [f"{' '.join(flags)}: {why}"] if flags else []
        if config:
            found._take(parse_mapping("--config", config))
        return found

    def with_words(self, words: list[str] | None, env: str | None) -> list[str]:
        """All settings that were asked for, the plainest way of saying it last."""
        return [*self.overrides, *(words or []), *([f"environment.env={env}"] if env else [])]

    def _take(self, config: Mapping[str, Any]) -> None:
        """Settings of the environment are taken over; all others are the checkpoint's own."""
        inner = config.get("evaluation_config") or {}
        merged = {**config, **inner} if isinstance(inner, Mapping) else dict(config)
        merged.pop("evaluation_config", None)
        for key, name in _KEYS.items():
            value = merged.pop(key, None)
            self.overrides += [word(name, value)] if value is not None else []
        given = merged.pop("env_config", None) or {}
        if not isinstance(given, Mapping):
            raise RayfishError(
                f"env_config in --config is {given!r}", 'write keys and values: {"env_config": {"size": 5}}'
            )
        self.overrides += _dotted("environment.env_config", given)
        explore = merged.pop("explore", None)
        self.explore = None if explore is None else bool(explore)
        if merged:
            listed = ", ".join(sorted(map(str, merged)))
            self.notes.append(
                f"--config: not used: {listed}; a checkpoint plays with its own settings, "
                "of which env, env_config, horizon and explore can be changed"
            )


def require_algorithm(named: str | None, checkpoint: Any) -> None:
    """`--run` must be what the checkpoint was trained with (`PPOTrainer` means PPO)."""
    from rayfish.run.checkpoint import read_header

    trained = read_header(checkpoint)["algo"]
    if named is not None and named.upper().removesuffix("TRAINER") != str(trained).upper():
        raise RayfishError(
            f"{checkpoint} was trained with {trained}, not {named}", f"--run {trained}, or leave it out"
        )


def parse_mapping(flag: str, text: str) -> Mapping[str, Any]:
    """Keys and values written as JSON or YAML after a flag.

    :raises RayfishError: the text cannot be read as such
    """
    import yaml

    from rayfish.experiment.yaml_reader import explain, load

    example = f"write it as {flag} '{_EXAMPLES.get(flag, _EXAMPLE)}'"
    try:
        found = load(text)
    except yaml.YAMLError as error:
        _, problem, _ = explain(error, text)
        raise RayfishError(f"{flag} cannot be read as JSON or YAML: {problem}", example) from error
    if not isinstance(found or {}, Mapping):
        raise RayfishError(f"{flag} is {text!r}, which holds no keys and values", example)
    return found or {}


def _dotted(prefix: str, values: Mapping[str, Any]) -> list[str]:
    """A setting per value, so that what the run had beside them stays."""
    words = []
    for key, value in values.items():
        if not _PLAIN_KEY.fullmatch(str(key)):
            raise RayfishError(
                f"the key {key!r} in --config cannot be given on the command line",
                "write it into the environment's own files, or rename it",
            )
        nested = isinstance(value, Mapping) and value
        words += _dotted(f"{prefix}.{key}", value) if nested else [word(f"{prefix}.{key}", value)]
    return words
