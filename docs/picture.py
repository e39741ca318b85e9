"""Draw terminal output as SVG: `tm show JOB | python docs/picture.py 'tm show digits-2' docs/pictures/show.svg`."""

import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

INK = (36, 41, 47)
PAPER = TerminalTheme((250, 250, 248), INK, [INK] * 8, [INK] * 8)  # the output is meant to be read without color


def main(command: str, target: Path, shown: str) -> None:
    """Write the command and its output `shown` as a picture."""
    lines = [f"$ {command}", *shown.splitlines()]
    console = Console(record=True, width=max(map(len, lines)) + 1, file=sys.stderr, highlight=False)
    for line in lines:
        console.print(Text(line.replace(" ", "\N{NO-BREAK SPACE}")), soft_wrap=True)
    svg = console.export_svg(title="Trainmaster", theme=PAPER)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # the picture loads nothing from the network
    target.write_text(svg.replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.stdin.read())
