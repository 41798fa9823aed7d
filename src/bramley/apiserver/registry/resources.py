"""The served resources: one `ServedResource` per group, version and plural, and the catalog that finds them.

A kind is data plus a few hooks (`Strategy`); the generic handlers do the rest. The catalog holds the built-in kinds and the
installed CustomResourceDefinitions. Nothing here touches the store or HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from bramley.apiserver.apimachinery import names
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import Details, bad_request
from bramley.base.errors import Cause

if TYPE_CHECKING:
    from bramley.apiserver.tables.columns import Printer

Json = dict[str, Any]
Validate = Callable[[Json], list[Cause]]
ValidateUpdate = Callable[[Json, Json], list[Cause]]

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Structural(Protocol):
    """The compiled schema of a custom kind."""

    def apply_defaults(self, value: Json) -> None:
        """Set the defaults of missing fields, in place."""
        ...

    def prune(self, value: Json) -> list[str]:
        """Drop unknown fields in place, and return their paths."""
        ...

    def validate(self, value: Json, old: Json | None) -> list[Cause]:
        """Return every validation error; `old` is the previous object, for transition rules."""
        ...


class Conversion(Protocol):
    """Converts between the stored and the served version of an object."""

    def to_served(self, stored: Json) -> Json:
        """Return the object in the served version."""
        ...

    def to_stored(self, served: Json) -> Json:
        """Return the object in the stored version."""
        ...


class ScalePaths(msgspec.Struct, frozen=True):
    """The JSON paths of a kind's scale subresource, such as `.spec.replicas`."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None = None
    is_custom: bool = True


class SelectableField(msgspec.Struct, frozen=True):
    """A field that field selectors support: `spec.nodeName` is at ("spec", "nodeName").

    `stored` is its name in the stored version, if that differs.
    """

    name: str
    path: tuple[str, ...]
    absent: str = ""
    stored: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The hooks that a kind adds to the generic handlers, as kube-apiserver's REST strategies; each is optional.

    `shape` names the built-in type of the kind's fields. `prepare_for_create` sets and clears fields of a new object in place,
    `default` sets defaults of any written object, `prepare_for_update` restores what an update may not change. `validate` gets
    one object, `validate_update` new and old, `validate_status` both when only the status is written; `admit` runs last and may
    change the object. `blocks_deletion` returns whether a deleted object must stay although it has no finalizers.
    """

    shape: str = ""
    name: names.Check = names.subdomain
    prepare_for_create: Callable[[Json], None] | None = None
    default: Callable[[Json], None] | None = None
    prepare_for_update: Callable[[Json, Json], None] | None = None
    validate: Validate | None = None
    validate_update: ValidateUpdate | None = None
    validate_status: ValidateUpdate | None = None
    admit: Callable[[Json, Json | None], None] | None = None
    blocks_deletion: Callable[[Json], bool] | None = None
    counts_generation: bool = False
    counts_annotations: bool = False
    orphans_by_default: bool = False
    warning: str = ""
    qualified_finalizers: bool = True
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    status_on_create: bool = False
    status_writes_metadata: bool = True
    graceful: bool = False


CUSTOM = Strategy(
    counts_generation=True,
    unconditional_update=False,
    status_writes_metadata=False,
    qualified_finalizers=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource:
    """One kind in one served version.

    Two sorts are never stored: a virtual one is only created, such as a review; a computed one is built at each read.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    list_kind: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    scale: ScalePaths | None = None
    structural: Structural | None = None
    selectable: tuple[SelectableField, ...] = ()
    strategy: Strategy = CUSTOM
    verbs: tuple[str, ...] = VERBS
    is_custom: bool = True
    is_virtual: bool = False
    is_computed: bool = False
    stored_version: str = ""
    stored_name: str = ""
    conversion: Conversion | None = None
    # For custom resources: the printer columns, compiled at first use, and the schema as it was written.
    printer: Callable[[], Printer] | None = field(default=None, compare=False, repr=False)
    schema: Json | None = field(default=None, compare=False, repr=False)
    api_version: str = field(init=False)
    stored_api_version: str = field(init=False)
    qualified: str = field(init=False)
    prefix: bytes = field(init=False)

    def __post_init__(self) -> None:
        group = f"{self.group}/" if self.group else ""
        group_version = f"{group}{self.version}"
        qualified = f"{self.plural}.{self.group}" if self.group else self.plural
        # Every stored object begins with this; lists, watches and other versions rely on it to work on bytes.
        prefix = f'{{"kind":"{self.kind}","apiVersion":"{group_version}",'.encode()
        derived = {
            "api_version": group_version,
            "stored_api_version": f"{group}{self.stored_version or self.version}",
            "qualified": qualified,
            "prefix": prefix,
            "list_kind": self.list_kind or f"{self.kind}List",
            "singular": self.singular or self.kind.lower(),
            "stored_version": self.stored_version or self.version,
            "stored_name": self.stored_name or qualified,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def details(self, name: str = "", uid: str = "") -> Details:
        """Return the details of an error about an object, or about the resource as a whole."""
        return Details(self.group, self.plural, name, uid)

    def kind_details(self, name: str = "") -> Details:
        """Return the details of a validation error; a converted kind has the group of the stored one."""
        group = "" if self.conversion is not None else self.group
        return Details(group, self.kind, name)

    def selected_fields(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Return the values that field selectors compare, of one stored object."""
        return {each.stored or each.name: _text_at(body, each) for each in self.selectable}

    def stored_field(self, name: str) -> str:
        """Return the stored name of a field in a selector; raise a 400 if it is not supported."""
        for each in self.selectable:
            if each.name == name:
                return each.stored or name
        particular = self.is_custom or bool(self.selectable)
        if name == "metadata.name" or (
            name == "metadata.namespace" and (self.namespaced or not particular)
        ):
            return name
        if particular:
            raise bad_request(f"field label not supported: {name}")
        supported = 'only "metadata.name", "metadata.namespace"'
        raise bad_request(f"{quoted(name)} is not a known field selector: {supported}")


class Catalog:
    """All served resources; `generation` increases when a CustomResourceDefinition is installed or removed."""

    def __init__(
        self,
        builtins: Iterable[ServedResource],
        *,
        from_crd: Callable[[Json], list[ServedResource]] | None = None,
    ) -> None:
        self._from_crd = from_crd
        self._builtins = tuple(builtins)
        self._custom: dict[str, tuple[ServedResource, ...]] = {}
        self._by_key: dict[tuple[str, str, str], ServedResource] = {}
        self.generation = 0
        self._index()

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return the served resource, None if there is none."""
        return self._by_key.get((group, version, plural))

    def is_builtin(self, group: str, version: str) -> bool:
        """Return whether this version of a group has built-in kinds."""
        return any((each.group, each.version) == (group, version) for each in self._builtins)

    def has_builtin(self, group: str, plural: str) -> bool:
        """Return whether a resource of this name is built in, in any version."""
        return any((each.group, each.plural) == (group, plural) for each in self._builtins)

    def install(self, crd: Json) -> None:
        """Serve the resources of a CustomResourceDefinition, in place of those of its previous state.

        A definition of a built-in kind adds nothing, not even another version: its objects would be stored among the built-in ones.
        """
        if self._from_crd is None:
            raise RuntimeError("this catalog was made for built-in kinds only")
        described = self._from_crd(crd)
        added = (each for each in described if not self.has_builtin(each.group, each.plural))
        self._custom[crd["metadata"]["name"]] = tuple(added)
        self._index()

    def remove(self, name: str) -> None:
        """Stop serving the resources of a CustomResourceDefinition."""
        self._custom.pop(name, None)
        self._index()

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._by_key.values())

    def of_crd(self, name: str) -> tuple[ServedResource, ...]:
        """Return the resources of a CustomResourceDefinition."""
        return self._custom.get(name, ())

    def versions(self, group: str) -> list[str]:
        """Return a group's versions, the preferred one first."""
        versions = {each.version for each in self if each.group == group}
        return sorted(versions, key=version_priority, reverse=True)

    def groups(self) -> list[str]:
        """Return the served groups except the core one: the built-in ones in their order, then the others by name."""
        order = dict.fromkeys(each.group for each in self._builtins)
        custom = {each.group for each in self} - set(order)
        return [group for group in [*order, *sorted(custom)] if group]

    def _index(self) -> None:
        served = [*self._builtins, *(each for group in self._custom.values() for each in group)]
        self._by_key = {}
        for each in served:
            # A definition never replaces a built-in resource.
            self._by_key.setdefault((each.group, each.version, each.plural), each)
        self.generation += 1


def version_priority(version: str) -> tuple[int, int, int]:
    """Return a sort key that puts v1 above v1beta2 above v1alpha1, and larger numbers above smaller ones."""
    match = names.VERSION.fullmatch(version)
    if match is None:
        return (0, 0, 0)
    major, stage, minor = match.groups()
    rank = {None: 3, "beta": 2, "alpha": 1}[stage]
    return (rank, int(major), int(minor or 0))


def _text_at(body: Mapping[str, Any], selectable: SelectableField) -> str:
    value: Any = body
    for part in selectable.path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return selectable.absent
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
