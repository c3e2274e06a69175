"""Estimators: against enumeration, other computations, and figures that were published."""

import math
from collections import Counter
from itertools import combinations, product
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym.rollouts.estimators import clustered_error, majority_at_k, paired_difference, pass_all_k, pass_at_k, sign_test, student_quantile

COUNTS = st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))

SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
"""Hours of sleep gained with two drugs by ten patients (Student 1908), R's data set `sleep`."""


@given(COUNTS)
def test_pass_at_k_and_pass_all_k_are_shares_of_draws(numbers: tuple[int, int, int]) -> None:
    n, c, k = numbers
    draws = list(combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(mean(any(i < c for i in draw) for draw in draws))
    assert pass_all_k(n, c, k) == pytest.approx(mean(all(i < c for i in draw) for draw in draws))


def test_pass_at_k_is_that_of_the_paper() -> None:
    """The numerically stable form printed in Chen et al. 2021, figure 3, over the sizes that the paper draws."""
    for n, c, k in product((1, 5, 200), (0, 1, 3, 5, 120, 200), (1, 5, 10, 100)):
        if c <= n and k <= n:
            published = 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))
            assert pass_at_k(n, c, k) == pytest.approx(published)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=4), st.integers(1, 12))
def test_majority_is_the_mean_over_all_draws(answers: list[tuple[int, float]], k: int) -> None:
    pool = [place for place, (count, _) in enumerate(answers) for _ in range(count)]
    k = min(k, len(pool))
    rewards: list[float] = []
    for draw in combinations(pool, k):
        votes = Counter(draw)
        rewards.append(mean(answers[place][1] for place, count in votes.items() if count == max(votes.values())))
    assert majority_at_k(answers, k) == pytest.approx(mean(rewards))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=4), min_size=2, max_size=6))
def test_the_clustered_error_is_the_sandwich_of_a_regression_on_a_constant(tasks: list[list[float]]) -> None:
    values = np.array([value for task in tasks for value in task])
    design = np.ones((len(values), 1))
    bread = np.linalg.inv(design.T @ design)
    residuals = np.split(values - values.mean(), np.cumsum([len(task) for task in tasks])[:-1])
    scores = np.array([np.ones((1, len(residual))) @ residual for residual in residuals])
    variance = (bread @ (scores.T @ scores) @ bread)[0, 0] * len(tasks) / (len(tasks) - 1)
    sums = [(len(task), math.fsum(task)) for task in tasks]
    assert clustered_error(sums, len(tasks), float(values.mean()), len(values)) == pytest.approx(math.sqrt(variance), abs=1e-12)


def test_a_paired_difference_is_the_published_one() -> None:
    """R's documentation of t.test prints these for the data set: mean 1.58, 95 % from 0.7001142 to 2.4598858, t = 4.0621."""
    found = paired_difference([b - a for a, b in zip(SLEEP_1, SLEEP_2, strict=True)])
    assert found is not None
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == (pytest.approx(0.7001142, abs=1e-7), pytest.approx(2.4598858, abs=1e-7))
    assert found.mean / found.standard_error == pytest.approx(4.0621, abs=1e-4)
    assert paired_difference([1.0]) is None


@pytest.mark.parametrize(
    ("freedom", "published"), [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (30, 2.042), (120, 1.980), (10**6, 1.960)]
)
def test_quantiles_of_t_are_those_of_the_tables(freedom: int, published: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(published, abs=5e-4)


@given(st.integers(0, 7), st.integers(0, 7))
def test_the_sign_test_counts_splits_at_least_as_uneven(better: int, worse: int) -> None:
    number, far = better + worse, abs(better - worse)
    splits = [abs(2 * sum(heads) - number) for heads in product((0, 1), repeat=number)]
    assert sign_test(better, worse) == pytest.approx(mean(split >= far for split in splits))
