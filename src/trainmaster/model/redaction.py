"""Redaction: which values are credentials, and what is shown instead. Pure, and linear in the input.

The stored spec keeps every value, since the program needs it. Everything that shows a job (server responses, events,
comparisons, trackers) redacts it here. Credentials are recognized by name or by a known form; some will be missed.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.model.options import notify_targets
from trainmaster.model.options.credentials import (
    NUMBER,
    SWITCH,
    Found,
    in_arguments,
    in_line,
    in_text,
    is_credential,
    is_secret_variable,
)
from trainmaster.model.options.placeholders import commands_of, filled, values_of
from trainmaster.model.spec import JobSpec, Origin

HIDDEN = "(hidden)"
_REMOTE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/@]*)@)?(?P<rest>[^?#]*)")
_ACCOUNTS = ("ssh", "git+ssh", "svn+ssh")  # the user name is part of the address, and not secret
_HIDDEN_NUMBER = "  # hidden: "

_SIGNED = frozenset(("signature", "sig", "awsaccesskeyid", "credential"))
_PLAIN_VARIABLES = (  # prefixes of well-known settings, whose values are shown unless their names look like credentials
    "CUDA_", "CUDNN_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "KMP_", "TF_", "XLA_",
    "JAX_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "PATH", "LD_", "LANG", "LC_", "TZ", "HOME", "HF_", "TRANSFORMERS_",
    "TOKENIZERS_", "MLFLOW_", "WANDB_", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "TRAINMASTER_",
)  # fmt: skip

_REFERENCE = re.compile(r"(?:\$\w+|\$?\{\w+\})\Z")  # to a variable or a parameter
_KNOWN_MIN, _KNOWN_LINE_MIN = 4, 16  # characters: shorter values, and lines of a longer one, are parts of ordinary words
_FORMS = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{32,}"
    r"|xox[abeoprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|tm_[\w-]{32,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_BEARER = re.compile(r"(?<!\w)(Bearer|Basic) +[\w.~+/=-]{8,}")
_URL = re.compile(r"""(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+""")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(-----END [A-Z ]{0,40}PRIVATE KEY-----)?")


def text(value: str) -> str:
    """The text without credentials of a known form, passwords in URLs, and signatures of URLs."""
    if "://" in value:
        value = _URL.sub(lambda found: without_signature(_without_password(found[0])), value)
    if "PRIVATE KEY" in value:
        value = _PRIVATE_KEY.sub(HIDDEN, value)
    if "Bearer" in value or "Basic" in value:
        value = _BEARER.sub(rf"\1 {HIDDEN}", value)
    return _FORMS.sub(HIDDEN, value)


def without_signature(url: str) -> str:
    """The URL without its query, if the query contains a signature or another credential."""
    address, mark, rest = url.partition("?")
    query, hash_mark, fragment = rest.partition("#")
    names = [pair.partition("=")[0].lower() for pair in query.split("&")] if mark else []
    signed = any(name.rpartition("-")[2] in _SIGNED or is_credential(name) for name in names)
    return f"{address}{hash_mark}{fragment}" if signed else url


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not at:
        return url
    name, colon, _ = user.partition(":")
    kept = f"{name}:{HIDDEN}@" if colon else f"{name}@" if scheme.lower().endswith("ssh") else f"{HIDDEN}@"
    return f"{scheme}://{kept}{host}{slash}{path}"


def without_credentials(url: str) -> str:
    """The URL of a git repository without user, password, token and query. `git@host:path` has none and is unchanged."""
    match = _REMOTE.match(url)
    if match is None:
        return url
    user = (match["user"] or "").partition(":")[0]
    kept = f"{user}@" if user and match["scheme"].lower() in _ACCOUNTS else ""
    return f"{match['scheme']}://{kept}{match['rest']}"


def line(command: str) -> str:
    """A line for a shell without the values of options, variables and headers that are credentials."""
    return text(_masked(command, in_line(command)))


def prose(value: str) -> str:
    """A text that a person or a program wrote, without credentials in `--option value`, `NAME=value` and known forms."""
    return text(_masked(value, in_text(value)))


def _masked(value: str, found: Iterable[Found]) -> str:
    told, done = [], 0
    for start, end, _ in sorted(found):
        if start >= done and end > start:
            told += [value[done:start], HIDDEN]
        done = max(done, end)
    return "".join((*told, value[done:]))


def numbered(shown: str, number: int) -> str:
    """Mark a redacted text with a number, so that different hidden values remain distinguishable."""
    return f"{shown} {number}" if shown == HIDDEN else f"{shown}{_HIDDEN_NUMBER}{number}"


def unnumbered(shown: str) -> tuple[str, str | None]:
    """Reverse of `numbered`: the text and the number; None if it has none."""
    head, mark, number = shown.rpartition(_HIDDEN_NUMBER)
    return (head, number) if mark and HIDDEN in head and number.isdecimal() else (shown, None)


def command(given: str | Sequence[str]) -> str | tuple[str, ...]:
    """A command, as a line or as arguments, without credentials."""
    if isinstance(given, str):
        return line(given)
    return tuple(text(_masked(argument, found)) for argument, found in zip(given, in_arguments(given), strict=True))


def values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters or tags, redacted by name and by form."""
    return {
        name: HIDDEN if is_credential(name, str(value)) else prose(value) if isinstance(value, str) else value
        for name, value in given.items()
    }


def known(spec: JobSpec) -> tuple[str, ...]:
    """The credentials that the spec itself gives to the program, longest first."""
    variables = spec.environment.variables
    numbers = {name: str(value) for name, value in spec.params.items() if isinstance(value, int) and is_credential(name)}
    params = {**{name: value for name, value in spec.params.items() if isinstance(value, str)}, **numbers}
    given = [value for name, value in variables.items() if is_secret_variable(name)]
    given += [value for name, value in params.items() if name in numbers or is_credential(name, value)]
    given += [secret for value in (*variables.values(), *params.values()) for _, _, secret in in_text(value)]
    for command in (*commands_of(spec), spec.checkpoint.resume_arguments or ""):
        command = filled(command, values_of(spec))
        parts = [in_line(command)] if isinstance(command, str) else in_arguments(command)
        given += [secret for part in parts for _, _, secret in part if not _REFERENCE.match(secret)]
    lines = [line for value in given for line in value.splitlines() if len(line) >= _KNOWN_LINE_MIN]  # a key of many lines
    found = {value for value in (*given, *lines) if len(value) >= _KNOWN_MIN and not SWITCH.match(value)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def without_known(value: str, secrets: Sequence[str]) -> str:
    """A text of the program as `prose`, and without `secrets` (`known`)."""
    return prose(without_values(value, secrets))


def logged(given: Mapping[str, str | None], spec: JobSpec) -> dict[str, Any]:
    """Parameters or tags that the program of a job logged, as `values`, and without the credentials that the job gives it."""
    secrets = known(spec) if given else ()
    return values({name: None if value is None else without_values(value, secrets) for name, value in given.items()})


def without_values(value: str, secrets: Sequence[str]) -> str:
    """A text in which these credentials are hidden, and nothing else is."""
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    return value


def without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with only those redacted whose names are credentials."""
    return {name: HIDDEN if is_secret_variable(name) else value for name, value in given.items()}


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """Environment variables; only values that are clearly no secrets are shown (numbers, switches, paths, known settings)."""
    return {name: prose(value) if _is_plain(name, value) else HIDDEN for name, value in given.items()}


def _is_plain(name: str, value: str) -> bool:
    if is_secret_variable(name):
        return not value  # an empty value reveals nothing
    evident = not value or value.startswith(("/", "~/", "./")) or bool(NUMBER.match(value) or SWITCH.match(value))
    return evident or name.startswith(_PLAIN_VARIABLES)


def shown(spec: JobSpec, own: bool = False) -> JobSpec:
    """The spec, redacted. To its owner (`own`) variables are shown unless their names or forms are those of credentials."""
    given = spec.environment.variables
    told = {name: prose(value) for name, value in without_secrets(given).items()} if own else variables(given)
    environment = replace(spec.environment, variables=told)
    resume = spec.checkpoint.resume_arguments
    return replace(
        spec,
        command=command(spec.command),
        environment=environment,
        checkpoint=replace(spec.checkpoint, resume_arguments=None if resume is None else line(resume)),
        params=values(spec.params),
        tags=values(spec.tags),
        roles={name: replace(role, command=command(role.command)) for name, role in spec.roles.items()},
        data={name: text(uri) for name, uri in spec.data.items()},
        notify=replace(spec.notify, to=tuple(line(notify_targets.shown(one)) for one in spec.notify.to)),
    )


def shown_origin(origin: Origin) -> Origin:
    """The origin, redacted."""
    return replace(origin, variables=variables(origin.variables))


def shown_line(spec: JobSpec) -> str:
    """What runs, in one redacted line."""
    if spec.python is not None:
        return spec.line
    told = command(spec.command)
    return told if isinstance(told, str) else shlex.join(told)
