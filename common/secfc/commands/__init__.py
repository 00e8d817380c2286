"""The subcommands of `secfc` that need no client code, one module each; `secfc_client.cli` puts them together."""
