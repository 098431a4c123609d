"""Who is sent when: gang after gang, not too many at once, and nobody whom time would tear."""

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


class Counter:
    """An API server that takes what it is sent, in order, when a test says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.sent: deque[tuple[str, float]] = deque()
        self.late: list[str] = []
        self.line: BindLimiter[str] = BindLimiter(self._send, lambda: self.time)

    def _send(self, names: list[str]) -> None:
        self.sent.extend((name, self.time) for name in names)

    def join(self, gang: str, size: int, within_s: float = 42.0) -> None:
        names = deque(f"{gang}-{index}" for index in range(size))
        until = self.time + within_s
        self.line.add(BindBatch(names, until, lambda: self.late.append(gang)))

    def answer(self, count: int = 1) -> list[str]:
        answered = []
        for _ in range(count):
            name, at = self.sent.popleft()
            answered.append(name)
            self.line.answered(at)
            self.line.release()
        self.line.start_next()
        return answered

    def works(self, per_s: float) -> dict[str, tuple[float, float]]:
        """Answer at a steady pace until nobody is left; when each gang's first and last were."""
        spans: dict[str, tuple[float, float]] = {}
        while self.sent:
            self.time += 1 / per_s
            (name,) = self.answer()
            gang = name.partition("-")[0]
            spans[gang] = (spans.get(gang, (self.time, 0.0))[0], self.time)
        return spans

    def takes_its_time(self, answers_in_s: float, *, per_s: int, seconds: int) -> float:
        """Let gangs of four come at a steady pace, however many are under way; the longest wait."""
        longest_s, every_s = 0.0, 4 / per_s
        for _ in range(seconds * per_s // 4):
            self.join(f"{self.time:.3f}", 4)
            until = self.time + every_s
            while self.sent and self.sent[0][1] + answers_in_s <= until:
                self.time = max(self.time, self.sent[0][1] + answers_in_s)
                (name,) = self.answer()
                longest_s = max(longest_s, self.time - float(name.partition("-")[0]))
            self.time = until
        return longest_s


def under_way(counter: Counter) -> set[str]:
    return {name.partition("-")[0] for name, _ in counter.sent}


def test_a_gang_is_sent_at_once_below_the_limit():
    counter = Counter()
    counter.join("a", 20)

    assert [name for name, _ in counter.sent] == [f"a-{index}" for index in range(20)]


def test_binds_in_flight_stay_within_the_limit_and_gangs_follow_each_other():
    counter = Counter()
    for gang in "abcdefgh":
        counter.join(gang, 20)

    assert len(counter.sent) == MAX_LIMIT == counter.line.in_flight
    assert under_way(counter) == set("abcd")
    counter.answer(20)
    assert under_way(counter) == set("bcde")


def test_a_retried_bind_goes_before_binds_that_were_never_sent():
    counter = Counter()
    counter.join("a", MAX_LIMIT)
    counter.join("b", 5)
    counter.line.add_first("again")
    counter.answer()

    assert counter.sent[-1][0] == "again"


def test_on_a_slow_api_server_no_gang_of_sixty_is_bound_in_part_for_long():
    counter = Counter()
    for gang in range(60):
        counter.join(f"g{gang}", 20, within_s=200)
    spans = counter.works(per_s=15)

    assert len(spans) == 60
    assert max(last - first for first, last in spans.values()) < 5


def test_the_limit_falls_while_responses_are_slow_and_rises_when_they_are_fast():
    counter = Counter()
    counter.join("a", 2 * MAX_LIMIT, within_s=1000)
    counter.time += 2 * SLOW_S
    counter.answer()
    assert counter.line.limit == MAX_LIMIT // 2
    counter.answer()
    assert counter.line.limit == MAX_LIMIT // 2, "those were sent before it got narrow"
    counter.works(per_s=8)
    assert MIN_LIMIT <= counter.line.limit < 2 * MIN_LIMIT

    counter.join("b", MAX_LIMIT)
    counter.works(per_s=1000)
    assert counter.line.limit == MAX_LIMIT


def test_with_a_constant_response_delay_gangs_do_not_wait_for_each_other():
    counter = Counter()
    for pace in (20, 8, 24, 4, 28):
        assert counter.takes_its_time(2 * SLOW_S, per_s=pace, seconds=60) < 2.5 * SLOW_S


def test_a_gang_whose_deadline_comes_before_its_last_bind_is_not_begun():
    counter = Counter()
    counter.join("large", 2_500, within_s=9.9)

    assert counter.late == ["large"]
    assert not counter.sent
    assert counter.line.in_flight == 0


def test_a_gang_that_waited_too_long_in_the_limiter_is_skipped():
    counter = Counter()
    counter.join("a", MAX_LIMIT)
    counter.join("b", 20, within_s=1.0)
    counter.join("c", 20)
    counter.time += 0.99
    counter.answer(MAX_LIMIT)

    assert counter.late == ["b"]
    assert under_way(counter) == {"c"}


def test_a_large_gang_is_not_begun_while_the_api_server_is_slow():
    counter = Counter()
    counter.join("a", MAX_LIMIT, within_s=100)
    counter.works(per_s=20)
    counter.join("large", 1_000, within_s=20)
    assert counter.late == ["large"]

    counter.time += FRESH_S + 0.1
    counter.join("again", 1_000, within_s=20)
    assert counter.late == ["large"], "nobody knows how slow it is by now"


def test_a_gang_that_was_begun_is_sent_completely():
    counter = Counter()
    counter.join("a", 500, within_s=2.5)
    counter.time += 2.4
    counter.answer(MAX_LIMIT)

    assert not counter.late
    assert under_way(counter) == {"a"}


def test_a_single_pod_is_sent_whatever_its_deadline():
    counter = Counter()
    counter.join("a", 1, within_s=0.0)

    assert len(counter.sent) == 1
