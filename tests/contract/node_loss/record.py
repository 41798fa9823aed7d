"""Writes down how the stories end on a real control plane: `python -m tests.contract.node_loss.record`."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.contract.node_loss import playing

HEAD = "# How each story ends on a real control plane; written by `python -m tests.contract.node_loss.record`.\n"


def main() -> None:
    """Play on a real control plane and keep the ends."""
    ends = playing.judged(playing.real)
    failed = {name: end for name, end in ends.items() if isinstance(end, Exception)}
    if failed:
        raise SystemExit(f"not recorded, for these failed: {failed}")
    text = yaml.safe_dump(ends, sort_keys=True, width=200)
    (Path(__file__).parent / "ends.yaml").write_text(HEAD + text)


if __name__ == "__main__":
    main()
