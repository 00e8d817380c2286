"""What a command's exit code means, the same for `secfc`, `secfc-server` and `secfc-client`.

0    done
1    `secfc check` found something to fix
2    wrong usage, configuration, kit or data: a person has to fix it, then start again
3    waiting may heal it: somebody could not be reached or was too late, or this machine has no room on its disk or no
     descriptors left. Nothing is lost: start the same command again to go on, by hand or by a service manager
4    the job failed or was refused, and would be again: a person has to decide; the message says why
130  interrupted (SIGINT), 143 terminated (SIGTERM): start the same command again to go on
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from secfc import limits, logs
from secfc.errors import InvalidInput, PeerError, SecfcError, StorageError, Unavailable

if TYPE_CHECKING:
    import asyncio

USAGE, UNAVAILABLE, FAILED, INTERRUPTED, TERMINATED = 2, 3, 4, 130, 143


def code_for(error: SecfcError) -> int:
    """The exit code of a deliberate error."""
    if isinstance(error, InvalidInput) and not isinstance(error, PeerError):
        return USAGE
    return UNAVAILABLE if isinstance(error, Unavailable | StorageError) else FAILED


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a click command and end the process: one line and a code for every deliberate error, no traceback."""
    limits.raise_descriptors()
    limits.keep_memory()
    if _asks_for_json(sys.argv[1:] if arguments is None else arguments):
        logs.configure("json", quiet=False)
    sys.exit(_outcome(lambda: command.main(arguments, prog_name=name, standalone_mode=False)))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether logs are to be JSON, looked up before the options are parsed, since they may be wrong."""
    return "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments)


def _outcome(call: Callable[[], object]) -> int:
    try:
        result = call()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        if logs.for_machines():
            logs.last_words(wrong.format_message(), code=wrong.exit_code)
        else:
            wrong.show()
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        logs.last_words("interrupted", code=INTERRUPTED, error=False)
        return INTERRUPTED
    except SecfcError as error:
        logs.last_words(str(error), code=code_for(error))
        return code_for(error)
    return result if isinstance(result, int) else 0


def stop_signals() -> asyncio.Future[int]:
    """Resolves to the exit code when the process is asked to stop. Call it inside a running loop."""
    import asyncio  # most commands need none

    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not stopped.done():
            stopped.set_result(code)

    for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop, code)
    return stopped
