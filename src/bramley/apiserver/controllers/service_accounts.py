"""The objects that every namespace gets: the ServiceAccount `default`, and the ConfigMap with the root certificate."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from bramley.api.core import ConfigMap, Namespace, ServiceAccount
from bramley.api.meta import Object, ObjectMeta
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.client import Selection
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

DEFAULT = "default"
ROOT_CA = "kube-root-ca.crt"
_FILE = "ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_ROOT_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


@dataclass(frozen=True, slots=True)
class DefaultServiceAccounts:
    """Creates the ServiceAccount `default` in each namespace."""

    kube: FencedKube
    accounts: Cache[ServiceAccount]

    async def reconcile(self, namespace: Namespace) -> Outcome:
        """Create the account if it is missing."""
        missing = self.accounts.find(Key(namespace.name, DEFAULT)) is None
        if missing and not namespace.deleting:
            metadata = ObjectMeta(name=DEFAULT, namespace=namespace.name)
            await _create(self.kube, ServiceAccount(metadata=metadata))
        return Settled()


@dataclass(frozen=True, slots=True)
class RootCertificatePublisher:
    """Publishes the root certificate of the API in each namespace, for Pods to trust it."""

    kube: FencedKube
    published: Cache[ConfigMap]
    authority: str

    async def reconcile(self, namespace: Namespace) -> Outcome:
        """Create the ConfigMap, or restore its content."""
        if namespace.deleting:
            return Settled()
        published = self.published.find(Key(namespace.name, ROOT_CA))
        if published is None:
            annotations = {_DESCRIPTION: _ROOT_CA_DESCRIPTION}
            meta = ObjectMeta(name=ROOT_CA, namespace=namespace.name, annotations=annotations)
            await _create(self.kube, ConfigMap(metadata=meta, data={_FILE: self.authority}))
        elif published.data != {_FILE: self.authority} or not published.metadata.annotations.get(
            _DESCRIPTION
        ):
            await self._restore(published)
        return Settled()

    async def _restore(self, published: ConfigMap) -> None:
        others = dict.fromkeys(key for key in published.data if key != _FILE)
        patch = {
            "metadata": {"annotations": {_DESCRIPTION: _ROOT_CA_DESCRIPTION}},
            "data": {**others, _FILE: self.authority},
        }
        with suppress(errors.NotFound):
            await self.kube.merge_patch(ConfigMap, ROOT_CA, patch, namespace=published.namespace)


async def _create(kube: FencedKube, item: Object) -> None:
    # Another client may have created it first, or the namespace may be terminating.
    with suppress(errors.AlreadyExists, errors.NotFound, errors.Forbidden):
        await kube.create(item)


def _namespaces_of(item: Object) -> list[Key]:
    return [Key("", item.namespace or "")]


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the controller of the default ServiceAccounts to a manager."""
    del client, clock, timings
    only = {"metadata.name": DEFAULT}
    accounts = manager.informer(ServiceAccount, Selection.of(fields=only)).cache
    controller = Controller(DefaultServiceAccounts(manager.kube, accounts), name="serviceaccount")
    namespaces = controller.for_kind(Namespace)
    manager.add(namespaces.watches(ServiceAccount, to=_namespaces_of, fields=only))


def add_root_authority(manager: Manager, authority: str) -> None:
    """Add the publisher of the root certificate to a manager."""
    only = {"metadata.name": ROOT_CA}
    published = manager.informer(ConfigMap, Selection.of(fields=only)).cache
    reconciler = RootCertificatePublisher(manager.kube, published, authority)
    controller = Controller(reconciler, name="root-ca-certificate-publisher").for_kind(Namespace)
    manager.add(controller.watches(ConfigMap, to=_namespaces_of, fields=only))
