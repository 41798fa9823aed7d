"""The Secrets with the logins of hosts: `<machine>-bootstrap`, marked with the machine's uid and the host's id.

A Secret of another uid or host is not used: the password of a host changes with each installation. The existing provider did not
mark its Secrets, so one without marks is used for a machine that has its host already.
"""

from __future__ import annotations

import base64
import contextlib
from dataclasses import dataclass

from bramley.api import core
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels, machines, secrets
from bramley.base import errors
from bramley.machines.host_leases import Holder
from bramley.providers.provider import HostCredentials, HostRef
from bramley.runtime.client import Reader
from bramley.runtime.writes import FencedKube

_UNUSABLE = frozenset({b"", machines.SEALED.encode()})


@dataclass(frozen=True, slots=True)
class BootstrapSecrets:
    """Reads and writes them in one namespace; each write is fenced by the lease of this process."""

    reader: Reader
    kube: FencedKube
    namespace: str

    async def find(self, machine: str) -> core.Secret | None:
        """Return the Secret of a machine of this name."""
        with contextlib.suppress(errors.NotFound):
            name = secrets.machine_bootstrap(machine)
            return await self.reader.get(core.Secret, name, namespace=self.namespace)
        return None

    async def holders(self) -> list[Holder]:
        """Return the machines that the Secrets with our marks belong to."""
        pages = self.reader.pages(
            core.Secret,
            namespace=self.namespace,
            labels={labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES},
        )
        return [
            Holder(namespace, secret.name.removesuffix(secrets.BOOTSTRAP_SUFFIX), uid)
            async for page in pages
            for secret in page.items
            if (uid := secret.metadata.labels.get(labels.MACHINE_UID))
            and (namespace := secret.metadata.annotations.get(annotation_names.MACHINE_NAMESPACE))
        ]

    async def store(
        self, holder: Holder, ref: HostRef, login: HostCredentials, old: core.Secret | None
    ) -> None:
        """Write the login; a pinned host key stays only if it is of the same host."""
        if login.sudo_password is None:
            raise errors.InvalidSpec(f"host {ref} has no password to store")
        values = {
            secrets.SUDO_PASSWORD: login.sudo_password.reveal().encode(),
            secrets.SSH_USERNAME: login.ssh_user.encode(),
        }
        marks = {labels.MACHINE_UID: holder.uid, labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES}
        metadata = ObjectMeta(
            name=secrets.machine_bootstrap(holder.name),
            namespace=self.namespace,
            labels=marks,
            annotations={
                annotation_names.HOST_ID: ref.id,
                annotation_names.MACHINE_NAMESPACE: holder.namespace,
            },
        )
        if old is None:
            await self.kube.create(core.Secret(metadata=metadata, type="Opaque", data=values))
            return
        encoded: dict[str, str | None] = {
            key: base64.b64encode(value).decode() for key, value in values.items()
        }
        if _mark(old) != ref.id:
            encoded[secrets.HOST_FINGERPRINT] = None
        await self.kube.merge_patch(
            core.Secret,
            metadata.name,
            {
                "metadata": {"labels": marks, "annotations": dict(metadata.annotations)},
                "data": encoded,
            },
            namespace=self.namespace,
            resource_version=old.metadata.resource_version,
        )

    async def delete(self, holder: Holder) -> None:
        """Delete the Secret of a machine, but not that of another machine with its name."""
        secret = await self.find(holder.name)
        if secret is None:
            return
        if secret.metadata.labels.get(labels.MACHINE_UID, holder.uid) == holder.uid:
            with contextlib.suppress(errors.NotFound):
                await self.kube.delete(secret)


def is_of(secret: core.Secret | None, holder: Holder, ref: HostRef, *, is_bound: bool) -> bool:
    """Return whether a Secret is about this machine and host."""
    if secret is None:
        return False
    uid, host = secret.metadata.labels.get(labels.MACHINE_UID), _mark(secret)
    if uid is None and host is None:
        return is_bound
    return uid == holder.uid and host == ref.id


def has_password(secret: core.Secret | None, login: HostCredentials | None = None) -> bool:
    """Return whether a Secret has a password that can be used, and that of a login that was just read."""
    stored = secret.data.get(secrets.SUDO_PASSWORD, b"") if secret is not None else b""
    read = login.sudo_password if login is not None else None
    return stored not in _UNUSABLE and (read is None or stored == read.reveal().encode())


def _mark(secret: core.Secret) -> str | None:
    return secret.metadata.annotations.get(annotation_names.HOST_ID)
