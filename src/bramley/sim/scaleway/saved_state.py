"""What a simulated Scaleway keeps over a restart: servers, SSH keys and private networks, as JSON."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from bramley.base.errors import BadConfiguration
from bramley.sim.scaleway import catalog
from bramley.sim.scaleway.records import PrivateNetwork, Server, SshKey

_IMAGES = {each.id: each for each in catalog.IMAGES}


class SavedState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The records; it has passwords."""

    servers: list[Server] = []
    ssh_keys: list[SshKey] = []
    private_networks: list[PrivateNetwork] = []

    def encode(self) -> bytes:
        """Return the file with this state."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> SavedState:
        """Return the state in a file."""
        try:
            state = msgspec.json.decode(content, type=cls)
        except msgspec.MsgspecError as error:
            raise BadConfiguration(
                f"the saved state of the simulated Scaleway is not readable: {error}"
            ) from error
        # Images are compared by identity.
        state.servers = [
            replace(each, os=_IMAGES.get(each.os.id, catalog.DEFAULT_OS)) for each in state.servers
        ]
        return state
