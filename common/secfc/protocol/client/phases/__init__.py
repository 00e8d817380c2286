"""The phases of a job at a client, each an object with its own inputs and state that hands over to the next."""
