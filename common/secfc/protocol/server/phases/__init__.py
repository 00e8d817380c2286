"""The phases of a job, each an object with its own inputs and state that hands over to the next."""
