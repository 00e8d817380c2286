"""The paper's tables and figure, and speed against peers; run as `python -m experiments`."""
