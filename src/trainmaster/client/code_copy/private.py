"""Finds files in a work directory that may hold credentials. They are copied only on request, because copies are stored."""

from collections.abc import Iterable

DIRECTORIES = frozenset((".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", ".huggingface"))
FILES = frozenset((".env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".boto", ".s3cfg"))
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
_EXAMPLES = (".example", ".sample", ".template", ".dist")
_NAMED_MAX = 8


def private(path: str) -> str | None:
    """The part of a relative path that may hold credentials: a directory or the file itself; None if there is none."""
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in DIRECTORIES or (part == "gcloud" and parts[at - 1 : at] == [".config"]):
            return "/".join(parts[: at + 1])
    name = parts[-1]
    dotenv = name.startswith(".env.") and not name.endswith(_EXAMPLES)
    return path if name in FILES or name in _KEYS or dotenv else None


def set_aside(paths: Iterable[str], include: Iterable[str]) -> tuple[set[str], str]:
    """Those of `paths` that are not copied, and a sentence about them; `include` are files and directories that are."""
    wanted = tuple(place.strip("/").removeprefix("./") for place in include)
    found = {path: place for path in paths if (place := private(path)) is not None and not _lies_in(path, wanted)}
    places = sorted(set(found.values()))
    if not places:
        return set(), ""
    more = f" and {len(places) - _NAMED_MAX} more" if len(places) > _NAMED_MAX else ""
    listed = ", ".join(f'"{place}"' for place in places[:_NAMED_MAX])
    told = f"{', '.join(places[:_NAMED_MAX])}{more}: not copied, since credentials may be in it"
    return set(found), f"{told}; to copy it, write into trainmaster.toml below [code]: include = [{listed}]"


def _lies_in(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)
