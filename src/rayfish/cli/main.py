"""The `rayfish` command: the one place where errors become messages and exit codes.

Imports nothing at first: `rayfish train` begins again with settled hashes, and what was imported
before that would be imported twice.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
from typing import NoReturn

from rayfish.errors import RayfishError, did_you_mean
from rayfish.streams import printable_output
from rayfish.text import printable

_HYDRA_FLAGS = (
    *("-cn", "--config-name", "-cd", "--config-dir", "-m", "--multirun"),
    *("-c", "--cfg", "-p", "--package", "--resolve"),
)
_INTERRUPTED = 130
_WORKING = ("train", "tune", "evaluate", "rollout", "view", "view-mode")
"""Verbs whose work continues when their output is no longer read."""

_MODES = {"train": "train", "tune": "tune", "view": "view-mode"}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script; exits with 0, or with the error's own code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" in words:  # may stand anywhere on the line
        words.remove("--debug")
        os.environ["RAYFISH_DEBUG"] = "1"
    words = _with_verb(words)
    if words[:1] in (["train"], ["tune"]):
        _settle_hashes()
    from rayfish.streams import open_closed, steady

    open_closed()
    if not faulthandler.is_enabled():  # a crash in native code prints its line of Python
        faulthandler.enable(2, all_threads=False)
    if words and words[0] in _WORKING:
        sys.stdout, sys.stderr = steady(sys.stdout), steady(sys.stderr)
    try:
        code = _run(words)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as left:  # while Ray starts, its own handler answers SIGTERM
        if left.code != signal.SIGTERM:
            raise
        code = 128 + signal.SIGTERM
    if code == _INTERRUPTED:  # also when it was SIGTERM that raised KeyboardInterrupt
        from rayfish.supervise.signals import exit_code

        code = exit_code()
    _leave(code)


def _run(words: list[str]) -> int:
    """The exit code of a command line; what it raises is reported as a message."""
    import typer

    from rayfish.cli.usage import ClickException, as_error

    try:
        code = _call(words)
        sys.stdout.flush()
        return code
    except RayfishError as error:
        if os.environ.get("RAYFISH_DEBUG"):
            raise
        show(error)
        return error.exit_code
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
        else:
            show(as_error(error, words))
        return int(error.exit_code)
    except typer.Abort:
        return 1
    except (BrokenPipeError, SystemExit) as error:  # `rayfish config show | head`
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _drop_stdout()
        return 0
    except Exception as error:
        if os.environ.get("RAYFISH_DEBUG"):
            raise
        show(_unforeseen(error))
        return 1


def _call(words: list[str]) -> int:
    """Run the verb; its exit code."""
    from rayfish.cli import app

    if words in ([], ["--help"], ["-h"]) and "_RAYFISH_COMPLETE" not in os.environ:
        print(app.overview(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
        return 0
    from rayfish.cli.evaluate import with_baselines
    from rayfish.legacy import train_flags

    old = None
    if words[:1] == ["train"]:
        rest, old = train_flags.take(words[1:])
        words = ["train", *rest]
    elif words[:1] == ["evaluate"]:
        words = with_baselines(words)
    with printable_output():  # what the user's code prints
        return int(app.app(args=words, prog_name="rayfish", standalone_mode=False, obj=old) or 0)


def _drop_stdout() -> None:
    """Nothing that is still buffered for stdout fails again at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(code: int) -> NoReturn:
    """Ends the command; after a training, without taking apart all that was imported (a second)."""
    if not _is_command() or not ("torch" in sys.modules or _ray_is_torn()):
        sys.exit(code)
    try:  # what Python does at its end, in that order: threads, exit functions, streams
        threading._shutdown()  # type: ignore[attr-defined]
        if not _ray_is_torn():
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.exit(code)
    os._exit(code)


def _ray_is_torn() -> bool:
    """Whether a signal came while Ray was imported: nothing of it runs, and its exit function would fail."""
    imported = any(name.startswith("ray.") for name in sys.modules)
    return imported and not hasattr(sys.modules.get("ray"), "actor")


def _is_command() -> bool:
    """Whether this process is the console script's, not one that has called `main`."""
    script = sys.orig_argv[1] if len(sys.orig_argv) > 1 else ""
    return os.path.basename(script) == "rayfish"  # noqa: PTH119


def _settle_hashes() -> None:
    """Starts the command again, in the same process, with the order of sets settled.

    RLlib walks through sets of agent and policy names, so that a run of several agents would
    otherwise never repeat. The order is fixed when an interpreter starts.
    """
    if "PYTHONHASHSEED" not in os.environ and _is_command():
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _unforeseen(error: Exception) -> RayfishError:
    """An exception without a message of its own: one line now, the traceback kept in a file."""
    import tempfile
    import traceback
    from pathlib import Path

    from rayfish.files import is_full, why_unwritable

    if isinstance(error, OSError) and is_full(error):
        if _stdout_is_full():
            _drop_stdout()
            hint = "free space on the disk that it is redirected to"
            return RayfishError(f"standard output cannot be written: {error.strerror}", hint)
        reason, remedy = why_unwritable(error, Path.cwd())
        return RayfishError(f"the disk is full: {reason}", remedy)
    with tempfile.NamedTemporaryFile("w", prefix="rayfish-error-", suffix=".txt", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return RayfishError(
        f"{text} ({last.filename}:{last.lineno}); the whole traceback is in {file.name}",
        "this should have had a message of its own: please report it with that file",
    )


def _stdout_is_full() -> bool:
    """Whether stdout takes nothing more; tried, because the error does not say which file it is about."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def show(error: RayfishError) -> None:
    """Prints an error to stderr: what happened in red, the next steps readable below."""
    from rich.text import Text

    from rayfish.terminal import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    text = Text("error: ", style="bold red")
    for number, line in enumerate(printable(str(error)).split("\n")):
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
    if mode not in _MODES:
        raise SystemExit(_unknown_mode(mode))
    return [_MODES[mode], *words]


def _unknown_mode(mode: str) -> int:
    meant = did_you_mean(mode, _MODES)
    hint = f"did you mean cli.mode={meant[0]}?" if meant else f"cli.mode is one of {', '.join(_MODES)}"
    show(RayfishError(f"cli.mode={mode}: no such mode", hint))
    return 2


if __name__ == "__main__":
    main()
