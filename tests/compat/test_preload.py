"""What is imported ahead of time, and what is left out until something needs it."""

from __future__ import annotations

import subprocess
import sys


def alone(code: str) -> list[str]:
    """The lines that a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


OPTIMIZER = """
import sys
from rayfish.compat.preload import leave_out_compiler
leave_out_compiler()
import torch

def there(): return "torch._dynamo" in sys.modules, "torch._inductor" in sys.modules

weight = torch.nn.Parameter(torch.ones(3))
adam = torch.optim.Adam([weight])
adam.zero_grad()
adam.load_state_dict(adam.state_dict())
torch.use_deterministic_algorithms(True)
print(there(), torch.are_deterministic_algorithms_enabled())
"""


def test_an_optimizer_and_repeatable_kernels_do_without_the_compiler():
    assert alone(OPTIMIZER)[0] == "(False, False) True"


def test_a_compiler_that_comes_later_knows_what_was_asked_for():
    later = (
        "import torch._inductor.config as config; print(config.deterministic)\n"
        "torch.use_deterministic_algorithms(False); print(config.deterministic)\n"
    )
    assert alone(OPTIMIZER + later)[1:] == ["True", "False"]


def test_once_it_is_there_torch_keeps_it_away_from_optimizers_again():
    later = (
        "import torch._dynamo\n"
        "adam.zero_grad()\n"
        "print(torch.optim.Optimizer.zero_grad.__wrapped__.__dynamo_disable.__module__)\n"
        "weight.sum().backward(); adam.step(); print(weight[0].item() < 1)\n"
    )
    assert alone(OPTIMIZER + later)[1:] == ["torch._dynamo.eval_frame", "True"]


def test_only_warned_of_kernels_stay_warnings():
    later = (
        "torch.use_deterministic_algorithms(True, warn_only=True)\n"
        "print(torch.get_deterministic_debug_mode())"
    )
    assert alone(OPTIMIZER + later)[1:] == ["1"]


def test_all_that_an_algorithm_needs_is_there_and_jax_and_the_compiler_are_not():
    code = (
        "import sys, gc\n"
        "from rayfish.compat.preload import import_ahead\n"
        "import_ahead('DQN')\n"
        "wanted = ('torch', 'ray.rllib.algorithms.dqn.dqn', 'rayfish.algorithm.build')\n"
        "print([name in sys.modules for name in wanted], gc.isenabled())\n"
        "print(sorted({'jax', 'flax', 'torch._dynamo'} & set(sys.modules)))"
    )
    assert alone(code) == ["[True, True, True] True", "[]"]


def test_an_algorithm_that_cannot_be_imported_keeps_nothing_else_from_being_imported():
    code = (
        "import sys\n"
        "from rayfish.compat.preload import import_ahead\n"
        "import_ahead('NoSuchAlgorithm')\n"
        "print('rayfish.algorithm.build' in sys.modules, 'rayfish.algorithm.workers' in sys.modules)"
    )
    assert alone(code) == ["True True"]
