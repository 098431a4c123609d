"""The order and number of binds in flight; no gang is begun that its deadline would cut."""

from __future__ import annotations

from collections import deque

from extender.kube.write.bind_limiter import (
    FRESH_S,
    MAX_LIMIT,
    MIN_LIMIT,
    SLOW_S,
    BindBatch,
    BindLimiter,
)


class LimitedServer:
    """An API server that answers requests in order, when a test says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.sent: deque[tuple[str, float]] = deque()
        self.late: list[str] = []
        self.limiter: BindLimiter[str] = BindLimiter(self._send, lambda: self.time)

    def _send(self, names: list[str]) -> None:
        self.sent.extend((name, self.time) for name in names)

    def add_gang(self, gang: str, size: int, within_s: float = 42.0) -> None:
        names = deque(f"{gang}-{index}" for index in range(size))
        until = self.time + within_s
        self.limiter.add(BindBatch(names, until, lambda: self.late.append(gang)))

    def answer(self, count: int = 1) -> list[str]:
        answered = []
        for _ in range(count):
            name, at = self.sent.popleft()
            answered.append(name)
            self.limiter.answered(at)
            self.limiter.release()
        self.limiter.start_next()
        return answered

    def answer_all(self, per_s: float) -> dict[str, tuple[float, float]]:
        """Answer all requests at a steady pace; return the first and last time of each gang."""
        spans: dict[str, tuple[float, float]] = {}
        while self.sent:
            self.time += 1 / per_s
            (name,) = self.answer()
            gang = name.partition("-")[0]
            spans[gang] = (spans.get(gang, (self.time, 0.0))[0], self.time)
        return spans

    def longest_wait(self, answers_in_s: float, *, per_s: int, seconds: int) -> float:
        """Add gangs of four at a steady pace; return the longest wait for a response."""
        longest_s, every_s = 0.0, 4 / per_s
        for _ in range(seconds * per_s // 4):
            self.add_gang(f"{self.time:.3f}", 4)
            until = self.time + every_s
            while self.sent and self.sent[0][1] + answers_in_s <= until:
                self.time = max(self.time, self.sent[0][1] + answers_in_s)
                (name,) = self.answer()
                longest_s = max(longest_s, self.time - float(name.partition("-")[0]))
            self.time = until
        return longest_s


def in_flight_gangs(server: LimitedServer) -> set[str]:
    return {name.partition("-")[0] for name, _ in server.sent}


def test_a_gang_is_sent_at_once_below_the_limit():
    server = LimitedServer()
    server.add_gang("a", 20)

    assert [name for name, _ in server.sent] == [f"a-{index}" for index in range(20)]


def test_binds_in_flight_stay_within_the_limit_and_gangs_follow_each_other():
    server = LimitedServer()
    for gang in "abcdefgh":
        server.add_gang(gang, 20)

    assert len(server.sent) == MAX_LIMIT == server.limiter.in_flight
    assert in_flight_gangs(server) == set("abcd")
    server.answer(20)
    assert in_flight_gangs(server) == set("bcde")


def test_a_retried_bind_goes_before_binds_that_were_never_sent():
    server = LimitedServer()
    server.add_gang("a", MAX_LIMIT)
    server.add_gang("b", 5)
    server.limiter.add_first("again")
    server.answer()

    assert server.sent[-1][0] == "again"


def test_on_a_slow_api_server_no_gang_of_sixty_is_bound_in_part_for_long():
    server = LimitedServer()
    for gang in range(60):
        server.add_gang(f"g{gang}", 20, within_s=200)
    spans = server.answer_all(per_s=15)

    assert len(spans) == 60
    assert max(last - first for first, last in spans.values()) < 5


def test_the_limit_falls_while_responses_are_slow_and_rises_when_they_are_fast():
    server = LimitedServer()
    server.add_gang("a", 2 * MAX_LIMIT, within_s=1000)
    server.time += 2 * SLOW_S
    server.answer()
    assert server.limiter.limit == MAX_LIMIT // 2
    server.answer()
    assert server.limiter.limit == MAX_LIMIT // 2, "these were sent before the limit fell"
    server.answer_all(per_s=8)
    assert MIN_LIMIT <= server.limiter.limit < 2 * MIN_LIMIT

    server.add_gang("b", MAX_LIMIT)
    server.answer_all(per_s=1000)
    assert server.limiter.limit == MAX_LIMIT


def test_with_a_constant_response_delay_gangs_do_not_wait_for_each_other():
    server = LimitedServer()
    for pace in (20, 8, 24, 4, 28):
        assert server.longest_wait(2 * SLOW_S, per_s=pace, seconds=60) < 2.5 * SLOW_S


def test_a_gang_whose_deadline_comes_before_its_last_bind_is_not_begun():
    server = LimitedServer()
    server.add_gang("large", 2_500, within_s=9.9)

    assert server.late == ["large"]
    assert not server.sent
    assert server.limiter.in_flight == 0


def test_a_gang_that_waited_too_long_in_the_limiter_is_skipped():
    server = LimitedServer()
    server.add_gang("a", MAX_LIMIT)
    server.add_gang("b", 20, within_s=1.0)
    server.add_gang("c", 20)
    server.time += 0.99
    server.answer(MAX_LIMIT)

    assert server.late == ["b"]
    assert in_flight_gangs(server) == {"c"}


def test_a_large_gang_is_not_begun_while_the_api_server_is_slow():
    server = LimitedServer()
    server.add_gang("a", MAX_LIMIT, within_s=100)
    server.answer_all(per_s=20)
    server.add_gang("large", 1_000, within_s=20)
    assert server.late == ["large"]

    server.time += FRESH_S + 0.1
    server.add_gang("again", 1_000, within_s=20)
    assert server.late == ["large"], "its speed is unknown by now"


def test_a_gang_that_was_begun_is_sent_completely():
    server = LimitedServer()
    server.add_gang("a", 500, within_s=2.5)
    server.time += 2.4
    server.answer(MAX_LIMIT)

    assert not server.late
    assert in_flight_gangs(server) == {"a"}


def test_a_single_pod_is_sent_whatever_its_deadline():
    server = LimitedServer()
    server.add_gang("a", 1, within_s=0.0)

    assert len(server.sent) == 1
