"""Record the outcomes of the scenarios on a real control plane: `python -m tests.contract.node_loss.record`."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.contract.node_loss import clusters

HEAD = "# The outcome of each scenario on a real control plane; written by `python -m tests.contract.node_loss.record`.\n"


def main() -> None:
    """Run the scenarios on a real control plane and write their outcomes."""
    outcomes = clusters.first_valid(clusters.real)
    failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Exception)}
    if failed:
        raise SystemExit(f"nothing is recorded: these scenarios failed: {failed}")
    text = yaml.safe_dump(outcomes, sort_keys=True, width=200)
    (Path(__file__).parent / "outcomes.yaml").write_text(HEAD + text)


if __name__ == "__main__":
    main()
