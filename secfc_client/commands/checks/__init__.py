"""What `secfc check` looks at: `readiness` all in order, `network` what needs others."""
