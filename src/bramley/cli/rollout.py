"""`bramley rollout`: show the roll of a pool, pause and resume it, undo it, or promote its image.

The commands write annotations of the pool, which people may also set themselves; `spec.image` belongs to its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli import failures, roll_output
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, to_json
from bramley.cli.pool_options import Namespace, Pool, pool_name

if TYPE_CHECKING:
    from bramley.api.runner_pool import RunnerPool
    from bramley.app.pool_queries import Queries
    from bramley.runners.explanation.rolls import RollProgress

_INTERVAL_SECONDS = 1.0

app = typer.Typer(
    name="rollout",
    help="Show, pause, resume, undo or promote the roll of a pool's image.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WatchRoll = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Show the progress until the roll is done (exit code 0) or its image is rejected (1).",
    ),
]


@app.command("status")
def status(
    pool: Pool,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    watch: WatchRoll = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show the roll of a pool: its phase, its images, and how many runners have the new one.

    \b
    Examples:
      bramley rollout status pool/macos
      bramley rollout status pool/macos --watch -n tuist-runners
      bramley rollout status pool/macos -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    target = _Target(pool_name(pool), namespace, kubeconfig, context)
    as_json = output is Output.JSON
    if not watch:
        asyncio.run(_show(target, as_json=as_json))
        return
    last = asyncio.run(_follow(target, as_json=as_json))
    if last is not None and last.is_rejected:
        raise typer.Exit(failures.FAILED)


@app.command("pause")
def pause(
    pool: Pool,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Pause the roll of a pool: no more runners are replaced by the new image until it is resumed.

    \b
    Examples:
      bramley rollout pause pool/macos
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    target = _Target(pool_name(pool), namespace, kubeconfig, context)
    asyncio.run(target.annotate(ROLLOUT_PAUSED="true"))
    typer.echo(f"pool/{target.name}: rolls are paused")


@app.command("resume")
def resume(
    pool: Pool,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Resume the roll of a pool.

    \b
    Examples:
      bramley rollout resume pool/macos
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    target = _Target(pool_name(pool), namespace, kubeconfig, context)
    asyncio.run(target.annotate(ROLLOUT_PAUSED=None))
    typer.echo(f"pool/{target.name}: rolls are not paused")


@app.command("undo")
def undo(
    pool: Pool,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Return a pool to its last good image, and reject the image in its spec until that changes.

    \b
    Examples:
      bramley rollout undo pool/macos
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    target = _Target(pool_name(pool), namespace, kubeconfig, context)
    found = asyncio.run(target.undo())
    typer.echo(f"pool/{found.name}: returning from {found.spec.image} to {previous_image(found)}")


@app.command("promote")
def promote(
    pool: Pool,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Accept the image in the spec of a pool without a trial, also if it was rejected or undone.

    \b
    Examples:
      bramley rollout promote pool/macos
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    target = _Target(pool_name(pool), namespace, kubeconfig, context)
    found = asyncio.run(target.find())
    asyncio.run(target.annotate(ROLLOUT_PROMOTE=found.spec.image, ROLLOUT_UNDO=None))
    typer.echo(f"pool/{found.name}: image {found.spec.image} is accepted without a trial")


def previous_image(pool: RunnerPool) -> str:
    """Return the image that an undo returns to; BadConfiguration if there is none."""
    status, image = pool.status, pool.spec.image
    if status.rejected_image == image:
        raise BadConfiguration(
            f"pool {pool.name} has already returned from {image} to {status.last_good_image}; nothing to undo"
        )
    good = status.last_good_image
    previous = status.previous_good_image if good == image else good
    if not previous:
        raise BadConfiguration(
            f"pool {pool.name} has no previous image: {image} is its first one; nothing to undo"
        )
    return previous


@dataclass(frozen=True, slots=True)
class _Target:
    """A pool by its name, and the cluster that it is in."""

    name: str
    namespace: str | None
    kubeconfig: Path | None
    context: str | None

    def connected(self) -> AbstractAsyncContextManager[Queries]:
        from bramley.app import pool_queries
        from bramley.app.agent_access import Cluster

        return pool_queries.connected(Cluster(self.kubeconfig, self.context), self.namespace)

    async def find(self) -> RunnerPool:
        async with self.connected() as queries:
            return await queries.pool(self.name)

    async def annotate(self, **changes: str | None) -> None:
        async with self.connected() as queries:
            await queries.annotate(await queries.pool(self.name), **changes)

    async def undo(self) -> RunnerPool:
        """Undo the image of the pool, if there is one to return to, and return the pool as it was before."""
        async with self.connected() as queries:
            pool = await queries.pool(self.name)
            previous_image(pool)
            await queries.undo(pool)
            return pool

    async def states(self) -> AsyncIterator[RollProgress]:
        """Yield the progress every second until the roll is done or its image is rejected."""
        async with self.connected() as queries:
            while True:
                progress = await queries.progress(self.name)
                yield progress
                if progress.is_done or progress.is_rejected:
                    return
                await asyncio.sleep(_INTERVAL_SECONDS)


async def _show(target: _Target, *, as_json: bool) -> None:
    async with target.connected() as queries:
        progress = await queries.progress(target.name)
    if as_json:
        typer.echo(to_json(progress))
    else:
        roll_output.show(progress, now=datetime.now(UTC))


async def _follow(target: _Target, *, as_json: bool) -> RollProgress | None:
    states = target.states()
    if not as_json:
        return await roll_output.follow(states)
    last = None
    async for last in states:
        typer.echo(to_json(last))
    return last
