"""The policies that play scheduling, by name.

It shows what a perfect score looks like, and that the environment gives it to optimal actions.
"""

import re
from collections.abc import Mapping, Sequence

from evalkit.dialogue import Reply, Request
from evalkit.envs.scheduling.instance import SchedulingInstance, market_of
from evalkit.envs.scheduling.market import stable_matching
from evalkit.policy import noisy
from evalkit.policy.conversation import Policy, PolicyFn, acting, asking, ids_in, offered, results
from evalkit.policy.market_reading import unescaped
from evalkit.seeds import Stream

# Baselines for scheduling: random assignments, and the repair of one reported problem at a time.
#
# Source: the naive heuristic of the EconAgentBench paper (after Knuth's question whether random repairs reach a
# stable matching): submit, pick one shown blocking pair at random, give the task to the worker and the worker's old
# task to the task's old worker, and again.
#
# The texts are not ours: a prompt pack may word them again. So only what every wording must hold is read: the last
# mapping of quoted ids in the history is the last assignment, and of each line after it the first four ids that it
# knows are w, mu(w), w', t for a worker w who would rather have t, which w' holds. A line whose ids contradict the
# assignment is not a problem.

ACTION = "submit_assignment"
HISTORY = "get_previous_attempts_data"
WORKERS = "get_worker_ids"
TASKS = "get_task_ids"

Assignment = dict[str, str]

_ENTRY = re.compile(r"""['"]([^'"\\{}]+)['"]\s*:\s*['"]([^'"\\{}]+)['"]""")
_WORD = re.compile(r"[\w-]+")
_MOST_BRACES_TRIED = 50


def plays(request: Request) -> bool:
    """Whether the tools offered are scheduling's: the action tool and the list of tasks, or at last the action alone.

    An environment of a package may have an action of the same name.
    """
    return offered(request, ACTION) is not None and (offered(request, TASKS) is not None or len(request.tools) == 1)


def random(request: Request, draws: Stream) -> Reply:
    """A uniformly random assignment in every period."""
    known = results(request)
    question = asking(request, known, (WORKERS, TASKS))
    return question or submit(request, _shuffled(*_ids(known), draws))


def knuth(request: Request, draws: Stream) -> Reply:
    """The identity in listed order at first; later, a repair of one random reported problem of the last assignment.

    Two turns a period: ids and history in one reply (nothing in an opening says which period it is), then the action.
    Where the history shows an assignment but no problem that can be read, it is submitted again; where no
    assignment can be read although something is there, a random one is.
    """
    known = results(request)
    question = asking(request, known, (WORKERS, TASKS, HISTORY))
    if question:
        return question
    workers, tasks = _ids(known)
    histories = known.get(HISTORY, [])
    # Asked twice, the tool may say the second time that it has answered already.
    last, problems = next(filter(None, map(_readable, reversed(histories))), ({}, []))
    if _complete(last, workers, tasks):
        if problems:
            worker, task = problems[draws.below(len(problems))]
            last = repair(last, worker, task)
        return submit(request, last)
    # A brace within is an attempt, however it is written; the first character may be the repr's own.
    if any("{" in text.lstrip()[1:] for text in histories):
        return submit(request, _shuffled(workers, tasks, draws))
    return submit(request, dict(zip(workers, tasks, strict=False)))


def repair(assignment: Mapping[str, str], worker: str, task: str) -> Assignment:
    """The assignment with `task` given to `worker`, and the worker's old task to the task's old worker."""
    holder = next(other for other, assigned in assignment.items() if assigned == task)
    return {**assignment, holder: assignment[worker], worker: task}


def submit(request: Request, assignment: Mapping[str, str]) -> Reply:
    """The reply that submits an assignment, in the form the offered action tool asks for."""
    return acting(request, ACTION, assignment)


def read_history(text: str) -> tuple[Assignment, list[tuple[str, str]]]:
    """The last assignment a history shows, and the (worker, task) pairs reported for it, in order.

    The text may be plain or the repr (or JSON) of a one-key mapping, whose newlines and quotes are escaped. Both parts
    are empty if nothing can be read.
    """
    end = len(text)
    for _ in range(_MOST_BRACES_TRIED):
        start = text.rfind("{", 0, end)
        if start < 0:
            break
        tail = unescaped(text[start:])
        inside, closed, behind = tail.partition("}")
        assignment = dict(_ENTRY.findall(inside)) if closed else {}
        if assignment:
            return assignment, _problems(assignment, behind)
        end = start
    return {}, []


def _readable(text: str) -> tuple[Assignment, list[tuple[str, str]]] | None:
    history = read_history(text)
    return history if history[0] else None


def _problems(assignment: Assignment, text: str) -> list[tuple[str, str]]:
    ids = assignment.keys() | set(assignment.values())
    pairs = []
    for line in text.splitlines():
        named = [word for word in _WORD.findall(line) if word in ids][:4]
        if len(named) < 4:
            continue
        worker, current, other, task = named
        if worker != other and assignment.get(worker) == current and assignment.get(other) == task:
            pairs.append((worker, task))
    return pairs


def _ids(known: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    workers, tasks = (next(filter(None, map(ids_in, known.get(name, ()))), []) for name in (WORKERS, TASKS))
    return workers, tasks


def _complete(assignment: Mapping[str, str], workers: Sequence[str], tasks: Sequence[str]) -> bool:
    """Whether every worker has a task of its own; where no ids are known, whether no task is given twice."""
    given = sorted(assignment.values())
    if workers and tasks:
        return sorted(assignment) == sorted(workers) and given == sorted(tasks)
    return bool(assignment) and len(set(given)) == len(given)


def _shuffled(workers: Sequence[str], tasks: Sequence[str], draws: Stream) -> Assignment:
    return {worker: tasks[i] for worker, i in zip(workers, draws.permutation(len(tasks)), strict=False)}


# The mistakes that are made in scheduling: those of an action that is one assignment, and those of all periods.


def _duplicate(moment: noisy.Moment) -> Reply:
    """The action with one value given twice."""

    def damage(value: dict[object, object]) -> None:
        keys = list(value)
        value[keys[0]] = value[keys[-1]]

    return noisy.damaged(moment.good, damage)


_unknown_ids = noisy.changed(lambda value: value.update({"X99": "Y99"}))
"""The action with one key and one value that nobody has."""


MISTAKES = noisy.in_periods(
    "I should first think about who suits what best. Let me do that.",
    [
        "give everybody what they like best",
        "```python\n{}\n```",
        "{W1: T1}",
        "{'W1': 1 + }",
        "['W1', 'T1']",
        "{['W1']: 'T1'}",
    ],
    (
        (0.03, noisy.partial),
        (0.03, _duplicate),
        (0.03, _unknown_ids),
    ),
    "{'W1': {}}",
    late=0.04,
    odd=0.03,
    notes=0.05,
)
"""Each mistake with its probability a reply; what remains to 1 is the reply as it should be."""


def oracle(instance: SchedulingInstance) -> PolicyFn:
    """Submits the worker-optimal stable matching, without a question. The matching is computed at the first request."""
    matching: Sequence[int] = ()

    def reply(request: Request, draws: Stream) -> Reply:
        nonlocal matching
        del draws
        market, _ = market_of(instance)
        matching = matching or stable_matching(market)
        tasks = market.tasks
        return submit(request, {worker: tasks[t] for worker, t in zip(market.workers, matching, strict=True)})

    return reply


def _policy(about: str, reply: PolicyFn) -> Policy:
    return Policy(help=about, reply=reply, recognises=plays, acts_with=ACTION)


POLICIES: Mapping[str, Policy] = {
    "random": _policy("a random valid action in every period", random),
    "knuth": _policy("repairs one random reported blocking pair per period (the paper's heuristic)", knuth),
    "noisy": _policy("a knuth that makes every kind of mistake a model makes", noisy.noisy(knuth, MISTAKES)),
    "oracle": Policy(help="reads the instance and takes the best actions from the start", oracle=oracle),
}
