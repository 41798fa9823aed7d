"""What a simulated Mac is like before anybody has touched it; kept in its state under `settings`."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One Mac as the provider hands it over: a user who may use sudo with a password, and nothing of ours."""

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
    # What turns FileVault on: "restart" is the next one, "login" somebody who answers its question at a login.
    filevault_after: str = ""
    # Without a display nobody is logged in by a boot alone: somebody has to kick loginwindow.
    headless: bool = True
    # By how much its clock is ahead.
    clock_ahead_seconds: float = 0.0
    login_seconds: float = 2.0
    boot_seconds: float = 40.0
    # How long a label stays taken after a job that ran was booted out; real Macs take up to some seconds.
    bootout_seconds: float = 1.0
    # For how long a daemon of the tailnet that was started anew is on its way back into it.
    tailnet_seconds: float = 2.0
    # How many wrong passwords in a row lock the account, and for how long.
    lockout_after: int = 5
    lockout_seconds: float = 300.0
