"""What a person reads when an experiment is wrong, word for word."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.algorithm import signatures
from rayfish.errors import ConfigError
from rayfish.experiment.files import ConfigFolders

MANY = """\
5 problems in the experiment:
  environment.render_env: has no effect: nothing in RLlib 2.60.0 reads it
    written in: command line
    next step: watch a trained policy with `rayfish view`; remove it
  rollouts.num_env_runners: is 'two', but takes a whole number
    written in: command line
    next step: for example rollouts.num_env_runners=4
  training.lrr: there is no such key
    written in: exp.yaml:5
    next step: did you mean training.lr?
  training.beta: PPO has no such setting; MARWIL and IQL have
    written in: command line
    next step: remove it, or set algo.name=MARWIL
  training.minibatch_size: a minibatch of 9000 does not fit into a train batch of 4000
    written in: command line
    next step: set training.minibatch_size=4000 or less, \
or training.train_batch_size_per_learner=9000 or more"""

GONE = """\
1 problem in the experiment:
  algo.name: DDPG is no longer in RLlib
    written in: command line
    next step: the closest today is SAC (off-policy actor-critic with entropy, continuous actions first): \
algo.name=SAC"""

PRESET = """\
1 problem in the experiment:
  experiment: there is no experiment, algorithm or environment 'pendulem'
    next step: did you mean pendulum? experiments: {presets}, or your file ./pendulem.yaml; algorithms: \
PPO, APPO, IMPALA, DQN, SAC, TQC, DreamerV3, BC, MARWIL, CQL, IQL; environments: `rayfish env list`, or your \
my_env.py:MyEnv"""


def test_many_problems_of_a_file_and_the_command_line(workdir):
    (workdir / "exp.yaml").write_text(
        "algo: {name: PPO}\nenvironment:\n  env: CartPole-v1\ntraining:\n  lrr: 1\n"
    )
    words = [
        "environment.render_env=true",
        "rollouts.num_env_runners=two",
        "training.minibatch_size=9000",
        "training.beta=1",
    ]
    found = signatures.problems(Experiment.compose("exp.yaml", words))
    assert str(ConfigError(found)) == MANY


def test_algorithm_that_is_gone():
    found = signatures.problems(Experiment.compose("cartpole", ["algo.name=DDPG"]))
    assert str(ConfigError(found)) == GONE


def test_preset_that_is_not_there():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("pendulem")
    assert str(error.value) == PRESET.format(presets=", ".join(ConfigFolders([]).options("experiment")))
