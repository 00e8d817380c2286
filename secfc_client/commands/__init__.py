"""The subcommands of `secfc` that read a site's rows, policy or state; the others are in `secfc.commands`."""
