"""Opens the blob store that a server's configuration names."""

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.fs import FsBlobs
from trainmaster.configuration import StorageSettings
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.ports.blobs import Blobs

_GIB = 1024**3


def open_blobs(settings: StorageSettings, home: Home) -> Blobs:
    """The store; nothing is requested from it yet. Raises: UsageError for a URL that no installed file system supports."""
    directory = settings.directory(home)
    if directory is not None:
        return FsBlobs(directory)
    url = settings.url or ""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        hint = "Set it in the environment of the server, where the store's client reads it."
        raise UsageError("[storage] url contains a user or password: credentials must not be in a file", hint)
    return CachedBlobs(_elsewhere(scheme, settings), Cache(home.cache, int(settings.cache_gib * _GIB)))


def _elsewhere(scheme: str, settings: StorageSettings) -> Blobs:
    if scheme in ("s3", "s3a"):
        from trainmaster.blobs.s3 import S3Blobs  # noqa: PLC0415  an extra

        return S3Blobs(settings)
    try:
        return FsBlobs(settings.url or "")
    except (ValueError, ImportError) as error:
        hint = "Use a directory, s3://BUCKET/PREFIX, or install what fsspec needs for it."
        raise UsageError(f"[storage] url: {settings.url}: {error}", hint) from error
