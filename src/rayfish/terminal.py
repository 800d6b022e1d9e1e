"""What reaches the terminal: text of environments, workers and foreign files, without escape sequences.

A title, a message or a line that an environment prints may hold sequences that move the cursor, change the
window's title or hide what follows. `Console` is Rich's, and leaves them out of everything that it prints.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from rayfish.text import printable


class Console(RichConsole):
    """Rich's console; what it is given is printed without escape sequences, its own styles are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's segments; each is one piece of text, before its style becomes a sequence."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)


def print_step(console: RichConsole, command: str, what: str = "") -> None:
    """Print a command to go on with and what it does.

    A narrow terminal shows it on several lines: no word is broken, and the command can be copied as it is.
    """
    between = "   " if what else ""
    if console.is_terminal and cell_len(f"  {command}{between}{what}") > console.width:
        room = console.width - len("    ") - len(" \\")
        lines = textwrap.wrap(command, room, break_long_words=False, break_on_hyphens=False)
        command, between = " \\\n    ".join(lines), "\n      " if what else ""
    console.print(Text.assemble("  ", (command, "bold"), (f"{between}{what}", "dim")), soft_wrap=True)
