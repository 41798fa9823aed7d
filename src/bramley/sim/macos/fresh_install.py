"""The layout of a bare Mac: its settings, folders, users, and the files of macOS that a bootstrap changes.

/etc, /tmp and /var are links into /private, as on macOS. What a Mac does not have before a bootstrap is not laid out.
"""

from __future__ import annotations

import plistlib
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bramley.api.names import host
from bramley.sim.macos import boot, launchd, stand_ins

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


_GIB = 1024**3
SEARCHED = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
FOLDERS = (
    "/Applications", "/Library/LaunchAgents", "/Library/LaunchDaemons", "/Library/Preferences/SystemConfiguration",
    "/System/Library/CoreServices", "/System/Library/LaunchDaemons", "/Users/Shared", "/Volumes", "/opt", "/private/etc/newsyslog.d", "/private/etc/pf.anchors",
    "/private/etc/ssh", "/private/etc/sudoers.d", "/private/var/db", "/private/var/log", "/private/var/root", "/private/var/run",
    "/usr/local",
)  # fmt: skip
# Relative to the developer folder of Xcode.
XCODE_TOOLS = "Toolchains/XcodeDefault.xctoolchain/usr/bin"
_HOMEBREW_VERSION = "5.0.0"
_LOGINWINDOW_APP = "/System/Library/CoreServices/loginwindow.app"
_PF_CONF = """\
# The main ruleset; components enable pf with -E and load their anchors below com.apple.
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
_PF_APPLE = """\
anchor "200.AirDrop/*"
anchor "250.ApplicationFirewall/*"
"""
_SUDOERS = """\
Defaults env_reset
root ALL = (ALL) ALL
%admin ALL = (ALL) ALL
#includedir /private/etc/sudoers.d
"""
# launchd accepts connections for sshd; loginwindow is bound to the console.
_DAEMONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "ssh.plist",
        {"Label": "com.openssh.sshd", "ProgramArguments": ["/usr/libexec/sshd-keygen-wrapper"]},
    ),
    (
        f"{launchd.LOGINWINDOW}.plist",
        {
            "Label": launchd.LOGINWINDOW,
            "ProgramArguments": [f"{_LOGINWINDOW_APP}/Contents/MacOS/loginwindow", "console"],
            "RunAtLoad": True,
            "KeepAlive": True,
        },
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A Mac as the provider delivers it: one user who may use sudo with a password."""

    user: str = "m1"
    uid: int = 501
    password: str = "correct horse battery"  # noqa: S105 - of a simulated user
    is_admin: bool = True
    authorized_keys: tuple[str, ...] = ()
    host_name: str = "mac"
    macos: str = "26.3"
    build: str = "25D125"
    architecture: str = "arm64"
    model: str = "Macmini9,1"
    cpus: int = 8
    memory_bytes: int = 16 * _GIB
    disk_bytes: int = 460 * _GIB
    free_bytes: int = 380 * _GIB
    filevault: bool = False
    # Whether the image includes Xcode, neither selected nor with an accepted licence.
    xcode: bool = False
    # Whether it includes Homebrew, which a Mac behind SSH cannot download.
    homebrew: bool = False
    # The URL of a simulated GitHub at which runners are registered, on a Mac behind SSH only; empty: none.
    github_url: str = ""
    # When FileVault is turned on: at the next "restart", or at a "login" of a user who agrees.
    filevault_after: str = ""
    # Without a display a boot does not log the user in: loginwindow has to be restarted.
    headless: bool = True
    # How many seconds its clock is ahead.
    clock_ahead_seconds: float = 0.0
    login_seconds: float = 2.0
    boot_seconds: float = 40.0
    # How long a label stays in use after a running job was booted out; some seconds on real Macs.
    bootout_seconds: float = 1.0
    # How long tailscaled needs to connect after a start.
    tailnet_seconds: float = 2.0
    # The number of wrong passwords in a row that locks the account, and for how long.
    lockout_after: int = 5
    lockout_seconds: float = 300.0


def lay_out(mac: Mac, settings: Settings) -> None:
    """Make the Mac's folders, files and state, and start it."""
    mac.store.create(_state(settings))
    for folder in FOLDERS:
        mac.files.make_folder(folder)
    mac.files.make_folder("/private/tmp", mode=0o1777)
    mac.files.make_folder("/private/var/root", mode=0o750)
    for name in ("etc", "tmp", "var"):
        mac.files.link(f"/{name}", f"private/{name}")
    _lay_out_home(mac, settings)
    if settings.xcode:
        mac.files.make_folder(f"{host.XCODE}/{XCODE_TOOLS}")
        mac.files.write(f"{host.XCODE}/{XCODE_TOOLS}/swift", b"", mode=0o755)
    if settings.homebrew:
        lay_out_homebrew(mac, settings.user)
    for path, text, mode in _files(settings):
        mac.files.write(path, text.encode(), mode=mode)
    with mac.change() as state:
        boot.start(mac, state)


def lay_out_homebrew(mac: Mac, user: str) -> None:
    """Make the folders and the program of Homebrew, which belong to a user."""
    owner = f"{user}:admin"
    for folder in ("/opt/homebrew", host.HOMEBREW.rpartition("/")[0]):
        mac.files.make_folder(folder, owner=owner)
    program = stand_ins.program("brew", _HOMEBREW_VERSION)
    mac.files.write(host.HOMEBREW, program, mode=0o755, owner=owner)


def _files(settings: Settings) -> list[tuple[str, str, int]]:
    version = {
        "ProductName": "macOS",
        "ProductVersion": settings.macos,
        "ProductBuildVersion": settings.build,
    }
    return [
        ("/etc/pf.conf", _PF_CONF, 0o644),
        ("/etc/pf.anchors/com.apple", _PF_APPLE, 0o644),
        ("/etc/sudoers", _SUDOERS, 0o440),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644),
        ("/etc/zshrc", "", 0o444),
        *((f"/System/Library/LaunchDaemons/{name}", _plist(job), 0o644) for name, job in _DAEMONS),
        ("/System/Library/CoreServices/SystemVersion.plist", _plist(version), 0o644),
    ]


def _plist(content: dict[str, Any]) -> str:
    return plistlib.dumps(content).decode()


def _lay_out_home(mac: Mac, settings: Settings) -> None:
    home, owner = f"/Users/{settings.user}", f"{settings.user}:staff"
    mac.files.make_folder(home, mode=0o750, owner=owner)
    mac.files.make_folder(f"{home}/Library", mode=0o700, owner=owner)
    if settings.authorized_keys:
        mac.files.make_folder(f"{home}/.ssh", mode=0o700, owner=owner)
        keys = "".join(f"{line}\n" for line in settings.authorized_keys).encode()
        mac.files.write(f"{home}/.ssh/authorized_keys", keys, mode=0o600, owner=owner)


def _state(settings: Settings) -> dict[str, Any]:
    groups = ["staff", "admin"] if settings.is_admin else ["staff"]
    return {
        "settings": asdict(settings),
        "users": {
            "root": {"uid": 0, "groups": ["wheel"], "home": "/var/root", "password": "*"},
            settings.user: {
                "uid": settings.uid,
                "groups": groups,
                "home": f"/Users/{settings.user}",
                "password": settings.password,
            },
        },
        "owners": {},
        "disk": {"total_bytes": settings.disk_bytes, "free_bytes": settings.free_bytes},
        "filevault": settings.filevault,
        "filevault_after": settings.filevault_after,
        "host_name": settings.host_name,
        "boot": {"count": 0},
        "console": {"user": None},
        "launchd": {
            "jobs": {},
            "disabled": {},
            "crashing": {},
            "protected": [],
            "last_pid_count": 300,
        },
        "local_network": {"active": [], "granted": {}},
        "sudo": {"refused": False},
        # Processes that are not jobs of launchd, each with its pid and command.
        "processes": [],
        # The exit code and output of programs that are not modelled, by name.
        "answers": {},
        "host_key_id": str(uuid.uuid4()),
    }
