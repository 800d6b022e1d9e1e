"""The verbs of `rayfish` and the options of every verb; `main` runs them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from rayfish import __version__
from rayfish.cli import config, doctor, env, evaluate, rollout, runs, train, tune, view

SUMMARY = "From a simulator and one experiment file to a trained, measured, reproducible agent, on Ray."

app = typer.Typer(
    name="rayfish",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=SUMMARY,
)
app.command(no_args_is_help=False)(train.train)
app.command(cls=tune.TuneCommand)(tune.tune)
app.command()(evaluate.evaluate)
app.command()(rollout.rollout)
app.command()(view.view)
app.command("view-mode", hidden=True)(view.view_mode)
app.add_typer(config.app, name="config")
app.add_typer(env.app, name="env")
app.add_typer(runs.app, name="runs")
app.command()(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rayfish {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every verb."""
    if debug:
        os.environ["RAYFISH_DEBUG"] = "1"


def overview(*, colour: bool) -> str:
    """The help of `rayfish` alone, from the verbs' own docstrings.

    Typer's would import Rich to draw it, which takes longer than all the rest; verbs' help pages do.
    """
    bold, plain = ("\x1b[1m", "\x1b[0m") if colour else ("", "")
    verbs = {
        str(c.name or c.callback.__name__): _first_line(c.callback)
        for c in app.registered_commands
        if c.callback and not c.hidden
    }
    verbs |= {
        str(group.name): str(group.typer_instance.info.help)
        for group in app.registered_groups
        if group.typer_instance
    }
    options = {
        "--version": "Print the version and exit.",
        "--debug": "Show the traceback of an error.",
        "--install-completion": "Tab completion of verbs, experiments and settings for your shell.",
        "-h, --help": "This page; rayfish VERB --help for a verb's own.",
    }

    def table(rows: dict[str, str]) -> list[str]:
        return [f"  {bold}{name:<20}{plain}  {text}" for name, text in rows.items()]

    return "\n".join(
        [
            f"{bold}Usage: rayfish VERB [OPTIONS] [WORDS]...{plain}",
            "",
            SUMMARY,
            "",
            "Verbs:",
            *table(verbs),
            "",
            "Options:",
            *table(options),
            "",
            f"Start with {bold}rayfish train cartpole{plain}, then {bold}rayfish evaluate last{plain}.",
        ]
    )


def _first_line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().splitlines()[0]
