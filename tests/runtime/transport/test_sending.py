"""The sender's side: credit, budget, fair turns, and nothing kept of who is gone."""

from flowgraph.runtime.transport.sending import Key, Order, Outbox
from flowgraph.runtime.transport.wire import Credit, Open
from tests.runtime.transport.network import HANDLE

A, B = Key(b"a", 1), Key(b"b", 1)


def asked(upto: int, *, start: int = 0, attempt: int = 1) -> Open:
    return Open(fetch=1, attempt=attempt, block=HANDLE, start=start, upto=upto)


def credit(received: int, upto: int, attempt: int = 1) -> Credit:
    return Credit(fetch=1, attempt=attempt, received=received, upto=upto)


def taken(outbox: Outbox) -> list[tuple[bytes, int]]:
    orders: list[Order] = []
    while (order := outbox.take()) is not None:
        orders.append(order)
    return [(order.key.peer, order.index) for order in orders]


def test_nothing_is_sent_without_credit() -> None:
    outbox = Outbox(budget=100)
    outbox.open(A, asked(2), 5, 0.0, joined=True)
    assert taken(outbox) == [(b"a", 0), (b"a", 1)]
    outbox.credit(A, credit(1, 3), 0.0)
    assert taken(outbox) == [(b"a", 2)]
    outbox.credit(A, credit(3, 1000), 0.0)
    assert taken(outbox) == [(b"a", 3), (b"a", 4)]  # and not beyond the block


def test_fetches_take_turns_within_the_budget_of_all() -> None:
    outbox = Outbox(budget=3)
    outbox.open(A, asked(9), 9, 0.0, joined=True)
    outbox.open(B, asked(9), 9, 0.0, joined=True)
    assert taken(outbox) == [(b"a", 0), (b"b", 0), (b"a", 1)]
    outbox.credit(A, credit(2, 9), 0.0)
    assert taken(outbox) == [(b"b", 1), (b"a", 2)]
    assert outbox.in_flight == 3


def test_credit_is_never_taken_back_and_a_lie_about_what_came_is_bounded() -> None:
    outbox = Outbox(budget=100)
    outbox.open(A, asked(4), 9, 0.0, joined=True)
    assert len(taken(outbox)) == 4
    outbox.credit(A, credit(3, 7), 0.0)
    outbox.credit(A, credit(1, 4), 0.0)  # late
    assert outbox.in_flight == 1
    outbox.credit(A, credit(1 << 60, 7), 0.0)
    assert outbox.in_flight == 0
    assert len(taken(outbox)) == 3


def test_only_the_newest_attempt_counts() -> None:
    outbox = Outbox(budget=100)
    outbox.open(A, asked(2), 9, 0.0, joined=True)
    assert outbox.open(A, asked(4, start=2, attempt=3), 9, 0.0, joined=True)
    assert not outbox.open(A, asked(9, attempt=2), 9, 0.0, joined=True)
    outbox.credit(A, credit(2, 9, attempt=1), 0.0)
    assert taken(outbox) == [(b"a", 2), (b"a", 3)]


def test_in_the_clear_nothing_is_sent_before_the_token_was_shown() -> None:
    outbox = Outbox(budget=100)
    outbox.open(A, asked(1), 9, 0.0, joined=False)
    assert taken(outbox) == []
    outbox.join(A, 2, 0.0)
    assert taken(outbox) == []
    outbox.join(A, 1, 0.0)
    assert taken(outbox) == [(b"a", 0)]


def test_a_lost_peer_and_a_silent_one_leave_nothing() -> None:
    outbox = Outbox(budget=100, idle_s=5.0)
    outbox.open(A, asked(4), 9, 0.0, joined=True)
    outbox.open(B, asked(4), 9, 2.0, joined=True)
    taken(outbox)
    outbox.close(A)
    assert (len(outbox), outbox.in_flight, outbox.due()) == (1, 4, 7.0)
    assert outbox.expire(7.0) == [B]
    assert (len(outbox), outbox.in_flight, outbox.due()) == (0, 0, None)
