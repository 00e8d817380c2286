"""A site's rows: files in many formats (`formats`), and what the job agrees on about each feature (`preparation`)."""
