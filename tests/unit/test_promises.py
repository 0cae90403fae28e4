"""The promises, held by the real loop and a real database whatever people, machines and schedulers do to them.

`Promises` makes nights of everything at once; what must hold is judged from outside after every turn, in
tests/promises.py.
What it met of the tables of states is printed with --hypothesis-show-statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from promises import FATES, OPERATOR, STARTS, World

from scheduler.clock import stamp
from scheduler.model.host import Asked, Progressed, Replied
from scheduler.model.outcome import Outcome
from scheduler.store import breakers, operator, queue, wishes, workers

SLUGS = ("a", "a", "b", "b", "c", "a:v", "d")
MET: Counter[str] = Counter()
"""Every cell of the tables of states that was met in this process."""

WISHES: list[dict[str, Any]] = [
    {}, {}, {}, {"priority": 1}, {"timeout_s": 4.0}, {"timeout_s": 30.0}, {"on_lost": "hold"}, {"on_lost": "fail"},
    {"state": "held"}, {"begin": 20.0}, {"revision": "r2"}, {"max_attempts": 3},
    {"retry_on": "timed_out,error,crashed"}, {"after": ["last"]}, {"after": ["1", "last:any"]},
    {"after": ["2"], "on_parent": "hold"}, {"after": ["last"], "state": "held"},
]  # fmt: skip
MACHINE = (
    "shrink", "stranger", "unknown stranger", "capacity", "live", "no_processes", "dark", "unread", "disk_full",
    "absent",
    "well", "well", "well", "well",
)  # fmt: skip
PROVIDER = ("remove", "revision", "budget", "uninstall", "broken", "mute", "well", "well", "well")
LEAVE = (Asked("restart"), Asked("down"), Asked("down", now=True))

some = st.integers(0, 30)
"""Which of the jobs or workers that there are."""

moments = st.sampled_from(["", "", "parked", "starting", "ready", "busy", "busy"])
"""What kind of worker there is when it happens, if one comes so soon."""

turns = st.integers(0, 3)
"""How many turns the scheduler has before the next thing happens."""


STEPS: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []
NEED: set[str] = set()


def step(*, needs: bool = False, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Something that may happen, with what is drawn for it. `needs`: only while a scheduler runs.

    Not rules of their own: of those each night has some only, and it is what comes together that breaks.
    """

    def kept(happens: Callable[..., None]) -> Callable[..., None]:
        STEPS.append(st.tuples(st.just(happens.__name__), st.fixed_dictionaries(more)))
        if needs:
            NEED.add(happens.__name__)
        return happens

    return kept


class Promises(RuleBasedStateMachine):
    """What a queue may live through in one night, in any order."""

    world: World

    @initialize(cards=st.booleans(), fates=st.lists(st.sampled_from(FATES), max_size=2))
    def begin(self, cards: bool, fates: list[str]) -> None:
        self.world = World(cards)
        self.world.submit("a", tuple(fates))
        self.world.submit("b")
        self.world.up()

    @property
    def runs(self) -> bool:
        """Whether a scheduler runs."""
        return self.world.loop is not None

    def at(self) -> str:
        return stamp(self.world.clock.now_s())

    def go_on(self, heard: bool, turns: int) -> None:
        """The scheduler, if there is one, hears of it or not, and has some turns."""
        if heard:
            self.world.nudge()
        self.world.work(turns)

    # Time

    @step(turns=st.integers(1, 12))
    def work(self, turns: int) -> None:
        self.world.work(turns)

    @step(turns=st.integers(8, 24))
    def work_long(self, turns: int) -> None:
        self.world.work(turns)

    @step(for_s=st.sampled_from([0.01, 1.0, 8.0, 30.0, 70.0, 700.0]))
    def sleep(self, for_s: float) -> None:
        self.world.sleep(for_s)

    # Jobs

    @step(
        slug=st.sampled_from(SLUGS), fates=st.lists(st.sampled_from(FATES), max_size=2),
        run_s=st.sampled_from([0.5, 5.0, 60.0]), more=st.sampled_from(WISHES), heard=st.booleans(), turns=turns,
    )  # fmt: skip
    def submit(self, slug: str, fates: list[str], run_s: float, more: dict[str, Any], heard: bool, turns: int) -> None:
        if "begin" in more:
            more = {"blocked": "begin", "not_before_at": stamp(self.world.clock.now_s() + more["begin"])}
        self.world.submit(slug, tuple(fates), run_s, **more)
        self.go_on(heard, turns)

    @step(slugs=st.lists(st.sampled_from(SLUGS), min_size=2, max_size=4), run_s=st.sampled_from([0.5, 20.0]))
    def submit_several(self, slugs: list[str], run_s: float) -> None:
        for slug in slugs:
            self.world.submit(slug, run_s=run_s)
        self.go_on(True, 2)

    @step(
        moment=moments,
        word=st.sampled_from([*sorted(OPERATOR), "release", "priority"]),
        which=some,
        heard=st.booleans(),
        turns=turns,
    )
    def ask_of_a_job(self, moment: str, word: str, which: int, heard: bool, turns: int) -> None:
        self.world.until(moment)
        job_id = self.world.chosen(word, which)
        if word != "priority":
            self.world.ask(word, job_id)
        elif self.world.state(job_id) in operator.WAITING:
            with self.world.desk.write() as tx:
                operator.update(tx, job_id, self.at(), {"priority": which % 3})
        self.go_on(heard, turns)

    @step(word=st.sampled_from(["pause", "drain", "resume", "resume"]), turns=turns)
    def ask_of_the_queue(self, word: str, turns: int) -> None:
        with self.world.desk.write() as tx:
            if word == "resume":
                queue.resume(tx)
            else:
                {"pause": queue.pause, "drain": queue.drain}[word](tx, self.at())
        self.go_on(True, turns)

    # Workers

    @step(
        moment=moments,
        what=st.sampled_from(["retire", "retire idle", "pin", "unpin", "unpin"]),
        which=some,
        turns=turns,
    )
    def ask_of_a_worker(self, moment: str, what: str, which: int, turns: int) -> None:
        self.world.until(moment)
        with self.world.desk.write() as tx:
            living = workers.live(tx)
            if not living:
                return
            worker = living[which % len(living)]
            if what.startswith("retire"):
                workers.ask_to_retire(tx, worker.id, "ann asked for it", idle=what == "retire idle")
            else:
                workers.pin(tx, worker.id, pinned=what == "pin")
        self.go_on(True, turns)

    @step(slug=st.sampled_from(SLUGS[:-1]), what=st.sampled_from(["warm", "pin", "no longer", "reset"]), turns=turns)
    def want_a_worker(self, slug: str, what: str, turns: int) -> None:
        name, _, variant = slug.partition(":")
        with self.world.desk.write() as tx:
            if what == "reset":
                breakers.put(tx, name, None)
            elif what == "no longer":
                wishes.take_back(tx, name, variant)
            else:
                wishes.put(tx, name, variant, self.at(), "ann", pinned=what == "pin")
        self.go_on(True, turns)

    @step(fates=st.lists(st.sampled_from(STARTS), min_size=1, max_size=3), turns=turns)
    def let_starts_fail(self, fates: list[str], turns: int) -> None:
        self.world.yard.coming[:] = fates
        self.go_on(False, turns)

    @step(moment=moments, which=some, how=st.sampled_from([9, 9, 15, 11]), turns=turns)
    def kill_a_worker(self, moment: str, which: int, how: int, turns: int) -> None:
        self.world.until(moment)
        living = sorted(self.world.yard.alive)
        if living:
            self.world.yard.kill(living[which % len(living)], how)
        self.go_on(False, turns)

    @step(stops_s=st.sampled_from([0.0, 3.0, 200.0]), returns_s=st.sampled_from([0.0, 4.0, 90.0]))
    def let_ends_take_their_time(self, stops_s: float, returns_s: float) -> None:
        self.world.yard.stops_s, self.world.yard.returns_s = stops_s, returns_s

    @step(needs=True, moment=moments, what=st.sampled_from(["progress", "answer", "reply", "reply"]), which=some)
    def hear_of_a_worker(self, moment: str, what: str, which: int) -> None:
        """A sign of life, or what was said before, said again."""
        self.world.until(moment)
        yard = self.world.yard
        over = {key: ran for key, ran in yard.ledger.items() if ran.over}
        if what == "progress" and yard.at_work:
            task = yard.at_work[sorted(yard.at_work)[which % len(yard.at_work)]]
            yard.ledger[task.job_id, task.attempt].alive_s = self.world.clock.elapsed_s
            yard.after(0.0, Progressed(task.worker_id, task.job_id, task.attempt, 1.0, 3.0, "a third"))
        elif what == "answer" and yard.answers:
            yard.after(0.0, yard.answers[sorted(yard.answers)[which % len(yard.answers)]])
        elif what == "reply" and over:
            on = {(task.worker_id, task.job_id) for task in yard.at_work.values()}
            told = [key for key, ran in over.items() if any(ran.worker_id == w or key[0] == j for w, j in on)]
            key = sorted(told or over)[which % len(told or over)]
            outcome = Outcome(("ok", "error", "cancelled")[which % 3], "again")
            yard.after(0.0, Replied(over[key].worker_id, *key, outcome, b'{"stale": true}'))
        self.go_on(False, 1)

    # The machine

    @step(moment=moments, what=st.sampled_from(MACHINE), which=some, turns=turns)
    def change_the_machine(self, moment: str, what: str, which: int, turns: int) -> None:
        self.world.until(moment)
        yard = self.world.yard
        pool = sorted(yard.pools)[which % len(yard.pools)]
        if what == "shrink":
            yard.shrunk[pool] = 0.6
        elif what in ("stranger", "unknown stranger"):
            yard.strangers[500 + which] = (pool, 6.0 if what == "stranger" else None)
        elif what in ("capacity", "live"):
            yard.blind[pool] = what
        elif what == "absent" and pool.startswith("device"):
            yard.absent.add(pool)
        elif what in ("no_processes", "dark", "unread", "disk_full"):
            setattr(yard, what, True)
        elif what == "well":
            self.world.heal_machine()
        self.go_on(False, turns)

    @step(moment=moments, what=st.sampled_from(PROVIDER), which=some, turns=turns)
    def change_a_provider(self, moment: str, what: str, which: int, turns: int) -> None:
        self.world.until(moment)
        yard = self.world.yard
        keys = sorted(yard.catalog)
        key = keys[which % len(keys)] if keys else ("", "")
        each = yard.catalog.get(key)
        if what == "well" or each is None:
            self.world.heal_providers()
        elif what == "remove":
            del yard.catalog[key]
        elif what == "revision":
            yard.catalog[key] = replace(each, revision="r2")
        elif what == "budget":
            yard.catalog[key] = replace(each, ram_gib=each.ram_gib + 2.0)
        elif what == "uninstall":
            yard.catalog[key] = replace(each, installed=False, not_installed_text="its environment is not there")
        elif what == "broken":
            yard.catalog[key] = replace(each, revision="", installed=False, not_installed_text="its manifest is broken")
        elif what == "mute":
            yard.mute = True
        self.go_on(False, turns)

    # Schedulers

    @step(needs=True,
        moment=moments,
        where=st.sampled_from(["", "store.write", "tick.committed", "deed", "deed"]), after=st.integers(0, 3),
        away_s=st.sampled_from([0.0, 0.0, 3.0, 30.0, -1.0]), again=st.sampled_from([-1, -1, 0, 1]),
    )  # fmt: skip
    def kill_the_scheduler(self, moment: str, where: str, after: int, away_s: float, again: int) -> None:
        """At any point of a turn; the next one comes `away_s` later, or not yet, and may die of a write of its own."""
        self.world.until(moment)
        if not self.runs:
            return
        self.world.die(where, after)
        if away_s >= 0:
            self.world.sleep(away_s)
            self.start_a_scheduler(again)

    @step()
    def start(self) -> None:
        if not self.runs:
            self.start_a_scheduler(-1)
        self.go_on(False, 4)

    def start_a_scheduler(self, dies_after: int) -> None:
        if self.runs:
            return
        if dies_after >= 0:
            self.world.crash_in, self.world.crash_after = "store.write", dies_after
        self.world.up()
        self.world.crash_in = ""

    @step(needs=True, moment=moments, how=st.sampled_from(["overtaken", "down", "down now", *LEAVE]))
    def replace_the_scheduler(self, moment: str, how: str | Asked) -> None:
        self.world.until(moment)
        if not self.runs:
            return
        if how == "overtaken":
            self.world.overtake()
        elif isinstance(how, Asked):
            self.world.yard.after(0.0, how)
            self.world.work(2)
        else:
            self.world.down(now=how == "down now", most=60)
            self.world.up()

    @step(moment=moments, what=st.sampled_from(["reboot", "back", "ahead", "full", "full"]), turns=turns)
    def strike(self, moment: str, what: str, turns: int) -> None:
        """The machine is started anew, its wall clock jumps by an hour, or the disk is full for one write."""
        self.world.until(moment)
        if what == "reboot":
            self.world.reboot()
            self.world.up()
        elif what == "full":
            self.world.write_fails = True
            self.world.work(1)
            self.world.write_fails = False
        else:
            self.world.clock.jumped_s += 3600.0 if what == "ahead" else -3600.0
        self.go_on(False, turns)

    @rule(what=st.deferred(lambda: st.one_of(*STEPS)))
    def happens(self, what: tuple[str, dict[str, Any]]) -> None:
        """Anything at all; where that needs a scheduler and none runs, one comes."""
        name, more = what
        if name in NEED and not self.runs:
            name, more = "start", {}
        getattr(self, name)(**more)

    # What must hold

    @invariant()
    def every_promise_is_kept(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if not self.world.yard.broken:
                self.world.finish()
        finally:
            for cell in self.world.cells:
                event(cell)
            MET.update(self.world.cells)
            self.world.close()


CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


class TestThePromisesAreKept(Promises.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(
        max_examples=60, stateful_step_count=40, derandomize=True, deadline=None, suppress_health_check=CALM
    )


@pytest.mark.long
class TestThePromisesAreKeptAllNight(Promises.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=CALM)
