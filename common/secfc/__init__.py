"""SecFC: secure federated k-means, exactly Lloyd's algorithm on rows that are never pooled.

`SecureKMeans` runs the whole protocol in one process; `secfc-server` and `secfc-client` run it between machines, and
`connect` submits jobs to those that stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secfc.connecting import connect, labels
    from secfc.estimator import SecureKMeans

__version__ = "0.2.0"
__all__ = ["SecureKMeans", "__version__", "connect", "labels"]


def __getattr__(name: str) -> Any:
    """Load the estimator, and scikit-learn with it, or gRPC, when they are first asked for."""
    if name == "SecureKMeans":
        from secfc.estimator import SecureKMeans

        return SecureKMeans
    if name in ("connect", "labels"):
        from secfc import connecting

        return getattr(connecting, name)
    raise AttributeError(f"module 'secfc' has no attribute {name!r}")
