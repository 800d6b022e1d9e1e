"""A network as a text table, and under the names that old RLlib code asks for it."""

from __future__ import annotations

from typing import Any

from torch import nn


def summary(module: nn.Module, title: str) -> str:
    """Layers with parameters: name, kind, shapes, how many numbers."""
    lines = [("layer", "kind", "shape", "parameters")]
    for name, part in module.named_modules():
        own = list(part.parameters(recurse=False))
        if own:
            shapes = " + ".join("x".join(map(str, parameter.shape)) for parameter in own)
            lines.append((name, type(part).__name__, shapes, f"{sum(p.numel() for p in own):,}"))
    total = sum(parameter.numel() for parameter in module.parameters())
    lines.append(("total", "", "", f"{total:,}"))
    wide = [max(len(line[column]) for line in lines) for column in range(4)]
    rows = [
        f"{name:<{wide[0]}}  {kind:<{wide[1]}}  {shape:<{wide[2]}}  {count:>{wide[3]}}"
        for name, kind, shape, count in lines
    ]
    return "\n".join([title, *rows])


class Model:
    """A torch module as `policy.model`: `model.base_model.summary()` prints its layers.

    Every other attribute is the module's own.
    """

    def __init__(self, module: nn.Module, title: str) -> None:
        self.module = module
        self._title = title

    @property
    def base_model(self) -> Model:
        """Itself; old TensorFlow models kept their Keras model there."""
        return self

    def summary(self) -> None:
        """Prints layers, shapes and parameter counts."""
        print(summary(self.module, self._title))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The module's forward pass."""
        return self.module(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        return repr(self.module)
