"""Which commands have a snapshot, and on which run: a reading command once as text and once as `--json`, on the run of
which it says something of its own. Not every command on every run."""

from collections.abc import Mapping

SCHEDULING = "scheduling/basic?periods=3"
VOIDED = "chat:scheduling/basic?periods=4:seed-3:0"

READERS: Mapping[str, Mapping[str, str]] = {
    "finished": {
        "status": "status runs/sweep",
        "status-json": "status runs/sweep --json",
        "budget": "status runs/sweep --money",
        "verify-json": "verify runs/sweep --json",
        "report": "report runs/sweep",
        "report-by-family": "report runs/sweep --by family",
        "report-beside-markdown": "report runs/sweep --beside paper --markdown",
        "report-beside-json": "report runs/sweep --beside paper --json",
        "compare": "compare runs/sweep --agents chat messages",
        "compare-runs": "compare runs/sweep:chat runs/sweep:gemini",
        "sql": "sql runs/sweep",
        "sql-json": "sql runs/sweep 'select agent, suite, sum(tokens_in) as tokens, sum(usd) as usd from steps "
        "group by all order by all' --json",
        "sql-text": "sql runs/sweep 'select agent, tool, outcome, count(*) as n from calls group by all order by all'",
        "sql-csv": "sql runs/sweep 'select episode, agent, suite, instance, replicate, ending, steps, "
        "round(score, 9) as score, solved, used, cost from episodes order by all' --csv",
        "plan": "plan sweep.toml",
        "plan-json": "plan sweep.toml --json",
        "show": "show runs/sweep",
        "show-many": "show runs/sweep 0",
        "show-scheduling": f"show runs/sweep 'chat:{SCHEDULING}:seed-0:0'",
        "show-procurement": "show runs/sweep 'messages:procurement/basic?periods=3:seed-3:1'",
        "show-pricing": "show runs/sweep 'messages:pricing/basic?periods=4:seed-0:0' --period 2",
        "show-costbench": "show runs/sweep 'chat:costbench/basic?block=cost_change:dining-0004:1'",
        "show-full": "show runs/sweep 'gemini:costbench/basic?block=none:dining-0004:0' --full",
    },
    "killed": {
        "status": "status runs/sweep",
        "budget": "status runs/sweep --money",
        "budget-json": "status runs/sweep --money --json",
        "verify": "verify runs/sweep",
        "report": "report runs/sweep",
        "plan-json": "plan sweep.toml --json",
        "sql-ledger": "sql runs/sweep 'select kind, lane, count(*) as n, sum(amount) as amount from ledger "
        "group by all order by all' --csv",
    },
    "faulty": {
        "status": "status runs/sweep",
        "budget": "status runs/sweep --money",
        "verify": "verify runs/sweep",
        "report-latex": "report runs/sweep --latex",
        "report": "report runs/sweep",
        "report-quotes": "report runs/sweep --quotes",
        "show-void": f"show runs/sweep '{VOIDED}'",
        "sql-log": "sql runs/sweep 'select agent, take, attempts, count(*) as n from log "
        "group by all order by all' --csv",
    },
    "policies": {
        "budget": "status runs/sweep --money",
        "ls": "ls",
        "ls-json": "ls --json",
        "report-table": "report --table scores",
        "verify": "verify runs/sweep",
        "report-markdown": "report runs/sweep --markdown",
        "report-quotes-json": "report runs/sweep --quotes --json",
        "compare-json": "compare runs/sweep --agents noisy random --json",
        "show-oracle": "show runs/sweep 'oracle:pricing/basic?periods=4:seed-1:1'",
    },
    "judged": {
        "report-json": "report runs/sweep --judged runs/sweep-judge --json",
        "judge-status": "status runs/sweep-judge",
        "judge-report": "report runs/sweep-judge",
        "judge-show": "show runs/sweep-judge 0",
    },
    "nightly": {
        "look": "nightly sweep.toml --look",
        "look-json": "nightly sweep.toml --look --json",
        "night-status": "status runs/sweep/nights/2026-11-04",
        "night-report": "report runs/sweep/nights/2026-11-02 --markdown",
        "nights-compare": "compare runs/sweep/nights/2026-11-03:watched runs/sweep/nights/2026-11-04:watched",
    },
}
"""By run and name; all of a run on one copy, since they only read."""

FOR_THEIR_KEYS = (
    "report runs/sweep --by open,proprietary --json",
    "report runs/sweep --json",
    "compare runs/sweep:chat runs/sweep:gemini --json",
)
"""Asked of `finished`: large, and text snapshots hold the numbers. Their keys are kept."""

WRITERS: Mapping[str, tuple[str, ...]] = {
    "finished/chats": (
        f"export runs/sweep --format jsonl --out chats.jsonl --only 'agent=messages,suite={SCHEDULING}'",
    ),
    "finished/reconcile": (
        "tools reconcile runs/sweep --lane chat/noisy --spent 0.1",
        "tools reconcile runs/sweep --spent 0.2",
        "status runs/sweep --money --json",
    ),
    "faulty/reconcile": (
        "tools reconcile runs/sweep --spent much",
        "tools reconcile runs/sweep --spent 0.2",
        "status runs/sweep --money --json",
    ),
    "faulty/void": (
        f"tools void runs/sweep --episode '{VOIDED}' --undo --reason 'it was whole'",
        "tools void runs/sweep --only 'agent=gemini,suite=scheduling/basic?periods=4' --reason 'wrong key until noon'",
        "tools void runs/sweep --only agent=nobody --reason none",
        "sql runs/sweep 'select agent, void, count(*) as n from episodes group by all order by all'",
    ),
    "policies/extend": (
        "run sweep.toml --only agent=knuth --json",
        "run sweep.toml --name fresh --only agent=knuth,suite=scheduling/basic",
        "compare runs/sweep:knuth runs/fresh:knuth",
    ),
    "policies/sheets": ("report runs/sweep --csv sheets", "export runs/sweep --format csv --out out"),
    "nightly/rebuild": ("nightly sweep.toml --rebuild", "nightly sweep.toml --look --json"),
    "nightly/accept": (
        "nightly sweep.toml --accept agent=watched",
        "nightly sweep.toml --accept all",
        "nightly sweep.toml --look",
        "nightly sweep.toml --accept agent=nobody",
    ),
}
"""By run and name: commands one after the other, on a copy of their own. What they write as chats is in the snapshot,
and of each table its head."""

ALONE = {
    "no-command": "",
    "help": "--help",
    "prompts-list": "tools prompts list",
    "providers": "providers",
    "providers-one": "providers anthropic",
    "describe-scheduling": "suites describe scheduling/basic",
    "describe-procurement": "suites describe procurement/medium --json",
    "describe-pricing": "suites describe pricing/hard --json",
    "describe-costbench": "suites describe costbench/basic --json",
    "plan-quick": "plan quick.toml",
    "plan-quick-json": "plan quick.toml --json",
    "refused-command": "reprot runs/sweep",
    "refused-option": "report runs/sweep --jsno",
    "refused-run": "report runs/nothing",
    "refused-no-run": "status .",
    "refused-episode": "show runs/sweep nobody:scheduling/basic:seed-0:0",
    "refused-period": "show runs/sweep 'oracle:pricing/basic?periods=4:seed-1:1' --period 99",
    "refused-agents": "compare runs/sweep --agents knuth kunth",
    "refused-compare": "compare runs/sweep",
    "refused-sql": "sql runs/sweep 'select nothing from nowhere'",
    "refused-only": "run sweep.toml --only agent=kunth",
    "refused-limit": "run sweep.toml --limit 0",
    "refused-budget": "run sweep.toml --budget much",
    "refused-sweep": "run nothing.toml",
    "refused-date": "nightly sweep.toml --date 2026-13-01",
    "refused-suite": "suites describe scheduling/basics",
    "refused-provider": "providers opnai",
    "refused-agent": "run unknown-agent.toml",
    "refused-key": "run unknown-key.toml",
    "refused-toml": "run torn.toml",
    "refused-twice": "run twice.toml",
    "refused-other": "run other.toml --dir runs/sweep",
    "refused-out": "export runs/sweep --format jsonl --out sweep.toml",
    "refused-void": "tools void runs/sweep --reason none",
    "refused-import": "tools prompts import nowhere --out pack.toml",
    "refused-generate": "suites generate scheduling --n many --out new.jsonl",
    "refused-judge": "tools judge runs/sweep --model chat/clerk",
    "refused-archive": "export runs/nothing --format archive --out archive.zip",
}
"""By name: commands that need no run, and refusals, beside a copy of the run `policies` and the specs below."""

SUITE = '[[suites]]\nname = "scheduling/basic"\n'
SHORT_SUITE = f'{SUITE}instances = ["seed-0"]\nvary = {{ periods = [3] }}\n'
KNUTH = '[[agents]]\npolicy = "knuth"\n'

SPECS = {
    "quick.toml": '[[agents]]\nprovider = "simulated"\nmodel = "knuth"\n'
    f'[[agents]]\nname = "mini"\nprovider = "openai"\nmodel = "gpt-4.1-mini"\n{SHORT_SUITE}',
    "unknown-agent.toml": f'[[agents]]\npolicy = "kunth"\n{SUITE}',
    "unknown-key.toml": f"replicate = 2\n{KNUTH}{SUITE}",
    "torn.toml": '[[agents]]\npolicy = "knuth\n',
    "twice.toml": f'{KNUTH}[[agents]]\nname = "again"\npolicy = "knuth"\n{SUITE}',
    "other.toml": f'[[agents]]\nname = "knuth"\npolicy = "random"\n{SHORT_SUITE}',
}
"""Specs that `ALONE` names, by file name."""

AFTER_DAMAGE = (
    "verify runs/sweep",
    "status runs/sweep",
    "report runs/sweep --quotes",
    "sql runs/sweep 'select count(*) as n from episodes'",
    "run sweep.toml --json",
    "run sweep.toml --json --repair",
    "verify runs/sweep",
)
"""What a damaged run of policies is asked, in this order."""

AFTER_DAMAGE_AND_KILL = ("verify runs/sweep", "status runs/sweep", "status runs/sweep --money", "plan sweep.toml")
"""The same of a killed run, which only a provider could repair (`tests/engine/test_resume.py`)."""
