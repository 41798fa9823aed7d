"""What developers install: Xcode and Homebrew, which a bare Mac does not have and which the model has no network to fetch.

Both are there as soon as their files are.
"""

from __future__ import annotations

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import brought, refusing

XCODE = "/Applications/Xcode.app/Contents/Developer"
TOOLS = "/Library/Developer/CommandLineTools"
_LINK = "/var/db/xcode_select_link"
_NO_TOOLS = (
    "xcode-select: error: unable to get active developer directory, use `sudo xcode-select --switch path/to/Xcode.app` "
    "to set one (or see `man xcode-select`)\n"
)
_NO_NETWORK = "curl: (6) Could not resolve host: formulae.brew.sh\nError: Cannot download non-corrupt https://formulae.brew.sh/api/formula.jws.json!\n"


def xcode_select(mac: Mac, call: Call) -> Said:
    """Tell or choose where the developer tools are."""
    match call.argv[1:]:
        case ("-p",) | ("--print-path",):
            found = _chosen(mac)
            return Said(out=f"{found}\n") if found else Said(2, err=_NO_TOOLS)
        case ("-s" | "--switch", path):
            return _switch(mac, call, path)
        case ("--install",):
            # It opens a window and waits for a click that nobody makes.
            return Said(
                err="xcode-select: note: install requested for command line developer tools\n"
            )
    return refusing.not_modelled(call)


def xcrun(mac: Mac, call: Call) -> Said:
    """Find a tool of the chosen folder."""
    match call.argv[1:]:
        case ("--find" | "-f", name):
            pass
        case _:
            return refusing.not_modelled(call)
    chosen = _chosen(mac)
    places = [
        f"{chosen}/usr/bin/{name}",
        f"{chosen}/Toolchains/XcodeDefault.xctoolchain/usr/bin/{name}",
    ]
    found = [place for place in places if chosen and mac.files.is_executable(place)]
    if found:
        return Said(out=f"{found[0]}\n")
    return Said(
        72, err=f'xcrun: error: unable to find utility "{name}", not a developer tool or in PATH\n'
    )


def brew(mac: Mac, call: Call) -> Said:
    """Tell of what is installed; whatever needs the network fails and says so."""
    try:
        path = brought.started(mac, call)
    except brought.Missing as missing:
        return missing.answer
    if call.is_root:
        return Said(
            1,
            err="Error: Running Homebrew as root is extremely dangerous and no longer supported.\n",
        )
    match call.argv[1:]:
        case ("--version",):
            return Said(out=f"Homebrew {brought.version(mac, path)}\n")
        case ("--prefix",):
            return Said(out="/opt/homebrew\n")
        case ("install" | "update" | "upgrade" | "tap" | "fetch", *_):
            return Said(1, err=_NO_NETWORK)
    return refusing.not_modelled(call)


def _chosen(mac: Mac) -> str:
    if mac.files.find(_LINK) is not None:
        return mac.files.target(_LINK)
    return next((place for place in (XCODE, TOOLS) if mac.files.is_folder(place)), "")


def _switch(mac: Mac, call: Call, path: str) -> Said:
    if not call.is_root:
        return Said(
            1,
            err="xcode-select: error: --switch must be run as root (e.g. `sudo xcode-select --switch <xcode_folder_path>`).\n",
        )
    inner = f"{path.rstrip('/')}/Contents/Developer" if path.rstrip("/").endswith(".app") else path
    if not mac.files.is_folder(inner):
        return Said(1, err=f"xcode-select: error: invalid developer directory '{path}'\n")
    mac.files.link(_LINK, inner)
    return Said()
