"""Private operations of torch do what their public counterparts do: a torch that moves them fails here."""

from __future__ import annotations

import torch

from rayfish.compat import torch_internals


def test_a_step_of_adam_is_that_of_the_public_optimizer():
    for options in ({}, {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-5}, {"maximize": True}):
        torch.manual_seed(0)
        public = torch.nn.Parameter(torch.randn(50))
        weights = public.detach().clone()
        optimizer = torch.optim.Adam([public], lr=0.01, **options)
        average, square, count = torch.zeros(50), torch.zeros(50), torch.zeros(())
        for rate in (0.01, torch.tensor(0.01)):
            gradient = torch.randn(50)
            public.grad = gradient.clone()
            optimizer.step()
            count.add_(1)
            torch_internals.adam_step(
                weights, gradient, average, square, count, group=optimizer.param_groups[0], rate=rate
            )
            torch.testing.assert_close(weights, public.detach())


def test_many_tensors_are_copied_and_blended_in_one_call():
    sources, targets = ([torch.randn(3), torch.randn(2, 2)] for _ in range(2))
    expected = [target.lerp(source, 0.3) for target, source in zip(targets, sources, strict=True)]
    torch_internals.lerp_all(targets, sources, 0.3)
    for target, value in zip(targets, expected, strict=True):
        torch.testing.assert_close(target, value)
    torch_internals.copy_all(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target, source)
