"""Whether a run, checkpoint or sweep may run the code that it names or holds.

What this user's key has signed may (`run/signing.py`). Of anything else only safetensors and JSON are
read, and only installed environments are made; for more the user is asked, or says `--trust`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.errors import CheckpointError, NotTrusted, RayfishError
from rayfish.experiment import tree
from rayfish.experiment.imports import is_dotted_name
from rayfish.files import atomic_write, parse_json
from rayfish.run import manifest, signing

if TYPE_CHECKING:
    from rayfish.experiment import Experiment
    from rayfish.run.policy_files import SavedPolicies

CONFIG, SWEEP, JOBS = "config.yaml", "sweep.json", "jobs.json"
_PICKLES = "its saved state (algorithm/, processes/) is pickled, which runs whatever it says"
_ENV_KEYS = ("environment.env", "evaluation.evaluation_config.env")
_ENV_CONFIGS = ("environment.env_config", "evaluation.evaluation_config.env_config")
_IMPORTS = "environment.imports"
_CODE_KEYS = (_IMPORTS, "environment.env_task_fn", "multi_agent.policy_mapping_fn")
_accepted: set[Path] = set()


@dataclass(frozen=True)
class HandedOver:
    """What another process of this user's needs to sign, and to open what the user trusts.

    :param key: the signing key, a secret
    :param accepted: folders that the user trusts
    """

    key: str = field(repr=False)
    accepted: tuple[str, ...] = ()


def hand_over() -> HandedOver:
    """For a worker process, which passes it to `take_over`."""
    return HandedOver(signing.hand_over(), tuple(map(str, _accepted)))


def take_over(given: HandedOver) -> None:
    """This process signs and trusts as the one that started it."""
    signing.use(given.key)
    _accepted.update(map(Path, given.accepted))


def accept(folder: Path) -> None:
    """From now on this process trusts a folder and everything in it."""
    _accepted.add(folder.resolve())


def is_trusted(checkpoint: Path) -> bool:
    """Whether a checkpoint is signed by this user, or accepted."""
    return _is_accepted(checkpoint) or manifest.is_own(checkpoint)


def require(folder: Path, reasons: Sequence[str], *, trust: bool = False) -> None:
    """The user agrees that opening `folder` runs code.

    :param reasons: what would run, one line each
    :param trust: the user has agreed already
    :raises NotTrusted: the user does not, or cannot be asked
    """
    lines = "".join(f"  {reason}\n" for reason in reasons)
    question = f"{folder} is not signed with your key. Opening it runs code:\n{lines}"
    agreed = trust or _is_accepted(folder) or answered(f"{question}Do you trust whoever made it? [y/N] ")
    if agreed:
        accept(folder)
        return
    shown = "; ".join(reasons[:4]) + (f"; and {len(reasons) - 4} more" if len(reasons) > 4 else "")
    raise NotTrusted(
        f"{folder} is not signed with your key, and opening it runs code: {shown}",
        f"if you trust whoever made it: --trust (in Python: trust=True), or rayfish runs trust {folder}",
    )


def require_checkpoint(folder: Path, *, trust: bool = False) -> None:
    """A checkpoint may be unpickled.

    :raises NotTrusted: it is not this user's, who does not agree either
    """
    if not is_trusted(folder):
        require(folder, [_PICKLES], trust=trust)


def require_run(folder: Path, experiment: Experiment, *, trust: bool = False) -> None:
    """A run may go on: its experiment and all its checkpoints are this user's, or trusted.

    :raises NotTrusted: they are not
    """
    if _is_accepted(folder) or (config_is_own(folder) and all(map(_is_own_or_damaged, _checkpoints(folder)))):
        return
    reasons = _code_in(experiment.config)
    if signing.is_changed(CONFIG, (folder / CONFIG).read_text(encoding="utf-8")):
        reasons.insert(0, "its config.yaml has changed since you signed it")
    reasons += [_PICKLES] if _checkpoints(folder) else []
    reasons += [f"Python looks for modules in {place}" for place in experiment.paths]
    require(folder, reasons, trust=trust)
    _sign_for_good(folder)


def require_sweep(folder: Path, data: Mapping[str, Any], *, trust: bool = False) -> None:
    """A sweep or a list of jobs may go on.

    :param data: the content of its `sweep.json`
    :raises NotTrusted: it is not this user's, who does not agree either
    """
    if _is_accepted(folder) or _sweep_is_own(folder, data):
        return
    source = data.get("source") or {}
    named = {key: source.get(key) for key in ("program", "function", "experiment") if source.get(key)}
    reasons = [f"its {key}: {value}" for key, value in named.items()]
    if "words" in source:
        reasons.append(f"words of its experiment: {' '.join(map(str, source['words']))}")
    reasons += ["the commands in its jobs.json"] if (folder / JOBS).is_file() else []
    require(folder, [*reasons, "its trials and what came from Python are pickled"], trust=trust)
    _sign_for_good(folder)


def config_is_own(folder: Path) -> bool:
    """Whether a run's `config.yaml` is signed by this user and unchanged since."""
    try:
        return signing.text_is_own(CONFIG, (folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def code_in_policies(saved: SavedPolicies) -> list[str]:
    """What acting with saved policies would run of another user's code, one line each."""
    found = []
    for name, policy in saved.policies.items():
        if policy.kind != "native":
            found.append(f"policy {name} is an RLModule, which is pickled (algorithm/)")
        elif policy.model.get("custom_model"):
            found.append(f"the model of policy {name} is imported: {policy.model['custom_model']}")
    if saved.mapping_function and len(saved.policies) > 1:
        found.append(f"the mapping of agents to policies is imported: {saved.mapping_function}")
    return found


def code_in_env(experiment: Experiment, words: Sequence[str] = ()) -> list[str]:
    """What making the evaluation environment would run of another user's code, one line each.

    Looks at the spec and the `env_config` that the environment is made of, not at the keys of the file.

    :param experiment: the one that is played, with the user's words laid upon it
    :param words: what the user has set, `key=value`; not asked about
    """
    from rayfish.envs.resolve import is_installed
    from rayfish.envs.spec import env_config_of, from_experiment

    own = _values(words)
    spec, found = from_experiment(experiment, evaluation=True), []
    key = _ENV_KEYS[bool(experiment.get(_ENV_KEYS[1]))]
    if spec.object is None and not is_installed(spec.name) and own.get(key) != spec.name:
        found.append(f"{key}={spec.name} is imported")
    if spec.imports and own.get(_IMPORTS) != experiment.get(_IMPORTS):
        found.append(f"{_IMPORTS}={experiment.get(_IMPORTS)} is imported")
    for key, value in tree.leaves(env_config_of(experiment, evaluation=True)):
        section = _ENV_CONFIGS[experiment.get(f"{_ENV_CONFIGS[1]}.{key}") is not None]
        if any(map(_may_be_code, _texts({key: value}))) and own.get(f"{section}.{key}") != value:
            found.append(f"{section}.{key}={value} may be imported")
    return found


def own_paths(words: Sequence[str]) -> tuple[str, ...]:
    """Where Python looks for modules that the user's own words name: here; never where a saved file says."""
    values = (word.partition("=")[2] for word in words)
    return (str(Path.cwd()),) if any(map(_may_be_code, values)) else ()


def _values(words: Sequence[str]) -> dict[str, Any]:
    """What words set, by key: a word for a section leaves what else is in it."""
    from rayfish.experiment.overrides import parse

    found: dict[str, Any] = {}
    for override in parse(words):
        value = None if override.is_delete() else override.value()
        found |= dict(tree.leaves({override.key_or_group: value}))
    return found


def _may_be_code(text: str) -> bool:
    """Whether a text has the form of an import path: rather once too often than once too seldom."""
    return ":" in text or ".py" in text or is_dotted_name(text.strip())


def sign(folder: Path) -> list[str]:
    """Signs a run, checkpoint or sweep with this user's key; returns what was left out, and why.

    :raises RayfishError: there is no key, or nothing to sign
    """
    if not signing.is_lasting():
        hint = f"set {signing.FILE_VARIABLE} or {signing.VARIABLE}"
        raise RayfishError(f"there is no signing key: {signing.key_file()} cannot be written", hint)
    left_out: list[str] = []
    try:
        if (folder / manifest.HEADER).is_file():
            return _sign_checkpoint(folder)
        if (folder / SWEEP).is_file():
            left_out += _sign_sweep(folder)
        if (folder / CONFIG).is_file():
            text = (folder / CONFIG).read_text(encoding="utf-8")
            atomic_write(folder / CONFIG, signing.sealed_text(CONFIG, text))
        for checkpoint in _checkpoints(folder):
            left_out += _sign_checkpoint(checkpoint)
    except OSError as error:
        raise RayfishError(
            f"{folder} cannot be signed: {error.strerror or error}", "copy it to a folder you may write"
        ) from error
    return left_out


def contents(folder: Path) -> list[str]:
    """What trusting a run, checkpoint or sweep allows, one line each."""
    found = []
    if (folder / SWEEP).is_file():
        found.append("all its trials, and the program, function, experiment or jobs that it names")
    if (folder / CONFIG).is_file():
        found += _code_of(folder)
    for checkpoint in _checkpoints(folder):
        try:
            lines = _code_of(checkpoint)
        except RayfishError as error:
            lines = [error.what]
        found += [f"{checkpoint.relative_to(folder)}: {line}" for line in lines if line not in found]
    if (folder / manifest.HEADER).is_file() or _checkpoints(folder):
        found.append(_PICKLES)
    return found


def _code_of(folder: Path) -> list[str]:
    """What the config.yaml and the policies of a run or checkpoint name, for the user's eye."""
    from rayfish.experiment import Experiment
    from rayfish.run.policy_files import read_policies

    experiment = Experiment.load(folder / CONFIG, resolve=False)
    found = _code_in(experiment.config)
    found += [f"Python looks for modules in {place}" for place in experiment.paths]
    if (folder / "policy").is_dir():
        found += code_in_policies(read_policies(folder / "policy", weights=False))
    return found


def _sign_checkpoint(folder: Path) -> list[str]:
    try:
        header = manifest.read_header(folder)
        manifest.require_whole(folder, header)
    except CheckpointError as error:
        return [error.what]
    manifest.write_header(folder, header)
    return []


def _sign_sweep(folder: Path) -> list[str]:
    for name in (SWEEP, JOBS):
        if (folder / name).is_file():
            data = parse_json((folder / name).read_text(encoding="utf-8"))
            if name == SWEEP:
                data["target_sha256"] = target_digest(folder)
            atomic_write(folder / name, signing.sealed_json(name, data))
    trials = [path.parent for path in sorted(folder.glob("trials/*/run.json"))]
    kept = [path.parent for path in sorted(folder.glob("handed-over/*/*/rayfish.json"))]
    return [text for place in (*trials, *kept) for text in sign(place)]


def target_digest(folder: Path) -> str | None:
    """The SHA-256 of what a sweep keeps from Python, which `sweep.json` has as well."""
    file = folder / "target.pkl"
    return manifest.sha256(file) if file.is_file() else None


def _sign_for_good(folder: Path) -> None:
    """What goes on in its own folder is this user's from now on: the next resume asks nothing."""
    if signing.is_lasting():
        sign(folder)


def _sweep_is_own(folder: Path, data: Mapping[str, Any]) -> bool:
    try:
        own = signing.json_is_own(SWEEP, data) and data.get("target_sha256") == target_digest(folder)
        if own and (folder / JOBS).is_file():
            jobs = parse_json((folder / JOBS).read_text(encoding="utf-8"))
            own = signing.json_is_own(JOBS, jobs)
        return own
    except (OSError, ValueError):
        return False


def answered(question: str) -> bool:
    """Whether the user says yes on the terminal; without one the answer is no."""
    with suppress(ValueError, AttributeError):  # closed or replaced streams
        if sys.stdin.isatty() and sys.stderr.isatty():
            sys.stderr.write(question)
            sys.stderr.flush()
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False


def _is_accepted(folder: Path) -> bool:
    place = folder.resolve()
    return any(one in _accepted for one in (place, *place.parents))


def _is_own_or_damaged(checkpoint: Path) -> bool:
    """A damaged one is not opened."""
    try:
        return manifest.is_own(checkpoint)
    except CheckpointError:
        return True


def _checkpoints(run: Path) -> list[Path]:
    return sorted(path.parent for path in run.glob(f"checkpoints/[0-9]*/{manifest.HEADER}"))


def _code_in(config: Mapping[str, Any]) -> list[str]:
    """The settings of an experiment that name code, for the user's eye."""
    from rayfish.envs.resolve import is_installed

    found = []
    for key, value in tree.leaves(dict(config)):
        code = key in _CODE_KEYS or key.startswith("callbacks.") or key.endswith("custom_model")
        env = key in _ENV_KEYS and value and not is_installed(str(value))
        if key.startswith(_ENV_CONFIGS):
            code = any(map(_may_be_code, _texts(value)))
        if value and (code or env):
            found.append(f"{key}={value}")
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in (*value, *value.values()):
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
