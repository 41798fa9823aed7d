"""`/etc/kcpassword`: the password of automatic login, in the cipher that loginwindow reads.

The cipher hides nothing: contents are as secret as the password and belong only in the file itself. macOS replaces the
password by a marker when it turned out to be wrong; nobody is told, and no GUI session ever comes. No message of this
module holds a password.
"""

from __future__ import annotations

from itertools import cycle

from bramley.api.names import host, machines
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

KEY = bytes.fromhex("7d895223d2bcddeaa3b91f")
LONGEST = 255
# The longest password, and the padding behind it.
LONGEST_FILE = (LONGEST // len(KEY) + 1) * len(KEY)

_BLANK, _DELETE = 0x20, 0x7F
_SEALED = machines.SEALED.encode()


def encode(password: Secret) -> bytes:
    """Return the contents of the file for this password, padded with at least one NUL to whole lengths of the key."""
    plain = _checked(password)
    return _ciphered(plain + bytes(len(KEY) - len(plain) % len(KEY)))


def decode(contents: bytes) -> Secret:
    """Return the password that a file holds; bytes that are no text become replacement characters."""
    if len(contents) > LONGEST_FILE:
        raise BadConfiguration(
            f"{host.KCPASSWORD} has {len(contents)} bytes and cannot hold a password; remove it and prepare the Mac again"
        )
    # A strict decoder would put the bytes, and with them the password, into its error.
    return Secret(_ciphered(contents).partition(b"\0")[0].decode(errors="replace"))


def is_sealed(contents: bytes) -> bool:
    """Tell whether macOS has put its marker in place of the password, because that was wrong."""
    return _ciphered(contents[: len(_SEALED)]) == _SEALED


def _ciphered(plain: bytes) -> bytes:
    return bytes(byte ^ key for byte, key in zip(plain, cycle(KEY), strict=False))


def _checked(password: Secret) -> bytes:
    plain = _utf8(password)
    if not plain:
        raise BadConfiguration("the user's password is empty, so automatic login cannot be set up")
    if plain.startswith(_SEALED):
        raise BadConfiguration(
            f"the user's password is {machines.SEALED}, the mark of a password that nobody tells any more; give the real one"
        )
    if len(plain) > LONGEST:
        raise BadConfiguration(f"the user's password is longer than {LONGEST} bytes")
    # NUL is where the file's password ends; a prompt takes the others for keys, which end a line, erase it or stop the program.
    if any(byte < _BLANK or byte == _DELETE for byte in plain):
        raise BadConfiguration(
            "the user's password holds a control character, such as NUL or the end of a line, which cannot be typed at a prompt"
        )
    return plain


def _utf8(password: Secret) -> bytes:
    try:
        return password.reveal().encode()
    except UnicodeEncodeError:
        # The error holds the password, so it is not passed on.
        raise BadConfiguration("the user's password is no text that UTF-8 knows") from None


# How a file begins whose password macOS has found to be wrong.
MARKER = _ciphered(_SEALED)
