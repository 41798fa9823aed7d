"""The operation of `bramley apiserver rotate-keys`, on a running server or in the data folder of a stopped one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec

from bramley.apiserver.admin import endpoints
from bramley.apiserver.admin.endpoints import RotatedKeys
from bramley.apiserver.auth import service_account_tokens, signing_keys
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.apiserver.store import data_folder
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube import config_loader, status
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request

_REQUEST_TIMEOUT = timedelta(seconds=30)


async def rotate_on_server(
    kubeconfig: Path | None, context: str | None, *, revoke_old: bool
) -> RotatedKeys:
    """Make the running server rotate its keys."""
    transport = HttpTransport(config_loader.load(kubeconfig, context))
    query = {endpoints.VOID_OLD: "true"} if revoke_old else {}
    try:
        answer = await transport.send(
            Request("POST", endpoints.ROTATE_KEYS_PATH, query=query, deadline=_REQUEST_TIMEOUT)
        )
    finally:
        await transport.close()
    if answer.status == 404:
        raise errors.BadConfiguration(
            "this server is not an embedded API of Bramley; use its kubeconfig"
        )
    if answer.status != 200:
        raise status.error("rotating the keys", status.parse(answer.body), code=answer.status)
    return msgspec.json.decode(answer.body, type=RotatedKeys)


def rotate_in_folder(folder: Path, *, clock: Clock, revoke_old: bool) -> RotatedKeys:
    """Rotate the keys in the data folder of a stopped server."""
    if not (folder / signing_keys.FILE).exists():
        raise errors.BadConfiguration(
            f"{folder} has no signing keys, which are created with the first token; check --data-dir"
        )
    try:
        lock = data_folder.lock_folder(folder)
    except data_folder.FolderInUse as error:
        raise errors.BadConfiguration(
            f"the data folder {folder} is in use by process {error.holder}; use --kubeconfig of its server "
            "instead of --data-dir"
        ) from None
    try:
        keys = SigningKeys.open(folder, clock=clock)
        keys.rotate(
            until=clock.now()
            + service_account_tokens.Settings().longest
            + service_account_tokens.LEEWAY
        )
        if revoke_old:
            keys.retire()
        return RotatedKeys.of(keys.key_ids())
    finally:
        lock.release()
