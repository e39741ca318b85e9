"""A printed line as text: without control sequences, long runs of blanks, and what loggers and launchers put before it."""

from __future__ import annotations

import re

LINE_MAX = 4096  # bytes of a line that are searched

_ESCAPE = re.compile(  # colors, titles of the terminal, character sets, control characters
    r"\x1b\[[0-9;?]{0,24}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|[\x00-\x08\x0e-\x1f\x7f]"
)
_BLANKS = re.compile(r" {3,}")
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u2013\u2014\u2212", "-"),
        "\uff1a": ": ",
        "\uff0c": ", ",
        "\uff1d": "=",
        "\uff05": "%",
        "│": "|",
        "┃": "|",
    }
)
_LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|TRACE|SUCCESS|NOTICE|FATAL)"
_DATE = r"\d{4}[-/.]\d\d[-/.]\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[-+]\d\d:?\d\d)?"
_PREFIX = re.compile(
    rf"""\ {{0,2}}(?:
      \[{_DATE}\ {_TIME}\ [\w.-]{{1,80}}\](?=\ \()
    | \[?(?:{_DATE}[ T_])?{_TIME}(?:\ {_LEVEL})?\]?
    | \[\d\d[-/]\d\d(?:[-/]\d{{2,4}})?\ {_TIME}[^][]{{0,60}}\]:?
    | \d\d[-/]\d\d(?:[-/]\d{{2,4}})?\ {_TIME}:?
    | \([\w.-]{{1,80}}\.py:?\ ?\d{{1,9}}\):
    | [\w<>-]{{1,60}}\.[\w.<>-]{{1,80}}:\d{{1,9}}(?=\ {{1,2}}-\ )
    | \([\w.]{{1,60}}:\d{{1,9}}\)(?=\ {_LEVEL}\b)
    | (?:[A-Z][a-z]{{2}}\ )?\d{{1,2}}\ [A-Z][a-z]{{2}}(?:\ \d{{4}})?\ \d\d:\d\d(?::\d\d)?(?=\ )
    | [\w.<>-]{{1,80}}:\d{{1,9}}(?=\ {{1,2}}(?:{_LEVEL}\b|[\w.<>-]{{1,80}}:\d{{1,9}}\ {{1,2}}{_LEVEL}\b))
    | [IWEF]\d{{4}}\ \d\d:\d\d:\d\d\.\d{{1,9}}\ {{1,2}}\d{{1,20}}\ [\w.<>-]{{1,80}}:\d{{1,9}}\]
    | {_LEVEL}:[\w.]{{1,60}}:
    | \[{_LEVEL}:[\w.]{{1,60}}\]
    | [\w.]{{1,80}}\ {_LEVEL}:(?=\ )
    | \[{_LEVEL}\|[^][]{{1,160}}\]:?
    | \[[\w.-]{{1,60}}\]\ {_LEVEL}\ {{1,2}}[\w.$-]{{1,160}}\ -(?=\ )
    | \[?{_LEVEL}\]?\ {{0,2}}(?:\|\ (?:[\w.]{{1,60}}\ \|)?|-\ [\w.]{{1,60}}\ {{1,2}}-|:(?=\ ))?
    | [-|]\ {{1,2}}[\w.]{{1,60}}\ {{1,2}}[-|](?=\ {{1,2}}{_LEVEL})
    | [\w.<>-]{{1,80}}:[\w.<>-]{{1,80}}:\d{{1,9}}(?=\ {{1,2}}-)
    | \[(?:[rR]ank\ ?|r|pid\ ?|[gG][pP][uU]\ ?|[wW]orker\ ?)\d{{1,9}}\](?::|<\w{{3,6}}>:)?
    | \[\d{{1,4}},\d{{1,9}}\]<\w{{3,6}}>:
    | \[\d{{1,6}}:\d{{1,6}}\]:
    | \[[\w.-]{{1,60}}(?::\d{{1,9}}(?:/\d{{1,9}}|:[\w.<>]{{1,60}})?|\.py)?\](?=\ {{0,2}}\[?(?:{_LEVEL}|\d{{4}}-|[rR]ank))
    | \[[\w/.-]{{1,80}}\.py:\d{{1,9}}(?::[\w.<>]{{1,60}})?\]
    | \[process=\d{{1,9}}\](?:\[[a-z]{{1,12}}=[\w.-]{{1,80}}\]){{0,4}}
    | \([A-Za-z]\w{{0,60}}\ pid=[^()]{{1,60}}\)
    | \[\ (?:Info|Warning):(?=\ )
    | \[[DIWEC]\ {_DATE}\ {_TIME}\]
    | [-|:>]{{1,3}}(?=\ )
    | [├└]─{{1,3}}(?=\ )
    )""",
    re.VERBOSE,
)
_FLOAT32 = re.compile(r"(?<=\d)f0(?!\w)")  # Julia's 0.5f0
_PREFIXES_MAX = 10
_SAVER = re.compile(r"(?:checkpoint\w{0,40}|atomicity)\.py:\d|\[process=\d")  # Orbax: it names steps that it saves


def plain(line: bytes) -> str:
    """A line as text. Tabs are two blanks, and longer runs of blanks are cut to two."""
    return _BLANKS.sub("  ", aligned(line)).rstrip()


def aligned(line: bytes) -> str:
    """A line as text, with its columns where they were printed."""
    text = cut(line)
    if "\x1b" in text or not text.isprintable():
        text = _ESCAPE.sub("", text.replace("\t", "  "))
    if not text.isascii():
        text = text.translate(_LOOKALIKES)
    return _FLOAT32.sub("", text) if "f0" in text else text


def without_prefix(text: str) -> str:
    """The text after times, levels, names of modules and of ranks at its beginning."""
    at = 0
    for _ in range(_PREFIXES_MAX):
        match = _PREFIX.match(text, at)
        if match is None or match.end() == at:
            break
        at = match.end()
    return text[at:].lstrip(" :")


def of_checkpoints(prefix: str) -> bool:
    """Whether the part of a line that `without_prefix` takes away is of a library that saves and deletes checkpoints."""
    return _SAVER.search(prefix) is not None


def cut(line: bytes) -> str:
    """A line as text, otherwise unchanged. A long line is cut between words, because a number cut in two is another number."""
    if len(line) > LINE_MAX:
        line = line[:LINE_MAX]
        line = line[: max(line.rfind(b" "), line.rfind(b"\t")) + 1]
    return line.decode(errors="replace")
