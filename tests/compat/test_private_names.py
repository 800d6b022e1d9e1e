"""The private names of Ray and Hydra that Rayfish uses are where it looks for them."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune.registry import register_env

from rayfish.compat import hydra_defaults, ray_internals, ray_node


class Worker:
    def pid(self) -> int:
        return os.getpid()


def test_the_dispatcher_of_worker_output_calls_its_handlers():
    dispatcher = type(ray_internals.worker_output_dispatcher())()
    received = []
    dispatcher.add_handler("ray_print_logs", received.append)
    assert [name for name, _ in dispatcher.handlers] == ["ray_print_logs"]
    dispatcher.emit({"lines": ["one"]})
    assert received == [{"lines": ["one"]}]


def test_rays_table_of_actors_has_an_actors_process(ray_session):
    actor = ray_session.remote(num_cpus=0)(Worker).remote()
    pid = ray_session.get(actor.pid.remote())
    row = ray_internals.actor_row(actor)
    assert (row.pid, row.num_restarts, row.ActorState.Name(row.state)) == (pid, 0, "ALIVE")


def test_a_creator_that_was_registered_with_ray_is_found(ray_session):
    register_env("compat-names", make := lambda config: config)
    assert ray_node.registered_creator("compat-names")(7) == make(7) == 7
    assert ray_node.registered_creator("compat-no-names") is None


def test_rllib_marks_deprecated_parameters_with_the_value():
    defaults = [
        parameter.default
        for _, method in inspect.getmembers(AlgorithmConfig, inspect.isfunction)
        for parameter in inspect.signature(method).parameters.values()
    ]
    value = ray_internals.deprecated_value()
    assert any(type(default) is type(value) and default == value for default in defaults)


def test_rays_copy_of_pynvml_has_what_the_gpu_metrics_call():
    pynvml = ray_internals.bundled_pynvml()
    for name in ("Init", "DeviceGetCount", "DeviceGetHandleByIndex", "DeviceGetUtilizationRates"):
        assert callable(getattr(pynvml, f"nvml{name}"))


def test_hydra_lists_the_defaults_of_a_file_without_its_values(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "main.yaml").write_text("")
    (tmp_path / "model" / "small.yaml").write_text("# @package sizes\n")
    values = {"main.yaml": {"defaults": ["_self_", {"model": "large"}]}, "small.yaml": {}}

    listed = hydra_defaults.defaults_list(
        "main", ["model=small"], [tmp_path], lambda path: (values[path.name], path.read_text())
    )

    assert [(default.config_path, default.package) for default in listed.defaults] == [
        ("main", ""),
        ("model/small", "sizes"),
    ]
    assert listed.overrides.known_choices["model"] == "small"
