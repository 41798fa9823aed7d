"""tar, as far as it unpacks: an archive becomes files and folders of the caller, as they are in it or not at all below a link."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.programs import refusing

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

_FLAGS = set("xzopfC")


def tar(mac: Mac, call: Call) -> Said:
    """Unpack an archive, `-x -z -f FILE -C FOLDER`."""
    given = _arguments(list(call.argv[1:]))
    if given is None:
        return refusing.not_modelled(call)
    archive, folder = given
    if not mac.files.is_file(archive):
        return Said(1, err=f"tar: Error opening archive: Failed to open '{archive}'\n")
    if not mac.files.is_folder(folder):
        return Said(1, err=f"tar: could not chdir to '{folder}'\n")
    try:
        with tarfile.open(mac.files.at(archive), "r:*") as opened:
            for member in opened:
                _unpack(mac, call, opened, member, folder)
    except (tarfile.TarError, EOFError) as error:
        return Said(1, err=f"tar: Error opening archive: {error}\n")
    except OSError as error:
        return Said(
            1, err=f"tar: {error.strerror}\ntar: Error exit delayed from previous errors.\n"
        )
    return Said()


def _arguments(words: list[str]) -> tuple[str, str] | None:
    """Return the archive and the folder; None for a call that is not modelled."""
    values = {"f": "", "C": "/"}
    seen: set[str] = set()
    while words:
        word = words.pop(0)
        letters = word.removeprefix("-")
        # The bundle of letters may stand without a dash, but only first.
        if (seen and not word.startswith("-")) or set(letters) - _FLAGS:
            return None
        seen |= set(letters)
        for letter in letters:
            if letter in values:
                values[letter] = words.pop(0) if words else ""
    return (values["f"], values["C"]) if "x" in seen and values["f"] else None


def _unpack(
    mac: Mac, call: Call, archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str
) -> None:
    if ".." in member.name.split("/"):
        raise tarfile.TarError("Path contains '..'")
    path = f"{folder}/{member.name.lstrip('/')}"
    owner = f"{call.user}:{users.groups_of(mac.state, call.user)[0]}"
    if member.isdir():
        mac.files.make_folder(path, mode=member.mode or 0o755, owner=owner)
        return
    parent = path.rpartition("/")[0]
    if not mac.files.is_folder(parent):
        mac.files.make_folder(parent, owner=owner)
    if member.issym():
        mac.files.link(path, member.linkname)
    else:
        content = archive.extractfile(member)
        mac.files.write(path, content.read() if content else b"", mode=member.mode, owner=owner)
