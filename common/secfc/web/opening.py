"""Opens a party's page if it is asked for: what that needs is installed with an extra, and loaded only then."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from secfc.errors import ConfigError
from secfc.logs import say
from secfc.pki.kit import Kit
from secfc.web import door as doors
from secfc.web.deciding import Deciding
from secfc.web.door import Door
from secfc.web.view import View

log = logging.getLogger("secfc.web")
_EXTRA = "--web needs an extra that is not installed ({}): pip install 'secfc-kmeans[web]'"


def prepared(text: str | None, kit: Kit, state: Path) -> Door | None:
    """The door of the page; None if none is wanted. Raises now what would be wrong later."""
    if text is None:
        return None
    try:
        import secfc.web.page  # noqa: F401 - whether it can be
    except ImportError as error:
        raise ConfigError(_EXTRA.format(error.name)) from None
    door = doors.of(text, kit, state)
    if door.tls is not None:
        who = "any party's certificate" if kit.party_name == "server" else "this site's own certificate"
        what = f"the page is not on loopback: it speaks TLS with the kit's certificate, and asks for {who} or a token"
        say(log, what, token_file=state / doors.TOKEN_FILE)
    return door


@asynccontextmanager
async def opened(door: Door | None, look: Callable[[], View], deciding: Deciding | None = None) -> AsyncIterator[None]:
    """The page is there meanwhile. With `deciding` it takes decisions."""
    if door is None:
        yield
        return
    from secfc.web.page import Page

    page = Page(door, look, deciding)
    await page.open()
    try:
        yield
    finally:
        await page.close()
