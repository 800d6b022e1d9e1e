"""All parameters of a policy in one flat tensor, so that a step of Adam is one operation.

The parameters, their gradients and Adam's moments become views of flat tensors; the modules, the
registered optimizer and what is saved of both keep their usual form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatOptimiser:
    """Steps an optimizer over flat memory; Adam in one fused call, any other by its own `step`.

    :param optimizer: made over `parameters`, with one group
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self.optimizer = optimizer
        self.parameters = [p for p in parameters if p.requires_grad]
        self.weights = _flat([p.data for p in self.parameters])
        self.gradient = torch.zeros_like(self.weights)
        for p, view, slope in zip(
            self.parameters, self._views(self.weights), self._views(self.gradient), strict=True
        ):
            p.data, p.grad = view, slope
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
        torch._fused_adam_(
            [self.weights],
            [self.gradient],
            [average],
            [square],
            [],
            [count],
            lr=group["lr"] if rate is None else rate,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
            grad_scale=None,
            found_inf=None,
        )

    def clip(self, limit: float | None, by: str) -> None:
        """Clip the gradient as RLlib's `grad_clip` and `grad_clip_by` say."""
        if limit is None:
            return
        if by == "value":
            self.gradient.clamp_(-limit, limit)
        elif by == "norm":  # of each tensor by itself
            for p in self.parameters:
                _shorten(self.gradients[id(p)], limit)
        else:
            _shorten(self.gradient, limit)

    def _views(self, flat: Tensor) -> list[Tensor]:
        sizes = [p.numel() for p in self.parameters]
        return [part.view(p.shape) for part, p in zip(flat.split(sizes), self.parameters, strict=True)]


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


def _shorten(gradient: Tensor, limit: float) -> None:
    """To at most `limit` long; without a branch, so that nothing waits for the device."""
    norm = torch.linalg.vector_norm(gradient)
    gradient.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))
