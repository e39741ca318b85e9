"""`tm login` and `tm logout`: which server of another machine this user's commands use."""

import os
import sys

import click

from trainmaster.cli.session import Session, offline
from trainmaster.client.servers import sign_in
from trainmaster.client.servers.settings import ENV_HOME, ENV_SERVER, ENV_TOKEN, Target
from trainmaster.errors import AuthenticationError, NotFoundError
from trainmaster.wire.tls import fingerprint

_TOKEN_MAX = 1000  # characters


@click.command()
@click.argument("url")
@click.option("--fingerprint", "expected", metavar="SHA256", help="Of the server's own authority, as tm up says it.")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input, without asking.")
@offline
def login(session: Session, url: str, expected: str | None, token_stdin: bool) -> None:
    """Use the server at URL from now on. Asks for your token and keeps it in your own trainmaster.toml.

    An administrator makes tokens: tm token create NAME. A server that shows a certificate of its own is trusted once you
    have compared its fingerprint.
    """
    url, out = sign_in.normal(url), session.out
    authority = "" if sign_in.is_trusted(url) and not expected else _proved(url, expected)
    target = Target(url, "x", "", authority)
    if target.warning:
        out.warn(target.warning)
    token = _token(token_stdin)
    member = sign_in.check(url, token, authority)
    path = sign_in.keep(url, token, authority)
    if out.json:
        out.value({"url": url, "name": member.name, "role": member.role, "file": path})
        return
    out.data(f"logged in to {url} as {member.name} ({member.role})")
    out.note(f"kept in {path}; to undo it: tm logout")
    for name in (ENV_SERVER, ENV_TOKEN, ENV_HOME):
        if os.environ.get(name):
            out.warn(f"${name} is set and is used instead of what was kept: unset {name}")


@click.command()
@click.argument("url", required=False)
@offline
def logout(session: Session, url: str | None) -> None:
    """Forget the server at URL, or the one in use, with its token. The token stays valid: tm token revoke NAME ends it."""
    gone, out = sign_in.forget(url), session.out
    if gone is None:
        raise NotFoundError("you are not logged in" + (f" to {url}" if url else ""), "log in: tm login URL")
    if out.json:
        out.value({"url": gone})
    else:
        out.data(f"logged out of {gone}")


def _proved(url: str, expected: str | None) -> str:
    """The server's own authority, once its fingerprint is the expected one, or a person has compared it.

    Raises: AuthenticationError.
    """
    authority = sign_in.authority_of(url)
    found = fingerprint(authority)
    if expected is not None:
        if _plain(expected) != _plain(found):
            what = f"the authority of {url} has the fingerprint {found}, not {expected}: another server answers there"
            raise AuthenticationError(what, "no token was sent; ask the administrator what tm up says")
        return authority
    if not sys.stdin.isatty():
        hint = f"compare it with what tm up says on the server, then: tm login {url} --fingerprint {found}"
        raise AuthenticationError(f"{url} shows a certificate of its own authority, with the fingerprint {found}", hint)
    click.echo(f"{url} shows a certificate of its own authority, with the fingerprint\n  {found}", err=True)
    if not click.confirm("Is that what tm up says on the server?", err=True):
        raise AuthenticationError(f"{url} was not trusted", "ask the administrator for the fingerprint")
    return authority


def _token(from_stdin: bool) -> str:
    """The token: from standard input, the variable, or a person. Raises: AuthenticationError."""
    if from_stdin:
        return sys.stdin.readline(_TOKEN_MAX).strip()
    given = os.environ.get(ENV_TOKEN, "")
    if given:
        return given
    if not sys.stdin.isatty():
        raise AuthenticationError("there is no terminal to ask for the token", f"set ${ENV_TOKEN}, or pipe it: --token-stdin")
    return str(click.prompt("Token", hide_input=True, err=True)).strip()


def _plain(text: str) -> str:
    return text.strip().lower().removeprefix("sha256:").replace(":", "")
