"""URLs of git repositories, as they may be recorded."""

import re

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/@]*)@)?(?P<rest>[^?#]*)")
_ACCOUNTS = ("ssh", "git+ssh", "svn+ssh")  # where the user's name is part of the address, and says nothing


def without_credentials(url: str) -> str:
    """The URL without what lets one in: user, password, token, query. `git@host:path` has none and stays."""
    match = _URL.match(url)
    if match is None:
        return url
    user = (match["user"] or "").partition(":")[0]
    kept = f"{user}@" if user and match["scheme"].lower() in _ACCOUNTS else ""
    return f"{match['scheme']}://{kept}{match['rest']}"
