"""The coordinator with workers that are only numbers: answers lost, workers that die at any moment."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from evalkit.engine.machines.coordinator import Coordinator
from evalkit.engine.machines.dealt import Dealt, DealtLane
from evalkit.engine.machines.leases import Leases, Pot
from evalkit.engine.machines.messages import RUN, Directive, EpisodePlace, LaneReport, Left, Purse, Renew
from evalkit.engine.machines.shares import Capacity, Shares
from tests.support.examples import examples

LANES, EPISODES = ("m", "p"), 30
BOUND = 40
SCOPES = {RUN: (160, 40), "agent a": (110, 0)}
"""Budget and what was spent before: so little that workers wait for what others give back."""
LIMITS = {"requests lane m": 600.0, "in_flight lane m": 5.0}


class Deck:
    """Deals numbered episodes, and notes how each was left."""

    def __init__(self, episodes: int = EPISODES) -> None:
        self.waiting = {lane: [f"{lane}{number}" for number in range(episodes)] for lane in LANES}
        self.ended, self.unplayed_ = Counter[str](), Counter[str]()

    def deal(self, lane: str, most: int) -> list[Dealt]:
        names, self.waiting[lane] = self.waiting[lane][:most], self.waiting[lane][most:]
        return [Dealt(id=name, lane=lane, place=EpisodePlace("a", lane, int(name[1:]), 0)) for name in names]

    def remaining(self, lane: str) -> int:
        return len(self.waiting[lane])

    def over(self, lane: str) -> bool:
        return not self.waiting[lane]

    def left(self, episodes: Sequence[tuple[Dealt, Left]]) -> None:
        self.ended.update(dealt.id for dealt, _ in episodes)

    def unplayed(self, dealt: Dealt) -> None:
        self.unplayed_[dealt.id] += 1


@dataclass
class Hand:
    """A worker as the protocol sees it."""

    writer: str
    message: Renew | None = None
    """Asked, and not answered as far as it knows: it says nothing more then."""
    queues: dict[str, list[str]] = field(default_factory=lambda: {lane: [] for lane in LANES})
    playing: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    room: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    spent: int = 0
    over: int = 0
    reserved: int = 0
    returned: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
    waits: bool = False
    rates: dict[str, float] = field(default_factory=dict)
    share: int = 0
    until: float = 0.0
    asked_at: float = 0.0
    eager: bool = False
    """Whether its requests wait for limits."""

    def ask(self, now: float) -> Renew:
        """The question."""
        self.asked_at = now
        lack = BOUND if self.waits else 0
        self.message = Renew(
            writer=self.writer,
            share=self.share,
            lanes={
                lane: LaneReport(
                    playing=sum(name[0] == lane for name in self.playing),
                    queued=len(self.queues[lane]),
                    waiting=int(self.waits or self.eager),
                    largest=BOUND,
                    acted=True,
                )
                for lane in LANES
            },
            purses={
                scope: Purse(
                    self.spent,
                    self.reserved,
                    max(0, lack - self.room[scope]),
                    lack,
                    self.returned[scope],
                    self.over,
                )
                for scope in SCOPES
            },
            left=self.left,
            given_back=self.back,
        )
        self.left, self.back = [], []
        return self.message

    def hear(self, answer: Directive) -> None:
        """Do what the answer says."""
        self.message = None
        for scope, total in answer.leased.items():
            self.room[scope] += max(0, total - self.told[scope])
            self.told[scope] = max(total, self.told[scope])
        for scope, amount in answer.give_back.items():
            given = min(amount, self.room[scope])
            self.room[scope] -= given
            self.returned[scope] += given
        self.share, self.rates, self.until = answer.share, answer.rates, self.asked_at + answer.valid_s
        for lane, places in answer.blocks.items():
            self.queues[lane] += [f"{lane}{place.index}" for place in places]
        for lane, count in answer.recall.items():
            self.back += [self.queues[lane].pop() for _ in range(min(count, len(self.queues[lane])))]

    def reserve(self) -> None:
        """Ask for money for one request."""
        self.waits = any(self.room[scope] < BOUND for scope in SCOPES)
        if not self.waits:
            self.reserved += BOUND
            for scope in SCOPES:
                self.room[scope] -= BOUND

    def settle(self, cost: int) -> None:
        """One request was answered, perhaps above its bound."""
        if self.reserved:
            self.reserved -= BOUND
            self.spent += cost
            self.over += max(0, cost - BOUND - min(self.room.values()))
            for scope in SCOPES:
                self.room[scope] = max(0, self.room[scope] + BOUND - cost)


def coordinating(deck: Deck, *, elastic: bool = False, seats: int = 1 << 30, width: int = 8) -> Coordinator:
    """One of three workers, or of any number, with two lanes."""
    return Coordinator(
        [DealtLane(name="m", width=width, model=True, seats=seats), DealtLane(name="p", width=90, model=False)],
        deck,
        workers=1 if elastic else 3,
        elastic=elastic,
        shares=Shares(
            {name: Capacity(most=most, whole="in_flight" in name) for name, most in LIMITS.items()}, valid_s=15.0
        ),
        leases=Leases({scope: Pot(budget=budget, before=before) for scope, (budget, before) in SCOPES.items()}),
        limits={"requests lane m": ("requests", ("m",)), "in_flight lane m": ("in_flight", ("m",))},
    )


class Protocol(RuleBasedStateMachine):
    """Any order of events."""

    elastic = False

    def __init__(self) -> None:
        super().__init__()
        self.now, self.born, self.paid = 0.0, 0, 0
        self.deck, self.hands, self.orders = Deck(), dict[str, Hand](), dict[str, int]()
        self.graves: list[str] = []
        self.barred: dict[str, int] = {}
        """By episode of a dead worker: the first worker that may go on with it."""
        self.coordinator = coordinating(self.deck, elastic=self.elastic)

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
        self.coordinator.hello(writer, self.now)
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
        turn = self.coordinator.renew(hand.ask(self.now), self.now)
        if turn.returned:
            self.coordinator.leases.returned(hand.writer, turn.returned)
        if fate != "lost":
            hand.hear(turn.answer)

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
        told = hand.message.left if hand.message is not None else []
        found = [*told, *hand.left] if unreported else told
        held = self.coordinator.members[hand.writer].outstanding
        ended = [left for left in found if left.episode in held]
        for name in held.keys() - {left.episode for left in ended}:
            self.barred[name] = self.born
        self.paid += hand.spent + hand.reserved
        self.coordinator.lost(hand.writer, ended, hand.spent + hand.reserved)

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
        self.coordinator.stop_reason = "test"
        turn = self.coordinator.renew(hand.ask(self.now), self.now)
        self.coordinator.stop_reason = ""
        if turn.returned:
            self.coordinator.leases.returned(hand.writer, turn.returned)
        del self.hands[hand.writer]
        self.paid += hand.spent
        self.coordinator.bye(hand.writer)

    def _one(self, data: st.DataObject) -> Hand:
        return self.hands[data.draw(st.sampled_from(sorted(self.hands)))]

    @invariant()
    def money_is_within_the_budget(self) -> None:
        for scope, (budget, before) in SCOPES.items():
            in_hands = sum(hand.spent + hand.reserved + hand.room[scope] for hand in self.hands.values())
            assert before + self.paid + in_hands <= budget

    @invariant()
    def shares_are_within_the_limits(self) -> None:
        for name, most in LIMITS.items():
            used = [hand.rates.get(name, 0.0) for hand in self.hands.values() if self.now < hand.until]
            assert sum(used) <= most * (1 + 1e-9)

    @invariant()
    def each_episode_is_at_one_place_and_ends_once(self) -> None:
        members = self.coordinator.members.values()
        held = Counter(name for member in members for name in member.outstanding)
        assert all(count == 1 for count in (held + self.deck.ended).values())
        for hand in self.hands.values():
            mine = [name for queue in hand.queues.values() for name in queue] + hand.playing
            assert set(mine) <= self.coordinator.members[hand.writer].outstanding.keys()

    @invariant()
    def what_a_dead_worker_had_goes_to_younger_ones(self) -> None:
        for member in self.coordinator.members.values():
            assert all(self.barred.get(name, 0) <= self.orders[member.writer] for name in member.outstanding)


@pytest.mark.exhaustive
class ElasticProtocol(Protocol):
    """The same where workers come and go as they like, and begin anew to go on with what others have left."""

    elastic = True

    @rule()
    def look(self) -> None:
        self.coordinator.refresh()

    @precondition(lambda self: any(member.anew for member in self.coordinator.members.values()))
    @rule()
    def begin_anew(self) -> None:
        """The one that is told to stops what it plays, closes, and comes back."""
        writer = next(member.writer for member in self.coordinator.members.values() if member.anew)
        hand = self.hands[writer]
        if hand.message is not None:
            return
        while hand.reserved:
            hand.settle(1)
        hand.left += [Left(name, "stopped", 1, 1) for name in hand.playing]
        stopped, hand.playing = hand.playing, []
        hand.back += [name for queue in hand.queues.values() for name in queue]
        hand.queues = {lane: [] for lane in LANES}
        turn = self.coordinator.renew(structs.replace(hand.ask(self.now), leaving=True), self.now)
        assert turn.answer.leave
        assert not turn.answer.blocks
        if turn.returned:
            self.coordinator.leases.returned(writer, turn.returned)
        del self.hands[writer]
        self.paid += hand.spent
        for name in stopped:
            self.barred[name] = self.born
        self.coordinator.bye(writer)
        self.begin()

    @invariant()
    def no_more_episodes_of_a_model_are_played_than_its_lane_is_wide(self) -> None:
        assert sum(member.of_lane("m") for member in self.coordinator.members.values()) <= 8

    @invariant()
    def counts_are_those_of_what_is_there(self) -> None:
        for member in self.coordinator.members.values():
            for lane in LANES:
                assert member.of_lane(lane) == sum(dealt.lane == lane for dealt in member.outstanding.values())


TestProtocol = Protocol.TestCase
TestElasticProtocol = ElasticProtocol.TestCase
TestProtocol.settings = TestElasticProtocol.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None
)


def dealt(made: Coordinator, hand: Hand) -> set[str]:
    """Ask and hear once; the names of the episodes that came."""
    directive = made.renew(hand.ask(0.0), 0.0).answer
    hand.hear(directive)
    return {f"{lane}{place.index}" for lane, places in directive.blocks.items() for place in places}


def begun(made: Coordinator, *writers: str) -> list[Hand]:
    """Workers that have said hello, in this order."""
    for writer in writers:
        made.hello(writer, 0.0)
    return [Hand(writer) for writer in writers]


def test_what_a_dead_worker_had_goes_to_workers_that_begin_later_and_to_no_other() -> None:
    made = coordinating(Deck())
    first, older = begun(made, "a", "b")
    mine = dealt(made, first)
    assert mine
    assert made.lost("a", [], None) == len(mine)
    for _ in range(3):
        older.left = [Left(name, "solved", 1, 1) for name in made.members["b"].outstanding]
        assert not dealt(made, older) & mine
    (younger,) = begun(made, "c")
    assert dealt(made, younger) & mine


def test_one_that_is_there_begins_anew_where_nobody_may_go_on_with_what_another_has_left() -> None:
    deck = Deck()
    made = coordinating(deck, elastic=True)
    first, other = begun(made, "a", "b")
    mine = dealt(made, first)
    dealt(made, other)
    made.refresh()
    assert not any(member.anew for member in made.members.values()), "nobody has left anything"
    made.lost("a", [], None)
    made.refresh()
    playing = list(made.members["b"].outstanding)
    message = structs.replace(other.ask(0.0), leaving=True, left=[Left(name, "stopped", 1, 1) for name in playing])
    assert made.renew(message, 0.0).answer.leave
    assert not deck.ended, "what it has stopped has not ended"
    made.bye("b")
    (younger,) = begun(made, "c")
    assert dealt(made, younger) & (mine | set(playing))
    made.refresh()
    assert not made.members["c"].anew


def test_a_lane_that_one_worker_plays_goes_to_one_that_may_go_on_with_what_another_has_left() -> None:
    made = coordinating(Deck(), elastic=True, seats=1)
    first, _, _ = begun(made, "a", "b", "c")
    mine = {name for name in dealt(made, first) if name[0] == "m"}
    assert mine
    made.lost("a", [], None)
    made.refresh()
    assert made.members["b"].anew
    made.bye("b")
    (younger,) = begun(made, "d")
    assert {name for name in dealt(made, younger) if name[0] == "m"} == mine, "`c` has the seat, and may not have these"


def test_lanes_are_divided_by_the_workers_that_are_there() -> None:
    made = coordinating(Deck(), elastic=True)
    (first,) = begun(made, "a")
    assert sum(name[0] == "m" for name in dealt(made, first)) == 8
    (second,) = begun(made, "b")
    assert not any(name[0] == "m" for name in dealt(made, second)), "the lane is full"
    first.left = [Left(name, "solved", 1, 1) for name in made.members["a"].outstanding if name[0] == "m"]
    assert sum(name[0] == "m" for name in dealt(made, first)) == 4
    assert sum(name[0] == "m" for name in dealt(made, second)) == 4


def test_what_was_given_back_unbegun_goes_to_anybody() -> None:
    made = coordinating(Deck())
    first, other = begun(made, "a", "b")
    back = sorted(dealt(made, first))[:2]
    first.back = list(back)
    dealt(made, first)
    found = set[str]()
    for _ in range(6):
        found |= dealt(made, other)
        other.left = [Left(name, "solved", 1, 1) for name in made.members["b"].outstanding]
    assert set(back) <= found | made.members["a"].outstanding.keys()


def test_an_episode_counts_for_the_worker_that_has_it_alone() -> None:
    """What a worker says of an episode that it has given back, or that another one has now, is not heard."""
    deck = Deck()
    made = coordinating(deck)
    first, other = begun(made, "a", "b")
    mine = sorted(dealt(made, first))
    first.back = mine
    dealt(made, other)
    made.stop_reason = "test"
    dealt(made, first)
    made.stop_reason = ""
    made.members["b"].outstanding |= {name: Dealt(id=name, lane=name[0], place=PLACE) for name in mine[:1]}
    first.left = [Left(name, "solved", 1, 1) for name in mine]
    dealt(made, first)
    assert not deck.ended
    other.left = [Left(mine[0], "solved", 1, 1)]
    dealt(made, other)
    assert deck.ended == {mine[0]: 1}


def waiting_where(*, per_s: int, width: int) -> list[int]:
    """How many episodes of a model wait at a worker that ends so many a second, after each of its questions."""
    made = coordinating(Deck(20_000), width=width)
    (hand,) = begun(made, "a")
    waiting = []
    for number in range(12):
        mine = [name for name in made.members["a"].outstanding if name[0] == "m"]
        hand.left = [Left(name, "solved", 1, 1) for name in mine[: per_s // 2]]
        hand.hear(made.renew(hand.ask(number / 2), number / 2).answer)
        waiting.append(made.members["a"].of_lane("m") - width // 3)
    return waiting


def test_as_many_episodes_wait_at_a_worker_as_it_plays_before_its_next_question() -> None:
    assert waiting_where(per_s=2, width=300)[-1] == 16, "few of them: a queue would hold back what others could play"
    assert waiting_where(per_s=100, width=300)[-1] == 80
    assert max(waiting_where(per_s=1000, width=300)) == 128, "the most"
    assert max(waiting_where(per_s=1000, width=30)) == 20, "the most of a narrow lane: twice what it plays at once"


PLACE = EpisodePlace("a", "m", 0, 0)
