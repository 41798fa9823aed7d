"""A compiled schema: what the REST part calls to default, prune and validate one custom resource.

`compile` wants a schema that `check` found nothing wrong with. Compiling costs milliseconds and is done once per version of
a CustomResourceDefinition; CEL is loaded only when a schema has rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema import checking, rules
from bramley.apiserver.schema.defaulting import compile_defaulter
from bramley.apiserver.schema.embedded import compile_embedded
from bramley.apiserver.schema.lists import compile_uniqueness
from bramley.apiserver.schema.pruning import compile_pruner
from bramley.apiserver.schema.validation import compile_validation, ratcheted
from bramley.apiserver.schema.values import ABSENT, NO_FIELD
from bramley.base.errors import Cause

Json = dict[str, Any]
Schema = Mapping[str, Any]

# After these, the object is too far from its schema for rules to make sense of it.
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_RULES_SKIPPED = causes.invalid(
    NO_FIELD,
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
)


class Structural:
    """The compiled schema of one version of a custom kind."""

    __slots__ = ("_default", "_embedded", "_prune", "_rules", "_unique", "_validate", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._default = compile_defaulter(schema)
        self._prune = compile_pruner(schema, root=True)
        self._validate = compile_validation(schema)
        self._embedded = compile_embedded(schema)
        self._unique = compile_uniqueness(schema)
        self._rules = rules.compile_rules(schema)

    def apply_defaults(self, value: Json) -> None:
        """Fill in place what is missing and has a default, and drop nulls that nobody may write."""
        self._default(value)

    def prune(self, value: Json) -> list[str]:
        """Drop in place what the schema does not know, and return the sorted paths of what was dropped."""
        pruned: list[str] = []
        self._prune(value, "", pruned)
        return sorted(pruned)

    def validate(self, value: Json, old: Json | None = None) -> list[Cause]:
        """Return every broken rule; what is unchanged since `old` is not held against the write."""
        before: Any = ABSENT if old is None else old
        found: list[Cause] = []
        ratcheted(self._validate, value, before, "", found)
        found += self._embedded(value)
        found += self._unique(value, before)
        if self._rules is not None:
            if any(cause.reason in _BLOCKING for cause in found):
                found.append(_RULES_SKIPPED)
            else:
                self._rules(value, before, "", found)
        return list(dict.fromkeys(found))


def compile(schema: Schema) -> Structural:
    """Compile a structural schema."""
    return Structural(schema)


def check(schema: Schema, path: str = "") -> list[Cause]:
    """Return what keeps the schema from being structural, sorted."""
    return checking.structural_causes(schema, path)
