"""codesign: who signed a program or a bundle, and whether it is still what was signed.

A signature is known by what it covers, as `local_network.signature` has it: other bytes are another signature, and a grant that
was given to the first is not the second's. Signing is modelled without an identity only, and such a signature covers one file.
"""

from __future__ import annotations

from bramley.sim.macos import local_network
from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import reading, refusing

_UNSIGNED = "code object is not signed at all"
_CHANGED = "invalid signature (code or signature have been modified)"
_IDENTITY_IN = "Contents/Info.plist"
_HASH_SHOWN = 40


def codesign(mac: Mac, call: Call) -> Said:
    """Sign without an identity, show a signature or verify it."""
    *options, path = call.argv[1:] or ("",)
    if not options or path.startswith("-"):
        return refusing.not_modelled(call)
    if not mac.files.exists(path):
        return Said(1, err=f"{path}: No such file or directory\n")
    match _without_strictness(options):
        case ["--force", "--sign", "-"] | ["-f", "-s", "-"] | ["--sign", "-", "--force"]:
            return _sign(mac, call, path)
        case ["--verify"] | ["-v"]:
            return _verify(mac, path)
        case ["-d"] | ["-dv"] | ["-dvv"] | ["-dvvv"] | ["-dvvvv"] | ["--display"]:
            return _display(mac, path)
    return refusing.not_modelled(call)


def _without_strictness(options: list[str]) -> list[str]:
    """Return the options without those that ask for more care or more words: the model has one kind of each."""
    return [
        word
        for word in options
        if word not in {"--strict", "--deep"} and not word.startswith("--verbose")
    ]


def _sign(mac: Mac, call: Call, path: str) -> Said:
    real = mac.files.real(path)
    if mac.files.is_folder(real):
        return refusing.not_modelled(call, "signing a bundle")
    if not reading.may_replace(mac, call, real):
        return Said(1, err=f"{path}: Permission denied\n")
    had_one = _signed(mac, real)
    with mac.change() as state:
        state.setdefault("signed", {})[real] = local_network.signature(mac, real)
    return Said(err=f"{path}: replacing existing signature\n" if had_one else "")


def _verify(mac: Mac, path: str) -> Said:
    covered = _signed(mac, mac.files.real(path))
    if not covered:
        return Said(1, err=f"{path}: {_UNSIGNED}\n")
    if covered != local_network.signature(mac, path):
        return Said(1, err=f"{path}: {_CHANGED}\n")
    return Said()


def _display(mac: Mac, path: str) -> Said:
    covered = _signed(mac, mac.files.real(path))
    if not covered:
        return Said(1, err=f"{path}: {_UNSIGNED}\n")
    is_ad_hoc = mac.files.real(path) in mac.state.get("signed", {})
    kind = "Signature=adhoc" if is_ad_hoc else "Authority=Developer ID Application: simulated"
    told = [f"Executable={path}", f"CDHash={covered[:_HASH_SHOWN]}", kind]
    return Said(err="".join(f"{line}\n" for line in told))


def _signed(mac: Mac, real: str) -> str:
    """Return what the signature of a file or bundle covers; empty if there is none. Bundles come signed by their makers."""
    if mac.files.is_file(f"{real}/{_IDENTITY_IN}"):
        return local_network.signature(mac, real)
    return str(mac.state.get("signed", {}).get(real, ""))
