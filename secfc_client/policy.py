"""A site's own rules (`policy.toml`): what its client does, whatever the server asks and the federation file says.

The federation file is what all parties agreed on; a policy can only be stricter. Without a file the defaults below hold.
"""

from __future__ import annotations

from dataclasses import dataclass

TO_NOBODY, TO_CLIENTS, TO_SERVER = "nobody", "clients", "server"  # each includes the ones before


@dataclass(frozen=True)
class Policy:
    """What one site accepts. `None`: no limit of its own beside the federation file's."""

    least_privacy: int = 0  # the smallest t
    uploads: tuple[str, ...] = ("masked", "open")
    max_rounds: int | None = None  # requests answered in one job, seeding included
    max_directions: int | None = None  # independent distance directions given away (`secfc.leakage`)
    smallest_cluster: int = 1  # rows a cluster must have before distances to its centre are given; k-means++ needs 1
    open_centers: str = TO_NOBODY  # who may see the centres after the job
    centers_smallest: int = 1  # rows a cluster must have before its centre is opened
    keep_shares: bool = False  # whether what we hold may serve another job
