"""A page for people and metrics for machines, over HTTP: the same for the server and for a site, each of its own view."""
