"""One client (site) of a SecFC federation."""
