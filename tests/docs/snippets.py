"""The snippets of README and docs: each fenced bash, python or yaml block carries a marker that says what a test does with it.

`<!-- test: run -->` runs the block, `<!-- test: run with PACKAGE -->` too (the reader's Python has the package), `<!-- test: file NAME -->` writes it to NAME in the document's directory, and
`<!-- test: skip WHY -->` leaves it alone. A document is one story: its blocks are taken in order in one directory.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = ("bash", "python", "yaml")
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if "reference" not in path.relative_to(ROOT).parts  # generated, and held current by test_reference.py
)
_BLOCK = re.compile(
    r"^(?:<!-- test: (?P<action>run|file|skip)(?: +(?P<argument>[^\n]*?))? -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block; `action` is empty when it carries no marker."""

    document: Path
    line: int
    language: str
    action: str
    argument: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def snippets(document: Path) -> list[Snippet]:
    """The blocks of a document in a language that can be tested."""
    text = document.read_text()
    return [
        Snippet(
            document, text.count("\n", 0, match.start("language")) + 1, match["language"],
            match["action"] or "", match["argument"] or "", match["text"],
        )
        for match in _BLOCK.finditer(text)
        if match["language"] in LANGUAGES
    ]  # fmt: skip
