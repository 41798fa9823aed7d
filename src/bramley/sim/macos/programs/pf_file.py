"""A whole file of pf's rules: its sections in their order, its tables, its anchors and the files that it loads into them.

Reading gives the rulesets that the file stands for, or all that pf says against it; nothing is put into force here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bramley.sim.macos.programs import pf_rules, pf_syntax
from bramley.sim.macos.programs.pf_syntax import END_OF_LINE, Mistake, Words

ORDER = "Rules must be in order: options, normalization, queueing, translation, filtering"
_OPTION, _SCRUB, _TRANSLATION, _DUMMYNET, _FILTER = range(1, 6)
_SECTIONS = {
    "set": _OPTION,
    "scrub": _SCRUB,
    "scrub-anchor": _SCRUB,
    "nat": _TRANSLATION,
    "rdr": _TRANSLATION,
    "binat": _TRANSLATION,
    "nat-anchor": _TRANSLATION,
    "rdr-anchor": _TRANSLATION,
    "binat-anchor": _TRANSLATION,
    "dummynet": _DUMMYNET,
    "dummynet-anchor": _DUMMYNET,
    "pass": _FILTER,
    "block": _FILTER,
    "antispoof": _FILTER,
    "anchor": _FILTER,
}
_RULES: dict[str, pf_rules.Rule] = {
    "scrub": pf_rules.scrubbing,
    "nat": pf_rules.translation,
    "rdr": pf_rules.translation,
    "binat": pf_rules.translation,
    "dummynet": pf_rules.dummynet,
}
_SETTINGS = (
    "block-policy", "debug", "fingerprints", "hostid", "limit", "loginterface", "optimization", "require-order",
    "ruleset-optimization", "skip", "state-defaults", "state-policy", "timeout",
)  # fmt: skip

_DEEPEST = 32

Reading = Callable[[str], str | None]


@dataclass(slots=True)
class Ruleset:
    """What one anchor, or the main ruleset, holds."""

    rules: list[str] = field(default_factory=list)
    nat: list[str] = field(default_factory=list)
    dummynet: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it for the Mac's state."""
        return {
            "rules": self.rules,
            "nat": self.nat,
            "dummynet": self.dummynet,
            "tables": self.tables,
        }

    def section(self, word: str) -> list[str]:
        """Return where a rule that begins with this word belongs."""
        section = _SECTIONS[word]
        if section == _TRANSLATION:
            return self.nat
        return self.dummynet if section == _DUMMYNET else self.rules


@dataclass(slots=True)
class Load:
    """Everything that one call of pfctl reads: rulesets by anchor, the empty name for the main one."""

    read: Reading
    rulesets: dict[str, Ruleset] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def file(self, path: str, *, anchor: str = "", text: str | None = None) -> bool:
        """Read a file into an anchor, and then the files that it loads into others; tell whether pf would take it."""
        text = self.read(path) if text is None else text
        if anchor.count("/") >= _DEEPEST:
            # A file that loads itself: the kernel's names of anchors are bounded.
            self.errors.append("pfctl: load anchors: File name too long")
            return False
        if text is None:
            self.errors.append(f"pfctl: {path}: No such file or directory")
            return False
        reader = _Reader(self, path, anchor, Words(text))
        if not reader.whole():
            self.errors.append("pfctl: Syntax error in config file: pf rules not loaded")
            return False
        if not all(self.file(source, anchor=name) for name, source in reader.loads):
            self.errors.append("pfctl: load anchors")
            return False
        return True

    def ruleset(self, anchor: str) -> Ruleset:
        """Return the ruleset of an anchor, made if there is none."""
        return self.rulesets.setdefault(anchor, Ruleset())


@dataclass(slots=True)
class _Reader:
    """One file, statement by statement."""

    load: Load
    path: str
    anchor: str
    words: Words
    loads: list[tuple[str, str]] = field(default_factory=list)
    _section: int = 0
    _keeps_order: bool = True
    _policy: str = "drop"

    def whole(self) -> bool:
        """Read all of it; after a mistake the next line is read as if nothing had been."""
        before = len(self.load.errors)
        self.load.ruleset(self.anchor)
        while not self.words.is_at_end():
            try:
                self._statement(self.anchor)
                self._line_end()
            except Mistake as mistake:
                self.load.errors.append(f"{self.path}:{mistake.line}: {mistake.message}")
                self.words.skip_line()
        return len(self.load.errors) == before

    def _line_end(self) -> None:
        if self.words.peek().kind != END_OF_LINE:
            self.words.fail()
        self.words.take()

    def _statement(self, anchor: str) -> None:
        words = self.words
        word = words.peek()
        if word.kind == END_OF_LINE:
            return
        if word.text == "table":
            self._table(anchor)
        elif word.text == "load":
            self._load()
        elif word.text in _SECTIONS or word.text == "no":
            self._rule(anchor)
        else:
            self._macro()

    def _macro(self) -> None:
        name = self.words.value()
        self.words.expect("=")
        self.words.macros[name] = self.words.raw_rest()

    def _table(self, anchor: str) -> None:
        line = self.words.line
        self.words.expect("table")
        self.words.expect("<")
        name = self.words.value()
        self.words.expect(">")
        addresses = list(self._table_options())
        tables = self.load.ruleset(anchor).tables
        if name in tables:
            # The kernel keeps what a transaction has defined; a second definition finds it busy.
            raise Mistake(line, f"cannot define table {name}: Resource busy")
        tables[name] = addresses

    def _table_options(self) -> Iterator[str]:
        words = self.words
        while word := words.accept("persist", "const", "counters", "file") or words.peek().text:
            if word == "file":
                yield from self._addresses_of(words.value())
            elif word == "{":
                yield from words.list_of(pf_syntax.address, may_be_empty=True)
            elif word not in {"persist", "const", "counters"}:
                return

    def _addresses_of(self, path: str) -> Iterator[str]:
        text = self.load.read(path)
        if text is None:
            self.words.fail(f"cannot load {path}: No such file or directory")
        inner = Words(text or "")
        while not inner.is_at_end():
            if inner.peek().kind == END_OF_LINE:
                inner.take()
            else:
                yield pf_syntax.address(inner)

    def _load(self) -> None:
        self.words.expect("load")
        self.words.expect("anchor")
        name = self.words.value()
        self.words.expect("from")
        self.loads.append((_within(self.anchor, name), self.words.value()))

    def _rule(self, anchor: str) -> None:
        words = self.words
        refused = "no " if words.accept("no") else ""
        word = words.peek().text
        if refused and word not in _RULES:
            words.fail()
        self._keep_order(_SECTIONS[word])
        ruleset = self.load.ruleset(anchor)
        if word == "set":
            self._set()
        elif word == "antispoof":
            ruleset.rules += self._antispoof()
        elif word.endswith("anchor"):
            self._attach(anchor, ruleset)
        elif word in _RULES:
            ruleset.section(word).extend(_RULES[word](words, refused))
        else:
            ruleset.rules += pf_rules.filtering(words, policy=self._policy)

    def _keep_order(self, section: int) -> None:
        if self._keeps_order and section < self._section:
            self.words.fail(ORDER)
        self._section = max(section, self._section)

    def _set(self) -> None:
        words = self.words
        words.expect("set")
        setting = words.expect(*_SETTINGS)
        values = [words.take().text for _ in iter(lambda: words.peek().kind != END_OF_LINE, False)]
        if not values:
            words.fail()
        if setting == "require-order":
            self._keeps_order = values != ["no"]
        if setting == "block-policy":
            self._policy = values[0] if values[0] in {"drop", "return"} else words.fail()

    def _antispoof(self) -> list[str]:
        words = self.words
        words.expect("antispoof")
        quick = " quick" if words.accept("quick") else ""
        words.expect("for")
        found = []
        for device in words.list_of(pf_syntax.interface):
            found.append(f"block drop in{quick} on ! {device} from ({device}:network) to any")
            found.append(f"block drop in{quick} from ({device}) to any")
        return found

    def _attach(self, anchor: str, ruleset: Ruleset) -> None:
        words = self.words
        word = words.take().text
        # Rules within braces may do without a name.
        has_name = words.peek().text not in {"{", "in", "out", "on", "all"}
        name = words.value() if has_name else f"_{len(ruleset.rules)}"
        ruleset.section(word).extend(pf_rules.attached(words, f'{word} "{name}"'))
        if word == "anchor" and words.accept("{"):
            self._inside(_within(anchor, name))

    def _inside(self, anchor: str) -> None:
        """Read the rules that stand within braces."""
        self.load.ruleset(anchor)
        while not self.words.accept("}"):
            if self.words.is_at_end():
                self.words.fail()
            self._statement(anchor)
            if self.words.peek().text != "}":
                self._line_end()


def _within(anchor: str, name: str) -> str:
    """Return the whole name of an anchor that another one names; one that begins with a slash is whole already."""
    if name.startswith("/"):
        return name[1:]
    return f"{anchor}/{name}" if anchor else name
