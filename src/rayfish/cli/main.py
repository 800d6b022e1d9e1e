"""The `rayfish` command: verbs, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from rayfish import __version__
from rayfish.cli import config, doctor, env, evaluate, old_train, rollout, runs, train
from rayfish.cli.usage import ClickException, as_error
from rayfish.errors import RayfishError

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
app.command()(evaluate.evaluate)
app.command()(rollout.rollout)
app.add_typer(config.app, name="config")
app.add_typer(env.app, name="env")
app.add_typer(runs.app, name="runs")
app.command()(doctor.doctor)

_HYDRA_FLAGS = ("-cn", "--config-name", "-cd", "--config-dir", "-m", "--multirun")
_MODES = {"train": "train"}
_LATER = {"tune": "rayfish tune", "view": "rayfish view"}


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


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script; exits with 0, or with the error's own code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" in words:  # may stand anywhere on the line
        words.remove("--debug")
        os.environ["RAYFISH_DEBUG"] = "1"
    if words in ([], ["--help"], ["-h"]) and "_RAYFISH_COMPLETE" not in os.environ:
        print(overview(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
        return
    words = _with_verb(words)
    if words[0] == "train":
        _settle_hashes()
    try:
        old = None
        if words[0] == "train":
            rest, old = old_train.take(words[1:])
            words = ["train", *rest]
        sys.exit(app(args=words, prog_name="rayfish", standalone_mode=False, obj=old) or 0)
    except RayfishError as error:
        if os.environ.get("RAYFISH_DEBUG"):
            raise
        show(error)
        sys.exit(error.exit_code)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            show(as_error(error, words))
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `rayfish config show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("RAYFISH_DEBUG"):
            raise
        show(_unforeseen(error))
        sys.exit(1)


def _settle_hashes() -> None:
    """Starts the command anew, in the same process, with the order of sets settled.

    RLlib walks through sets of agent and policy names, so that a run of several agents would
    otherwise never repeat. Only an interpreter that starts can be told so.
    """
    script = sys.orig_argv[1] if len(sys.orig_argv) > 1 else ""
    if "PYTHONHASHSEED" not in os.environ and os.path.basename(script) == "rayfish":  # noqa: PTH119
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _unforeseen(error: Exception) -> RayfishError:
    """An exception nobody made a message for: one line now, the traceback kept in a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="rayfish-error-", suffix=".txt", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return RayfishError(
        f"{text} ({last.filename}:{last.lineno}); the whole traceback is in {file.name}",
        "this should have had a message of its own: please report it with that file",
    )


def overview(*, colour: bool) -> str:
    """The help of `rayfish` alone, from the verbs' own docstrings.

    Typer's would import Rich to draw it, which takes longer than all the rest; verbs' help pages do.
    """
    bold, plain = ("\x1b[1m", "\x1b[0m") if colour else ("", "")
    verbs = {
        str(c.name or c.callback.__name__): _first_line(c.callback)
        for c in app.registered_commands
        if c.callback
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


def show(error: RayfishError) -> None:
    """Prints an error to stderr: what happened in red, the next steps readable below."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    text = Text("error: ", style="bold red")
    for number, line in enumerate(str(error).splitlines()):
        style = "dim" if line.strip().startswith("written in:") else ""
        style = "cyan" if line.strip().startswith("next step:") else style
        text.append(("\n" if number else "") + line, style=style)
    console.print(text)


def _with_verb(words: list[str]) -> list[str]:
    """`rayfish cli.mode=train ...`, the way of Hydra programs, means `rayfish train ...`."""
    if not words or not ("=" in words[0] or words[0] in _HYDRA_FLAGS):
        return words
    modes = [word.partition("=")[2] for word in words if word.startswith("cli.mode=")]
    mode = modes[-1] if modes else "train"
    if mode in _LATER:
        raise SystemExit(_unknown_mode(mode, f"{_LATER[mode]} is not in this version"))
    if mode not in _MODES:
        raise SystemExit(_unknown_mode(mode, "no such mode"))
    return [_MODES[mode], *words]


def _unknown_mode(mode: str, why: str) -> int:
    show(RayfishError(f"cli.mode={mode}: {why}", "cli.mode=train"))
    return 2


if __name__ == "__main__":
    main()
