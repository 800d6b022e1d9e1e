"""The mistakes that strike before training begins, by kind; each is one line here and one snapshot."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import psutil

from tests.bad_input.harness import Case

TINY = "stop_conditions.training_iteration=1"
HERE = "environment.env=world.py:World algo.name=PPO"


def world(
    *,
    init: str = "pass",
    observations: str = "gym.spaces.Box(-1, 1, (2,), np.float32)",
    actions: str = "gym.spaces.Discrete(2)",
    reset: str = "return np.zeros(2, np.float32), {}",
    step: str = "return np.zeros(2, np.float32), 0.0, True, False, {}",
) -> dict[str, str]:
    """world.py with a class World that is sound but for what is given."""
    return {
        "world.py": "import gymnasium as gym\n"
        "import numpy as np\n"
        "\n"
        "\n"
        "class World(gym.Env):\n"
        f"    observation_space = {observations}\n"
        f"    action_space = {actions}\n"
        "\n"
        "    def __init__(self, size=3):\n"
        f"        {init}\n"
        "\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        f"        {reset}\n"
        "\n"
        "    def step(self, action):\n"
        f"        {step}\n"
    }


def duel() -> dict[str, str]:
    """duel.py with a PettingZoo environment of the agents red and blue."""
    return {
        "duel.py": "import gymnasium as gym\n"
        "import numpy as np\n"
        "from pettingzoo import ParallelEnv\n"
        "\n"
        "\n"
        "class Duel(ParallelEnv):\n"
        "    metadata = {}\n"
        "    possible_agents = ['red', 'blue']\n"
        "\n"
        "    def observation_space(self, agent):\n"
        "        return gym.spaces.Box(-1, 1, (2,), np.float32)\n"
        "\n"
        "    def action_space(self, agent):\n"
        "        return gym.spaces.Discrete(2)\n"
        "\n"
        "    def reset(self, seed=None, options=None):\n"
        "        self.agents = self.possible_agents[:]\n"
        "        return self.seen(), {a: {} for a in self.agents}\n"
        "\n"
        "    def seen(self):\n"
        "        return {a: np.zeros(2, np.float32) for a in self.agents}\n"
        "\n"
        "    def step(self, actions):\n"
        "        seen, names = self.seen(), self.agents\n"
        "        self.agents = []\n"
        "        ends = {a: True for a in names}\n"
        "        return seen, {a: 0.0 for a in names}, ends, ends, {a: {} for a in names}\n"
    }


def only_run(folder: Path) -> Path:
    """The run that lies under runs/."""
    (found,) = [file.parent for file in folder.glob("runs/*/*/run.json")]
    return found


def checkpoint(folder: Path) -> Path:
    """The last checkpoint of that run."""
    return (only_run(folder) / "checkpoints" / "last").resolve()


def _edit(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def _cut(file: Path) -> None:
    """The first bytes of a file, as an interrupted copy leaves it."""
    file.write_bytes(file.read_bytes()[:40])


def _in_training(folder: Path) -> None:
    """The run as another process that lives and trains leaves it: here the parent of this one."""
    parent = psutil.Process(os.getppid())
    process = {"host": platform.node(), "pid": parent.pid, "start": parent.create_time()}
    _edit(only_run(folder) / "run.json", status="running", process=process)


def _weights(folder: Path) -> Path:
    return next((checkpoint(folder) / "policy").glob("*.safetensors"))


def _newer(folder: Path) -> None:
    header = checkpoint(folder) / "rayfish.json"
    _edit(header, layout=9, versions={**json.loads(header.read_text())["versions"], "rayfish": "9.0.0"})


COMMAND_LINE = [
    Case("verb that does not exist", "trian cartpole"),
    Case("verb of another tool", "enjoy"),
    Case("environment in place of a verb", "CartPole-v1 training.lr=1e-3"),
    Case("setting as a flag", "train cartpole --training.lr 1e-3"),
    Case("flag of another tool", "train CartPole-v1 --total-timesteps 5000"),
    Case("flag that does not exist", "train cartpole --resum last"),
    Case("flag without its value", "train --resume"),
    Case("no seeds", "train cartpole --seeds 0"),
    Case("seeds in words", "train cartpole --seeds many"),
    Case("verb that needs a word", "evaluate"),
    Case("two experiments", "train cartpole pendulum"),
    Case("two environments", "train CartPole-v1 Pendulum-v1"),
    Case("environment in another case", "train ppo cartpole-v1"),
    Case("algorithm word with a typo", "train PPOO CartPole-v1"),
    Case("class without its file", "train Maze", {"maze.py": "class Maze:\n    pass\n"}),
    Case("file that is no experiment", "train notes.txt", {"notes.txt": "remember"}),
    Case("setting without a value", "train cartpole training.lr"),
    Case("setting with spaces", "train cartpole training.lr= 1e-3"),
    Case("setting with a colon", "train cartpole training.lr:1e-3"),
    Case("section in place of a setting", "train cartpole training"),
    Case("run in place of an experiment", "train last"),
    Case("folder in place of an experiment", "train .", {"mine.yaml": "algo: {name: PPO}\n"}),
    Case("word too many", "doctor now"),
    Case("option without a value", "train cartpole -f"),
    Case("algorithm of no table", "config keys --algo FOO"),
    Case("setting of the training for a trained policy", "evaluate last training.lr=1", trained=True),
    Case("stop condition that is no section", "train cartpole stop=100"),
    Case("one module in place of a list", "train cartpole environment.imports=motif"),
    Case("modules that are not there", "train cartpole environment.imports=[motif]"),
    Case(
        "environment variable that is not set", "train cartpole 'environment.env_config.a=${oc.env:NO_TOKEN}'"
    ),
    Case("search setting of a wrong type", "tune cartpole training.lr=1,2 search.num_samples=abc"),
    Case("no CPUs", "train cartpole --ray-num-cpus 0"),
    Case("file and preset", "train cartpole -f mine.yaml", {"mine.yaml": "algo: {name: PPO}\n"}),
    Case("resume and experiment", "train cartpole --resume last"),
    Case("episodes and steps", "evaluate last --episodes 3 --steps 100"),
    Case("no episodes", "evaluate last --episodes 0", trained=True),
    Case("mode that does not exist", "cli.mode=fly"),
    Case("preset that does not exist", "train cartpol"),
    Case("config folder that does not exist", "train cartpole --config-dir conf"),
    Case("main config that does not exist", "train -cn confg"),
    Case("group option that does not exist", "train cartpole training/model=lstmm"),
]

OVERRIDES = [
    Case("unbalanced quote", 'train cartpole "runtime.name=\'mine"'),
    Case("unbalanced bracket", "train cartpole 'training.model.fcnet_hiddens=[64,64'"),
    Case("override without a key", "train cartpole =3"),
    Case("several values without multirun", "train cartpole training.lr=1e-3,1e-4"),
    Case("search space outside tune", "train cartpole 'training.lr=loguniform(1e-5,1e-2)'"),
    Case("removing a key that is not there", "train cartpole ~training.lrr"),
    Case("removing another value than there is", "train cartpole ~training.lr=5"),
    Case("interpolation to nothing", "train cartpole 'training.lr=${training.rate}'"),
    Case(
        "interpolation in a circle",
        "train cartpole 'training.lr=${training.gamma}' 'training.gamma=${training.lr}'",
    ),
    Case("interpolation that does not close", "train cartpole 'training.lr=${training.gamma'"),
]

FILES = [
    Case("file that is not there", "train -f mine.yaml"),
    Case("file that is a folder", "train -f mine", prepare=lambda here: (here / "mine").mkdir()),
    Case("binary file", "train -f mine.yaml", {"mine.yaml": bytes(range(256))}),
    Case("not UTF-8", "train -f mine.yaml", {"mine.yaml": "runtime:\n  name: Prüfung\n".encode("latin-1")}),
    Case("tab in the indentation", "train -f mine.yaml", {"mine.yaml": "training:\n\tlr: 0.001\n"}),
    Case(
        "open bracket in a file",
        "train -f mine.yaml",
        {"mine.yaml": "algo:\n  name: [PPO\ntraining:\n  lr: 1\n"},
    ),
    Case("missing colon", "train -f mine.yaml", {"mine.yaml": "algo:\n  name PPO\n  x: 1\n"}),
    Case(
        "key twice", "train -f mine.yaml", {"mine.yaml": "training:\n  lr: 0.001\n  gamma: 0.9\n  lr: 0.01\n"}
    ),
    Case("empty file", "train -f mine.yaml", {"mine.yaml": ""}),
    Case("file that is a list", "train -f mine.yaml", {"mine.yaml": "- algo: PPO\n- env: CartPole-v1\n"}),
    Case("file that is one word", "train -f mine.yaml", {"mine.yaml": "cartpole\n"}),
    Case(
        "misspelt default",
        "train -f mine.yaml",
        {"mine.yaml": "defaults:\n  - override /training/model: lstmm\n"},
    ),
    Case("unknown group in defaults", "train -f mine.yaml", {"mine.yaml": "defaults:\n  - trainng: ppo\n"}),
    Case(
        "override of a group that is not there",
        "train -f mine.yaml",
        {"mine.yaml": "defaults:\n  - override /trainng/model: lstm\n"},
    ),
    Case("default that is a number", "train -f mine.yaml", {"mine.yaml": "defaults:\n  - 3\n"}),
    Case(
        "main config with a misspelt group",
        "train -cn mine --config-dir conf",
        {"conf/mine.yaml": "defaults:\n  - config\n  - trainng: ppo\n"},
    ),
    Case(
        "group of your own that is not UTF-8",
        "train cartpole --config-dir conf simulation=mine",
        {"conf/simulation/mine.yaml": "name: Prüfung\n".encode("latin-1")},
    ),
    Case(
        "preset of presets that is not there", "train -f mine.yaml", {"mine.yaml": "defaults:\n  - cartpol\n"}
    ),
    Case("defaults that are no list", "train -f mine.yaml", {"mine.yaml": "defaults: cartpole\n"}),
    Case(
        "two documents in one file",
        "train -f mine.yaml",
        {"mine.yaml": "algo: {name: PPO}\n---\nalgo: {name: DQN}\n"},
    ),
    Case(
        "python object in a file",
        "train -f mine.yaml",
        {"mine.yaml": "algo:\n  name: !!python/name:os.system\n"},
    ),
    Case(
        "typo in a file",
        "train -f mine.yaml",
        {"mine.yaml": "environment:\n  env: CartPole-v1\ntraning:\n  lr: 0.001\nalgo: {name: PPO}\n"},
    ),
    Case(
        "value that must be set",
        "train -f mine.yaml",
        {"mine.yaml": "algo: {name: PPO}\nenvironment:\n  env: ???\n"},
    ),
]

KEYS = [
    Case("section that does not exist", "train cartpole trainig.lr=1e-3"),
    Case("key that does not exist", "train cartpole training.learning_rat=1e-3"),
    Case("key of another algorithm", "train cartpole training.n_step=3"),
    Case("key that nothing reads", "train cartpole debugging.fake_sampler=true"),
    Case("text for a number", "train cartpole rollouts.num_env_runners=many"),
    Case("number in quotes", "train cartpole \"training.lr='0.001'\""),
    Case("fraction for a whole number", "train cartpole training.num_epochs=2.5"),
    Case("word that is no choice", "train cartpole rollouts.batch_mode=complete_episode"),
    Case("list for a name", "train cartpole 'algo.name=[PPO]'"),
    Case("number for an env_config", "train cartpole environment.env_config=3"),
    Case("module that is a number", "train cartpole 'environment.imports=[1]'"),
    Case("value for a section", "train cartpole training=3"),
    Case("negative learning rate", "train cartpole training.lr=-1"),
    Case("discount above one", "train cartpole training.gamma=1.5"),
    Case("negative stop condition", "train cartpole stop_conditions.training_iteration=-5"),
    Case("stop condition in words", "train cartpole stop_conditions.time_total_s=1h"),
    Case("stop condition on no metric", "train cartpole stop_conditions.episode_reward_meen=100"),
    Case("minibatch larger than the batch", "train cartpole training.minibatch_size=100000"),
    Case(
        "minibatch smaller than a sequence",
        "train cartpole training.model.use_lstm=true training.minibatch_size=13",
    ),
    Case("model key that does not exist", "train cartpole 'training.model.fcnet_hidden=[64]'"),
    Case("layer of no width", "train cartpole 'training.model.fcnet_hiddens=[64,0]'"),
    Case(
        "best by a metric nobody reports",
        "train cartpole checkpoint.checkpoint_score_attribute=rolout/return_mean",
    ),
    Case("many mistakes at once", "train cartpole training.lrr=1 algo.name=PPOO environment.env=CartPole-v7"),
    Case("checked without training", "config check cartpole training.lr=fast"),
]

ALGORITHMS = [
    Case("algorithm with a typo", "train cartpole algo.name=PPPO"),
    Case("algorithm that is gone", "train cartpole algo.name=A3C"),
    Case("algorithm unfit for the actions", "train algo.name=DQN environment.env=Pendulum-v1"),
    Case(
        "deterministic but asynchronous",
        "train environment.env=CartPole-v1 algo.name=APPO debugging.deterministic=true",
    ),
    Case("offline without data", "train environment.env=CartPole-v1 algo.name=BC"),
    Case(
        "offline data that is not there",
        "train environment.env=CartPole-v1 algo.name=BC offline_data.input_=recorded",
    ),
]

OLD_HEAD = "old:\n  env: CartPole-v0\n  run: PPO\n"


def old(config: str = "", head: str = OLD_HEAD) -> dict[str, str]:
    """old.yaml, an experiment as it was written for `rllib train -f`."""
    return {"old.yaml": head + (f"  config:\n    {config}\n" if config else "")}


OLD_FILES = [
    Case(
        "old file with an algorithm that is gone",
        "train -f old.yaml",
        old(head=OLD_HEAD.replace("PPO", "A3C")),
    ),
    Case(
        "old file with no algorithm",
        "train -f old.yaml",
        old("lr: 0.1", OLD_HEAD.replace("  run: PPO\n", "")),
    ),
    Case("old file with a typo", "train -f old.yaml", old("num_worker: 2")),
    Case("old file with a typo in its model", "train -f old.yaml", old("model: {fcnet_hidden: [8]}")),
    Case("old file with a wrong type", "train -f old.yaml", old("num_workers: many")),
    Case("old file with a list where keys belong", "train -f old.yaml", old("lr_schedule: fast")),
    Case("old file with several things to decide", "train -f old.yaml", old("{noisy: true, horzon: 5}")),
    Case(
        "old file with an exploration that is gone",
        "train -f old.yaml",
        old("exploration_config: {type: RE3}"),
    ),
    Case("old file with attention", "train -f old.yaml", old("model: {use_attention: true}")),
    Case("old file with code in it", "train -f old.yaml", old('lr: {sample_from: "lambda s: 1"}')),
    Case(
        "old file that stops by nothing",
        "train -f old.yaml",
        old(head=f"{OLD_HEAD}  stop: {{hist_stats/x: 1}}\n"),
    ),
    Case(
        "old file with a setting beside config",
        "train -f old.yaml",
        old(head=f"{OLD_HEAD}  num_workers: 2\n"),
    ),
    Case(
        "old file that says a thing twice",
        "train -f old.yaml",
        old("{num_workers: 1, num_rollout_workers: 2}"),
    ),
    Case("old file with a model that is not there", "train -f old.yaml", old("model: {custom_model: net}")),
    Case(
        "old file with a TensorFlow model",
        "train -f old.yaml",
        old("model: {custom_model: ray.rllib.models.tf.fcnet.FullyConnectedNetwork}"),
    ),
    Case(
        "old file with several experiments",
        "config check -f old.yaml",
        {"old.yaml": OLD_HEAD + OLD_HEAD.replace("old:", "other:")},
    ),
    Case("old file without that experiment", "train -f old.yaml:odl", old()),
    Case("experiment of a file of today", "train -f new.yaml:x", {"new.yaml": "algo: {name: PPO}\n"}),
    Case("old flags without an algorithm", "train --env CartPole-v1 --stop '{training_iteration: 1}'"),
    Case("old flags that are no JSON", "train --run PPO --config {lr"),
    Case("migrating a file of today", "config migrate new.yaml", {"new.yaml": "algo: {name: PPO}\n"}),
    Case(
        "migrating what must be decided",
        "config migrate old.yaml",
        old("noisy: true"),
        hint="settle what is to decide",
    ),
    Case("migrating a file that is not there", "config migrate odl.yaml", old()),
]

ENVIRONMENTS = [
    # In a process of its own: RLlib, once imported, registers environments with names like these.
    Case("environment with a typo", "train algo.name=PPO environment.env=CartPol-v1", process=True),
    Case("environment with a version to come", "train algo.name=PPO environment.env=CartPole-v7"),
    Case(
        "environment of a package not installed", "train algo.name=PPO environment.env=MiniGrid-Empty-5x5-v0"
    ),
    Case("environment in a module not there", "train algo.name=PPO environment.env=wrold:World", world()),
    Case("environment in a file not there", f"train {HERE.replace('world.py', 'wrold.py')}", world()),
    Case("environment that the module lacks", f"train {HERE.replace(':World', ':Wrold')}", world()),
    Case("module that does not parse", f"train {HERE}", {"world.py": "class World(:\n    pass\n"}),
    Case("module that raises", f"train {HERE}", {"world.py": "import os\nos.environ['SIMULATOR_HOME']\n"}),
    Case("module that needs another", f"train {HERE}", {"world.py": "import simulator_of_mine\n"}),
    Case("constructor that raises", f"train {HERE}", world(init="raise RuntimeError('no licence')")),
    Case("constructor argument that is not there", f"train {HERE} environment.env_config.sizes=4", world()),
    Case("no observation space", f"train {HERE}", world(observations="None")),
    Case("space that is text", f"train {HERE}", world(actions="'Discrete(2)'")),
    Case("class that is no environment", f"train {HERE}", {"world.py": "class World:\n    pass\n"}),
    Case("reset that raises", f"train {HERE}", world(reset="return self.nothing, {}")),
    Case("observation of another shape", f"train {HERE}", world(reset="return np.zeros(3, np.float32), {}")),
    Case(
        "observation that is NaN", f"train {HERE}", world(reset="return np.full(2, np.nan, np.float32), {}")
    ),
    Case(
        "reward that is an array",
        f"train {HERE}",
        world(step="return np.zeros(2, np.float32), np.zeros(2), True, False, {}"),
    ),
    Case(
        "reward that is NaN",
        f"train {HERE}",
        world(step="return np.zeros(2, np.float32), float('nan'), True, False, {}"),
    ),
    Case("actions nobody can learn", f"train {HERE}", world(actions="gym.spaces.MultiBinary(3)")),
    Case(
        "env check of actions nobody can learn",
        "env check world.py:World",
        world(actions="gym.spaces.MultiBinary(3)"),
        hint="→",
    ),
    Case(
        "env check of observations nobody can read",
        "env check world.py:World",
        world(
            observations="gym.spaces.Text(3, charset='abc')",
            reset="return 'abc', {}",
            step="return 'abc', 0.0, True, False, {}",
        ),
        hint="→",
    ),
    Case(
        "env check of a broken step",
        "env check world.py:World",
        world(step="return np.zeros(2, np.float32), 0.0, True"),
        hint="→",
    ),
    Case(
        "env check of another dtype",
        "env check world.py:World",
        world(reset="return np.zeros(2), {}"),
        hint="→",
    ),
    Case(
        "env check of an observation outside its space",
        "env check world.py:World",
        world(step="return np.full(2, 7, np.float32), 0.0, True, False, {}"),
        hint="→",
    ),
    Case(
        "env check of a list for an array",
        "env check world.py:World",
        world(reset="return [0.0, 0.0], {}"),
        hint="→",
    ),
    Case("env check of a typo", "env check CartPol-v1", process=True),
    Case("env check with a word that is no setting", "env check world.py:World size", world()),
    Case(
        "agent that does not exist",
        "train algo.name=PPO environment.env=duel.py:Duel 'multi_agent.mapping={red: a, bleu: b}'",
        duel(),
    ),
    Case(
        "policy that is not listed",
        "train algo.name=PPO environment.env=duel.py:Duel "
        "'multi_agent.mapping={red: a, blue: b}' 'multi_agent.policies=[a]'",
        duel(),
    ),
]

CODE = [
    Case(
        "callback in a file not there",
        "train cartpole callbacks.callbacks_class=wacth.py:Watch",
        {"watch.py": "class Watch: pass\n"},
    ),
    Case(
        "callback that is not in its file",
        "train cartpole callbacks.callbacks_class=watch.py:Wacth",
        {"watch.py": "class Watch: pass\n"},
    ),
    Case(
        "callback that is no callback",
        "train cartpole callbacks.callbacks_class=watch.py:Watch",
        {"watch.py": "class Watch:\n    def on_episode_end(self):\n        pass\n"},
    ),
    Case(
        "callback that is a function",
        "train cartpole callbacks.callbacks_class=watch.py:watch",
        {"watch.py": "def watch(episode):\n    pass\n"},
    ),
    Case(
        "callback with a misspelt moment",
        "train cartpole callbacks.callbacks_class=watch.py:Watch",
        {
            "watch.py": "from ray.rllib.callbacks.callbacks import RLlibCallback\n"
            "class Watch(RLlibCallback):\n"
            "    def on_epsiode_end(self, **kwargs):\n"
            "        pass\n"
        },
    ),
    Case(
        "model in a file not there",
        "train cartpole training.model.custom_model=netz.py:Net",
        {"net.py": "class Net: pass\n"},
    ),
    Case(
        "model that is no module",
        "train cartpole training.model.custom_model=net.py:Net",
        {"net.py": "class Net:\n    pass\n"},
    ),
    Case(
        "model that is a function",
        "train cartpole training.model.custom_model=net.py:net",
        {"net.py": "def net(observation):\n    return observation\n"},
    ),
]

MACHINE = [
    Case(
        "more runners than CPUs", "train cartpole rollouts.num_env_runners=64 --ray-num-cpus 2", process=True
    ),
    Case("more GPUs than there are", "train cartpole learners.num_gpus_per_learner=1", process=True),
    Case(
        "GPUs asked for twice",
        "train cartpole resources.num_gpus=2 learners.num_gpus_per_learner=0.5 --ray-num-gpus 4",
        process=True,
    ),
    Case("Ray address that does not answer", "train cartpole --on 127.0.0.1:1", process=True),
    Case("run folder below a file", "train cartpole runtime.local_dir=notes.txt", {"notes.txt": "mine\n"}),
    Case("run folder that cannot be written", "train cartpole runtime.local_dir=/proc/runs"),
]

RUNS = [
    Case("no runs at all", "train --resume last"),
    Case("run that does not exist", "train --resume cartpol", trained=True),
    Case("run in training elsewhere", "train --resume last", prepare=_in_training, trained=True),
    Case(
        "run.json cut short",
        "train --resume runs/cartpole",
        prepare=lambda h: _cut(only_run(h) / "run.json"),
        trained=True,
    ),
    Case(
        "run.json that is a list",
        "train --resume runs/cartpole",
        prepare=lambda h: (only_run(h) / "run.json").write_text("[]"),
        trained=True,
    ),
    Case(
        "run.json of a newer version",
        "train --resume runs/cartpole",
        prepare=lambda h: _edit(only_run(h) / "run.json", layout=9),
        trained=True,
    ),
    Case(
        "config.yaml cut short",
        "train --resume last",
        prepare=lambda h: (only_run(h) / "config.yaml").write_text("algo: {name: PP"),
        trained=True,
    ),
    Case(
        "config.yaml that is empty",
        "train --resume last",
        prepare=lambda h: (only_run(h) / "config.yaml").write_text(""),
        trained=True,
    ),
    Case(
        "config.yaml that is gone",
        "train --resume last",
        prepare=lambda h: (only_run(h) / "config.yaml").unlink(),
        trained=True,
    ),
    Case("resume with another algorithm", "train --resume last algo.name=DQN", trained=True),
    Case("resume with a group", "train --resume last training/model=lstm", trained=True),
    Case("show a run that does not exist", "runs show nothing"),
]

CHECKPOINTS = [
    Case("folder that is no run", "evaluate mine", prepare=lambda here: (here / "mine").mkdir()),
    Case("evaluate a run that does not exist", "evaluate cartpol", trained=True),
    Case("checkpoint that the run lacks", "evaluate last/checkpoints/000099", trained=True),
    Case(
        "header cut short",
        "evaluate last",
        prepare=lambda h: _cut(checkpoint(h) / "rayfish.json"),
        trained=True,
    ),
    Case("weights cut short", "evaluate last", prepare=lambda h: _cut(_weights(h)), trained=True),
    Case("weights that are gone", "evaluate last", prepare=lambda h: _weights(h).unlink(), trained=True),
    Case(
        "policy.json cut short",
        "evaluate last",
        prepare=lambda h: _cut(checkpoint(h) / "policy" / "policy.json"),
        trained=True,
    ),
    Case(
        "policy.json without its policies",
        "evaluate last",
        prepare=lambda h: (checkpoint(h) / "policy" / "policy.json").write_text("{}"),
        trained=True,
    ),
    Case(
        "checkpoint of a newer version",
        "evaluate last",
        prepare=_newer,
        trained=True,
    ),
    Case("another algorithm than trained", "evaluate last --run DQN", trained=True),
    Case("another environment than trained", "evaluate last --env Pendulum-v1", trained=True),
    Case("typo in an evaluation", "evaluate last environment.env_confg.x=1", trained=True),
    Case(
        "start from what is no checkpoint",
        "train cartpole algo.checkpoint_path=mine",
        {"mine/model.pt": b"\x80\x02"},
    ),
    Case(
        "start from what is no checkpoint, checked",
        "config check cartpole algo.checkpoint_path=mine",
        {"mine/model.pt": b"\x80\x02"},
    ),
    Case("start from nothing", "train cartpole algo.checkpoint_path=mine"),
    Case(
        "start from a damaged checkpoint",
        "train cartpole algo.checkpoint_path=last",
        prepare=lambda h: _cut(checkpoint(h) / "rayfish.json"),
        trained=True,
    ),
    Case(
        "start from another environment",
        "train algo.name=PPO environment.env=Pendulum-v1 algo.checkpoint_path=last",
        trained=True,
    ),
    Case(
        "start from another network",
        "train cartpole 'training.model.fcnet_hiddens=[8,8]' algo.checkpoint_path=last",
        trained=True,
    ),
]

CASES = [
    *COMMAND_LINE,
    *OVERRIDES,
    *FILES,
    *KEYS,
    *ALGORITHMS,
    *OLD_FILES,
    *ENVIRONMENTS,
    *CODE,
    *MACHINE,
    *RUNS,
    *CHECKPOINTS,
]
