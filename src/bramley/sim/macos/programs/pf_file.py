"""A whole file of pf rules: its sections and their order, its tables, its anchors and the files loaded into them.

Reading returns the rulesets of the file, or all errors that pf reports; nothing is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bramley.sim.macos.programs import pf_rules, pf_syntax
from bramley.sim.macos.programs.pf_syntax import END_OF_LINE, RuleError, Tokens

ORDER = "Rules must be in order: options, normalization, queueing, translation, filtering"
_OPTION, _SCRUB, _TRANSLATION, _DUMMYNET, _FILTER = range(1, 6)
_SECTIONS = {
    "set": _OPTION,
    **dict.fromkeys(("scrub", "scrub-anchor"), _SCRUB),
    **dict.fromkeys(
        ("nat", "rdr", "binat", "nat-anchor", "rdr-anchor", "binat-anchor"), _TRANSLATION
    ),
    **dict.fromkeys(("dummynet", "dummynet-anchor"), _DUMMYNET),
    **dict.fromkeys(("pass", "block", "antispoof", "anchor"), _FILTER),
}
_RULES: dict[str, pf_rules.Rule] = {
    "scrub": pf_rules.scrub,
    **dict.fromkeys(("nat", "rdr", "binat"), pf_rules.translation),
    "dummynet": pf_rules.dummynet,
}
_SETTINGS = (
    "block-policy", "debug", "fingerprints", "hostid", "limit", "loginterface", "optimization", "require-order",
    "ruleset-optimization", "skip", "state-defaults", "state-policy", "timeout",
)  # fmt: skip

_MAX_DEPTH = 32


@dataclass(slots=True)
class Ruleset:
    """The content of one anchor, or of the main ruleset."""

    rules: list[str] = field(default_factory=list)
    nat: list[str] = field(default_factory=list)
    dummynet: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it for the Mac's state."""
        return asdict(self)

    def section(self, word: str) -> list[str]:
        """Return the list for a rule that begins with this word."""
        section = _SECTIONS[word]
        if section == _TRANSLATION:
            return self.nat
        return self.dummynet if section == _DUMMYNET else self.rules


@dataclass(slots=True)
class Load:
    """The rulesets that one call of pfctl reads, by anchor; the main one has an empty name."""

    read: Callable[[str], str | None]
    rulesets: dict[str, Ruleset] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def file(self, path: str, *, anchor: str = "", text: str | None = None) -> bool:
        """Read a file into an anchor, and the files that it loads into other anchors; return whether pf accepts it."""
        text = self.read(path) if text is None else text
        if anchor.count("/") >= _MAX_DEPTH:
            # A file that loads itself: the kernel bounds the names of anchors.
            self.errors.append("pfctl: load anchors: File name too long")
            return False
        if text is None:
            self.errors.append(f"pfctl: {path}: No such file or directory")
            return False
        reader = _Reader(self, path, anchor, Tokens(text))
        if not reader.read_all():
            self.errors.append("pfctl: Syntax error in config file: pf rules not loaded")
            return False
        if not all(self.file(source, anchor=name) for name, source in reader.loads):
            self.errors.append("pfctl: load anchors")
            return False
        return True

    def ruleset(self, anchor: str) -> Ruleset:
        """Return the ruleset of an anchor; a new one if there is none."""
        return self.rulesets.setdefault(anchor, Ruleset())


@dataclass(slots=True)
class _Reader:
    """Parses one file, statement by statement."""

    load: Load
    path: str
    anchor: str
    tokens: Tokens
    loads: list[tuple[str, str]] = field(default_factory=list)
    _section: int = 0
    _keeps_order: bool = True
    _policy: str = "drop"

    def read_all(self) -> bool:
        """Read all statements and return whether there was no error; after an error reading continues with the next line."""
        before = len(self.load.errors)
        self.load.ruleset(self.anchor)
        while not self.tokens.is_at_end():
            try:
                self._statement(self.anchor)
                self._line_end()
            except RuleError as error:
                self.load.errors.append(f"{self.path}:{error.line}: {error.message}")
                self.tokens.skip_line()
        return len(self.load.errors) == before

    def _line_end(self) -> None:
        if self.tokens.peek().kind != END_OF_LINE:
            self.tokens.fail()
        self.tokens.take()

    def _statement(self, anchor: str) -> None:
        tokens = self.tokens
        word = tokens.peek()
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
        name = self.tokens.value()
        self.tokens.expect("=")
        self.tokens.macros[name] = self.tokens.raw_rest()

    def _table(self, anchor: str) -> None:
        line = self.tokens.line
        self.tokens.expect("table")
        self.tokens.expect("<")
        name = self.tokens.value()
        self.tokens.expect(">")
        addresses = list(self._table_options())
        tables = self.load.ruleset(anchor).tables
        if name in tables:
            # Within one transaction, the kernel reports a second definition as busy.
            raise RuleError(line, f"cannot define table {name}: Resource busy")
        tables[name] = addresses

    def _table_options(self) -> Iterator[str]:
        tokens = self.tokens
        while word := tokens.accept("persist", "const", "counters", "file") or tokens.peek().text:
            if word == "file":
                yield from self._addresses_of(tokens.value())
            elif word == "{":
                yield from tokens.list_of(pf_syntax.address, may_be_empty=True)
            elif word not in {"persist", "const", "counters"}:
                return

    def _addresses_of(self, path: str) -> Iterator[str]:
        text = self.load.read(path)
        if text is None:
            self.tokens.fail(f"cannot load {path}: No such file or directory")
        inner = Tokens(text or "")
        while not inner.is_at_end():
            if inner.peek().kind == END_OF_LINE:
                inner.take()
            else:
                yield pf_syntax.address(inner)

    def _load(self) -> None:
        self.tokens.expect("load")
        self.tokens.expect("anchor")
        name = self.tokens.value()
        self.tokens.expect("from")
        self.loads.append((_within(self.anchor, name), self.tokens.value()))

    def _rule(self, anchor: str) -> None:
        tokens = self.tokens
        prefix = "no " if tokens.accept("no") else ""
        word = tokens.peek().text
        if prefix and word not in _RULES:
            tokens.fail()
        self._keep_order(_SECTIONS[word])
        ruleset = self.load.ruleset(anchor)
        if word == "set":
            self._set()
        elif word == "antispoof":
            ruleset.rules += self._antispoof()
        elif word.endswith("anchor"):
            self._attach(anchor, ruleset)
        elif word in _RULES:
            ruleset.section(word).extend(_RULES[word](tokens, prefix))
        else:
            ruleset.rules += pf_rules.filter_rule(tokens, policy=self._policy)

    def _keep_order(self, section: int) -> None:
        if self._keeps_order and section < self._section:
            self.tokens.fail(ORDER)
        self._section = max(section, self._section)

    def _set(self) -> None:
        tokens = self.tokens
        tokens.expect("set")
        setting = tokens.expect(*_SETTINGS)
        values = [
            tokens.take().text for _ in iter(lambda: tokens.peek().kind != END_OF_LINE, False)
        ]
        if not values:
            tokens.fail()
        if setting == "require-order":
            self._keeps_order = values != ["no"]
        if setting == "block-policy":
            self._policy = values[0] if values[0] in {"drop", "return"} else tokens.fail()

    def _antispoof(self) -> list[str]:
        tokens = self.tokens
        tokens.expect("antispoof")
        quick = " quick" if tokens.accept("quick") else ""
        tokens.expect("for")
        found = []
        for device in tokens.list_of(pf_syntax.interface):
            found.append(f"block drop in{quick} on ! {device} from ({device}:network) to any")
            found.append(f"block drop in{quick} from ({device}) to any")
        return found

    def _attach(self, anchor: str, ruleset: Ruleset) -> None:
        tokens = self.tokens
        word = tokens.take().text
        # An anchor with rules in braces may have no name.
        has_name = tokens.peek().text not in {"{", "in", "out", "on", "all"}
        name = tokens.value() if has_name else f"_{len(ruleset.rules)}"
        ruleset.section(word).extend(pf_rules.anchor_rule(tokens, f'{word} "{name}"'))
        if word == "anchor" and tokens.accept("{"):
            self._inside(_within(anchor, name))

    def _inside(self, anchor: str) -> None:
        """Read the rules within braces."""
        self.load.ruleset(anchor)
        while not self.tokens.accept("}"):
            if self.tokens.is_at_end():
                self.tokens.fail()
            self._statement(anchor)
            if self.tokens.peek().text != "}":
                self._line_end()


def _within(anchor: str, name: str) -> str:
    """Return the full name of an anchor that is named within another; a leading slash marks a full name."""
    if name.startswith("/"):
        return name[1:]
    return f"{anchor}/{name}" if anchor else name
