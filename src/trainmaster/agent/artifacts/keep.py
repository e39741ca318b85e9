"""Copies artifacts durably into the store under their digest, so that equal content is stored once."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from trainmaster.agent.files.globs import Glob
    from trainmaster.wire.launch import Launch

_TRIES = 3  # if the file changes while it is copied
_BATCH, _BATCH_S = 100, 1.0  # files, and seconds, after which kept files are reported


def complain(name: str, why: str) -> None:
    """Write to stderr that an artifact could not be kept."""
    sys.stderr.write(f"artifact {name} could not be kept: {why}\n")


def keep_artifacts(
    launch: Launch, missed: Callable[[str, str], None] = complain, expected: bool = False
) -> Iterator[Tuple[List[Dict[str, Any]], int, int]]:
    """Keep what the artifact globs match, including files of matching directories. Yields durable artifacts in batches.

    Each batch is (fields of `wire.messages.Kept`, files processed so far, files in total).

    A symbolic link that leads out of the work directory is skipped. `missed` is called for a file that cannot be kept, once for
    such links of a glob, and, if matches are `expected`, for a glob without a match. Not for a gang, because another node may
    have the file.
    """
    if not launch["artifacts"]:
        return
    from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # only for a job that has artifacts
    from trainmaster.wire.names import printable  # noqa: PLC0415  # as above

    names: Dict[str, None] = {}
    for pattern in launch["artifacts"]:
        try:
            glob = Glob(pattern, launch["work"])
            found, outside = _files(glob)
        except OSError as error:
            missed(pattern, f"what matches it could not be listed: {error}")
            continue
        names.update(dict.fromkeys(found))
        if glob.denied:
            missed(pattern, f"what matches it in {printable(glob.denied[0])} could not be listed: permission denied")
        if outside:
            more = f"; likewise {len(outside) - 1} more of {pattern}" if len(outside) > 1 else ""
            why = f"a link leads out of the work directory to it, and only what is inside is kept{more}"
            missed(printable(outside[0]), why)
        elif expected and not (found or glob.denied) and launch["nodes"] == 1:
            missed(pattern, "nothing matches it, now that every rank has ended")
    batch: List[Dict[str, Any]] = []
    began_s = time.monotonic()
    for done, name in enumerate(sorted(names), 1):
        if printable(name) != name and printable(name) in names:
            missed(printable(name), "it is no UTF-8, and another file has the name that it would be stored under")
        else:
            one = _keep(launch, os.path.join(launch["work"], name), name, None, missed)
            batch += [one] if one is not None else []
        if done == len(names) or len(batch) == _BATCH or time.monotonic() > began_s + _BATCH_S:
            yield _durable(launch, batch, missed), done, len(names)
            batch, began_s = [], time.monotonic()


def _files(glob: Glob) -> Tuple[List[str], List[str]]:
    """The files to keep, and what is outside of the work directory behind links, and so is not kept."""
    from trainmaster.agent.checkpoints.candidate_files import leads_out  # noqa: PLC0415  # as above
    from trainmaster.agent.files.globs import files_below  # noqa: PLC0415  # as above

    names: List[str] = []
    outside: List[str] = []
    for match in glob.expand() if not glob.absolute else ():
        place = os.path.join(glob.root, match)
        below = files_below(glob.root, match)[0] if stat.S_ISDIR(_mode(place)) and not os.path.islink(place) else [match]
        for name in below:
            inside = os.path.join(glob.root, name)
            mode = _mode(inside)
            if mode and leads_out(glob.root, inside):
                outside.append(name)
            elif stat.S_ISREG(mode):
                names.append(name)
    return names, outside


def _mode(path: str) -> int:
    """The file mode, with links followed; 0 if nothing is there. Raises: OSError if that is unknown."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return 0
        raise
    except ValueError:  # a NUL
        return 0


def keep_one(
    launch: Launch, path: str, name: str, said: Optional[str] = None, missed: Callable[[str, str], None] = complain
) -> Optional[Dict[str, Any]]:
    """Keep one file as `name`, with the kind that the program `said`.

    Returns None, and calls `missed` with name and reason, if it is no file, keeps changing, or the disk is full.
    """
    one = _keep(launch, path, name, said, missed)
    return next(iter(_durable(launch, [one], missed)), None) if one is not None else None


def _durable(launch: Launch, kept: List[Dict[str, Any]], missed: Callable[[str, str], None]) -> List[Dict[str, Any]]:
    """Make the directory entries of kept files durable together: one sync per file would take as long as its copy."""
    from trainmaster.agent.files.stage import sync_directory  # noqa: PLC0415  # hashing: only here

    try:
        if kept:
            sync_directory(launch["artifact_store"])
    except OSError as error:
        for one in kept:
            missed(one["path"], str(error))
        return []
    return kept


def _keep(
    launch: Launch, path: str, name: str, said: Optional[str], missed: Callable[[str, str], None]
) -> Optional[Dict[str, Any]]:
    """Like `keep_one`, but its directory entry in the store is not durable yet."""
    from trainmaster.agent.artifacts.kinds import kind_of  # noqa: PLC0415  # only for a job that has artifacts
    from trainmaster.agent.files.stage import Raced, copy_durably, make_directories  # noqa: PLC0415  # as above
    from trainmaster.wire.names import is_artifact_name, printable  # noqa: PLC0415

    if not is_artifact_name(name):
        missed(printable(name), "a name must be a path that stays inside: without '..', and not empty")
        return None
    name = "/".join(part for part in name.split("/") if part not in ("", "."))  # one file has one name: "./a" is "a"
    store = launch["artifact_store"]
    part = os.path.join(store, f".{os.getpid()}.part")
    try:
        if not stat.S_ISREG(_mode(path)):
            raise FileNotFoundError(f"no such file: {path}")
        make_directories(store)
        for left in reversed(range(_TRIES)):
            _discard(part)
            try:
                digest, status = copy_durably(path, part)
                break
            except Raced:
                if not left:
                    raise
        target = os.path.join(store, digest)
        os.rename(part, target)  # over an earlier copy, too: that may be damaged
        kind = kind_of(target, name, said, launch.get("pickle_models", False))
    except (OSError, Raced) as error:
        missed(printable(name), str(error) if isinstance(error, OSError) else "it keeps changing")
        return None
    finally:
        _discard(part)
    if kind == "pickle":
        sys.stderr.write(f"artifact {name} is a pickle: kept as a file, not as a model\n")
    return {"path": printable(name), "digest": digest, "bytes": status.st_size, "artifact_kind": kind}


def _discard(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
