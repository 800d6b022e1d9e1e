"""All parameters of a policy in one flat tensor, so that a step of Adam is one operation.

The parameters, their gradients and Adam's moments become views of flat tensors; the modules, the
registered optimizer and what is saved of both keep their usual form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rayfish.compat import torch_internals


class FlatOptimiser:
    """Steps an optimizer over flat memory; Adam in one fused call, any other by its own `step`.

    :param optimizer: made over `parameters`, with one group
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self.optimizer = optimizer
        self.parameters = [p for p in parameters if p.requires_grad]
        self.weights = _flat([p.data for p in self.parameters])
        self.gradient = torch.zeros_like(self.weights)
        for p, view, gradient in zip(
            self.parameters, self._views(self.weights), self._views(self.gradient), strict=True
        ):
            p.data, p.grad = view, gradient
        self.gradients = {id(p): p.grad for p in self.parameters}
        self.moments: tuple[Tensor, Tensor, Tensor] | None = None
        """Adam's moments and its count of steps; a new tuple wherever their memory is another."""
        self._first: Tensor | None = None
        group = optimizer.param_groups[0]
        plain = type(optimizer) is torch.optim.Adam and len(optimizer.param_groups) == 1
        # AdamW and AMSGrad take their own steps.
        self.is_adam = plain and not group["amsgrad"] and not group.get("decoupled_weight_decay")

    def attach(self) -> None:
        """Before a series of steps: take over a state that was loaded into the optimizer since."""
        for p in self.parameters:
            if p.grad is not self.gradients[id(p)]:
                p.grad = self.gradients[id(p)]
        state = self.optimizer.state
        if not self.is_adam:
            return
        first = state.get(self.parameters[0])
        if self.moments is not None and first and first.get("exp_avg") is self._first:
            return
        moments = {}
        for name in ("exp_avg", "exp_avg_sq"):
            old = [
                state[p][name] if p in state and name in state[p] else torch.zeros_like(p)
                for p in self.parameters
            ]
            moments[name] = _flat([part.to(self.weights.device) for part in old])
        count = state[self.parameters[0]].get("step", 0.0)
        step = torch.as_tensor(float(count), device=self.weights.device)
        views = [self._views(moments[name]) for name in ("exp_avg", "exp_avg_sq")]
        for p, average, square in zip(self.parameters, *views, strict=True):
            state[p] = {"step": step, "exp_avg": average, "exp_avg_sq": square}
        self._first = state[self.parameters[0]]["exp_avg"]
        self.moments = moments["exp_avg"], moments["exp_avg_sq"], step

    @property
    def rate(self) -> float:
        """The learning rate now."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self, rate: Tensor | None = None) -> None:
        """One step along `gradient`, which must be filled.

        :param rate: the learning rate as a tensor, for a graph that is recorded; Adam's alone
        """
        if not self.is_adam or self.moments is None:
            self.optimizer.step()
            return
        group = self.optimizer.param_groups[0]
        average, square, count = self.moments
        count.add_(1)
        torch_internals.adam_step(
            self.weights,
            self.gradient,
            average,
            square,
            count,
            group=group,
            rate=group["lr"] if rate is None else rate,
        )

    def clip(self, limit: float | None, by: str) -> Tensor | None:
        """Clip the gradient as RLlib's `grad_clip` and `grad_clip_by` say; returns a global norm before."""
        if limit is None:
            return None
        if by == "global_norm":
            return _shorten(self.gradient, limit)
        if by == "value":
            self.gradient.clamp_(-limit, limit)
        else:  # the norm of each tensor by itself
            for p in self.parameters:
                _shorten(self.gradients[id(p)], limit)
        return None

    def _views(self, flat: Tensor) -> list[Tensor]:
        sizes = [p.numel() for p in self.parameters]
        return [part.view(p.shape) for part, p in zip(flat.split(sizes), self.parameters, strict=True)]


class DenormalFreeOptimiser(FlatOptimiser):
    """Adam over flat memory, whose fading moments become 0 before they become denormal numbers.

    The moments of a ReLU that no longer fires shrink by a constant factor in every step; numbers too small
    for a float's usual form make a step of the CPU's Adam ten times slower. What is cut off is far below
    what can change a weight.
    """

    _every = 128  # 0.9 ** 128 is 1e-6: nothing falls from `_tiny` into the denormal numbers in between
    _tiny = 1e-30

    def attach(self) -> None:
        """Before a series of steps: take over a state that was loaded into the optimizer since."""
        super().attach()
        # Adam's own count, so that a resumed run cuts off at the same steps.
        self._count = 0 if self.moments is None else int(self.moments[2])

    def step(self, rate: Tensor | None = None) -> None:
        """One step along `gradient`."""
        super().step(rate)
        self._count += 1
        if self.moments is not None and self._count % self._every == 0:
            for moment in self.moments[:2]:
                moment.masked_fill_(moment.abs() < self._tiny, 0.0)


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _shorten(gradient: Tensor, limit: float) -> Tensor:
    """To at most `limit` long, without a branch that would wait for the device; returns the length before."""
    norm = torch.linalg.vector_norm(gradient)
    gradient.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))
    return norm
