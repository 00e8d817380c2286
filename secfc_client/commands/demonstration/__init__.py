"""What `secfc demo` clusters (`rows`), what comes of it (`outcome`), and a picture of that (`plot`)."""
