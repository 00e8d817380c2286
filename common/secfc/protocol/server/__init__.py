"""The server's side of a job, as a machine without I/O; `secfc_server` is the process around it."""
