"""The subcommands of `secfc`, one module each; every module has a click command called `command`."""
