"""Private names of Gymnasium, OmegaConf and Optuna are where Rayfish looks; no other room touches any."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import gymnasium as gym
import optuna
import pytest
import yaml

import rayfish
from rayfish.compat import library_internals as internals

OF_PYTHON = {"_exit", "_current_frames", "_shutdown", "_run_exitfuncs", "_asdict", "_fields"}
OF_RLLIB_MODULES = {"_target_encoder", "_target_af", "_target_vf"}  # our module's, by RLlib's names
OF_OLD_ENVS = {"_agent_ids"}  # an attribute of users' environments


def test_omegaconfs_loader_reads_numbers_and_refuses_a_key_written_twice():
    loader = internals.omegaconf_loader()
    assert yaml.load("lr: 1e-3", loader) == {"lr": 0.001}
    with pytest.raises(yaml.constructor.ConstructorError):
        yaml.load("a: 1\na: 2", loader)


def test_gymnasiums_worker_takes_what_a_process_gives_it():
    names = list(inspect.signature(internals.async_worker()).parameters)
    assert names[:6] == ["index", "env_fn", "pipe", "parent_pipe", "shared_memory", "error_queue"]


def test_a_wrapper_keeps_the_spec_it_was_asked_for():
    env = gym.make("CartPole-v1")
    assert env.spec is not None and internals.cached_spec(env) is env.spec
    internals.set_cached_spec(env, None)
    assert internals.cached_spec(env) is None


def test_an_atari_game_has_its_kind_of_observation_and_its_frameskip():
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    game = gym.make("ALE/Pong-v5", frameskip=2).unwrapped
    assert internals.atari_settings(game) == ("rgb", 2)


@pytest.mark.parametrize(
    "sampler", [optuna.samplers.TPESampler, optuna.samplers.RandomSampler, optuna.samplers.NSGAIISampler]
)
def test_a_seeded_sampler_proposes_the_same_again(sampler):
    def proposed() -> list[float]:
        study = optuna.create_study(sampler=sampler())
        points = []
        for number in range(3):
            internals.seed_sampler(study.sampler, [7, number])
            points.append(study.ask().suggest_float("x", 0.0, 1.0))
        return points

    assert proposed() == proposed()


def test_private_names_of_libraries_are_touched_in_compat_only():
    root = Path(rayfish.__file__).parent
    trees = {
        path.relative_to(root): ast.parse(path.read_text(encoding="utf-8")) for path in root.rglob("*.py")
    }
    own = {name for tree in trees.values() for node in ast.walk(tree) for name in _defined(node)}
    own |= OF_PYTHON | OF_RLLIB_MODULES | OF_OLD_ENVS
    touched = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in trees.items()
        if path.parts[0] != "compat" and path.parts[:2] != ("sweep", "schedulers")  # subclasses of Tune's
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if node.attr not in own and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]
    assert touched == []


def _defined(node: ast.AST) -> list[str]:
    """Names that a piece of code gives to something."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr] if ast.unparse(node.value) in ("self", "cls") else []
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []
