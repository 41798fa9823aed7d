"""Docker's configuration file, as Secrets of the type `kubernetes.io/dockerconfigjson` and hosts have it: logins by registry."""

from __future__ import annotations

import base64

import msgspec


class Login(msgspec.Struct, frozen=True):
    """The login for one registry: base64 of name and password, or both as they are."""

    auth: str = ""
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        # The fields are secret.
        return "Login()"

    def decode(self) -> tuple[str, str] | None:
        """Return name and password; None without both."""
        if self.username and self.password:
            return self.username, self.password
        try:
            name, _, password = base64.b64decode(self.auth, validate=True).decode().partition(":")
        except ValueError:
            return None
        return (name, password) if name and password else None


class DockerConfig(msgspec.Struct, frozen=True):
    """The part of the file that is used; the keys are hosts, perhaps with a path."""

    auths: dict[str, Login] = {}
