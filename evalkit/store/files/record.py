"""The rows of a run: one per step, and one for each movement of money that is not a step.

`schema.py` holds the same as Arrow columns; a test compares the two.
"""

from dataclasses import dataclass

from evalkit.money import PicoUsd

OK, UNMETERED, DOUBTFUL = "ok", "unmetered", "doubtful"
"""The last entry of `StepRecord.attempts` if there was a reply: with stated usage; with missing or invalid figures,
charged at their bound; with figures that contradict each other, of which the larger reading is charged."""
STEP, ASK, CUT = "step", "ask", "cut"
"""Kinds of rows in a file of steps: a step; a request that an agent's code made on its way to one; what a repair says:
the episode's rows of lower takes are void from this step on, since one of them is lost."""
ANSWERED = (OK, UNMETERED, DOUBTFUL)
REFUSED = "refused"
"""In place of an ending: the provider refused the last request, and nothing shows that the model caused it."""
UNSCORED = frozenset(
    {REFUSED, "unavailable", "too_large", "internal_error", "budget", "deadline", "stopped", "lane", "storage"},
)
"""In place of an ending: words that say nothing of the agent. The episode has no score and remains to be played. The
engine logs `refused` alone of them, so that a run knows which episodes were refused."""


# The only record that is not frozen: with so many fields freezing costs 3 us, as much as converting the row to columns.
@dataclass(slots=True, kw_only=True)
class StepRecord:
    """One turn of one episode with its outcome: the unit of checkpoint, resume and billing. It is never changed.

    Fields with a default come from a reply: an ending without a reply leaves them out.
    """

    episode: str
    """Digest of instance, agent, replicate and environment version; the same after every resume."""
    environment: str
    suite: str
    """The suite's name; after `?` the parameters that the sweep varied, such as `k=2&n=20`."""
    instance: str
    """The instance's id within its suite."""
    agent: str
    replicate: int
    take: int
    """0, and one more each time the episode was retried, on request or since it was refused. A later take replaces
    earlier rows from its first step on."""
    step: int
    """Place in the episode, from 0, without gaps."""
    period: int
    turn: int
    """Place in the period's chat, from 0."""
    reply: bytes | None = None
    """The reply as canonical JSON (`replies.py`), including its opaque part; None if an ending came without one."""
    raw: bytes | None = None
    """The body as received, kept only if a strict JSON parser refused it. Of a refused request: what the provider said
    of it, as text."""
    facts: bytes
    """The observation's facts as JSON."""
    observation_digest: bytes
    """First 16 bytes of SHA-256 of the texts the agent read as a consequence."""
    request_digest: bytes
    """Chained digest (16 bytes) of everything the model had been sent when it answered."""
    step_digest: bytes
    """Digest (16 bytes) over request digest, reply, facts and observation digest: covers the row."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached_read: int = 0
    tokens_cached_write: int = 0
    tokens_reasoning: int = 0
    cost: PicoUsd = PicoUsd(0)  # noqa: RUF009 - a number
    """Price of the reply at the run's frozen rates, in 1e-12 USD. Failed attempts are in the ledger."""
    latency_s: float = 0.0
    """Seconds from first byte sent to last byte received, of the attempt that succeeded."""
    queue_s: float = 0.0
    """Seconds spent waiting for the lane's limits, all attempts together."""
    attempts: str
    """Outcomes of all attempts in order, joined by commas: `rate_limit,ok`; `ok` alone in the good case."""
    started_at: float
    """Wall time when the first attempt was sent, seconds since 1970."""
    served_model: str = ""
    fingerprint: str = ""
    response_id: str = ""
    finish: str = ""
    ending: str = ""
    """Why the episode ended with this step, or one of `UNSCORED`; empty while it continues."""
    worker: str
    """The process that wrote the row: host and pid."""
    tier: str = ""
    """The tier by which the reply was served: `standard`, `flex`, `priority`, or the provider's word; empty if it named
    none."""
    saved: int = 0
    """What the reply would have cost more by the standard tier, in 1e-12 USD; less than 0 of a dearer tier."""
    row_kind: str = STEP
    """`step`, `ask` or `cut`."""
    base_take: int = 0
    """The take in which the episode began, as seeds are derived from it. An ask belongs to the steps with the same."""
    ask_key: str = ""
    """Of an ask: the fork that asked, nested by `/`; empty for the agent itself."""
    ask_n: int = 0
    """Of an ask: its place among those of its key within the step. Of a step: the asks that were made for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A movement of money that is not a step."""

    kind: str
    """`open`: a session began. `lease`: set aside before it may be spent. `charge`: an attempt whose true cost is
    unknown, at its worst case. `close`: a session ended, having spent so much. `crash`: the open leases of a session
    that did not. `release`: a charge taken back."""
    session: str
    """The process that wrote it, as one session of the run."""
    amount: PicoUsd
    lane: str = ""
    agent: str = ""
    episode: str = ""
    step: int = -1
    attempt: int = -1
    reason: str = ""
    at: float = 0.0
    """Wall time, seconds since 1970."""
