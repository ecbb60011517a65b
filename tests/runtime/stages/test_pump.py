"""The event loop in turns: all that is ready runs, nothing blocks, timers and sockets wake it."""

import asyncio
import socket

from flowgraph.runtime.stages import pump
from flowgraph.runtime.stages.pump import TurnLoop, run_ready, wait


def test_a_turn_runs_until_nothing_is_ready() -> None:
    loop = TurnLoop()
    steps: list[int] = []

    async def walk() -> None:
        for i in range(50):
            steps.append(i)
            await asyncio.sleep(0)
        await loop.create_future()

    task = loop.create_task(walk())
    run_ready(loop)
    assert len(steps) == 50
    task.cancel()
    run_ready(loop)
    assert task.cancelled()
    loop.close()


def test_a_turn_with_nothing_to_do_returns_at_once() -> None:
    loop = TurnLoop()
    before = loop.scheduled
    run_ready(loop)
    assert loop.scheduled == before + 1
    loop.close()


def test_timers_are_told_and_kept() -> None:
    loop = TurnLoop()
    assert loop.wake_in() is None
    task = loop.create_task(asyncio.sleep(0.02))
    run_ready(loop)
    due = loop.wake_in()
    assert due is not None
    assert 0 < due <= 0.02
    while not task.done():
        wait(loop)
        run_ready(loop)
    assert loop.wake_in() is None
    loop.close()


def test_the_users_sockets_wake_the_loop() -> None:
    loop = TurnLoop()
    here, there = socket.socketpair()
    here.setblocking(False)
    task = loop.create_task(loop.sock_recv(here, 10))
    run_ready(loop)
    there.send(b"hello")
    wait(loop)
    run_ready(loop)
    assert task.result() == b"hello"
    here.close()
    there.close()
    loop.close()


def test_a_thread_of_the_users_wakes_the_loop() -> None:
    loop = TurnLoop()
    task = loop.create_task(asyncio.to_thread(lambda: 5))
    while not task.done():
        run_ready(loop)
        if not task.done():
            wait(loop)
    assert task.result() == 5
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_waiting_ends_when_its_time_is_up() -> None:
    loop = TurnLoop()
    wait(loop, 0.001)
    loop.close()


def test_a_coroutine_that_spins_does_not_stop_the_turn_from_ending() -> None:
    loop = TurnLoop()
    turns = 0

    async def spin() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = loop.create_task(spin())
    run_ready(loop)
    assert turns == pump.TURNS
    task.cancel()
    run_ready(loop)
    loop.close()
