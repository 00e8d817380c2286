"""A client's side of a job, as a machine without I/O; `secfc_client` is the process around it."""
