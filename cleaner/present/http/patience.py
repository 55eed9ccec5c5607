"""How long a client is waited for: not longer because it is slow, and not shorter because this process was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_SLICES = 8


@contextlib.asynccontextmanager
async def patience(seconds: float) -> AsyncIterator[None]:
    """
    Limit the time for a client, as `asyncio.timeout` does, without what this process loses.

    A process that was stopped, or got no processor, finds the time over and the client's bytes there; `timeout` then
    drops the client. Here time is counted in slices, each of which begins when the loop has come to the end of the one
    before: a standstill takes one slice, however long it was.

    Raises:
        TimeoutError: the time is over.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def begin_slice(left: int) -> asyncio.TimerHandle:
            return loop.call_later(seconds / _SLICES, end_slice, left - 1)

        def end_slice(left: int) -> None:
            nonlocal timer
            if left:
                timer = begin_slice(left)
            else:
                limit.reschedule(loop.time())

        timer = begin_slice(_SLICES)
        try:
            yield
        finally:
            timer.cancel()
