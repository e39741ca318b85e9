"""The certificate with which the api shows other machines that it is this server: a given one, or one of `authority`."""

import socket
import ssl
from pathlib import Path
from typing import NamedTuple

import psutil

from trainmaster.errors import OperationError


class Certificate(NamedTuple):
    """Files in PEM. `authority`: the certificate of our own authority, "" if somebody else signed."""

    chain: Path
    key: Path
    authority: str = ""


def names_of_machine() -> frozenset[str]:
    """The names and addresses under which other machines may reach this one."""
    found = {socket.gethostname(), "localhost"}
    for addresses in psutil.net_if_addrs().values():
        found |= {one.address.partition("%")[0] for one in addresses if one.family in (socket.AF_INET, socket.AF_INET6)}
    return frozenset(found)


def context_of(certificate: Certificate) -> ssl.SSLContext:
    """A context for the api's listener. Raises: OperationError if the files are no certificate and its key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, certificate)
    return context


def load(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Use these files from the next connection on. Raises: OperationError."""
    try:
        for one in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):  # what does not fit leaves a context without a key
            one.load_cert_chain(certificate.chain, certificate.key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        message = f"{certificate.chain} and {certificate.key} cannot be used as a certificate and its key: {error}"
        raise OperationError(message, "both must be PEM, the key without a password and of this certificate") from error
