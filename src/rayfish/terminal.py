"""What reaches the terminal: text of environments, workers and foreign files, without escape sequences.

A title, a message or a line that an environment prints may hold sequences that move the cursor, change the
window's title or hide what follows. `Console` is Rich's, and leaves them out of everything that it prints.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from rayfish.printable import printable


class Console(RichConsole):
    """Rich's console; what it is given is printed without escape sequences, its own styles are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Rich's segments; each is one piece of text, before its style becomes a sequence."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)
