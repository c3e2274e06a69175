"""Estimates from the repeats of one task, and the spread of means. Pure functions on counts and numbers.

Sources: pass@k is Chen et al. 2021 (arXiv 2107.03374, section 2.1); pass^k is Yao et al. 2024 (tau-bench, arXiv 2406.12045);
errors clustered by task and paired differences are Miller 2024 (arXiv 2411.00640).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k rollouts drawn from n without replacement, c of them passed, passes (k <= n)."""
    return 1.0 - pass_all_k(n, n - c, k)


def pass_all_k(n: int, c: int, k: int) -> float:
    """pass^k: the chance that all of k rollouts drawn from n without replacement, c of them passed, pass (k <= n)."""
    if c < k:
        return 0.0
    chance = 1.0
    for i in range(k):
        chance *= (c - i) / (n - i)
    return chance


def majority_at_k(answers: Sequence[tuple[int, float]], k: int) -> float:
    """The expected reward of the answer that most of k rollouts give, drawn without replacement; ties are broken by chance.

    `answers` are the different answers of one task, each as how often it was given and its mean reward. Exact: for every answer
    and number of votes, the draws in which no other has more are counted, by how many others have as many. With n rollouts and
    a different answers it takes about `a^3 n^2` steps.
    """
    total = math.comb(sum(count for count, _ in answers), k)
    value = 0.0
    for place, (count, reward) in enumerate(answers):
        others = [other for number, (other, _) in enumerate(answers) if number != place]
        if reward:
            won = sum(math.comb(count, votes) * _share(others, k - votes, votes) for votes in range(1, min(count, k) + 1))
            value += reward * won / total
    return value


def _share(others: Sequence[int], drawn: int, most: int) -> float:
    """Draws of `drawn` rollouts in which none of the others has more than `most` votes, each divided among those that have as many."""
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # (drawn, tied) -> draws
    for count in others:
        longer: dict[tuple[int, int], int] = {}
        for (so_far, tied), number in ways.items():
            for votes in range(min(count, most, drawn - so_far) + 1):
                key = so_far + votes, tied + (votes == most)
                longer[key] = longer.get(key, 0) + number * math.comb(count, votes)
        ways = longer
    return sum(number / (tied + 1) for (so_far, tied), number in ways.items() if so_far == drawn)


def clustered_error(sums: Iterable[tuple[int, float]], tasks: int, mean: float, measured: int) -> float:
    """The standard error of a mean over `measured` rewards, clustered by task; `sums` are number and sum of each task's rewards.

    `sqrt(G / (G - 1) * sum_g (s_g - n_g * mean)^2) / N`: the cluster-robust variance of a mean with the usual small-sample factor.
    """
    squares = math.fsum((total - number * mean) ** 2 for number, total in sums)
    return math.sqrt(tasks / (tasks - 1) * squares) / measured


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences."""

    mean: float
    standard_error: float
    low: float
    high: float
    """The ends of the interval of 95 %, by Student's t."""


def paired_difference(differences: Sequence[float]) -> Difference | None:
    """The mean of differences, one for each task, with its 95 % interval; None for fewer than two."""
    tasks = len(differences)
    if tasks < 2:
        return None
    mean = math.fsum(differences) / tasks
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in differences) / (tasks - 1) / tasks)
    reach = student_quantile(0.975, tasks - 1) * error
    return Difference(mean, error, mean - reach, mean + reach)


def sign_test(better: int, worse: int) -> float:
    """The chance of a split at least as uneven, were better and worse equally likely (exact, two-sided; McNemar's for 0 and 1)."""
    number = better + worse
    tail = sum(math.comb(number, i) for i in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**number)


def student_quantile(chance: float, freedom: int) -> float:
    """The `chance` quantile (above 0.5) of Student's t with `freedom` degrees, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    while _student(high, freedom) < chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, freedom) < chance else (low, middle)
    return (low + high) / 2


def _student(t: float, freedom: int) -> float:
    """The distribution function at t >= 0, by its finite series (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    if freedom > 10_000:
        return 0.5 + 0.5 * math.erf(t / math.sqrt(2))
    angle = math.atan2(t, math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for i in range((freedom - odd) // 2):
        total += term
        term *= square * ((2 * i + 2) / (2 * i + 3) if odd else (2 * i + 1) / (2 * i + 2))
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + within / 2
