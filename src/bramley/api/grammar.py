r"""Grammars of values that travel into labels, command lines and other systems, as constrained text types.

Patterns end in `\Z`, because Python's `$` would let a final newline pass; the schema generator turns it into Go's `$`. Only what
both Python and RE2 read alike may stand in them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bramley.api.names import machines

# A reference that begins with a letter or digit cannot be mistaken for an option of tart.
ImageReference = Annotated[
    str, Meta(min_length=1, max_length=1024, pattern=r"^[A-Za-z0-9][^ \t\r\n]*\Z")
]

LabelValue = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z"),
]

OptionalLabelValue = Annotated[
    str, Meta(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?\Z")
]

# GitHub takes labels of up to 256 characters; a comma would part them in lists.
RunnerLabel = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^, \t\r\n]+\Z")]

RunnerLabelList = Annotated[
    str,
    Meta(max_length=1024, pattern=r"^[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*\Z"),
]

ObjectName = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?\Z")]

ProviderID = Annotated[
    str,
    Meta(max_length=256, pattern=rf"^{machines.PROVIDER_ID_SCHEME}://[a-z0-9-]+/[A-Za-z0-9-]+\Z"),
]

Zone = Annotated[str, Meta(max_length=32, pattern=r"^[a-z]+-[a-z]+-[0-9]+\Z")]

ServerType = Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]

OSName = Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9 ._-]*\Z")]

ServerNamePrefix = Annotated[str, Meta(max_length=63, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?\Z")]

Organisation = Annotated[
    str, Meta(min_length=1, max_length=39, pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\Z")
]

RunnerVersion = Annotated[
    str, Meta(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)*(-[A-Za-z0-9.]+)?\Z")
]
