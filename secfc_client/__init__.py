"""One client (site) of a SecFC federation."""

import os

os.environ.setdefault(
    "GRPC_VERBOSITY", "NONE"
)  # before gRPC is loaded: it would write lines of its own between our logs
