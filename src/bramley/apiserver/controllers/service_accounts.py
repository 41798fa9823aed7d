"""What every namespace is furnished with: the ServiceAccount `default`, and the certificate authority of the API."""

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
_ABOUT_ROOT_CA = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


@dataclass(frozen=True, slots=True)
class DefaultAccounts:
    """Keeps the ServiceAccount `default` in each namespace."""

    kube: FencedKube
    accounts: Cache[ServiceAccount]

    async def reconcile(self, namespace: Namespace) -> Outcome:
        """Create the account when it is missing."""
        missing = self.accounts.find(Key(namespace.name, DEFAULT)) is None
        if missing and not namespace.deleting:
            place = ObjectMeta(name=DEFAULT, namespace=namespace.name)
            await _create(self.kube, ServiceAccount(metadata=place))
        return Settled()


@dataclass(frozen=True, slots=True)
class RootAuthorities:
    """Keeps the certificate authority of the API in each namespace, for Pods to trust it."""

    kube: FencedKube
    published: Cache[ConfigMap]
    authority: str

    async def reconcile(self, namespace: Namespace) -> Outcome:
        """Create the ConfigMap, or set right what somebody changed in it."""
        if namespace.deleting:
            return Settled()
        found = self.published.find(Key(namespace.name, ROOT_CA))
        if found is None:
            await _create(self.kube, self._wanted(namespace.name))
        elif found.data != {_FILE: self.authority} or not found.metadata.annotations.get(
            _DESCRIPTION
        ):
            await self._set_right(found)
        return Settled()

    def _wanted(self, namespace: str) -> ConfigMap:
        place = ObjectMeta(
            name=ROOT_CA, namespace=namespace, annotations={_DESCRIPTION: _ABOUT_ROOT_CA}
        )
        return ConfigMap(metadata=place, data={_FILE: self.authority})

    async def _set_right(self, found: ConfigMap) -> None:
        others = dict.fromkeys(key for key in found.data if key != _FILE)
        patch = {
            "metadata": {"annotations": {_DESCRIPTION: _ABOUT_ROOT_CA}},
            "data": {**others, _FILE: self.authority},
        }
        with suppress(errors.NotFound):
            await self.kube.merge_patch(ConfigMap, ROOT_CA, patch, namespace=found.namespace)


async def _create(kube: FencedKube, thing: Object) -> None:
    # Somebody was quicker, or the namespace began to go: then there is nothing to create.
    with suppress(errors.AlreadyExists, errors.NotFound, errors.Forbidden):
        await kube.create(thing)


def _namespaces_of(thing: Object) -> list[Key]:
    return [Key("", thing.namespace or "")]


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Keep the default ServiceAccounts."""
    del client, clock, timings
    only = {"metadata.name": DEFAULT}
    accounts = manager.informer(ServiceAccount, Selection.of(fields=only)).cache
    controller = Controller(DefaultAccounts(manager.kube, accounts), name="serviceaccount")
    watching = controller.for_kind(Namespace)
    manager.add(watching.watches(ServiceAccount, to=_namespaces_of, fields=only))


def add_root_authority(manager: Manager, authority: str) -> None:
    """Keep the API's certificate authority in each namespace."""
    only = {"metadata.name": ROOT_CA}
    published = manager.informer(ConfigMap, Selection.of(fields=only)).cache
    reconciler = RootAuthorities(manager.kube, published, authority)
    controller = Controller(reconciler, name="root-ca-certificate-publisher").for_kind(Namespace)
    manager.add(controller.watches(ConfigMap, to=_namespaces_of, fields=only))
