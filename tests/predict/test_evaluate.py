import numpy as np
import pytest

from interlane.model import InvalidField, InvalidInput
from interlane.predict.estimates import DurationEstimates
from interlane.predict.evaluate import RunSplit, hindsight, scores
from interlane.predict.naive import LastRun, MeanPerUser
from interlane.predict.runs import informative, runs_per_group
from interlane.testing.runs import recurring, runs


def told(seconds: list[float], low_s: list[float], high_s: list[float]) -> DurationEstimates:
    basis = np.array([0, 0, 4, 5], np.int8)
    return DurationEstimates(np.array(seconds), np.array(low_s), np.array(high_s), basis)


def test_scores_can_be_counted_by_hand() -> None:
    true = runs([100, 100, 100, 100], instances=[1, 2, 3, 4])
    estimates = told([104, 110, 75, 300], [90, 101, 50, 100], [110, 120, 99, 400])

    found = scores(estimates, true)

    # Off by 4, 10, 25 and 200 %, with 1, 2, 3 and 4 instances of 10.
    shares = {5: (0.25, 0.1), 10: (0.5, 0.3), 25: (0.75, 0.6), 50: (0.75, 0.6)}
    for percent, (of_jobs, of_instances) in shares.items():
        assert found[f"within_{percent}_percent"] == of_jobs
        assert found[f"within_{percent}_percent_of_instances"] == pytest.approx(of_instances)
    assert found["mae_s"] == (4 + 10 + 25 + 200) / 4
    assert found["median_error_percent"] == 17.5
    # 100 lies in 90..110 and in 100..400; not in 101..120, not in 50..99.
    assert found["band_holds"] == 0.5
    assert found["fallback"] == 0.5
    # Pinball: P10 (0.1 x 10, 0.9 x 1, 0.1 x 50, 0), P50 (half of the errors), P90 (0.1 x 10,
    # 0.1 x 20, 0.9 x 1, 0.1 x 300), each a mean over four jobs, then over the three.
    low, middle, high = (1 + 0.9 + 5 + 0) / 4, 239 / 2 / 4, (1 + 2 + 0.9 + 30) / 4
    assert found["pinball_s"] == pytest.approx((low + middle + high) / 3)


def test_by_time_only_what_had_ended_is_known() -> None:
    # Ten jobs, one every 10 s; the fifth judged are those of 80 and 90 s.  At 80 s, the job
    # of 30 s (which takes 51 s) still runs, and the one of 20 s (60 s) has just ended.
    lengths_s = [1, 1, 60, 51, 1, 1, 1, 1, 7, 8]
    split = RunSplit.by_time(runs(lengths_s, at=range(0, 100, 10)))

    assert split.known.duration_s.tolist() == [1, 1, 60, 1, 1, 1, 1]
    assert split.rest.duration_s.tolist() == [51, 7, 8]
    assert split.judged.tolist() == [False, True, True]


def test_a_predictor_that_learns_on_is_told_of_a_job_when_it_ends_and_not_before() -> None:
    # The group's only known run took 1 s.  Its second takes 51 s and ends at 81 s: the job of
    # 80 s cannot know it, the job of 90 s must.
    lengths_s = [1, 1, 60, 51, 1, 1, 1, 1, 51, 51]
    groups = ["a", *["other"] * 2, "a", *["other"] * 4, "a", "a"]
    split = RunSplit.by_time(runs(lengths_s, at=range(0, 100, 10), group=groups))
    last_run = LastRun().fit(split.known)

    estimates = last_run.follow(split.rest)

    assert estimates.seconds[split.judged].tolist() == [1, 51]


def test_at_random_groups_of_fewer_than_five_runs_are_left_out() -> None:
    split = RunSplit.at_random(runs([1.0] * 15, group=["a"] * 11 + ["b"] * 4), seed=1)

    assert set(split.known.group) | set(split.rest.group) == {"a"}
    assert (len(split.known), int(split.judged.sum())) == (9, 2)


def test_at_random_the_seed_decides() -> None:
    many = recurring(200, seed=0)
    one, same, other = (RunSplit.at_random(many, seed=seed).rest.submit_s for seed in (1, 1, 2))
    assert one.tolist() == same.tolist() != other.tolist()


@pytest.mark.parametrize("lengths_s", [[], [1.0], [1.0, 2.0, 3.0]])
def test_too_few_jobs_to_judge_is_one_sentence(lengths_s: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"too few jobs.*\.$"):
        RunSplit.by_time(runs(lengths_s))


def test_no_group_of_five_runs_is_one_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"^No group has 5 runs.*--split time\)\.$"):
        RunSplit.at_random(runs([1.0] * 4), seed=0)


@pytest.mark.parametrize("length_s", [-1.0, 1e13])
def test_an_impossible_run_time_is_refused(length_s: float) -> None:
    with pytest.raises(InvalidField, match=r"^duration_s is .+, but .+\.$"):
        runs([1.0, length_s])


def test_hindsight_is_the_best_that_one_estimate_a_group_can_do() -> None:
    # Within 25 %: one estimate is close to runs of at most 5/3 of the shortest.  Of 60, 100 and
    # 101 s two can be met (60 and 100: an estimate of 75), of 10 and 1000 s one.
    three, two = [60, 100, 101], [10, 1000]
    many = runs([*three, *two], group=["a"] * 3 + ["b"] * 2, instances=[1, 1, 5, 1, 9])

    of_jobs, of_instances = hindsight(many)

    assert of_jobs == 3 / 5
    # By instances: 100 and 101 s (6 of 7), and 1000 s (9 of 10).
    assert of_instances == 15 / 17


def test_names_that_tell_nothing_are_dropped_and_reported() -> None:
    dull, notes = informative(runs([1, 2], group="same", user=["ann", "bob"]))
    assert dull.group == ("", "")
    assert dull.user == ("ann", "bob")
    assert notes == (
        "All jobs have the group 'same', which tells nothing; they are known by user and "
        "request.",
    )
    assert informative(runs([1, 2], group="", user=["ann", "bob"]))[1] == (
        "The trace names no group; jobs are known by user and request.",
    )


def test_jobs_without_a_group_do_not_make_one_together() -> None:
    assert runs_per_group(["a", "", "a", ""]).tolist() == [2, 1, 2, 1]


def test_the_naive_ones_can_be_counted_by_hand() -> None:
    known = runs([10, 30, 80], group=["a", "a", "b"], user=["ann", "ann", "bob"])
    asked = runs([1] * 3, group=["a", "new", "new"], user=["ann", "ann", "eve"])

    assert MeanPerUser().fit(known).predict(asked).seconds == pytest.approx([20, 20, 40])
    # The last run of group a took 30 s, that of ann 30 s, and the middle of all is 30 s.
    assert LastRun().fit(known).predict(asked).seconds == pytest.approx([30, 30, 30])
