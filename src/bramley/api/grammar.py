"""Grammars of values that travel into labels, command lines and other systems, as texts that the schema constrains.

The server holds writers to them. Reading does not: an object that is there must be seen, whatever grammar it was
written under, and a pattern per field costs as much as all else of decoding. Patterns are RE2's, where `$` is the very end.
"""

from __future__ import annotations

from typing import Annotated

from bramley.api.names import machines
from bramley.api.schema import text

# A reference that begins with a letter or digit cannot be mistaken for an option of tart.
ImageReference = Annotated[
    str, text(min_length=1, max_length=1024, pattern=r"^[A-Za-z0-9][^ \t\r\n]*$")
]

LabelValue = Annotated[
    str, text(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
]

OptionalLabelValue = Annotated[
    str, text(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")
]

# GitHub takes labels of up to 256 characters; a comma would part them in lists.
RunnerLabel = Annotated[str, text(min_length=1, max_length=256, pattern=r"^[^, \t\r\n]+$")]

# Stored objects may have blanks beside the commas; they belong to no label.
RunnerLabelList = Annotated[
    str, text(max_length=1024, pattern=r"^ *[A-Za-z0-9._-]+( *, *[A-Za-z0-9._-]+)* *$")
]

ObjectName = Annotated[str, text(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]

ProviderID = Annotated[
    str,
    text(max_length=256, pattern=rf"^{machines.PROVIDER_ID_SCHEME}://[a-z0-9-]+/[A-Za-z0-9-]+$"),
]

Zone = Annotated[str, text(max_length=32, pattern=r"^[a-z]+-[a-z]+-[0-9]+$")]

ServerType = Annotated[str, text(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

OSName = Annotated[str, text(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9 ._-]*$")]

ServerNamePrefix = Annotated[str, text(max_length=63, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")]

Organisation = Annotated[
    str, text(min_length=1, max_length=39, pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$")
]

RunnerVersion = Annotated[
    str, text(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)*(-[A-Za-z0-9.]+)?$")
]

RunnerGroup = Annotated[
    str, text(max_length=64, pattern=r"^([A-Za-z0-9._]([A-Za-z0-9 ._-]*[A-Za-z0-9._-])?)?$")
]

# A name or an IPv4 address; IPv6 addresses have colons.
HostAddress = Annotated[
    str, text(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$")
]

UserName = Annotated[str, text(min_length=1, max_length=31, pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
