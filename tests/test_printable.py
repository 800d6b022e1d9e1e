"""Escape sequences of foreign text do not reach the terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from rayfish.cli.main import show
from rayfish.errors import RayfishError
from rayfish.metrics.console import open_console
from rayfish.metrics.stop import StopConditions
from rayfish.streams import printable_output
from rayfish.terminal import Console, print_step
from rayfish.text import printable

RED = "\x1b[31mred\x1b[0m"
TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {RED} b", "a red b"),
        (f"{TITLE}a\x1b[2J\x1b[1;1Hb", "ab"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;no end\x1b[2Jb", "b"),
        ("\x9b2Ja\x1bcb\x1b(Bc\x00\x08\x7f", "abc"),
        ("a\rb", "ab"),
        ("tab\tline\nümlaut 火 █", "tab\tline\nümlaut 火 █"),
        ("\x1b", ""),
    ],
)
def test_what_is_left_of_a_text(text, left):
    assert printable(text) == left


def test_a_console_keeps_its_own_styles_only():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", highlight=False)
    console.print(Text(f"a {TITLE}{RED}", style="bold"))
    assert "\x1b]" not in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


STEP = ("rayfish train --resume runs/cartpole/20260101-120000-abcdef", "go on from the last checkpoint")
LONG = "/home/somebody/experiments/of-this-year/runs/cartpole/20260101-120000-abcdef"


@pytest.mark.parametrize(
    ("step", "terminal", "lines"),
    [
        (STEP, False, [f"  {STEP[0]}   {STEP[1]}"]),
        (STEP, True, [f"  {STEP[0]}", f"      {STEP[1]}"]),
        (("rayfish view last", "pictures"), True, ["  rayfish view last   pictures"]),
        (
            (f"rayfish evaluate {LONG}", "score it"),
            True,
            ["  rayfish evaluate \\", f"    {LONG}", "      score it"],
        ),
        ((f"open {2 * LONG}", ""), True, ["  open \\", f"    {2 * LONG}"]),
    ],
)
def test_a_next_step_breaks_no_word_at_80_columns(step, terminal, lines):
    out = io.StringIO()
    print_step(Console(file=out, width=80, force_terminal=terminal, color_system=None), *step)
    assert out.getvalue().splitlines() == lines


def test_messages_of_workers_and_errors(capsys):
    console = open_console("a run", StopConditions({}), plain=True)
    console.log("ERROR", "runner 1", f"{TITLE}bad {RED}")
    show(RayfishError(f"{TITLE}bad {RED}", f"see {RED}"))
    captured = capsys.readouterr()
    assert "runner 1 error bad red" in captured.out
    assert captured.err == "error: bad red\n  next step: see red\n"


def test_what_user_code_prints(capsys):
    with printable_output():
        print(f"{TITLE}a {RED}\r50 %\r100 %")
        print(RED, file=sys.stderr)
        Console(force_terminal=True, color_system="standard").print(Text("ours", style="red"))
    captured = capsys.readouterr()
    assert captured.out == "a red\r50 %\r100 %\n\x1b[31mours\x1b[0m\n"
    assert captured.err == "red\n"
