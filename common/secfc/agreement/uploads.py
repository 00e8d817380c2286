"""Kinds of uploads: which one a federation has that does not say, and what each means, in a line for whoever chooses."""

from __future__ import annotations

UPLOADS = ("sealed", "masked", "open")
DEFAULT = UPLOADS[0]  # never exchanged for a weaker kind where it does not fit: that is for people to decide

MASKED_PRICE = "quicker than sealed, but from the distances it gets the server can compute the rows themselves"

SEES = {
    "sealed": "with one committee member the server gets distances; alone, assignments",
    "masked": "the server gets distances, and can compute the rows",
    "open": "the server gets every upload, and can compute the rows",
}

MEANING = {
    "sealed": (
        "sealed uploads: with any one member of the committee the server learns what masked uploads show it; alone, the"
        " assignments of all rounds, the rows that seeding draws and the final inertia of each run; nothing notices a server"
        " that deals falsely"
        " (docs/sealed.md)"
    ),
    "masked": (f"masked uploads: {MASKED_PRICE}; use them only with a server that may know the rows (docs/privacy.md)"),
    "open": (
        "open uploads: the server and any one client together can compute every row exactly, whatever privacy is; use them"
        " only with a server that may know the rows (docs/privacy.md)"
    ),
}
