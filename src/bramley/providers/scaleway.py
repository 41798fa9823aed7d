"""Scaleway as the provider: Apple silicon servers, and the SSH keys of a project.

Every call of IAM has the id of the project: without it, Scaleway takes the call for one about the whole organisation and refuses
it with `insufficient permissions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bramley.api.names import machines
from bramley.base import errors
from bramley.providers import scaleway_records as records
from bramley.providers.claims import Claims
from bramley.providers.os_families import newest_image
from bramley.providers.provider import (
    Host,
    HostCredentials,
    HostRef,
    HostState,
    checked_name,
    checked_zone,
    pool_name,
)
from bramley.providers.scaleway_account import Account
from bramley.providers.scaleway_calls import IAM, Call, Calls, Settings, Transport, within

if TYPE_CHECKING:
    from bramley.providers.scaleway_sdk import Sdk


class ScalewayProvider:
    """Implements `HostProvider`; `account` is called on the event loop before each request, so that keys can be rotated."""

    def __init__(
        self,
        account: Callable[[], Account],
        *,
        settings: Settings | None = None,
        rng: random.Random | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._rng = rng or random.SystemRandom()
        settings = settings or Settings()
        self._deadline = settings.deadline
        self._calls = Calls(account, settings, self._rng, transport)
        self._claims = Claims(self)
        self._keys = asyncio.Lock()

    def provider_id(self, ref: HostRef) -> str:
        """Return the provider id that the Node of this host and its machine have in common."""
        return machines.provider_id(ref.zone, ref.id)

    async def hosts(self, zone: str) -> Sequence[Host]:
        """Return all hosts of a zone."""
        call = Call(f"list of hosts in {zone}", checked_zone(zone), repeatable=True)
        return await self._calls.send(call, lambda sdk: records.all_hosts(sdk, zone))

    async def host(self, ref: HostRef) -> Host:
        """Return one host; NotFound if it is not rented any more."""
        call = Call(f"host {ref}", ref.zone, repeatable=True)
        return await self._calls.send(call, lambda sdk: records.host(_server(sdk, ref), ref.zone))

    async def claim(self, host: Host, name: str) -> Host | None:
        """Rename a listed host and return it as read back, or None if it is lost."""
        marker = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        async with within(self._deadline, f"claim of host {host.ref}"):
            return await self._claims.claim(host, name, str(marker))

    async def rename(self, ref: HostRef, name: str) -> None:
        """Rename a host, whatever its name is; that its name is shown may take some seconds."""
        checked_name(name)

        def update(sdk: Sdk) -> None:
            sdk.hosts.update_server(zone=ref.zone, server_id=ref.id, name=name)

        await self._calls.send(Call(f"rename of host {ref}", ref.zone, repeatable=True), update)

    async def release(self, ref: HostRef, name: str, *, pool_prefix: str, os: str) -> bool:
        """Rename the host of `name` into the pool and reinstall it; False if it does not exist any more."""
        async with within(self._deadline, f"release of host {ref}"):
            return await self._release(ref, name, pool_name(pool_prefix, ref), os)

    async def _release(self, ref: HostRef, name: str, free: str, os: str) -> bool:
        try:
            host = await self.host(ref)
        except errors.NotFound:
            return False
        if host.name not in {name, free} and not host.name.startswith(machines.CLAIM_PREFIX):
            raise errors.Refused(
                f"host {ref} has the name {host.name[:100]!r} and not {name!r}: another owner has it"
            )
        # Resolved before the host is touched: a host without an image would stay in the pool with its data.
        image = await self._image(host, os)
        try:
            await self.rename(ref, free)
            await self._reinstall(ref, image)
        except errors.NotFound:
            return False
        return True

    async def reboot(self, ref: HostRef) -> None:
        """Reboot a host; one that is gone or in a transition is left alone."""

        def reboot(sdk: Sdk) -> None:
            sdk.hosts.reboot_server(zone=ref.zone, server_id=ref.id)

        with contextlib.suppress(errors.NotFound, errors.HostBusy):
            await self._calls.send(Call(f"reboot of host {ref}", ref.zone), reboot)

    async def reinstall(self, ref: HostRef, *, os: str) -> None:
        """Wipe a host and install the newest image of the family of `os`."""
        async with within(self._deadline, f"reinstallation of host {ref}"):
            host = await self.host(ref)
            await self._reinstall(ref, await self._image(host, os))

    async def credentials(self, ref: HostRef) -> HostCredentials:
        """Return the login of a host."""
        call = Call(f"login of host {ref}", ref.zone, repeatable=True)
        return await self._calls.send(call, lambda sdk: records.login(_server(sdk, ref)))

    async def ensure_ssh_key(self, name: str, public_key: str) -> str:
        """Register a key and return its id; others with this name are removed."""
        material = records.key_material(public_key)
        if not name or material is None:
            raise errors.InvalidSpec(
                f"the SSH key {name!r} is not an OpenSSH public key with a name"
            )
        async with within(self._deadline, f"SSH key {name}"), self._keys:
            listing = Call("list of SSH keys", IAM, repeatable=True)
            keys = await self._calls.send(listing, records.all_ssh_keys)
            same = [key for key in keys if key.material == material]
            if any(key.is_disabled for key in same):
                raise errors.Refused(f"the SSH key {name} is disabled at Scaleway; enable it there")
            # The key is registered before others are removed, so that there is always one.
            registered = same[0].id if same else await self._create_key(name, public_key)
            for key in keys:
                if key.name == name and key.material != material:
                    await self._delete_key(key.id)
            return registered

    async def _create_key(self, name: str, public_key: str) -> str:
        def create(sdk: Sdk) -> str:
            created = sdk.iam.create_ssh_key(
                name=name, public_key=public_key.strip(), project_id=sdk.project_id
            )
            return records.text(created.id)

        return await self._calls.send(Call(f"registration of the SSH key {name}", IAM), create)

    async def _delete_key(self, key_id: str) -> None:
        def delete(sdk: Sdk) -> None:
            sdk.iam.delete_ssh_key(ssh_key_id=key_id)

        with contextlib.suppress(errors.NotFound):
            call = Call(f"removal of the SSH key {key_id}", IAM, repeatable=True)
            await self._calls.send(call, delete)

    async def _image(self, host: Host, os: str) -> str | None:
        """Return the id of the newest image for this host; None, the provider's default, without an `os`."""
        if not os:
            return None
        zone = host.ref.zone
        call = Call(f"list of images in {zone}", zone, repeatable=True)
        try:
            images = await self._calls.send(
                call, lambda sdk: records.all_images(sdk, zone, host.type)
            )
        except errors.NotFound as error:
            # Must not be taken for a host that is gone.
            raise errors.ProviderUnavailable(str(error)) from None
        image = newest_image(images, os=os, type=host.type)
        if image is None:
            raise errors.InvalidSpec(
                f"there is no image of the family of {os!r} for the type {host.type}"
            )
        return image.id

    async def _reinstall(self, ref: HostRef, image: str | None) -> None:
        def reinstall(sdk: Sdk) -> None:
            sdk.hosts.reinstall_server(
                zone=ref.zone, server_id=ref.id, os_id=image, enable_kext=False
            )

        try:
            await self._calls.send(Call(f"reinstallation of host {ref}", ref.zone), reinstall)
        except errors.HostBusy:
            # Another transition, such as a reboot, would leave its data on the disk.
            if (await self.host(ref)).state is not HostState.REINSTALLING:
                raise


def _server(sdk: Sdk, ref: HostRef) -> Any:
    return sdk.hosts.get_server(zone=ref.zone, server_id=ref.id)
