"""Which algorithm trains an environment for which none is named: DQN where it can learn it, else PPO.

A module of its own, because `rayfish config show` needs no more, and not what `preflight` imports.
"""

from __future__ import annotations

from dataclasses import replace

from rayfish.experiment import Experiment
from rayfish.experiment.compose import with_algorithm
from rayfish.experiment.files import SHIPPED

CHOSEN = "chosen by the environment's spaces"
"""The origin of `algo.name` where nothing names an algorithm."""


def with_fitting_algorithm(experiment: Experiment) -> Experiment:
    """The experiment with an algorithm that learns its spaces, and a note on it, where none is named.

    An environment that cannot be made is left for the check to explain.
    """
    if not experiment.origin("algo.name").startswith(f"{SHIPPED}config.yaml"):
        return experiment
    from rayfish.envs import build as envs  # Gymnasium, which few experiments need here
    from rayfish.envs.env_kind import in_short
    from rayfish.models import check as models

    try:
        spec = envs.from_experiment(experiment)
        info = envs.describe(spec, envs.env_config_of(experiment))
    except Exception:
        return experiment
    model = experiment.training.model or {}
    pairs = [(info.observation_spaces[agent], info.action_spaces[agent]) for agent in info.agents]

    def problems(algorithm: str) -> list[str]:
        found = [models.problems(model, *pair, algorithm, experiment.paths) for pair in pairs]
        return [problem.what for one in found for problem in one]

    wrong = problems("DQN")
    name = "PPO" if wrong and not problems("PPO") else "DQN"
    why = wrong[0] if name == "PPO" else f"{spec.name} has {in_short(info.action_space)} actions"
    other = {"DQN": "PPO", "PPO": "SAC"}[name]
    note = f"no algorithm is named, so {name} is used ({why}); another one: algo.name={other}"
    chosen = with_algorithm(experiment, name, CHOSEN)
    return replace(chosen, notes=(*chosen.notes, note))
