"""The words of a line are those of a shell, and each character has its place."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.model.options.shell_words import words

LINES = st.text(st.sampled_from("ab '\"\\\n;#$-="), max_size=40)


@given(st.lists(st.text(st.sampled_from("ab '\"\\\n;&|#$-="), max_size=12), max_size=6))
def test_they_are_what_was_joined(arguments: list[str]) -> None:
    assert [word.value for word in words(shlex.join(arguments), shell=True)] == arguments


@given(LINES, st.booleans())
def test_every_part_of_a_word_stands_where_it_is_said_to(line: str, shell: bool) -> None:
    """The places of a word are within it, in order, and have its characters."""
    for word in words(line, shell):
        for at, char in enumerate(word.value):
            start, end = word.place(at, at + 1)
            assert 0 <= start < end <= len(line)
            assert char in line[start:end] or line[start:end] == "\\\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a;b|c (d)>e", ["a", "b", "c", "d", "e"]), ("a 'b", ["a", "b"]), ('"a\\"b" c\\ d', ['a"b', "c d"]), ("a \\\n b\\\nc", ["a", "bc"]),
        ("a # it's\nb", ["a", "# it's", "b"]), ("a#b", ["a#b"]), ("'' x", ["", "x"]), ("a\\", ["a"]),
    ],
)  # fmt: skip
def test_a_line_is_divided_as_a_shell_divides_it(line: str, found: list[str]) -> None:
    assert [word.value for word in words(line, shell=True)] == found


def test_a_command_begins_after_an_operator_and_after_a_line() -> None:
    assert [word.value for word in words("a b; c \\\n d\ne", shell=True) if word.begins] == ["a", "c", "e"]


def test_an_apostrophe_in_a_text_is_no_quote() -> None:
    assert [word.value for word in words("I don't; 'a b' it's", shell=False)] == ["I", "don't;", "a b", "it's"]


def test_a_place_has_the_quotes_that_are_around_nothing_else() -> None:
    def told(line: str, part: str) -> str:
        word = next(iter(words(line, shell=True)))
        at = word.value.index(part)
        start, end = word.place(at, at + len(part))
        return line[start:end]

    assert told("a='b c'", "b c") == "'b c'"
    assert told("""a='b'"c\"""", "bc") == """'b'"c\""""
    assert told('"a=b c"', "b c") == "b c"
    assert told("a='b", "b") == "'b"
    assert told('"a=\\"b\\""', '"b"') == '\\"b\\"'
