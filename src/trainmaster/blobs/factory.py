"""Which store a server's configuration means."""

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.fs import FsBlobs
from trainmaster.configuration import StorageSettings
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.ports.blobs import Blobs

_GIB = 1024**3


def open_blobs(settings: StorageSettings, home: Home) -> Blobs:
    """The store, not asked for anything yet. Raises: UsageError for a URL that no file system here understands."""
    directory = settings.directory(home)
    if directory is not None:
        return FsBlobs(directory)
    url = settings.url or ""
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0]:
        hint = "Set it in the environment of the server, as the store's own client reads it."
        raise UsageError("[storage] url holds a user or password: no credential may be in a file", hint)
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
