"""An authority of the server's own, and the certificate that it signs. It needs the package cryptography (the extra `tls`).

The authority is made once per home and never replaced: people and agents trust it, and nothing else. It signs the server's
certificate, which is made anew before it expires, and when the machine gets other names or addresses.
"""

import datetime
import ipaddress
import os
import socket
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainmaster.errors import OperationError
from trainmaster.home import Home, write_atomic
from trainmaster.server.process.certificates import Certificate

_ALWAYS = (datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59))  # RFC 5280: it has no end
_DAYS, _RENEW_DAYS = 397, 30
_EARLIER = datetime.timedelta(days=1)  # clocks differ
_COMMON_NAME_MAX = 64  # characters, by X.509


def own(home: Home, names: AbstractSet[str]) -> Certificate:
    """The certificate of this home for these host names and addresses, made or renewed if necessary.

    Raises: OperationError if the authority cannot be used, OSError.
    """
    home.tls.mkdir(mode=0o700, exist_ok=True)
    authority, authority_key = _authority(home)
    chain, key = home.tls / "server.pem", home.tls / "server.key"
    if not _is_good(chain, key, authority, names):
        made = _signed(authority, authority_key, names)
        write_atomic(key, made[1])  # first: a chain without its key is made anew
        write_atomic(chain, made[0] + authority.public_bytes(serialization.Encoding.PEM))
    return Certificate(chain, key, authority.public_bytes(serialization.Encoding.PEM).decode())


def _authority(home: Home) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority of this home, made at the first call."""
    path, key_path = home.tls / "authority.pem", home.tls / "authority.key"
    if not os.path.lexists(path):
        made, key = _new_authority()
        write_atomic(key_path, _private(key))
        write_atomic(path, made.public_bytes(serialization.Encoding.PEM))
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        loaded = serialization.load_pem_private_key(key_path.read_bytes(), None)
        if isinstance(loaded, ec.EllipticCurvePrivateKey) and loaded.public_key() == found.public_key():
            return found, loaded
        reason = "the key is not that of the certificate"
    except (ValueError, TypeError, FileNotFoundError) as error:
        reason = str(error)
    hint = f"put both back from a copy, or remove {home.tls}: then a new authority is made, and everybody logs in again"
    raise OperationError(f"the authority in {path} and {key_path} cannot be used: {reason}", hint)


def _new_authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Trainmaster of {socket.gethostname()}")
    builder = _begun(name, key, _ALWAYS).issuer_name(name)  # also if the clock is wrong now: it is never replaced
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return builder.sign(key, hashes.SHA256()), key


def _signed(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, names: AbstractSet[str]
) -> tuple[bytes, bytes]:
    """A new certificate for these names, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    during = (now - _EARLIER, now + datetime.timedelta(days=_DAYS))
    builder = _begun(_name("Trainmaster"), key, during).issuer_name(authority.subject)
    builder = builder.add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
    )
    made = builder.add_extension(_usage(signs=False), critical=True).sign(authority_key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM), _private(key)


def _begun(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, during: tuple[datetime.datetime, datetime.datetime]
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(during[0]).not_valid_after(during[1])
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _is_good(chain: Path, key: Path, authority: x509.Certificate, names: AbstractSet[str]) -> bool:
    """Whether the certificate there is the authority's, is valid for a while, and names all names."""
    try:
        found = x509.load_pem_x509_certificate(chain.read_bytes())
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        found.verify_directly_issued_by(authority)
        said = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    now = datetime.datetime.now(datetime.UTC)
    is_valid = found.not_valid_before_utc <= now < found.not_valid_after_utc - datetime.timedelta(days=_RENEW_DAYS)
    return is_valid and set(_general(names)) <= set(said) and loaded.public_key() == found.public_key()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:_COMMON_NAME_MAX])])


def _general(names: AbstractSet[str]) -> list[x509.GeneralName]:
    """The names as a certificate has them, without those that it cannot hold: nobody compares them (`wire.tls`)."""
    found: list[x509.GeneralName] = []
    for name in sorted(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name.partition("%")[0])))
        except ValueError:
            with suppress(UnicodeError):  # a part of over 63 characters, which Linux allows
                found.append(x509.DNSName(name.encode("idna").decode()))
    return found


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, plain)
