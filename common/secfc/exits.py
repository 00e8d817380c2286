"""What a command's exit code means, the same for `secfc`, `secfc-server` and `secfc-client`.

0    done
1    `secfc check` found something to mend
2    wrong usage, configuration, kit or data: mend it and start again
3    somebody could not be reached before the deadline, or a disk was full or failed: start the same command again to go on
4    the job failed or was refused; the message says why
130  interrupted (SIGINT), 143 terminated (SIGTERM): start the same command again to go on
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence

import click

from secfc.errors import InvalidInput, PeerError, SecfcError, StorageError, Unavailable

USAGE, UNAVAILABLE, FAILED, INTERRUPTED, TERMINATED = 2, 3, 4, 130, 143


def code_for(error: SecfcError) -> int:
    """The exit code of a deliberate error."""
    if isinstance(error, InvalidInput) and not isinstance(error, PeerError):
        return USAGE
    return UNAVAILABLE if isinstance(error, Unavailable | StorageError) else FAILED


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a click command and end the process: one line and a code for every deliberate error, no traceback."""
    sys.exit(_outcome(lambda: command.main(arguments, prog_name=name, standalone_mode=False)))


def _outcome(call: Callable[[], object]) -> int:
    try:
        result = call()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except SecfcError as error:
        click.echo(f"error: {error}", err=True)
        return code_for(error)
    return result if isinstance(result, int) else 0


def stop_signals() -> asyncio.Future[int]:
    """Resolves to the exit code when the process is asked to stop. Call it inside a running loop."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not stopped.done():
            stopped.set_result(code)

    for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop, code)
    return stopped
