"""The coordinating server of a SecFC federation."""
