"""The allocator with workers that are only numbers: answers lost, workers that die at any moment."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from evalkit.client.budget import RUN, LoanBalance
from evalkit.client.lanes.stats import LaneStats
from evalkit.machines.allocator import Allocator, Dealt, DealtLane
from evalkit.machines.limits import Limit
from evalkit.machines.messages import LaneReport, Left, WorkGrant, WorkReport
from evalkit.machines.sharing import SharedBalance
from tests.support.examples import examples

LANES, EPISODES = ("m", "p"), 30
BOUND = 40
SCOPES = {RUN: (160, 40), ("agent", "a"): (110, 0)}
"""Budget and what was spent before: so little that workers wait for what others give back."""
LIMITS = {"requests lane m": 600.0, "in_flight lane m": 5.0}


class Deck:
    """Deals numbered episodes, and notes how each was left."""

    def __init__(self, episodes: int = EPISODES) -> None:
        self.waiting = {lane: [f"{lane}{number}" for number in range(episodes)] for lane in LANES}
        self.ended, self.unplayed_ = Counter[str](), Counter[str]()

    def deal(self, lane: str, most: int) -> list[Dealt]:
        names, self.waiting[lane] = self.waiting[lane][:most], self.waiting[lane][most:]
        return [Dealt(id=name, place=("a", lane, int(name[1:]), 0)) for name in names]

    def turns(self, lane: str) -> float:
        return 0.0

    def remaining(self, lane: str) -> int:
        return len(self.waiting[lane])

    def left(self, episodes: Sequence[Left]) -> None:
        self.ended.update(left.episode for left in episodes)

    def unplayed(self, episode: str) -> None:
        self.unplayed_[episode] += 1


@dataclass
class Hand:
    """A worker as the protocol sees it."""

    writer: str
    message: WorkReport | None = None
    """Asked, and not answered as far as it knows: it says nothing more then."""
    queues: dict[str, list[str]] = field(default_factory=lambda: {lane: [] for lane in LANES})
    playing: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    lent: dict[tuple[str, str], int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    spent: int = 0
    reserved: int = 0
    waits: bool = False
    parts: dict[str, float] = field(default_factory=dict)
    until: float = 0.0
    asked_at: float = 0.0
    eager: bool = False
    """Whether its requests wait for limits."""

    def room(self, scope: tuple[str, str]) -> int:
        """What it has and neither spent nor reserved."""
        return max(0, self.lent[scope] - self.spent - self.reserved)

    def ask(self, now: float) -> WorkReport:
        """The question."""
        self.asked_at = now
        lack = BOUND if self.waits else 0
        self.message = WorkReport(
            writer=self.writer,
            lanes={
                lane: LaneReport(
                    playing=sum(name[0] == lane for name in self.playing),
                    queued=len(self.queues[lane]),
                    stats=seen(lane, waiting=int(self.waits or self.eager)),
                    largest=BOUND,
                    acted=True,
                )
                for lane in LANES
            },
            money={
                scope: LoanBalance(
                    self.spent, self.reserved, self.lent[scope], 0, max(0, lack - self.room(scope)), lack
                )
                for scope in SCOPES
            },
            left=self.left,
            unbegun=self.back,
        )
        self.left, self.back = [], []
        return self.message

    def hear(self, grant: WorkGrant) -> None:
        """Do what the answer says."""
        self.message = None
        for scope, (most, _) in grant.money.items():
            self.lent[scope] += max(most - self.lent[scope], -self.room(scope))
        self.parts, self.until = grant.limits, self.asked_at + grant.valid_s
        for name, lane in grant.lanes.items():
            self.queues[name] += [f"{name}{place[2]}" for place in lane.episodes]

    def reserve(self) -> None:
        """Ask for money for one request."""
        self.waits = any(self.room(scope) < BOUND for scope in SCOPES)
        if not self.waits:
            self.reserved += BOUND

    def settle(self, cost: int) -> None:
        """One request was answered."""
        if self.reserved:
            self.reserved -= BOUND
            self.spent += cost


def seen(lane: str, *, waiting: int = 0, in_flight: int = 0) -> LaneStats:
    """A lane of which nothing else matters."""
    return LaneStats(
        lane=lane,
        in_flight=in_flight,
        window=1,
        waiting=waiting,
        waits_for="",
        paused_s=0.0,
        trouble="",
        ended="",
        requests=0,
        input_tokens=0,
        output_tokens=0,
        requests_per_min=0.0,
        input_tokens_per_min=0.0,
        output_tokens_per_min=0.0,
        median_latency_s=0.0,
        failures={},
    )


def allocating(deck: Deck, *, seats: int = 1 << 30, width: int = 8, trial: bool = False, workers: int = 3) -> Allocator:
    """Of so many workers, with two lanes."""
    return Allocator(
        [DealtLane(name="m", width=width, trial=trial, seats=seats), DealtLane(name="p", width=90)],
        deck,
        workers=workers,
        valid_s=15.0,
        limits=[Limit(scope="lane m", unit=name.split()[0], most=most, lanes=("m",)) for name, most in LIMITS.items()],
        balances={scope: SharedBalance(budget=budget, before=before) for scope, (budget, before) in SCOPES.items()},
    )


class Protocol(RuleBasedStateMachine):
    """Any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.born, self.paid = 0.0, 0, 0
        self.deck, self.hands, self.orders = Deck(), dict[str, Hand](), dict[str, int]()
        self.barred: dict[str, int] = {}
        """By episode of a dead worker: the first worker that may go on with it."""
        self.made = allocating(self.deck)

    @initialize()
    def two_workers_play(self) -> None:
        """Each has episodes and money, so that few events matter."""
        for _ in range(2):
            self.begin()
        for _ in range(2):
            for hand in self.hands.values():
                hand.reserve()
                self._exchange(hand, "answered")

    @precondition(lambda self: len(self.hands) < 3)
    @rule()
    def begin(self) -> None:
        writer = f"w{self.born}"
        self.made.hello(writer, self.now)
        self.hands[writer], self.orders[writer] = Hand(writer), self.born
        self.born += 1

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), fate=st.sampled_from(["answered", "answered", "lost"]))
    def ask(self, data: st.DataObject, fate: str) -> None:
        hand = self._one(data)
        hand.eager = data.draw(st.booleans())
        self._exchange(hand, fate)

    def _exchange(self, hand: Hand, fate: str) -> None:
        if hand.message is not None:
            return
        grant = told(self.made, hand.ask(self.now), self.now)
        if fate != "lost":
            hand.hear(grant)

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), lane=st.sampled_from(LANES))
    def play(self, data: st.DataObject, lane: str) -> None:
        hand = self._one(data)
        if hand.queues[lane]:
            hand.playing.append(hand.queues[lane].pop(0))
        hand.reserve()

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), cost=st.integers(0, BOUND))
    def reply(self, data: st.DataObject, cost: int) -> None:
        hand = self._one(data)
        hand.settle(cost)
        if hand.playing and cost % 2:
            name = hand.playing.pop(0)
            hand.left.append(Left(name, "solved", cost, 1))

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), cost=st.sampled_from([0, 1, BOUND]))
    def spend(self, data: st.DataObject, cost: int) -> None:
        """A request from its wait for money to its reply; and a question after it, which may return what is idle."""
        hand = self._one(data)
        hand.reserve()
        self._exchange(hand, "answered")
        if hand.waits:
            hand.reserve()
        hand.settle(cost)
        self._exchange(hand, "answered")

    @rule(seconds=st.floats(0.01, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), unreported=st.booleans())
    def die(self, data: st.DataObject, unreported: bool) -> None:
        """Its process is gone: what it had left durably is found in its journal, or it told before."""
        hand = self._one(data)
        del self.hands[hand.writer]
        said = hand.message.left if hand.message is not None else []
        found = [*said, *hand.left] if unreported else said
        held = self.held(hand.writer)
        ended = [left for left in found if left.episode in held]
        for name in held - {left.episode for left in ended}:
            self.barred[name] = self.born
        self.paid += hand.spent + hand.reserved
        self.made.lost(hand.writer, ended, hand.spent + hand.reserved)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """It has nothing in flight, says what it has to say, and closes."""
        hand = self._one(data)
        while hand.reserved:
            hand.settle(1)
        if hand.message is not None:
            return
        hand.back += [name for queue in hand.queues.values() for name in queue]
        hand.back += hand.playing
        hand.queues, hand.playing = {lane: [] for lane in LANES}, []
        self.made.stop = "test", ""
        told(self.made, hand.ask(self.now), self.now)
        self.made.stop = "", ""
        self._close(hand)

    def _close(self, hand: Hand) -> None:
        del self.hands[hand.writer]
        self.paid += hand.spent
        self.made.bye(hand.writer)

    @rule()
    def look(self) -> None:
        self.made.refresh()

    @precondition(lambda self: any(member.leaving for member in self.made.members.values()))
    @rule()
    def begin_anew(self) -> None:
        """The one that is told to ends what it has, closes, and another takes its place."""
        hand = self.hands[next(member.writer for member in self.made.members.values() if member.leaving)]
        if hand.message is not None:
            return
        while hand.reserved:
            hand.settle(1)
        hand.left += [
            Left(name, "solved", 1, 1) for name in self.held(hand.writer) - {one.episode for one in hand.left}
        ]
        hand.queues, hand.playing = {lane: [] for lane in LANES}, []
        grant = told(self.made, hand.ask(self.now), self.now)
        assert grant.finish
        assert not any(lane.episodes for lane in grant.lanes.values())
        self._close(hand)
        self.begin()

    def held(self, writer: str) -> set[str]:
        """The episodes of a worker."""
        return names(self.made, writer)

    def _one(self, data: st.DataObject) -> Hand:
        return self.hands[data.draw(st.sampled_from(sorted(self.hands)))]

    @invariant()
    def money_is_within_the_budget(self) -> None:
        for scope, (budget, before) in SCOPES.items():
            in_hands = sum(hand.spent + hand.reserved + hand.room(scope) for hand in self.hands.values())
            assert before + self.paid + in_hands <= budget

    @invariant()
    def parts_are_within_the_limits(self) -> None:
        for name, most in LIMITS.items():
            used = [hand.parts.get(name, 0.0) for hand in self.hands.values() if self.now < hand.until]
            assert sum(used) <= most * (1 + 1e-9)

    @invariant()
    def each_episode_is_at_one_place_and_ends_once(self) -> None:
        held = Counter(name for writer in self.made.members for name in self.held(writer))
        assert all(count == 1 for count in (held + self.deck.ended).values())
        for hand in self.hands.values():
            mine = [name for queue in hand.queues.values() for name in queue] + hand.playing
            assert set(mine) <= self.held(hand.writer)

    @invariant()
    def what_a_dead_worker_had_goes_to_younger_ones(self) -> None:
        for writer in self.made.members:
            assert all(self.barred.get(name, 0) <= self.orders[writer] for name in self.held(writer))

    @invariant()
    def no_more_episodes_are_played_than_a_lane_is_wide(self) -> None:
        for name, lane in self.made.lanes.items():
            assert sum(member.hands[name].width for member in self.made.members.values()) <= lane.width


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)


def told(made: Allocator, report: WorkReport, now: float = 0.0) -> WorkGrant:
    """WorkReport once, and what comes back is durable."""
    grant, _, returned = made.report(report, now)
    made.balances[RUN].returned(report.writer, returned)
    return grant


def names(made: Allocator, writer: str, lane: str = "") -> set[str]:
    """The episodes of a worker, in a lane or in all."""
    return {episode for name, hand in made.members[writer].hands.items() for episode in hand.held if lane in name}


def dealt(made: Allocator, hand: Hand, lane: str = "") -> set[str]:
    """WorkReport and hear once; the names of the episodes that came, in a lane or in all."""
    grant = told(made, hand.ask(0.0))
    hand.hear(grant)
    return {f"{name}{place[2]}" for name, own in grant.lanes.items() for place in own.episodes if lane in name}


def ends(made: Allocator, hand: Hand, lane: str = "") -> None:
    """All that it has has ended."""
    hand.left = [Left(name, "solved", 1, 1) for name in names(made, hand.writer, lane)]


def begun(made: Allocator, *writers: str) -> list[Hand]:
    """Workers that have said hello, in this order."""
    for writer in writers:
        made.hello(writer, 0.0)
    return [Hand(writer) for writer in writers]


def anew(made: Allocator) -> list[str]:
    """Workers that are to begin anew."""
    made.refresh()
    return [member.writer for member in made.members.values() if member.leaving]


def test_what_a_dead_worker_had_goes_to_workers_that_begin_later_and_to_no_other() -> None:
    made = allocating(Deck())
    first, older = begun(made, "a", "b")
    mine = dealt(made, first)
    assert mine
    assert made.lost("a", [], None) == len(mine)
    for _ in range(3):
        ends(made, older)
        assert not dealt(made, older) & mine
    (younger,) = begun(made, "c")
    assert dealt(made, younger) & mine


def test_one_that_is_there_begins_anew_where_nobody_may_go_on_with_what_another_has_left() -> None:
    deck = Deck()
    made = allocating(deck, workers=2)
    first, other = begun(made, "a", "b")
    mine = dealt(made, first)
    dealt(made, other)
    assert anew(made) == [], "nobody has left anything"
    made.lost("a", [], None)
    assert anew(made) == ["b"]
    ends(made, other)
    assert told(made, other.ask(0.0)).finish
    made.bye("b")
    (younger,) = begun(made, "c")
    assert dealt(made, younger) & mine
    assert anew(made) == []


def test_a_lane_whose_seat_nobody_has_any_more_goes_to_one_that_begins_anew() -> None:
    made = allocating(Deck(), seats=1)
    first, second, _ = begun(made, "a", "b", "c")
    mine = dealt(made, first, "m")
    assert mine
    assert not dealt(made, second, "m")
    assert anew(made) == []
    made.lost("a", [], None)
    assert anew(made) == ["b"]
    made.bye("b")
    (younger,) = begun(made, "d")
    assert set() < dealt(made, younger, "m") <= mine
    idle = allocating(Deck(), seats=1)
    begun(idle, "a", "b")
    idle.bye("a")
    assert anew(idle) == ["b"], "nothing was left, and nobody plays what remains"


def test_a_lane_s_width_is_divided_among_the_workers_that_are_expected() -> None:
    made = allocating(Deck())
    widths = [made.hello(writer, 0.0).hands["m"].width for writer in ("a", "b", "c")]
    assert widths == [3, 3, 2]
    made.bye("b")
    assert made.hello("d", 0.0).hands["m"].width == 3


def test_few_episodes_play_in_all_until_one_has_acted() -> None:
    made = allocating(Deck(), trial=True)
    hands = begun(made, "a", "b")
    for hand in hands:
        report = hand.ask(0.0)
        report.lanes["m"] = structs.replace(report.lanes["m"], acted=False)
        hand.hear(told(made, report))
    assert [len(names(made, writer, "m")) for writer in ("a", "b")] == [3, 1]
    assert not told(made, structs.replace(hands[0].ask(0.0), lanes={})).lanes["m"].acted
    assert told(made, hands[1].ask(0.0)).lanes["m"].acted


def test_what_was_given_back_unbegun_goes_to_anybody() -> None:
    made = allocating(Deck())
    first, other = begun(made, "a", "b")
    back = sorted(dealt(made, first))[:2]
    first.back = list(back)
    dealt(made, first)
    found = set[str]()
    for _ in range(6):
        found |= dealt(made, other)
        ends(made, other)
    assert set(back) <= found | names(made, "a")


def test_an_episode_counts_for_the_worker_that_has_it_alone() -> None:
    """What a worker says of an episode that it has given back, or that another one has now, is not heard."""
    deck = Deck()
    made = allocating(deck)
    first, other = begun(made, "a", "b")
    mine = sorted(dealt(made, first))
    made.stop = "test", ""
    first.back = mine
    dealt(made, first)
    made.stop = "", ""
    theirs = sorted(dealt(made, other) & set(mine))
    first.left = [Left(name, "solved", 1, 1) for name in mine]
    made.members["a"].leaving = True
    dealt(made, first)
    assert not deck.ended
    other.left = [Left(theirs[0], "solved", 1, 1)]
    dealt(made, other)
    assert deck.ended == {theirs[0]: 1}


def waiting_where(*, per_s: int, width: int) -> list[int]:
    """How many episodes of a model wait at a worker that ends so many a second, after each of its reports."""
    made = allocating(Deck(20_000), width=width)
    (hand,) = begun(made, "a")
    waiting = []
    for number in range(12):
        mine = list(made.members["a"].hands["m"].held)
        hand.left = [Left(name, "solved", 1, 1) for name in mine[: per_s // 2]]
        hand.hear(told(made, hand.ask(number / 2), number / 2))
        waiting.append(len(names(made, "a", "m")) - width // 3)
    return waiting


def test_as_many_episodes_wait_at_a_worker_as_it_plays_before_its_next_report() -> None:
    assert waiting_where(per_s=2, width=300)[-1] == 25, "few of them: a queue would hold back what others could play"
    assert waiting_where(per_s=100, width=300)[-1] == 80
    assert max(waiting_where(per_s=1000, width=300)) == 128, "the most"
    assert max(waiting_where(per_s=1000, width=30)) == 20, "the most of a narrow lane: twice what it plays at once"


def test_the_fewer_episodes_remain_the_fewer_wait_at_a_worker() -> None:
    deck = Deck(400)
    made = allocating(deck, width=300)
    (hand,) = begun(made, "a")
    while deck.remaining("m"):
        dealt(made, hand, "m")
        assert len(names(made, "a", "m")) <= 100 + max(0, deck.remaining("m") + 25) // 12 + 1
        hand.left = [Left(name, "solved", 1, 1) for name in list(made.members["a"].hands["m"].held)[:20]]
