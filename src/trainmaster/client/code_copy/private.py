"""Finds files in a work directory that may hold credentials. They are copied only on request, because copies are stored."""

from collections.abc import Iterable

DIRECTORIES = frozenset((".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", ".huggingface"))
FILES = frozenset((".env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".boto", ".s3cfg"))
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")  # beginnings of names, as in id_ed25519_work
_NO_KEYS = (".pub", ".py")
_KEY_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".ppk", ".keytab", ".jks", ".kdbx")
_EXAMPLES = (".example", ".sample", ".template", ".dist")


def private(path: str) -> str | None:
    """The part of a relative path that may hold credentials: a directory or the file itself; None if there is none."""
    parts = path.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in DIRECTORIES or (part == "gcloud" and parts[at - 1 : at] == [".config"]):
            return "/".join(parts[: at + 1])
    name = parts[-1].lower()
    dotenv = name.startswith(".env.") and not name.endswith(_EXAMPLES)
    key = name.endswith(_KEY_SUFFIXES) or (name.startswith(_KEYS) and not name.endswith(_NO_KEYS))
    return path if name in FILES or key or dotenv else None


def set_aside(paths: Iterable[str], include: Iterable[str]) -> dict[str, str]:
    """Those of `paths` that are not copied -> the file or directory to include. `include`: files and directories to copy."""
    wanted = tuple(place.strip("/").removeprefix("./") for place in include)
    return {path: place for path in paths if (place := private(path)) is not None and not _lies_in(path, wanted)}


def _lies_in(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)
