"""Jobs that are submitted: what the server and every node remember of each, and the machines that decide what runs when."""
