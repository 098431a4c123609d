"""The timer on an event loop."""

from __future__ import annotations

import asyncio
import threading

from extender.clock import LoopTimer


def test_callbacks_run_in_the_thread_of_the_loop():
    async def scene() -> tuple[list[int], int]:
        timer = LoopTimer(asyncio.get_running_loop())
        heard: list[int] = []
        both = asyncio.Event()

        def hear() -> None:
            heard.append(threading.get_ident())
            if len(heard) == 2:
                both.set()

        def ask() -> None:
            timer.call_soon(hear)
            timer.call_later(0.001, hear)

        await asyncio.to_thread(ask)
        await both.wait()
        return heard, threading.get_ident()

    heard, loop_thread = asyncio.run(scene())
    assert heard == [loop_thread, loop_thread]


def test_a_timer_of_a_closed_loop_does_nothing():
    loop = asyncio.new_event_loop()
    timer = LoopTimer(loop)
    loop.close()
    called: list[str] = []
    timer.call_soon(lambda: called.append("soon"))
    timer.call_later(0.0, lambda: called.append("later"))

    assert called == []
