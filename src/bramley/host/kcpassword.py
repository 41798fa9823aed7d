"""`/etc/kcpassword`: the password of automatic login, in the cipher that loginwindow reads.

The cipher is reversible: the contents are as secret as the password and belong only in the file itself. macOS replaces a wrong
password by a marker, without any message; then no graphical session is created. No message of this module contains a password.
"""

from __future__ import annotations

from itertools import cycle

from bramley.api.names import host, machines
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

KEY = bytes.fromhex("7d895223d2bcddeaa3b91f")
MAX_BYTES = 255
# The longest password with its padding.
MAX_FILE_BYTES = (MAX_BYTES // len(KEY) + 1) * len(KEY)

_BLANK, _DELETE = 0x20, 0x7F
_REJECTED = machines.SEALED.encode()


def encode(password: Secret) -> bytes:
    """Return the file contents for this password, padded with at least one NUL to a multiple of the key length."""
    plain = _validated(password)
    return _cipher(plain + bytes(len(KEY) - len(plain) % len(KEY)))


def decode(contents: bytes) -> Secret:
    """Return the password in a file; bytes that are not UTF-8 become replacement characters."""
    if len(contents) > MAX_FILE_BYTES:
        raise BadConfiguration(
            f"{host.KCPASSWORD} has {len(contents)} bytes and cannot be a password; remove it and prepare the Mac again"
        )
    # A strict decoder would put the bytes, and so the password, into its error.
    return Secret(_cipher(contents).partition(b"\0")[0].decode(errors="replace"))


def is_rejected(contents: bytes) -> bool:
    """Return whether macOS has replaced the password by its marker, because it was wrong."""
    return _cipher(contents[: len(_REJECTED)]) == _REJECTED


def _cipher(plain: bytes) -> bytes:
    return bytes(byte ^ key for byte, key in zip(plain, cycle(KEY), strict=False))


def _validated(password: Secret) -> bytes:
    plain = _utf8(password)
    if not plain:
        raise BadConfiguration("the user's password is empty, so automatic login cannot be set up")
    if plain.startswith(_REJECTED):
        raise BadConfiguration(
            f"the user's password is {machines.SEALED}, the marker of a rejected password; enter the real password"
        )
    if len(plain) > MAX_BYTES:
        raise BadConfiguration(f"the user's password is longer than {MAX_BYTES} bytes")
    # NUL ends the password in the file; a terminal interprets the others as control keys, which end or erase a line or stop the program.
    if any(byte < _BLANK or byte == _DELETE for byte in plain):
        raise BadConfiguration(
            "the user's password contains a control character, such as NUL or a newline, which cannot be typed at a prompt"
        )
    return plain


def _utf8(password: Secret) -> bytes:
    try:
        return password.reveal().encode()
    except UnicodeEncodeError:
        # Without the cause, which contains the password.
        raise BadConfiguration("the user's password is not valid UTF-8") from None


# The beginning of a file whose password macOS has rejected.
MARKER = _cipher(_REJECTED)
