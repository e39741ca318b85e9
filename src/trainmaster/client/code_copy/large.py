"""Finds large data among the files to copy, which is linked instead. In git only untracked files count."""

import os
from collections.abc import Collection, Iterable, Mapping

from trainmaster.client.code_copy.exclusions import lies_in
from trainmaster.client.code_copy.listing import DATA, ENVIRONMENTS, LARGE, NAMED_DATA, PACKAGES, Limits

_CODE = (".py", ".ipynb", ".sh", ".pyx", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".jl", ".r", ".lua", ".rs", ".go", ".js")


def large(sizes: Mapping[str, int], fixed: Iterable[str], homes: Collection[str], limits: Limits) -> dict[str, str]:
    """The files and directories to link -> why. Of a directory that is linked as a whole nothing inside is named.

    `sizes`: bytes of the files that git does not track. `fixed`: other files to copy, whose directories cannot be linked.
    `homes`: directories in which the job writes, which cannot be linked either.
    """
    found = {path: LARGE for path, size in sizes.items() if size > limits.file_bytes}
    if not any("/" in path for path in sizes):
        return found
    totals: dict[str, int] = {}
    blocked = set[str]()
    for path, size in sizes.items():
        above = path.rpartition("/")[0]
        code = path.lower().endswith(_CODE)
        while above:
            totals[above] = totals.get(above, 0) + size
            if code:
                blocked.add(above)
            above = above.rpartition("/")[0]
    wanted = {place: why for place, total in totals.items() if (why := _why(place, total, limits)) and place not in blocked}
    if not wanted:
        return found
    for path in (*fixed, *(f"{home}/x" for home in homes)):
        above = path.rpartition("/")[0]
        while above:
            wanted.pop(above, None)
            above = above.rpartition("/")[0]
    whole = {place: why for place, why in wanted.items() if not lies_in(place, homes)}
    top = {place: why for place, why in whole.items() if not any(above in whole for above in _above(place))}
    return {path: why for path, why in found.items() if not any(above in top for above in _above(path))} | top


def _why(place: str, total: int, limits: Limits) -> str:
    """Why a directory without code is linked; empty if it is copied."""
    name = os.path.basename(place)
    if name in ENVIRONMENTS:
        return PACKAGES
    return NAMED_DATA if name.lower() in DATA else LARGE if total > limits.directory_bytes else ""


def _above(path: str) -> list[str]:
    """The directories that contain a path."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
