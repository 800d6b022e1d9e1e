"""`rayfish env`: which environments there are, and what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.errors import RayfishError
from rayfish.text import counted

if TYPE_CHECKING:
    from rayfish.envs.build import EnvInfo
    from rayfish.envs.check import Finding
    from rayfish.terminal import Console

app = typer.Typer(help="Look at environments: list them, check one.", no_args_is_help=True)

_MARKS = {"error": "[bold red]✖[/]", "warning": "[yellow]▲[/]", "note": "[cyan]•[/]", "ok": "[green]✔[/]"}


@app.command()
def check(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="A Gymnasium id, package.module:Class, my_env.py:MyEnv, or any other name."
        ),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="env_config, for instance size=8.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Longest episode, as rollouts.horizon.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random episodes.")] = 0,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import first; it may register ENV."),
    ] = None,
) -> None:
    """Say what is wrong with an environment and how to fix it.

    [bold]rayfish env check my_env.py:MyEnv size=8[/bold]
    """
    from pathlib import Path

    from rich.markup import escape

    from rayfish.envs import build, guard
    from rayfish.envs.check import check as look
    from rayfish.terminal import Console

    console = Console(highlight=False)
    spec = build.EnvSpec(env, (str(Path.cwd()),), tuple(imports or ()), horizon)
    config = _env_config(words or [])
    with console.status(f"playing random episodes in {escape(env)}"):
        made = build.make(spec, config)
        try:
            info = _info(made, env)
            wrong, seen = _unlearnable(info), look(made, seed=seed)
            findings = wrong + [found for found in seen if not (wrong and found.topic == "spaces")]
        finally:
            guard.close(made)
    settings = [word.removeprefix("environment.").removeprefix("env_config.") for word in words or []]
    named = [f"environment.env={env}", *(f"environment.env_config.{word}" for word in settings)]
    again = " ".join(["algo.name=PPO", *named])  # PPO takes every kind of space that any algorithm takes
    _show(console, env, info, findings, again)
    if any(found.level == "error" for found in findings):
        raise typer.Exit(1)


@app.command("list")
def list_(
    pattern: Annotated[str, typer.Argument(help="Only ids that contain this.")] = "",
) -> None:
    """List the environments that can be named here, and what to install for the others."""
    from rich.columns import Columns
    from rich.markup import escape
    from rich.padding import Padding

    from rayfish.envs import catalog
    from rayfish.terminal import Console

    console = Console(highlight=False)
    groups = catalog.groups(pattern)
    for group in groups:
        needs = f"  [yellow]pip install {escape(group.install)}[/]" if group.install else ""
        console.print(f"[bold]{escape(group.title)}[/]{needs}")
        style = "dim" if group.install else "none"
        names = Columns(
            [f"[{style}]{escape(name)}[/]" for name in group.names], padding=(0, 3), column_first=True
        )
        console.print(Padding(names, (0, 0, 1, 2)))
    if not groups:
        console.print(f"no environment here has {escape(repr(pattern))} in its name")
    console.print(
        "Your own: [bold]my_env.py:MyEnv[/] or [bold]package.module:Class[/]; "
        "look at one with [bold]rayfish env check ENV[/]"
    )


def _env_config(words: list[str]) -> dict[str, Any]:
    """`size=8 map.width=3` as a nested dictionary; the full Hydra key works too."""
    import yaml

    from rayfish.experiment.yaml_reader import explain, safe_load

    config: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.lstrip("+").partition("=")
        if not equals or not key:
            raise RayfishError(f"{word!r} is not KEY=VALUE", "write the env_config as size=8 name=forest")
        key = key.removeprefix("environment.").removeprefix("env_config.")
        *parents, last = key.split(".")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
        try:
            place[last] = safe_load(text)
        except yaml.YAMLError as error:
            _, what, _ = explain(error, text)
            raise RayfishError(
                f"the value of {key} cannot be read: {what}", f"quote it: {key}='...'"
            ) from error
    return config


def _info(env: Any, name: str) -> EnvInfo | None:
    from rayfish.envs.build import info_of

    try:
        return info_of(env, name)
    except RayfishError:
        return None


def _unlearnable(info: EnvInfo | None) -> list[Finding]:
    """Spaces that no algorithm takes; PPO takes every kind that any of them does."""
    from rayfish.envs.check import Finding
    from rayfish.models.check import space_problems

    if info is None:
        return []
    found = []
    for agent in info.agents:
        for problem in space_problems(info.observation_spaces[agent], info.action_spaces[agent], "PPO"):
            what = problem.what.replace("PPO learns", "algorithms learn")
            found.append(Finding("error", "spaces", what, problem.hint))
    return list(dict.fromkeys(found))


def _show(console: Console, name: str, info: EnvInfo | None, findings: list[Finding], again: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    errors = sum(found.level == "error" for found in findings)
    warned = sum(found.level == "warning" for found in findings)
    console.print()
    console.print(f"[bold]{escape(name)}[/]  [dim]{escape(_summary(info))}[/]")
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(width=1)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for found in findings:
        text = escape(found.what)
        if found.hint:
            text += f"\n[bold]→[/] {escape(found.hint)}"
        table.add_row(_MARKS[found.level], found.topic, text)
    console.print(table)
    console.print()
    if errors:
        console.print(f"[bold red]{counted(errors, 'error')}[/] to fix before training.")
    elif warned:
        console.print(f"[green]It can be trained on[/], with [yellow]{counted(warned, 'warning')}[/].")
    else:
        console.print(f"[green]Fine.[/] Train on it: [bold]rayfish train {escape(again)}[/]")


def _summary(info: EnvInfo | None) -> str:
    if info is None:
        return ""
    if info.multi_agent:
        return f"{info.class_name}, {counted(len(info.agents), 'agent')}"
    return info.class_name
