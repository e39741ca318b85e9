"""Which names are those of credentials, and where credentials stand in a command or a text. Pure, and linear in the input.

Lines and texts are divided into words, and one rule reads a word with the two before it. In a text, which a person or a program
wrote, `secret: x` is a sentence and no header.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from trainmaster.model.options import shell_words

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
_LAST = frozenset(("key", "keys", "id", "token", "pass", "pat", "pwd"))  # last words of names that may be those of credentials
_MARKS = ("pass", "secret", "credential", "authorization", "cookie", "key", "token", "pat", "pwd")  # one is in each such name
_ABOUT = frozenset(  # last words of names that hold a location or an amount, not a credential
    ("file", "path", "dir", "directory", "name", "env", "var", "length", "len", "size", "count", "ratio", "rate", "prob", "url")
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
NUMBER = re.compile(r"[+-]?[0-9.,_]+(e[+-]?[0-9]+)?\Z", re.IGNORECASE)
SWITCH = re.compile(r"(true|false|yes|no|on|off|none|null)\Z", re.IGNORECASE)
# Each pattern matches only at the start of a name, so that no text is scanned twice.
_NAME = r"(-{0,2}[A-Za-z_][\w.-]{0,127})"
_OPTION = re.compile(r"(?:\S*[^\w.-])?(--?[A-Za-z][\w.-]*)\Z")  # its value is the next word: `--key`, `(--key`
_ASSIGNED = re.compile(_NAME + r"\+?=")  # what a word begins with
_HEADER = re.compile(r"(?:-H)?([A-Za-z][\w-]{0,127}):[ \t]*(?:(?:Bearer|Basic|Digest|Token) +)?", re.IGNORECASE)
_HEADER_NAME = re.compile(r"(?:-H|\S*[^\w./:@-])?([A-Za-z_][\w-]{0,127}):\Z")  # its value is the next word
_OF_PLACE = ("/", ".", "~", "$", "%")  # begin a directory: `--pwd /work`, `PWD=$(pwd)`
_OF_ADDRESS, _DIVIDING = "/:@", ";,&"
_OPENED_BY = {")": "(", "]": "[", "}": "{", ",": ",", ";": ";"}
_CLOSED_MAX = 8  # brackets
_TELLING = 256  # characters of a value that tell whether it is a credential
_SCHEMES = ("bearer", "basic", "digest", "token")
_NAMED = re.compile(r"(?<![\w.-])" + _NAME + "([=:])(?=([^;,&]{0,256}))")  # within a word: `a=1;key=…`, `{key:…`
_MEMBER = re.compile(  # of an object, a list or a call: `"key": "…"`, `['key'] = '…'`, `'--key', '…'`, `key='…'`
    rf"""(?<![\w.-]){_NAME}(["'](?:\][ \t]*=|[ \t]*[:,])[ \t]*|=(?=["']))(?=("[^"]*"|'[^']*'|[^\s"',}}]+))"""
)
_LINE_OPTION = re.compile(r"-[a-z]{0,8}c\Z")  # a line for a shell follows: `bash -lc`, `bash -o pipefail -c`
_BEFORE_IT = re.compile(r"(?:(?:\S*/)?[a-z]{0,3}sh|-[a-z]+|pipefail)\Z")
_DIVIDED = re.compile(r"""[\s\\]|(?<!\w)["']""")  # what a text has that its words have not
_SAID = frozenset(  # words that follow the name of an option in a sentence about it
    (
        "is", "was", "are", "has", "had", "and", "or", "to", "in", "for", "of", "from", "with", "as", "not", "must", "needs",
        "requires", "required", "expects", "takes", "may", "can", "cannot", "should", "does", "argument", "option", "value",
        "the", "a", "by", "on", "at", "if", "but", "then", "when", "instead", "again", "here", "there", "missing", "expected",
    )
)  # fmt: skip
# Short options that take a password, of programs known for them: `curl -u name:…`, `mysql -p…`, `sshpass -p …`.
_USER = re.compile(r"(?:-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user)\Z")
_USER_ATTACHED = re.compile(r"(?:-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user=)[^\s:]{1,128}:(?!//)")
_WITH_ATTACHED = re.compile(r"(?<![\w.-])(?:mysql\w*|mariadb[\w-]*|sshpass)(?![\w.])")

Found = tuple[int, int, str]  # from where to where a credential stands in a text, and the credential


class _Reading(NamedTuple):
    """How words are read: of a text (`prose`), and of programs with the options `-u` (`curl`) and `-p` (`attached`)."""

    prose: bool = False
    curl: bool = False
    attached: bool = False


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
    if always is False or SWITCH.match(value):
        return False
    if always:
        return True
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("key", "keys") or words[-2:] == ("key", "id"):
        return before in _KEYS or words[-3:] == ("access", "key", "id")
    if last == "token":
        return before not in _OF_TEXT and not value.startswith(("<", "[")) and not NUMBER.match(value)
    if last not in ("pass", "pat", "pwd") or NUMBER.match(value):
        return False
    if before:
        return True
    return (last == "pwd" or name.lower() == "--pass") and bool(value) and not value.startswith(_OF_PLACE)


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable is a credential by its name alone (`STORAGE_KEY`, `PGPASSWORD`)."""
    words = _words(name[-128:])
    if not words or words[-1] in _ABOUT:
        return False
    return is_credential(name) or words[-1] in ("token", "key", "secret")


def in_line(line: str) -> Iterator[Found]:
    """Credentials in a line for a shell."""
    return _in_words(line, _reading(line), shell=True)


def in_arguments(arguments: Sequence[str]) -> Iterator[Iterator[Found]]:
    """Credentials in each of the arguments of a command."""
    reading = _reading(" ".join(arguments))
    for argument, *before in zip(arguments, ("", "", *arguments), ("", *arguments), strict=False):
        yield _in_word(argument, before, reading)


def in_text(text: str) -> Iterator[Found]:
    """Credentials in a text: `--option value`, `NAME=value`, and quoted members of objects and of lists of arguments."""
    return _in_words(text, _reading(text)._replace(prose=True))


def _reading(command: str) -> _Reading:
    return _Reading(False, "curl" in command, "-p" in command and _WITH_ATTACHED.search(command) is not None)


def _in_words(line: str, reading: _Reading, shell: bool = False) -> Iterator[Found]:
    """Credentials in a line or a text. `shell`: a shell divides it, so that operators end words."""
    if not (reading.curl or reading.attached or _may_name(line)):
        return
    for found in _MEMBER.finditer(line):
        name, separator, told = found.groups()
        secret = told.strip("\"'")
        of_list = "," in separator and (not name.startswith("-") or told == secret)
        if is_credential(name, secret) and not of_list:
            yield (*found.span(3), secret)
    before = ("", "")
    for word in shell_words.words(line, shell):
        if word.begins:
            before = ("", "")
        for start, end, secret in _in_word(word.value, before, reading):
            if start < end:
                yield (*word.place(start, end), secret)
        before = (before[1], "" if reading.prose and word.quoted else word.value)


def _may_name(value: str) -> bool:
    """Whether a text may have the name of a credential in it. Most have none, and need no more."""
    value = value.lower()
    return any(mark in value for mark in _MARKS)


def _in_word(word: str, before: Sequence[str], reading: _Reading) -> Iterator[Found]:
    """Credentials in an argument. `before`: the two arguments before it."""
    if not (reading.curl or reading.attached or _may_name(" ".join((*before, word)))):
        return
    announced = _announced(word, before, reading)
    if announced is not None:
        yield announced
        return
    if reading.attached and word.startswith("-p"):
        yield 2, len(word), word[2:]
        return
    if _LINE_OPTION.match(before[1]) and _BEFORE_IT.match(before[0]):
        yield from _in_words(word, reading, shell=not reading.prose)
        return
    at = 0
    while (assigned := _ASSIGNED.match(word, at)) is not None:
        at = assigned.end()
        if is_credential(assigned[1], word[at : at + _TELLING]):
            yield at, len(word), word[at:]
            return
    rest = word[at:]
    header = _HEADER.match(rest) if ":" in rest and not reading.prose else None
    user = _USER_ATTACHED.match(word) if reading.curl else None
    if header is not None and _is_header(header[1], rest[header.end() :]):
        yield _piece(word, at + header.end(), len(word))
    elif user is not None and not NUMBER.match(word, user.end()):
        yield user.end(), len(word), word[user.end() :]
    elif _DIVIDED.search(rest):  # it may contain a command line
        yield from ((at + start, at + end, secret) for start, end, secret in _in_words(rest, reading))
    elif "=" in rest or ":" in rest:
        yield from ((at + start, at + end, secret) for start, end, secret in _in_pieces(rest, reading))


def _announced(word: str, before: Sequence[str], reading: _Reading) -> Found | None:
    """The credential that the arguments before announce; None if they announce none."""
    first, option = before
    if word.startswith("-"):
        return None
    named = _OPTION.match(option) if "-" in option else None
    if named is not None:
        return _of_option(word, first, named[1], reading)
    if option.lower() in _SCHEMES:
        option = first
    header = _HEADER_NAME.match(option) if option.endswith(":") and not reading.prose else None
    if header is None or word.lower() in _SCHEMES or not _is_header(header[1], word):
        return None
    return _piece(word, 0, len(word))


def _of_option(word: str, before: str, option: str, reading: _Reading) -> Found | None:
    """The credential in the value of an option. `before`: the argument before it."""
    said = reading.prose and word.rstrip(".,:;!?").lower() in _SAID
    if (option == "-p" and before.endswith("sshpass")) or (not said and is_credential(option, word)):
        return 0, len(word), word
    user, colon, password = word.partition(":") if reading.curl and _USER.match(option) else (word, "", "")
    hidden = colon and not password.startswith("//") and not NUMBER.match(password)
    return (len(user) + 1, len(word), password) if hidden else None


def _is_header(name: str, value: str) -> bool:
    """Whether `name: value` is a credential, and not an address `name://…`."""
    return not value.startswith("//") and is_credential(name, value)


def _in_pieces(word: str, reading: _Reading) -> Iterator[Found]:
    """Credentials among the pieces of a word: `Account=me;AccountKey=…`, `logger.api_key=…`, `{api_key:…}`."""
    began: int | None = None
    for named in _NAMED.finditer(word):
        name, mark, value = named.groups()
        if began is not None:
            if word[named.start() - 1] not in _DIVIDING:
                continue
            yield _piece(word, began, named.start() - 1)
            began = None
        of_address = named.start() > 0 and word[named.start() - 1] in _OF_ADDRESS
        if mark == ":" and (reading.prose or of_address or value.startswith("//")):
            continue
        if is_credential(name, value):
            began = named.end()
    if began is not None:
        yield _piece(word, began, len(word))


def _piece(word: str, start: int, end: int) -> Found:
    """A credential, without what separates it from a next piece and the brackets that close what stands before it."""
    value = word[start:end]
    for _ in range(_CLOSED_MAX):
        last = value[-1:]
        opening = _OPENED_BY.get(last, "")
        if (last and opening == last) or (opening and value.count(opening) < value.count(last)):
            value = value[:-1]
    return start, start + len(value), value
