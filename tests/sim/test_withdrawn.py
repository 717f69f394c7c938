"""Users take jobs back: while they wait, while they run, when they have ended."""

from interlane.kernel.scheduler import Scheduler
from interlane.metrics.log import LogEvent
from interlane.metrics.outcomes import outcomes
from interlane.model import JobId
from interlane.policy.catalogue import make_order, make_placer
from interlane.policy.policy import Discipline, Policy
from interlane.sim.engine import Simulator
from interlane.sim.world import ShareContention, World
from interlane.testing.build import cluster, job


def played(withdrawn_s: dict[str, float], *, slowed: bool = False) -> Simulator:
    """Play three jobs of 100 s, each of which needs the only machine."""
    jobs = [job(f"j{number}", gpus=1, at=float(number)) for number in range(3)]
    policy = Policy(make_order("fifo"), make_placer("pack"), Discipline.SKIP)
    world = World(
        slow_downs=(ShareContention(),) if slowed else (),
        withdrawn_s={JobId(name): at_s for name, at_s in withdrawn_s.items()},
    )
    engine = Simulator(
        Scheduler(cluster(gpus=[1]), policy), jobs, [100.0] * 3, world, paranoid=True
    )
    engine.run()
    return engine


def ends(engine: Simulator) -> dict[int, tuple[float, str]]:
    at_s, events, subjects = engine.log.columns()
    return {
        int(subject): (float(moment_s), LogEvent(int(event)).name)
        for moment_s, event, subject in zip(at_s, events, subjects, strict=True)
        if event in (LogEvent.FINISHED, LogEvent.CANCELLED)
    }


def test_a_job_that_is_taken_back_while_it_runs_makes_room() -> None:
    for slowed in (False, True):
        found = ends(played({"j0": 30.0}, slowed=slowed))

        assert found[0] == (30.0, "CANCELLED")
        assert found[1] == (130.0, "FINISHED")
        assert found[2] == (230.0, "FINISHED")


def test_a_job_that_is_taken_back_while_it_waits_never_runs() -> None:
    engine = played({"j1": 50.0})

    assert ends(engine)[1] == (50.0, "CANCELLED")
    assert ends(engine)[2] == (200.0, "FINISHED")
    assert outcomes(engine.log).ran_s[1] == 0.0


def test_a_job_may_be_taken_back_in_the_moment_in_which_it_comes() -> None:
    assert ends(played({"j1": 1.0}))[1] == (1.0, "CANCELLED")


def test_a_job_that_has_ended_is_not_taken_back() -> None:
    assert ends(played({"j0": 100.0, "j2": 10_000.0}))[0] == (100.0, "FINISHED")
