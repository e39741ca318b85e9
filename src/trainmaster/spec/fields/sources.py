"""Parses references to things outside a spec: a function to run, data to read, packages to install."""

import posixpath
import re

from trainmaster.spec.fields.values import refusal, text, unsupported

_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*\Z")
_FUNCTION_EXPECTED = "a function as package.module:function"
_PATH_OF_FUNCTION = re.compile(r"(?:\./)?(?P<path>[A-Za-z0-9_/]+)\.py:(?P<function>[A-Za-z_][A-Za-z0-9_]*)\Z")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+\Z")
_DATA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")
_VERSIONED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*@[A-Za-z0-9_.-]+\Z")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.*)\Z", re.DOTALL)
_CREDENTIALS = re.compile(r"[^/@:]*:[^/@]*@")


def function(value: object) -> str:
    """`package.module:function`."""
    written = text(value, _FUNCTION_EXPECTED)
    if _FUNCTION.match(written):
        return written
    path = _PATH_OF_FUNCTION.match(written)
    if path is not None:
        raise refusal(_FUNCTION_EXPECTED, value, f"{path['path'].strip('/').replace('/', '.')}:{path['function']}")
    if written.endswith(".py") or " " in written.strip():
        message = f"is for a function, as package.module:function; {written[:60]!r} is a command"
        raise refusal(_FUNCTION_EXPECTED, value, "command", message)
    if "/" in written or re.fullmatch(r"python[0-9.]*", written):
        message = f"is for a function, as package.module:function; {written[:60]!r} is an interpreter"
        raise refusal(_FUNCTION_EXPECTED, value, "environment.python", message)
    if _DOTTED.match(written):
        module, _, name = written.rpartition(".")
        raise refusal(_FUNCTION_EXPECTED, value, f"{module}:{name}")
    raise refusal(_FUNCTION_EXPECTED, value)


def data_name(name: str) -> str:
    """A name that can be part of a variable's name."""
    if _DATA_NAME.match(name) is None:
        near = re.sub(r"[^A-Za-z0-9_-]", "_", name).lstrip("0123456789_-")[:63]
        raise refusal("a name of letters, digits, '-' and '_', beginning with a letter", name, near or None)
    return name


def data_uri(value: object) -> str:
    """A path or a URL, unchanged."""
    written = text(value, "a path or a URL")
    if _VERSIONED.match(written):
        instead = "give a path or a URL (a file of that name: ./" + written[:60] + ")"
        raise unsupported(f"a data set by name and version ({written[:60]!r})", instead, value)
    url = _URL.match(written)
    if url is not None and not url["rest"].strip("/"):
        raise refusal("a URL such as s3://bucket/prefix", value)
    if url is not None and _CREDENTIALS.match(url["rest"]):
        message = "contains a user name and a password; specs are stored and shown: give them to the program's environment"
        raise refusal("a URL without credentials", "a URL with credentials", message=message)
    return written


def requirements(value: object) -> str:
    """A requirements file in the work directory."""
    expected = "a requirements file in the work directory, such as requirements.txt"
    if isinstance(value, list | tuple):
        message = "expected a file that pip reads, got a list; put the packages into requirements.txt and name that file"
        raise refusal(expected, value, "requirements.txt", message)
    written = text(value, expected)
    if written.startswith(("/", "~")):
        raise refusal(expected + ", by its path relative to it", value, posixpath.basename(written.rstrip("/")) or None)
    path = posixpath.normpath(written)
    if path == "." or ".." in path.split("/"):
        raise refusal(expected + ", without '..'", value)
    return path
