"""Whatever lies on a Mac, programs that read it end and say something; none stumbles."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bramley.sim.macos.call import Call
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import newsyslog, sudoers
from bramley.sim.macos.programs.pf_file import Load
from tests.unit import example_counts
from tests.unit.sim.macos.programs.fixed_clock import FixedClock

PIECES = st.sampled_from(
    [
        "pass", "block", "anchor", "load", "table", "scrub", "nat", "rdr", "no", "set", "antispoof", "dummynet", "in", "quick",
        "on", "en0", "proto", "tcp", "from", "to", "port", "any", "all", "{", "}", "(", ")", "<", ">", "!", "=", "/", ",", "->",
        "><", '"x"', '"', "'", "$x", "$", "x", "10.0.0.0", "8", "keep", "state", "flags", "label", "for", "\n", "\\\n", "#", "\\",
    ]
)  # fmt: skip
RULES = st.lists(PIECES, max_size=14).map(" ".join)
BYTES = st.binary(max_size=60) | RULES.map(str.encode)


@settings(max_examples=example_counts.examples(300), deadline=None)
@given(RULES | st.text(max_size=40))
@example('anchor "x" {')
@example("table <x> {")
@example('x = "$x"\npass from $x')
def test_any_rules_are_accepted_or_reported(text: str) -> None:
    read = Load({"/rules": text}.get)

    assert read.file("/rules") == (read.errors == [])


@settings(max_examples=example_counts.examples(100), deadline=None)
@given(st.text(max_size=60))
def test_any_sudoers_and_configurations_are_accepted_or_reported(text: str) -> None:
    assert all(wrong.text.strip() for wrong in sudoers.invalid_lines(text))
    with suppress(newsyslog.Malformed):
        assert all(entry.path for entry in newsyslog.entries(text))


@pytest.fixture(scope="module")
def mac(tmp_path_factory: pytest.TempPathFactory) -> Mac:
    return Mac.create(tmp_path_factory.mktemp("mac"), clock=FixedClock())


CALLS = [
    ("plutil", "-lint", "/tmp/it"),
    ("plutil", "-convert", "json", "-o", "-", "/tmp/it"),
    ("defaults", "read", "/tmp/it.plist"),
    ("visudo", "-cf", "/tmp/it"),
    ("newsyslog", "-nf", "/tmp/it"),
    ("pfctl", "-n", "-f", "/tmp/it"),
    ("/tmp/it/../it",),
]


@settings(max_examples=example_counts.examples(40), deadline=None)
@given(BYTES)
@example(b"bplist00\xd1\x01\x02Qa")
@example(b"<plist><dict><key>a</key></dict></plist>")
@example(b"<plist><integer>x</integer></plist>")
@example(b"<plist><date>yesterday</date></plist>")
def test_any_file_has_a_result(mac: Mac, content: bytes) -> None:
    for path in ("/tmp/it", "/tmp/it.plist"):
        mac.files.write(path, content, mode=0o755)

    for words in CALLS:
        result = mac.run(Call(words, "root"))
        assert result.code in {0, 1, 64, 127}
