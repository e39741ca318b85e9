"""`tm token`: creates, lists and revokes access tokens."""

import time

import click

from trainmaster.cli.render import human, times
from trainmaster.cli.session import Noun, Session, quiet_option, remote
from trainmaster.client.api import Row

_ALSO = {"rm": "revoke", "remove": "revoke", "delete": "revoke", "add": "create", "new": "create", "ls": "list"}
_HEADERS = ("NAME", "ROLE", "GIVEN OUT", "BY", "EXPIRES")


@click.group(cls=Noun, also=_ALSO)
def token() -> None:
    """Manage access tokens: create, list, revoke. For administrators.

    A member sees everything and changes its own jobs; usage is charged to the token's name, and its limits apply.
    An administrator may do everything. The token in the server's own home is an administrator's.
    """


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(("member", "admin")), default="member", show_default=True, help="Its role.")
@click.option("--expires", metavar="TIME", help="Valid for: 12h, 30d; default: until it is revoked.")
@quiet_option("Print the token only.")
@remote
def create(session: Session, name: str, role: str, expires: str | None) -> None:
    """Create a token for NAME. It is printed once; the server stores only a digest, so it cannot be shown again."""
    expires_s = None if expires is None else times.seconds(expires, "--expires", "write 12h or 30d")
    client, out = session.client(), session.out
    made = client.create_token(name, role, expires_s)
    if out.json:
        out.value(made)
        return
    out.data(str(made["token"]))
    if not out.quiet:
        out.note(f"the token of {name} ({role}), which expires {_expiry(made)}; it is shown only this once")
        if made["url"]:
            proof = f" --fingerprint {made['fingerprint']}" if made["fingerprint"] else ""
            out.note(f"{name} pastes it when asked by: tm login {made['url']}{proof}")
        else:
            out.note(f"{name} sets TRAINMASTER_TOKEN to it, and TRAINMASTER_SERVER to {client.url}")
        out.note(f"to revoke it: tm token revoke {name}")


@token.command("list")
@quiet_option("Print names only.")
@remote
def list_tokens(session: Session) -> None:
    """List the tokens."""
    found, out = session.client().tokens(), session.out
    if out.json:
        out.value(found)
    elif out.quiet:
        for row in found:
            out.data(row["name"])
    elif found:
        now_s = time.time()
        rows = [[row["name"], row["role"], human.ago(row["created_s"], now_s), row["made_by"], _expiry(row)] for row in found]
        out.table(_HEADERS, rows)
    else:
        out.note("there are no tokens; the one in the server's home is an administrator's")
        out.note("create one: tm token create NAME")


@token.command()
@click.argument("name")
@remote
def revoke(session: Session, name: str) -> None:
    """Revoke the token of NAME: it is invalid from the next request on. The member's jobs continue."""
    answer, out = session.client().revoke_token(name), session.out
    if out.json:
        out.value(answer)
    else:
        out.data(f"the token of {name} is revoked; its jobs continue")


def _expiry(row: Row) -> str:
    """`never`, `in 29 d`, `expired`."""
    if row["expires_s"] is None:
        return "never"
    left_s = row["expires_s"] - time.time()
    return "expired" if left_s <= 0 else f"in {human.duration(left_s)}"
