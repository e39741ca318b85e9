"""URLs of git repositories, in a form that may be recorded."""

import re

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/@]*)@)?(?P<rest>[^?#]*)")
_ACCOUNTS = ("ssh", "git+ssh", "svn+ssh")  # the user name is part of the address, and not secret


def without_credentials(url: str) -> str:
    """The URL without credentials: user, password, token, query. `git@host:path` has none and is unchanged."""
    match = _URL.match(url)
    if match is None:
        return url
    user = (match["user"] or "").partition(":")[0]
    kept = f"{user}@" if user and match["scheme"].lower() in _ACCOUNTS else ""
    return f"{match['scheme']}://{kept}{match['rest']}"
