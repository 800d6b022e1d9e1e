"""What another user's run may do here: nothing but play, until the user trusts it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest

import rayfish
from rayfish.cli.app import app
from rayfish.errors import CheckpointError, NotTrusted, RayfishError
from rayfish.experiment import Experiment
from rayfish.jobs import read_jobs
from rayfish.run import manifest, signing, trust
from rayfish.run.directory import RunDirectory
from rayfish.run.policy_files import save_policy
from rayfish.sweep.directory import SweepDirectory
from tests.helpers import rayfish as rayfish_command
from tests.models.test_module import module

STRANGER = "0d" * 32
EVIL = """
from pathlib import Path
Path({marker!r}).touch()
from gymnasium.envs.classic_control import CartPoleEnv as Env
def reward(step): ...
def which(agent_id, episode=None): return "a"
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, workdir):
    """Nothing is accepted yet, and imports of a test leave no trace."""
    monkeypatch.setattr(trust, "_accepted", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("rf_evil", None)


@pytest.fixture
def marker(tmp_path):
    """A module of the stranger's in a folder of theirs; importing it leaves this file behind."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/rf_evil.py").write_text(EVIL.format(marker=str(tmp_path / "ran")))
    return tmp_path / "ran"


def checkpoint(place: Path, *words: str, policies=("default_policy",), **options):
    """A checkpoint of a native policy on CartPole, signed with the key of now."""
    from gymnasium.envs.classic_control import CartPoleEnv

    env = CartPoleEnv()
    paths = (str(place.parent / "theirs"),)
    built = {name: module("PPO", env.observation_space, env.action_space) for name in policies}
    save_policy(place / "policy", modules=built, algo="PPO", paths=paths, **options)
    experiment = Experiment.compose("cartpole", [*words])
    experiment = Experiment(experiment.config, paths=paths)
    experiment.save(place / "config.yaml")
    manifest.write_header(place, {"algo": "PPO", "env": "CartPole-v1", "iteration": 1, "versions": {}})
    return place


def by_a_stranger(monkeypatch):
    monkeypatch.setenv(signing.VARIABLE, STRANGER)


def by_me(monkeypatch):
    monkeypatch.setenv(signing.VARIABLE, "5e" * 32)


def test_a_native_policy_on_an_installed_environment_plays_without_trust(tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c")
    by_me(monkeypatch)
    assert rayfish.evaluate(place, episodes=1).episodes == 1
    assert rayfish.load(place).policies
    assert str(tmp_path / "theirs") not in sys.path


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["environment.env=rf_evil:Env"], "environment.env=rf_evil:Env"),
        (["environment.env=rf_evil.Env"], "environment.env=rf_evil.Env"),
        (["environment.env=theirs/rf_evil.py:Env"], "rf_evil.py:Env"),
        (["+evaluation.evaluation_config.env=rf_evil:Env"], "evaluation_config.env=rf_evil:Env"),
        (["environment.imports=[rf_evil]"], r"environment.imports=\['rf_evil'\]"),
        (["+environment.env_config.reward=rf_evil:reward"], "env_config.reward=rf_evil:reward"),
        (["+environment.env_config.reward=rf_evil.reward"], "env_config.reward=rf_evil.reward"),
    ],
)
def test_an_environment_by_import_path_is_imported_only_when_trusted(
    words, named, tmp_path, monkeypatch, marker
):
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c", *words)
    by_me(monkeypatch)
    for open_it in (rayfish.evaluate, rayfish.rollout, rayfish.view):
        with pytest.raises(NotTrusted, match=named):
            open_it(place, episodes=1)
    assert not marker.exists()
    if "env_config" not in words[0]:
        assert rayfish.evaluate(place, episodes=1, trust=True).episodes == 1
        assert marker.exists()


def test_a_policy_that_imports_or_unpickles_is_opened_only_when_trusted(tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    mapped = checkpoint(tmp_path / "mapped", policies=("a", "b"), mapping_function="rf_evil:which")
    custom = checkpoint(tmp_path / "custom")
    described = json.loads((custom / "policy/policy.json").read_text())
    described["policies"]["default_policy"]["model"]["custom_model"] = "rf_evil:Env"
    pickled = checkpoint(tmp_path / "pickled")
    for place, change in ((custom, {}), (pickled, {"kind": "rllib"})):
        described["policies"]["default_policy"] |= change
        (place / "policy/policy.json").write_text(json.dumps(described))
        manifest.write_header(place, manifest.read_header(place))
    by_me(monkeypatch)
    for place, why in ((mapped, "mapping of agents"), (custom, "model of policy"), (pickled, "pickled")):
        with pytest.raises(NotTrusted, match=why):
            rayfish.load(place)
        assert not marker.exists()
    assert rayfish.load(mapped, trust=True).policy_of("x") == "a"
    assert marker.exists()


def test_what_the_user_names_is_the_users_word(tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c", "environment.env=rf_evil:Env")
    by_me(monkeypatch)
    assert rayfish.evaluate(place, "environment.env=CartPole-v1", episodes=1).episodes == 1
    Path("mine.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Env\n")
    assert rayfish.evaluate(place, "environment.env=mine:Env", episodes=1, steps=None).episodes == 1
    assert not marker.exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("environment: {env: '${debugging.x}'}\ndebugging: {x: 'rf_evil:Env'}", []),
        ("environment: {env: '${debugging.x}'}\ndebugging: {x: 'rf_evil:Env'}", ["debugging.seed=1"]),
        ("environment: {env: 'rf_evil:Env${debugging.seed}'}\ndebugging: {seed: 0}", ["debugging.seed=1"]),
        ("environment: {env: CartPole-v1, env_config: {reward: ' rf_evil:reward '}}", ["debugging.seed=1"]),
        ("environment: {env: CartPole-v1, env_config: {a: [{b: 'a b/rf_evil.py'}]}}", ["debugging.seed=1"]),
        ("environment: {env: rf_evil:Env, env_config: {}}", ["environment={clip_rewards: null}"]),
    ],
)
def test_a_name_that_shows_only_under_the_users_words_is_not_the_users(
    lines, words, tmp_path, monkeypatch, marker
):
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c")
    head = f"# paths: {json.dumps([str(tmp_path / 'theirs')])}\nalgo: {{name: PPO}}  # command line\n"
    (place / "config.yaml").write_text(f"{head}{lines}  # command line\n")
    manifest.write_header(place, manifest.read_header(place))
    by_me(monkeypatch)
    with pytest.raises(NotTrusted, match=r"rf_evil|debugging\.x"):
        rayfish.evaluate(place, *words, episodes=1)
    assert not marker.exists()


def with_config(place: Path, text: str) -> Path:
    """A checkpoint with another config.yaml, signed with the key of now; the stranger's folder is in it."""
    head = f"# paths: {json.dumps([str(place.parent / 'theirs')])}\n"
    (place / "config.yaml").write_text(head + text + ("" if "algo:" in text else "\nalgo: {name: PPO}\n"))
    manifest.write_header(place, manifest.read_header(place))
    return place


CARTPOLE = "environment: {env: CartPole-v1}\n"
FIRE = "environment: {env: rayfish/Wildfire-v0}\n"
FIRE_WITH = "environment: {env: rayfish/Wildfire-v0, env_config: "
FILE = "THEIRS/rf_evil.py"
HOSTILE = {
    "pairs": f"{CARTPOLE}evaluation: {{evaluation_config: [[env, '{FILE}:Env']]}}",
    "pairs of env_config": f"{CARTPOLE}evaluation: {{evaluation_config: [[env, rayfish/Wildfire-v0], "
    f"[env_config, {{reward: '{FILE}:reward'}}]]}}",
    "pairs as env_config": f"{FIRE_WITH}[[reward, '{FILE}:reward']]}}",
    "pairs as evaluation's env_config": f"{FIRE}evaluation: {{evaluation_config: "
    f"{{env_config: [[reward, '{FILE}:reward']]}}}}",
    "sections of pairs": f"environment: [[env, '{FILE}:Env']]\n"
    f"evaluation: [[evaluation_config, {{env: '{FILE}:Env'}}]]",
    "!!pairs": f"{CARTPOLE}evaluation: {{evaluation_config: !!pairs [env: '{FILE}:Env']}}",
    "!!omap": f"{CARTPOLE}evaluation: {{evaluation_config: !!omap [env: '{FILE}:Env']}}",
    "long tag": f"{CARTPOLE}evaluation: {{evaluation_config: !<tag:yaml.org,2002:omap> [env: '{FILE}:Env']}}",
    "tag by a directive": f"%TAG !e! tag:yaml.org,2002:\n---\nalgo: {{name: PPO}}\n{CARTPOLE}"
    f"evaluation: {{evaluation_config: !e!omap [env: '{FILE}:Env']}}",
    "!!set": f"{FIRE_WITH}{{reward: !!set {{'{FILE}:reward'}}}}}}",
    "!!binary": FIRE_WITH + "{reward: !!binary cmZfZXZpbDpyZXdhcmQ=}}",
    "anchor": f"debugging: {{x: &a [[env, '{FILE}:Env']]}}\n{CARTPOLE}evaluation: {{evaluation_config: *a}}",
    "merge": f"debugging: {{x: &a {{env: '{FILE}:Env'}}}}\n{CARTPOLE}"
    "evaluation: {evaluation_config: {<<: *a}}",
    "key written twice": f"{CARTPOLE}environment: {{env: '{FILE}:Env'}}",
    "variable": f"{CARTPOLE}evaluation: {{evaluation_config: "
    f"{{env: '${{oc.env:RF_NOT_SET,\"{FILE}:Env\"}}'}}}}",
    "variable that decodes": f"{CARTPOLE}evaluation: {{evaluation_config: "
    f'\'${{oc.decode:${{oc.env:RF_NOT_SET,"[[env, \\"{FILE}:Env\\"]]"}}}}\'}}',
    "variable of env_config": "environment: {env: rayfish/Wildfire-v0, env_config: "
    "{reward: '${oc.env:RF_NOT_SET,rf_evil}.reward'}}",
    "reference": f"debugging: {{x: '{FILE}:Env'}}\n{CARTPOLE}"
    "evaluation: {evaluation_config: {env: '${debugging.x}'}}",
    "reference in env_config": "debugging: {x: 'rf_evil:reward'}\n"
    "environment: {env: rayfish/Wildfire-v0, env_config: {reward: '${debugging.x}'}}",
    "reference to a section": f"debugging: {{x: [[env, '{FILE}:Env']]}}\n{CARTPOLE}"
    "evaluation: {evaluation_config: '${debugging.x}'}",
    "spaces": f"environment: {{env: ' {FILE}:Env '}}",
    "no colon": "environment: {env: rf_evil}",
    "list as a name": "environment: {env: ['rf_evil:Env']}",
    "list as a dotted name": "environment: {env: [rf_evil.Env]}",
    "imports as text": "environment: {env: CartPole-v1, imports: rf_evil}",
    "imports as keys": "environment: {env: CartPole-v1, imports: {rf_evil: 1}}",
    "env_config as keys": FIRE_WITH + "{reward: {'rf_evil:reward': 1}}}",
    "signs that only names have": FIRE_WITH + "{reward: rf_\u2118.reward}}",
    "old section": f"{CARTPOLE}env_config: {{env: '{FILE}:Env'}}\nevaluation_config: {{env: '{FILE}:Env'}}",
    "old key of today's": f"{CARTPOLE}env: '{FILE}:Env'\nconfig: {{env: '{FILE}:Env'}}",
    "upper case": f"{CARTPOLE}Environment: {{env: '{FILE}:Env'}}\nENVIRONMENT: {{ENV: '{FILE}:Env'}}",
    "dotted key": f"{CARTPOLE}evaluation.evaluation_config.env: '{FILE}:Env'\n"
    f"evaluation: {{evaluation_config.env: '{FILE}:Env', 'evaluation_config ': {{env: '{FILE}:Env'}}}}",
    "other code": f"{CARTPOLE}training: {{model: {{custom_model: rf_pack.inner:Env}}}}\n"
    "callbacks: {callbacks_class: rf_pack.inner:Env, on_episode_end: ['rf_evil:which']}\n"
    "multi_agent: {policies: {a: {model: {custom_model: rf_pack.inner:Env}}}, "
    "policy_mapping_fn: 'rf_pack.inner:which'}\n"
    "rl_module: {rl_module_spec: rf_pack.inner:Env}\nlearners: {learner_class: rf_pack.inner:Env}\n"
    "rollouts: {env_to_module_connector: 'rf_pack.inner:Env', sample_collector: 'rf_evil:Env'}\n"
    "evaluation: {custom_evaluation_function: 'rf_pack.inner:Env', evaluation_config: {imports: [rf_evil], "
    "callbacks: {callbacks_class: rf_evil:Env}, env_task_fn: 'rf_evil:which'}}\n"
    "algo: {name: PPO, checkpoint_path: rf_evil:Env}",
}


@pytest.mark.parametrize("words", [[], ["debugging.seed=1"], ["environment.env=CartPole-v1"]], ids=len)
@pytest.mark.parametrize("form", HOSTILE)
def test_no_form_of_a_strangers_config_imports_their_code(form, words, tmp_path, monkeypatch, marker):
    package = tmp_path / "theirs/rf_pack"
    package.mkdir()
    for file in (package / "__init__.py", package / "inner.py", tmp_path / "theirs/rf_\u2118.py"):
        file.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    sys.path.append(str(tmp_path / "theirs"))  # as where Rayfish runs in their folder
    by_a_stranger(monkeypatch)
    place = with_config(checkpoint(tmp_path / "c"), HOSTILE[form].replace("THEIRS", str(tmp_path / "theirs")))
    by_me(monkeypatch)
    for open_it in (rayfish.evaluate, rayfish.rollout, rayfish.view):
        with contextlib.suppress(RayfishError):
            open_it(place, *words, episodes=1)
        assert not marker.exists(), form
    with contextlib.suppress(RayfishError):
        trust.contents(place)
    rayfish.load(place)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("of_all", "of_policy"),
    [
        ({"mapping_function": "rf_evil:which"}, {}),
        ({"algo": "rf_evil.Env"}, {}),
        ({"paths": "THEIRS"}, {"model": [["custom_model", "rf_evil:Env"]]}),
        ({}, {"kind": "Native"}),
        ({}, {"kind": ["native"]}),
        ({}, {"model": {"custom_model": ["rf_evil:Env"]}}),
        ({}, {"model": {"custom_model": "rf_evil"}}),
        ({}, {"observation_space": {"kind": "rf_evil:Env"}}),
        ({}, {"observation_space": {"kind": "Box", "shape": [4], "dtype": "rf_evil.Env"}}),
        ({}, {"observation_space": {"kind": "Box", "shape": [1], "dtype": "O", "low": "1", "high": "1"}}),
    ],
)
def test_no_form_of_a_strangers_policy_imports_their_code(of_all, of_policy, tmp_path, monkeypatch, marker):
    sys.path.append(str(tmp_path / "theirs"))
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c")
    data = json.loads((place / "policy/policy.json").read_text())
    model = data["policies"]["default_policy"]["model"]
    model["paths"] = [str(tmp_path / "elsewhere")]
    if isinstance(of_policy.get("model"), dict):
        of_policy = {"model": model | of_policy["model"]}
    data["policies"]["default_policy"] |= of_policy
    (place / "policy/policy.json").write_text(json.dumps(data | of_all))
    manifest.write_header(place, manifest.read_header(place))
    by_me(monkeypatch)
    with contextlib.suppress(Exception):
        rayfish.load(place).act([0.0] * 4, agent_id="x")
    assert not marker.exists()
    assert str(tmp_path / "elsewhere") not in sys.path


def test_a_folder_of_pickles_that_became_a_link_is_damaged(tmp_path):
    place = checkpoint(tmp_path / "c")
    inner = place / "algorithm/learner_group/learner/rl_module"
    inner.mkdir(parents=True)
    (inner / "state.pkl").write_bytes(b"mine")
    manifest.write_header(place, manifest.read_header(place))
    (place / "algorithm").rename(tmp_path / "moved")
    (tmp_path / "moved/learner_group/learner/rl_module/more.pkl").write_bytes(b"theirs")
    (place / "algorithm").symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="is damaged: algorithm"):
        manifest.require_files(place, "algorithm/learner_group/learner/rl_module/")


def test_my_word_for_a_key_is_not_a_strangers_old_name_for_it(tmp_path, monkeypatch, marker):
    for number, old in enumerate(("env: {env: 'rf_evil:Env'}", "rollouts: {env: 'rf_evil:Env'}")):
        by_a_stranger(monkeypatch)
        place = with_config(checkpoint(tmp_path / f"c{number}"), f"{CARTPOLE}{old}\n")
        by_me(monkeypatch)
        with contextlib.suppress(RayfishError):
            rayfish.evaluate(place, "environment.env=CartPole-v1", episodes=1)
        assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "evaluation: {evaluation_config: [[env, CartPole-v1]]}",
            r"evaluation\.evaluation_config: is a list",
        ),
        ("evaluation: [[evaluation_config, {}]]", "evaluation: is a list"),
        ("evaluation: {evaluation_config: !!omap [env: CartPole-v1]}", "line 3: the tag !!omap"),
    ],
)
def test_a_section_that_is_no_mapping_is_refused(text, what, tmp_path):
    place = with_config(checkpoint(tmp_path / "c"), CARTPOLE + text)
    with pytest.raises(RayfishError, match=what):
        rayfish.evaluate(place, episodes=1)


def test_my_own_checkpoint_runs_my_code_without_a_question(tmp_path, marker):
    place = checkpoint(tmp_path / "c", "environment.env=rf_evil:Env")
    assert rayfish.evaluate(place, episodes=1).episodes == 1
    assert marker.exists()


def test_a_file_of_mine_that_was_changed_is_damaged_not_run(tmp_path, marker):
    place = checkpoint(tmp_path / "c")
    config = (place / "config.yaml").read_text()
    (place / "config.yaml").write_text(config.replace("CartPole-v1", "rf_evil:Env"))
    with pytest.raises(CheckpointError, match=r"is damaged: config\.yaml"):
        rayfish.evaluate(place, episodes=1, trust=True)
    manifest.write_header(place, dict.fromkeys((), 1) | manifest.read_header(place))
    header = json.loads((place / "rayfish.json").read_text())
    (place / "rayfish.json").write_text(json.dumps({k: v for k, v in header.items() if k != "seal"}))
    with pytest.raises(CheckpointError, match=r"is damaged: rayfish\.json"):
        rayfish.evaluate(place, episodes=1)
    assert not marker.exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "opened"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_on_a_terminal_the_user_is_asked_and_the_default_is_no(answer, opened, tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    place = checkpoint(tmp_path / "c", "environment.env=rf_evil:Env")
    by_me(monkeypatch)
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown)
    if opened:
        rayfish.evaluate(place, episodes=1)
        rayfish.evaluate(place, episodes=1)  # asked once
    else:
        with pytest.raises(NotTrusted, match="--trust"):
            rayfish.evaluate(place, episodes=1)
    assert marker.exists() == opened
    asked = shown.getvalue()
    assert asked.count("[y/N]") == 1
    assert "environment.env=rf_evil:Env is imported" in asked


def made_run(place: Path, *words: str) -> RunDirectory:
    experiment = Experiment.compose("cartpole", [*words])
    run = RunDirectory.create(Experiment(experiment.config, paths=(str(place),)), at=place / "run")
    run.finish("stopped", "for the test")
    return run


def test_a_run_of_a_stranger_or_with_another_config_is_not_resumed(tmp_path, monkeypatch, marker):
    words = ("environment.env=rf_evil:Env", "stop_conditions.training_iteration=1")
    by_a_stranger(monkeypatch)
    theirs = made_run(tmp_path / "a", *words)
    by_me(monkeypatch)
    mine = made_run(tmp_path / "b")
    mine.config_file.write_text(mine.config_file.read_text().replace("CartPole-v1", "rf_evil:Env"))
    carried = made_run(tmp_path / "d")
    by_a_stranger(monkeypatch)
    checkpoint(carried.checkpoints / "000001")
    by_me(monkeypatch)
    for run, why in ((theirs, "rf_evil:Env"), (mine, "has changed since"), (carried, "pickled")):
        with pytest.raises(NotTrusted, match=f"not signed with your key.*{why}"):
            rayfish.train(resume=run.path, plain=True)
    with pytest.raises(NotTrusted, match="pickled"):
        rayfish.train(restore=carried.checkpoints / "000001", plain=True)
    with pytest.raises(RayfishError, match="not signed with your key"):
        rayfish.train("cartpole", f"algo.checkpoint_path={carried.checkpoints / '000001'}", plain=True)
    with pytest.raises(NotTrusted, match="pickled"):
        rayfish.Trainer.from_checkpoint(carried.checkpoints / "000001")
    assert not marker.exists()


def test_a_sweep_or_job_list_of_a_stranger_is_not_resumed(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    about = {"kind": "program", "source": {"program": {"command": f"touch {ran}"}}, "search": {}, "space": {}}
    by_a_stranger(monkeypatch)
    program = SweepDirectory.create(tmp_path, "program", about)
    jobs = SweepDirectory.create(tmp_path, "jobs", {"kind": "jobs"})
    read_jobs({"tasks": [{"name": "a", "command": f"touch {ran}"}]}).keep(jobs.path)
    by_me(monkeypatch)
    mine = SweepDirectory.create(tmp_path, "mine", {"kind": "function", "source": {"function": None}})
    (mine.path / "target.pkl").write_bytes(b"anything")
    for sweep in (program, jobs, mine):
        sweep.release()
        with pytest.raises(NotTrusted, match="not signed with your key"):
            rayfish.tune(resume=sweep.path)
        with pytest.raises(NotTrusted, match="not signed with your key"):
            app(args=["tune", "--resume", str(sweep.path)], standalone_mode=False)
    assert not ran.exists()


def test_signing_makes_a_run_and_its_checkpoints_my_own(tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    run = made_run(tmp_path / "a", "environment.env=rf_evil:Env")
    place = checkpoint(run.checkpoints / "000001", "environment.env=CartPole-v1")
    broken = checkpoint(run.checkpoints / "000002")
    by_me(monkeypatch)
    next((broken / "policy").glob("*.safetensors")).write_bytes(b"")
    left_out = trust.sign(run.path)
    assert ["000002 is damaged" in text for text in left_out] == [True]
    assert trust.config_is_own(run.path)
    assert trust.is_trusted(place)
    assert not trust.is_trusted(broken)


def test_a_run_that_was_trusted_to_go_on_is_my_own_from_then_on(tmp_path, monkeypatch):
    by_a_stranger(monkeypatch)
    run = made_run(tmp_path / "a")
    place = checkpoint(run.checkpoints / "000001")
    by_me(monkeypatch)
    trust.require_run(run.path, Experiment.load(run.config_file), trust=True)
    monkeypatch.setattr(trust, "_accepted", set())  # a later process
    trust.require_run(run.path, Experiment.load(run.config_file))
    assert manifest.is_own(place)


def test_the_key_is_in_no_file_of_a_run(tmp_path):
    run = made_run(tmp_path / "a")
    checkpoint(run.checkpoints / "000001")
    for file in (path for path in run.path.rglob("*") if path.is_file()):
        assert b"5e" * 32 not in file.read_bytes()


def test_trusting_a_run_names_what_each_checkpoint_would_run(tmp_path, marker):
    run = made_run(tmp_path / "a").path
    checkpoint(run / "checkpoints/000001")
    checkpoint(run / "checkpoints/000002", "environment.env=rf_evil:Env")
    checkpoint(run / "checkpoints/000003", "+environment.env_config.reward=rf_evil:reward")
    checkpoint(run / "checkpoints/000004", policies=("a", "b"), mapping_function="rf_evil:which")
    checkpoint(run / "checkpoints/000005")
    (run / "checkpoints/000005/config.yaml").write_text("- damaged")
    found = trust.contents(run)
    assert not any("000001: env" in line for line in found)
    assert "checkpoints/000002: environment.env=rf_evil:Env" in found
    assert "checkpoints/000003: environment.env_config.reward=rf_evil:reward" in found
    assert any(line.startswith("checkpoints/000004: the mapping of agents") for line in found)
    assert any(line.startswith("checkpoints/000005: ") and "cannot be read" in line for line in found)
    assert not marker.exists()


def test_a_checkpoint_that_lost_its_manifest_is_damaged(tmp_path):
    run = made_run(tmp_path / "a").path
    place = checkpoint(run / "checkpoints/000003")
    (place / "rayfish.json").unlink()
    for open_it in (rayfish.load, rayfish.evaluate):
        with pytest.raises(CheckpointError, match=r"000003 is damaged: rayfish\.json is missing"):
            open_it(place)
    (place / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"rayfish\.json is missing"):
        rayfish.load(place)
    (place / "policy").rename(tmp_path / "a/policy")
    assert rayfish.load(tmp_path / "a").policies, "a policy that was given away alone"


def test_a_policy_that_was_given_away_alone_has_checksums(tmp_path):
    place = checkpoint(tmp_path / "c")
    (place / "rayfish.json").unlink()
    (place / "config.yaml").unlink()
    weights = next((place / "policy").glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="are not as they were written"):
        rayfish.load(place)


def test_nothing_is_written_through_the_links_of_a_run(tmp_path, monkeypatch):
    by_a_stranger(monkeypatch)
    run = made_run(tmp_path / "a").path
    checkpoint(run / "checkpoints/000001")
    by_me(monkeypatch)
    mine, elsewhere = tmp_path / "mine.txt", tmp_path / "elsewhere"
    mine.write_text("mine")
    elsewhere.mkdir()
    (run / "view.gif").symlink_to(mine)
    assert rayfish.view(run).file == str(run / "view.gif")
    assert not (run / "view.gif").is_symlink()
    for folder, play in (("evaluations", rayfish.evaluate), ("rollouts", rayfish.rollout)):
        (run / folder).symlink_to(elsewhere)
        with pytest.raises(RayfishError, match=f"{folder} is a link to {elsewhere}, outside") as error:
            play(run, episodes=1)
        assert "--out" in error.value.hint
        play(run, episodes=1, out=tmp_path / f"my-{folder}")
    assert mine.read_text() == "mine"
    assert not list(elsewhere.iterdir())


def test_what_cannot_be_written_leaves_no_empty_folder(tmp_path, monkeypatch):
    run = made_run(tmp_path / "a").path
    checkpoint(run / "checkpoints/000001")

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rayfish.run.evaluate.atomic_write", full)
    monkeypatch.setattr("rayfish.run.rollout.atomic_write", full)
    for play in (rayfish.evaluate, rayfish.rollout):
        with pytest.raises(RayfishError, match="No space left on device"):
            play(run, episodes=1)
    assert not {"evaluations", "rollouts"} & {path.name for path in run.iterdir()}


def test_a_command_asks_names_the_flag_and_signs(tmp_path, monkeypatch, marker):
    by_a_stranger(monkeypatch)
    run = made_run(tmp_path / "a", "environment.env=rf_evil:Env").path
    place = checkpoint(run / "checkpoints/000001", "environment.env=rf_evil:Env")
    (tmp_path / "a/theirs").mkdir()
    by_me(monkeypatch)
    refused = rayfish_command("evaluate", str(run), "--episodes", "1", cwd=tmp_path, ok=False)
    assert refused.returncode == 1
    assert "environment.env=rf_evil:Env is imported" in refused.stderr
    assert "--trust" in refused.stderr
    unasked = rayfish_command("runs", "trust", str(run), cwd=tmp_path, ok=False)
    assert unasked.returncode == 1
    assert "environment.env=rf_evil:Env" in unasked.stdout
    assert not trust.is_trusted(place)
    assert "signed" in rayfish_command("runs", "trust", str(run), "--yes", cwd=tmp_path).stdout
    assert trust.is_trusted(place)
    assert not marker.exists()


def test_a_worker_signs_and_trusts_as_the_process_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setattr(signing, "_handed_over", None)
    trust.accept(tmp_path / "sweep")
    handed = trust.hand_over()
    assert "5e5e" not in repr(handed)
    monkeypatch.setattr(trust, "_accepted", set())
    by_a_stranger(monkeypatch)  # the key of another machine
    trust.take_over(handed)
    assert signing.key() == b"\x5e" * 32
    trust.require(tmp_path / "sweep/trials/1", ["its pickles"])
    with pytest.raises(NotTrusted):
        trust.require(tmp_path / "elsewhere", ["its pickles"])


def test_a_changed_table_of_a_sweep_cannot_set_other_keys_or_texts():
    from rayfish.sweep.searchers.base import require_point
    from rayfish.sweep.space import parameters_in

    space = parameters_in({"lr": "loguniform(1e-4,1e-2)", "net": {"choice": ["a", [64, 64]]}}, "space")
    require_point(space, {"lr": 0.5, "net": [64, 64]}, "trials.jsonl")
    for point in ({"environment.env": "os:system"}, {"lr": "os:system"}, {"net": "os:system"}):
        with pytest.raises(RayfishError, match=r"trials\.jsonl has a trial with .*os:system"):
            require_point(space, point, "trials.jsonl")
