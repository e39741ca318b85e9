"""Where a notification goes: a webhook (`https://…`), an e-mail address, or a command (`run:COMMAND`)."""

import re
from urllib.parse import urlsplit

RUN, MAILTO = "run:", "mailto:"
_ADDRESS = re.compile(r"[^@\s<>,;:\"\\()\[\]]{1,64}@[A-Za-z0-9.\-]{1,253}\Z")


def kind_of(target: str) -> str | None:
    """`command`, `webhook` or `mail`; None if it is none of them."""
    if target.startswith(RUN):
        return "command" if target[len(RUN) :].strip() else None
    if target.startswith(("http://", "https://")):
        return "webhook" if _has_host(target) else None
    return "mail" if _ADDRESS.match(target.removeprefix(MAILTO)) else None


def shown(target: str) -> str:
    """The target without the path of a webhook, which often is a secret."""
    if kind_of(target) != "webhook":
        return target
    scheme, _, rest = target.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/…"


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False
