"""Names of images: `host[:port]/namespace…/repository[:tag|@sha256:hex]`. Whatever has a slash and can be read so is remote."""

from typing import NamedTuple

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_HEX = frozenset("0123456789abcdef")


class Reference(NamedTuple):
    """An image in a registry; exactly one of `tag` and `digest` is set."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def base(self) -> str:
        """Return the name without tag or digest."""
        return f"{self.host}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.base}@{self.digest}" if self.digest else f"{self.base}:{self.tag}"

    def at(self, digest: str) -> "Reference":
        """Return the same repository's image by digest."""
        return Reference(self.host, self.repository, digest=digest)


def find(name: str) -> Reference | None:
    """Return the remote name, or None for what can only be a local one."""
    host, slash, rest = name.partition("/")
    rest, _, digest = rest.partition("@")
    repository, colon, tag = rest.partition(":")
    if digest and (colon or not _is_digest(digest)):
        return None
    if not digest:
        tag = tag if colon else "latest"
    parts = repository.split("/")
    words = [*parts, host.replace(":", "", 1), *([] if digest else [tag])]
    is_remote = bool(slash) and all(_is_word(word) for word in words)
    return Reference(host, repository, tag, digest) if is_remote else None


def _is_word(word: str) -> bool:
    return bool(word) and set(word) <= _LETTERS and ".." not in word


def _is_digest(text: str) -> bool:
    kind, _, digits = text.partition(":")
    return kind == "sha256" and len(digits) == 64 and set(digits) <= _HEX
