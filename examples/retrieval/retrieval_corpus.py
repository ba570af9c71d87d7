"""The passages that are searched: the language reference that travels with Python, which `help("with")` shows, too."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics

MAX_WORDS = 90
MIN_WORDS = 8
WORDS_BEFORE_A_NEW_ITEM = 45
_UNDERLINE = re.compile(r"([*=~^\"-])\1{2,}")


@dataclass(frozen=True)
class Passage:
    """A few paragraphs of one section."""

    section: str
    text: str

    def __str__(self) -> str:
        return f"{self.section}: {self.text}"


@cache
def passages() -> tuple[Passage, ...]:
    """Returns the passages, about 860, in an order that depends on Python's version only."""
    unique: dict[str, Passage] = {}  # some sections are part of several topics
    for name in sorted(topics):
        for passage in _cut(topics[name]):
            unique.setdefault(passage.text, passage)
    return tuple(unique.values())


def digest() -> str:
    """Returns what tells these passages from those of another version of Python."""
    return hashlib.sha256("\n".join(map(str, passages())).encode()).hexdigest()


def _cut(topic: str) -> list[Passage]:
    """Cuts a topic into passages: at headings, where an item begins, and where it would become too long."""
    cut: list[Passage] = []
    section, words = "", list[str]()

    def finish() -> None:
        if len(words) >= MIN_WORDS:
            cut.append(Passage(section, " ".join(words)))
        words.clear()

    for block in re.split(r"\n\s*\n", topic):
        lines = [line for line in block.splitlines() if line.strip()]
        if len(lines) > 1 and _UNDERLINE.fullmatch(lines[1].strip()):
            finish()
            section, lines = lines[0].strip(), lines[2:]
        if not lines:
            continue
        added = " ".join(lines).split()
        is_item = not lines[0].startswith(" ")
        if len(words) + len(added) > MAX_WORDS or (is_item and len(words) >= WORDS_BEFORE_A_NEW_ITEM):
            finish()
        words += added
        while len(words) > MAX_WORDS:
            rest = words[MAX_WORDS:]
            del words[MAX_WORDS:]
            finish()
            words += rest
    finish()
    return cut
