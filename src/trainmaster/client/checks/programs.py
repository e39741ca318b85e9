"""Checks before the submit that the program goes along: a pattern of what the job writes may match it too."""

import posixpath
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainmaster.client.checks.command_words import commands, module_files, words
from trainmaster.client.code_copy.exclusions import WRITTEN, lies_in
from trainmaster.client.code_copy.listing import Aside
from trainmaster.errors import UsageError

_SOURCES = (".py", ".sh", ".bash", ".ipynb", ".R", ".jl", ".pl", ".lua")


def check_programs(spec: Mapping[str, Any], left_out: Sequence[Aside]) -> None:
    """`left_out`: what is not copied.

    Raises: UsageError if a command names a program that is left out because the job writes it, or into its directory.
    """
    taken = [one for one in left_out if one.why.startswith(WRITTEN)]
    for before, word in (pair for command in commands(spec) for pair in pairwise(("", *words(command)))) if taken else ():
        for path in (posixpath.normpath(word), *(sorted(module_files(word)) if before == "-m" else ())):
            found = next((one for one in taken if path.endswith(_SOURCES) and lies_in(path, (one.path,))), None)
            if found is not None:
                raise UsageError(
                    f"the command names {path}, which would not go along: {found.why}",
                    "Let the pattern match only what the program writes, such as 'model-*.pt'; `git add` a file beside its "
                    "output; or use --in-place.",
                )
