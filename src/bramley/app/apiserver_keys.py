"""What `bramley apiserver rotate-keys` does: a new key for tokens of ServiceAccounts, through the running server or in a folder."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from bramley.apiserver.admin import key_rotation
from bramley.apiserver.admin.key_rotation import Rotated
from bramley.apiserver.auth import accounts, signing
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.store import data_folder
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube import connecting, status
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request

_WITHIN = timedelta(seconds=30)


async def of_server(kubeconfig: Path | None, context: str | None, *, void_old: bool) -> Rotated:
    """Let the running server rotate its keys; it signs with the new one from then on."""
    transport = HttpTransport(connecting.find(kubeconfig, context))
    query = {key_rotation.VOID_OLD: "true"} if void_old else {}
    try:
        answer = await transport.send(
            Request("POST", key_rotation.PATH, query=query, deadline=_WITHIN)
        )
    finally:
        await transport.close()
    if answer.status == 404:
        raise errors.BadConfiguration("this server is no embedded API of Bramley's")
    if answer.status != 200:
        raise status.error("rotating the keys", status.parse(answer.body), code=answer.status)
    return msgspec.json.decode(answer.body, type=Rotated)


def of_folder(folder: Path, *, clock: Clock, void_old: bool) -> Rotated:
    """Rotate the keys in a data folder that no server uses."""
    if not (folder / signing.FILE).exists():
        raise errors.BadConfiguration(
            f"{folder} holds no keys: none was needed yet; name the folder with --data-dir"
        )
    try:
        lock = data_folder.lock_folder(folder)
    except data_folder.FolderInUse as error:
        raise errors.BadConfiguration(
            f"the data folder {folder} is in use by process {error.holder}; name its server with --kubeconfig "
            "instead of --data-dir"
        ) from None
    try:
        keys = Keys.open(folder, clock=clock)
        keys.rotate(until=clock.now() + accounts.Settings().longest + accounts.LEEWAY)
        if void_old:
            keys.retire()
        return key_rotation.rotated(keys.told())
    finally:
        lock.release()
