"""Takes out of a listing what is not copied: credentials, files that the job writes, and excluded files.

Each of them is recorded in `Listing.left_out`, except the files of this machine's own server: they hold its token.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trainmaster.agent.files.globs import Glob
from trainmaster.client.code_copy import private
from trainmaster.client.code_copy.listing import Aside, Listing, is_junk
from trainmaster.home import Home

CREDENTIALS = "credentials may be in it"
EXCLUDED = "excluded in trainmaster.toml"
_MATCHES, _BESIDE = "the job writes", "beside what the job writes"
WRITTEN = (_MATCHES, _BESIDE)  # so begins why a path of the job's own, or beside it, is left out


def set_private_aside(listing: Listing, include: Iterable[str]) -> None:
    """Take out files that may hold credentials. Files that git tracks stay: they are published already."""
    found = private.set_aside(listing.untracked if listing.git is not None else listing.files, include)
    listing.files -= found.keys()
    listing.fresh -= found.keys()
    listing.left_out += [Aside(place, CREDENTIALS, notable=True) for place in sorted(set(found.values()))]


def set_excluded_aside(root: str, listing: Listing, exclude: Iterable[str]) -> None:
    """Take out what the globs `exclude` match."""
    globs = [Glob(pattern, root) for pattern in exclude]
    found = [path for path in (*listing.files, *listing.links) if any(glob.owns(path) for glob in globs)]
    listing.files.difference_update(found)
    listing.fresh.difference_update(found)
    for path in found:
        listing.links.pop(path, None)
    listing.empty = {path for path in listing.empty if not any(glob.owns(path) for glob in globs)}
    listing.left_out += [Aside(path, EXCLUDED) for path in sorted(found)]


def set_server_aside(root: str, listing: Listing) -> None:
    """Take out the files of this machine's own server, if they are in the work directory."""
    home = Home.default().root
    if home.is_relative_to(root) and str(home) != root:
        place = home.relative_to(root).as_posix()
        listing.files = {path for path in listing.files if not lies_in(path, (place,))}
        listing.empty = {path for path in listing.empty if not lies_in(path, (place,))}
        _reduce_links(root, listing, lambda path: lies_in(path, (place,)), {place})
        listing.left_out = [one for one in listing.left_out if not lies_in(one.path, (place,))]


def set_own_aside(root: str, listing: Listing, own: Sequence[str]) -> set[str]:
    """Take out files that the job writes: matches of the globs `own`, and untracked files beside them.

    A linked directory that contains such files is linked file by file instead. Returns the directories of the globs.
    """
    globs = {pattern: Glob(pattern, root) for pattern in own}
    homes = {os.path.relpath(glob.prefix, root): pattern for pattern, glob in globs.items()}
    homes.pop(".", None)
    taken: set[Aside] = set()

    def is_own(path: str, tracked: bool) -> bool:
        found = _written(path, globs, {} if tracked else homes)
        if found is not None:
            taken.add(found)
        return found is not None

    if globs:
        listing.files = {path for path in listing.files if not is_own(path, path not in listing.untracked)}
        _reduce_links(root, listing, lambda path: is_own(path, tracked=False), homes.keys())
        listing.left_out += sorted(taken)
    return set(homes)


def _written(path: str, globs: Mapping[str, Glob], homes: Mapping[str, str]) -> Aside | None:
    """What the job writes and `path` is, or is part of, or lies beside. An earlier checkpoint of the job is not notable."""
    for pattern, glob in globs.items():
        if glob.owns(path):
            match = next(part for part in _beginnings(path) if glob.owns(part))
            return Aside(match, f"{_MATCHES} {pattern!r}", notable=glob.step(match) is None)
    for home, pattern in homes.items():
        if lies_in(path, (home,)):
            return Aside(path, f"{_BESIDE}, {pattern!r}", notable=True)
    return None


def _beginnings(path: str) -> Iterator[str]:
    """The directories that contain `path`, and `path` itself."""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path


def _reduce_links(root: str, listing: Listing, taken: Callable[[str], bool], homes: Iterable[str]) -> None:
    """Drop links for which `taken` is true. A directory with one of `homes` inside is linked file by file."""
    kept: dict[str, str] = {}
    left = list(listing.links.items())
    while left:
        path, why = left.pop()
        if taken(path):
            continue
        if any(home.startswith(path + "/") for home in homes) and os.path.isdir(f"{root}/{path}"):
            left += [(f"{path}/{name}", why) for name in os.listdir(f"{root}/{path}") if not is_junk(name)]
        else:
            kept[path] = why
    listing.links = kept


def lies_in(path: str, homes: Iterable[str]) -> bool:
    """Whether a path is one of `homes` or below one."""
    return any(path == home or path.startswith(home + "/") for home in homes)
