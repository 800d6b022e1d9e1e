"""Experience recorded by old RLlib (JSON lines of `SampleBatch`es, also zipped) as today's episodes.

RLlib 2.60 reads such files only where each line is one finished episode, which old RLlib never promised:
a line is a fragment, of several episodes at once. Here fragments are joined by their episode, and written
once, as Parquet, to the user's cache folder.
"""

from __future__ import annotations

import hashlib
import itertools
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rayfish.errors import RayfishError
from rayfish.files import parse_json

_KINDS = (".json", ".jsonl", ".zip")
_FOLDER = "old-data"


def old_files(paths: Sequence[str]) -> list[Path]:
    """The old recordings among `paths` (files, folders, patterns); empty where there is none."""
    found: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            found += sorted(file for kind in _KINDS for file in path.glob(f"*{kind}"))
        elif any(sign in text for sign in "*?["):
            found += sorted(file for file in path.parent.glob(path.name) if file.suffix in _KINDS)
        elif path.suffix in _KINDS:
            found.append(path)
    return found


def converted(files: Sequence[Path], actions: gym.Space | None = None) -> str:
    """The folder of Parquet files with the episodes of old recordings; made once per state of the files.

    :param actions: the space of recorded Box actions, which are scaled from its bounds to -1..1 as old
        RLlib did when it read them; None takes them as they are
    :raises RayfishError: a file cannot be read as a recording of old RLlib
    """
    import platformdirs

    states = [(file.resolve(), file.stat()) for file in files]
    stamp = str(actions) + "".join(f"{path}{state.st_size}{state.st_mtime_ns}" for path, state in states)
    name = hashlib.sha256(stamp.encode()).hexdigest()[:16]
    folder = Path(platformdirs.user_cache_dir("rayfish")) / _FOLDER / name
    if not folder.is_dir():
        _write(list(_episodes(files, actions)), folder, files)
    return str(folder)


def _write(episodes: list[Any], folder: Path, files: Sequence[Path]) -> None:
    import msgpack
    import msgpack_numpy
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not episodes:
        raise RayfishError(
            f"there is no step in {', '.join(map(str, files))}", "name a recording with steps in it"
        )
    items = [msgpack.packb(episode.get_state(), default=msgpack_numpy.encode) for episode in episodes]
    beside = folder.with_name(f"{folder.name}.part")
    beside.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"item": pa.array(items, type=pa.binary())}), beside / "episodes.parquet")
    beside.rename(folder)


def _episodes(files: Sequence[Path], actions: gym.Space | None) -> Iterator[Any]:
    """Whole episodes; one whose end was not recorded is truncated where its recording ends."""
    running: dict[Any, list[dict[str, np.ndarray]]] = {}
    for file in files:
        for batch in _batches(file):
            batch["actions"] = _scaled(batch["actions"], actions)
            for identity, part in _fragments(batch):
                running.setdefault(identity, []).append(part)
                if part["terminateds"][-1] or part["truncateds"][-1]:
                    yield _episode(running.pop(identity))
        if None in running:  # without an id, the next file's steps belong to another episode
            yield _episode(running.pop(None))
    for parts in running.values():
        yield _episode(parts)


def _scaled(actions: np.ndarray, space: gym.Space | None) -> np.ndarray:
    """Actions between the bounds of a Box space as the policy gives them: between -1 and 1."""
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        return actions
    return ((actions - space.low) / (space.high - space.low) * 2.0 - 1.0).astype(np.float32)


def _episode(parts: list[dict[str, np.ndarray]]) -> Any:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    terminated = bool(whole["terminateds"][-1])
    episode = SingleAgentEpisode(
        observations=[*whole["obs"], whole["new_obs"][-1]],
        actions=list(whole["actions"]),
        rewards=[float(reward) for reward in whole["rewards"]],
        infos=[{}] * (len(whole["obs"]) + 1),
        terminated=terminated,
        truncated=not terminated,
        len_lookback_buffer=0,
    )
    return episode.to_numpy()


def _fragments(batch: dict[str, np.ndarray]) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """The runs of steps that belong to one episode: by its id, else by where one ends."""
    ends = np.asarray(batch["terminateds"], bool) | np.asarray(batch["truncateds"], bool)
    cuts = ends[:-1].copy()
    ids = batch.pop("eps_id", None)
    if ids is not None:
        cuts |= np.asarray(ids[1:]) != np.asarray(ids[:-1])
    edges = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(ends)]
    for start, stop in itertools.pairwise(edges):
        part = {key: value[start:stop] for key, value in batch.items()}
        yield (None if ids is None else ids[start].item()), part


def _batches(file: Path) -> Iterator[dict[str, np.ndarray]]:
    for number, line in _lines(file):
        try:
            record = parse_json(line)
            policies = record.get("policy_batches") or {"": record}
            if len(policies) > 1:
                raise ValueError(f"it holds {len(policies)} policies, and only one can be learnt from")
            columns = _columns(next(iter(policies.values())))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RayfishError(
                f"{file}, line {number}, is no SampleBatch of RLlib: {type(error).__name__}: {error}",
                "name JSON files that RLlib's `output` wrote, or Parquet files of episodes",
            ) from error
        if len(columns["rewards"]):
            yield columns


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as packed:
            for name in sorted(name for name in packed.namelist() if name.endswith((".json", ".jsonl"))):
                text = packed.read(name).decode("utf-8").splitlines()
                yield from ((number, line) for number, line in enumerate(text, 1) if line.strip())
        return
    with file.open(encoding="utf-8") as lines:
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _columns(record: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns an episode is made of, unpacked; Ray 1.x wrote `dones` for the end of an episode."""
    from ray.rllib.utils.compression import unpack_if_needed

    known = {key: np.asarray(unpack_if_needed(value)) for key, value in record.items() if key in _READ}
    count = len(known["rewards"])
    ended = known.pop("dones", np.zeros(count, bool))
    known.setdefault("terminateds", ended)
    known.setdefault("truncateds", np.zeros(count, bool))
    lengths = {key: len(value) for key, value in known.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"its columns differ in length: {lengths}")
    if "new_obs" not in known:
        known["new_obs"] = np.concatenate([known["obs"][1:], known["obs"][-1:]])
    return known


_READ = ("obs", "new_obs", "actions", "rewards", "dones", "terminateds", "truncateds", "eps_id")
