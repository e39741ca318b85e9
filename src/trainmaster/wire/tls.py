"""TLS between machines: connections that trust the authority of one server alone, and the fingerprint that names it.

The certificate of a server's own authority is signed by nobody. People compare its fingerprint once, at `tm login`; agents get
the certificate with their launch.
"""

from __future__ import annotations

import hashlib
import ssl


def fingerprint(certificate: str) -> str:
    """`sha256:` and the digest of a certificate in PEM. Raises: ValueError if it is none."""
    return f"sha256:{hashlib.sha256(_der(certificate)).hexdigest()}"


def trusting(authority: str) -> ssl.SSLContext:
    """A context for connections to the server whose authority this is (PEM).

    It trusts the bytes whose digest is the fingerprint and nothing else: a second certificate that follows has no effect.
    Raises: ssl.SSLError or ValueError if it is no certificate.

    The server's name is not compared: this authority signs for no other server, and the name differs by the way that leads to
    it, such as a forwarded port.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=_der(authority))
    return context


def unverified() -> ssl.SSLContext:
    """A context for the first contact: it hears anybody. Nothing secret may be sent, and what comes is proved otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _der(certificate: str) -> bytes:
    """The bytes of the one certificate in a text. Raises: ValueError if there is none, or more than one."""
    if certificate.count("-----BEGIN") != 1:
        raise ValueError("it is not one certificate")
    return ssl.PEM_cert_to_DER_cert(certificate)
