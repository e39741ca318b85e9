"""Who holds a lock is found in the kernel's list, however busy that is."""

import pytest

from trainmaster import locks


class Listing:
    """What the kernel hands out, look by look; the last from then on."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def read_text(self) -> str:
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


OTHERS = "".join(f"{n}: POSIX  ADVISORY  READ {n} fe:00:{n} 128 128\n" for n in range(1, 90))
OURS = "90: FLOCK  ADVISORY  WRITE 4711 fe:00:815 0 EOF\n"


@pytest.mark.parametrize(
    ("looks", "pid"), [((OTHERS + OURS,), 4711), ((OTHERS, OTHERS, OTHERS + OURS), 4711), ((OTHERS,), None)]
)
def test_an_entry_that_moved_past_the_reader_is_found(
    looks: tuple[str, ...], pid: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry before ours that goes between two parts of the list moves ours past the reader: it is in neither part."""
    monkeypatch.setattr(locks, "_LOCKS", Listing(*looks))
    assert locks._holder(815) == pid
