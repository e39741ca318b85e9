"""Redaction: which values are credentials, and what is shown instead. Pure, and linear in the input.

The stored spec keeps every value, since the program needs it. Everything that shows a job (server responses, events,
comparisons, trackers) redacts it here. Credentials are recognized by name or by a known form; some will be missed.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from trainmaster.model.options import notify_targets
from trainmaster.model.spec import JobSpec, Origin

HIDDEN = "(hidden)"
_REMOTE = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<user>[^/@]*)@)?(?P<rest>[^?#]*)")
_ACCOUNTS = ("ssh", "git+ssh", "svn+ssh")  # the user name is part of the address, and not secret
_HIDDEN_NUMBER = "  # hidden: "

_ALWAYS = frozenset(
    (
        "password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "authorization", "cookie",
        "apikey", "accesskey", "secretkey", "privatekey",
    )
)  # fmt: skip
_KEYS = frozenset(  # words before `key`
    (
        "api", "access", "secret", "private", "account", "encryption", "signing", "ssh", "auth", "master", "deploy", "license",
        "wandb", "comet", "neptune", "clearml", "swanlab", "hf", "huggingface", "openai", "anthropic", "kaggle", "ngc", "aws",
    )
)  # fmt: skip
_OF_TEXT = frozenset(  # words before `token` that mean a language model's token, not a credential
    ("bos", "eos", "pad", "unk", "mask", "cls", "sep", "special", "image", "start", "end", "stop", "per", "prefix", "suffix")
)
_LAST = frozenset(("key", "id", "token", "pass", "pat", "pwd"))  # last words of names that may be those of credentials
_ABOUT = frozenset(  # last words of names that hold a location or an amount, not a credential
    ("file", "path", "dir", "directory", "name", "env", "var", "length", "len", "size", "count", "ratio", "rate", "prob", "url")
)
_SIGNED = frozenset(("signature", "sig", "awsaccesskeyid", "credential"))
_PLAIN_VARIABLES = (  # prefixes of well-known settings, whose values are shown unless their names look like credentials
    "CUDA_", "CUDNN_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "KMP_", "TF_", "XLA_",
    "JAX_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "PATH", "LD_", "LANG", "LC_", "TZ", "HOME", "HF_", "TRANSFORMERS_",
    "TOKENIZERS_", "MLFLOW_", "WANDB_", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "TRAINMASTER_",
)  # fmt: skip

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9.,_]+(e[+-]?[0-9]+)?\Z", re.IGNORECASE)
_SWITCH = re.compile(r"(true|false|yes|no|on|off|none|null)\Z", re.IGNORECASE)
# Each pattern matches only at the start of a name, so that no text is scanned twice.
_VALUE = r"""("[^"]*"|'[^']*'|[^\s"'-][^\s"']*)"""
_OPTION = re.compile(r"(?<![\w.-])(--?[A-Za-z][\w.-]{0,127})([ \t]+|=)" + _VALUE)
_ASSIGNED = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,127})(=)" + _VALUE)
# A header in quotes ends with them: `-H 'X-Api-Key: …'`. One without is one word; so is a member of an object, unless quoted.
_QUOTED_HEADER = re.compile(r"""(?<=["'])([A-Za-z][\w-]{0,127})(:[ \t]*)([^"'\n]+)""")
_HEADER = re.compile(
    r"""(?<![\w./:@"'-])([A-Za-z][\w-]{0,127})(:[ \t]*)((?:(?:Bearer|Basic|Digest|Token)[ \t]+)?[^\s"']+)""", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z][\w-]{0,127}\Z")
_MEMBER = re.compile(r"""(?<=["'])([A-Za-z_][\w.-]{0,127})(["'][ \t]*:[ \t]*)("[^"]*"|'[^']*'|[^\s"',}]+)""")
_SCHEME = re.compile(r"(?:Bearer|Basic|Digest|Token) ", re.IGNORECASE)
# Short options that take a password, of programs known for them: `curl -u name:…`, `mysql -p…`, `sshpass -p …`.
_USER = re.compile(r"""(?<![\w.-])(-[A-Za-z]{0,8}[uU][ \t]*|--(?:proxy-)?user[ \t=]+)(["']?[^\s"':]{1,128}:)(?!//)([^\s"']+)""")
_USER_OPTIONS = ("-u", "-U", "--user", "--proxy-user")
_ATTACHED = re.compile(r"(?<![\w.-])(-p)" + _VALUE)
_SSHPASS = re.compile(r"(?<![\w.-])(sshpass[ \t]+-p[ \t]*)" + _VALUE)
_WITH_ATTACHED = re.compile(r"(?<![\w.-])(?:mysql\w*|mariadb[\w-]*|sshpass)(?![\w.])")
_KNOWN_MIN, _KNOWN_LINE_MIN = 4, 16  # characters: shorter values, and lines of a longer one, are parts of ordinary words
_FORMS = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{32,}"
    r"|xox[abeoprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|tm_[\w-]{32,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
_BEARER = re.compile(r"(?<!\w)(Bearer|Basic) +[\w.~+/=-]{8,}")
_URL = re.compile(r"""(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+""")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(-----END [A-Z ]{0,40}PRIVATE KEY-----)?")


@lru_cache(4096)
def _words(name: str) -> tuple[str, ...]:
    """The words of a name. The same few names come back in every list of jobs."""
    return tuple(word.lower() for word in _WORD.findall(name))


@lru_cache(4096)
def _always(name: str) -> bool | None:
    """Whether a name is that of a credential; None if its value tells."""
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return False
    if not _ALWAYS.isdisjoint(words) or "password" in name.lower():  # PGPASSWORD
        return True
    return None if words[-1] in _LAST else False


def is_credential(name: str, value: str = "") -> bool:
    """Whether an option, variable or parameter of this name holds a credential (`--hub-token`, `AWS_SECRET_ACCESS_KEY`)."""
    name = name[-128:]
    always, words = _always(name), _words(name)
    if always is False or _SWITCH.match(value):
        return False
    if always:
        return True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key" or words[-2:] == ("key", "id"):
        return before in _KEYS or words[-3:] == ("access", "key", "id")
    if last == "token":
        return before not in _OF_TEXT and not value.startswith(("<", "[")) and not _NUMBER.match(value)
    return last in ("pass", "pat", "pwd") and bool(before) and not _NUMBER.match(value)


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
    """A shell command line, or another text, without the values of options, variables and headers that are credentials."""
    return _line(command, command)


def _line(command: str, whole: str) -> str:
    """`whole`: the command that `command` is part of. It tells which programs are called."""
    command = _OPTION.sub(_shown_assignment, command)
    if "=" in command:
        command = _ASSIGNED.sub(_shown_assignment, command)
    if ":" in command:
        command = _HEADER.sub(_shown_header, _QUOTED_HEADER.sub(_shown_header, command))
        command = _MEMBER.sub(_shown_assignment, command)
        if "curl" in whole:
            command = _USER.sub(lambda found: found[0] if _NUMBER.match(found[3]) else f"{found[1]}{found[2]}{HIDDEN}", command)
    if "-p" in command and _WITH_ATTACHED.search(whole):
        command = _ATTACHED.sub(rf"\1{HIDDEN}", _SSHPASS.sub(rf"\1{HIDDEN}", command))
    return text(command)


def _shown_assignment(found: re.Match[str]) -> str:
    name, gap, value = found.groups()
    if is_credential(name, value.strip("\"'")):
        return f"{name}{gap}{HIDDEN}"
    if value[0] not in "\"'" or found.re is _MEMBER:
        return found[0]
    return f"{name}{gap}{value[0]}{found.re.sub(_shown_assignment, value[1:-1])}{value[0]}"  # bash -c '… --token …'


def _shown_header(found: re.Match[str]) -> str:
    return _header(*found.groups()) or found[0]


def _header(name: str, gap: str, value: str) -> str | None:
    """A header without its credential, whose scheme is shown; None if it has none, or is the address `name://…`."""
    if value.startswith(("//", HIDDEN)) or not is_credential(name, value):
        return None
    scheme = _SCHEME.match(value)
    return f"{name}{gap}{scheme[0] if scheme is not None else ''}{HIDDEN}"


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
    whole = " ".join(given)
    return tuple(_shown_argument(argument, given[max(at - 2, 0) : at], whole) for at, argument in enumerate(given))


def _shown_argument(argument: str, before: Sequence[str], whole: str) -> str:
    """`before`: up to two arguments before it."""
    option = before[-1] if before else ""
    follows = option.startswith("-") and "=" not in option and not argument.startswith("-")
    if follows and (is_credential(option, argument) or (option == "-p" and before[0].endswith("sshpass"))):
        return HIDDEN
    user, colon, password = argument.partition(":")
    if follows and option in _USER_OPTIONS and "curl" in whole and colon and not _NUMBER.match(password):
        return f"{user}:{HIDDEN}"
    name, equals, value = argument.partition("=")
    if equals and " " not in name and is_credential(name, value):
        return f"{name}={HIDDEN}"
    told = _header(user, ": ", password.lstrip()) if colon and _NAME.match(user) else None
    return told or _line(argument, whole)  # it may be a command line: bash -c '…'


def values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters or tags, redacted by name and by form."""
    return {
        name: HIDDEN if is_credential(name, str(value)) else text(value) if isinstance(value, str) else value
        for name, value in given.items()
    }


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable is a credential by its name alone (`STORAGE_KEY`, `PGPASSWORD`)."""
    words = _words(name[-128:])
    if not words or words[-1] in _ABOUT:
        return False
    return is_credential(name) or words[-1] in ("token", "key", "secret")


def known(spec: JobSpec) -> tuple[str, ...]:
    """The credentials that the spec itself gives to the program, longest first."""
    given = [value for name, value in spec.environment.variables.items() if is_secret_variable(name)]
    given += [value for name, value in spec.params.items() if isinstance(value, str) and is_credential(name, value)]
    lines = [line for value in given for line in value.splitlines() if len(line) >= _KNOWN_LINE_MIN]  # a key of many lines
    found = {value for value in (*given, *lines) if len(value) >= _KNOWN_MIN and not _SWITCH.match(value)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def without_known(value: str, secrets: Sequence[str]) -> str:
    """A text of the program without credentials of a known form and without `secrets` (`known`)."""
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    return text(value)


def without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with only those redacted whose names are credentials."""
    return {name: HIDDEN if is_secret_variable(name) else value for name, value in given.items()}


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """Environment variables; only values that are clearly no secrets are shown (numbers, switches, paths, known settings)."""
    return {name: text(value) if _is_plain(name, value) else HIDDEN for name, value in given.items()}


def _is_plain(name: str, value: str) -> bool:
    if is_secret_variable(name):
        return not value  # an empty value reveals nothing
    evident = not value or value.startswith(("/", "~/", "./")) or bool(_NUMBER.match(value) or _SWITCH.match(value))
    return evident or name.startswith(_PLAIN_VARIABLES)


def shown(spec: JobSpec, own: bool = False) -> JobSpec:
    """The spec, redacted. To its owner (`own`) variables are shown unless their names or forms are those of credentials."""
    given = spec.environment.variables
    told = {name: text(value) for name, value in without_secrets(given).items()} if own else variables(given)
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
