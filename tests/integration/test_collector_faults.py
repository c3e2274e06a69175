"""Nothing is lost, doubled or made up, whatever happens to a collection: every fault of docs/collector-faults.md, tried.

With GYM_WRITE_DOCS=1 what was found is put into the page's table; without, the table must say the same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import unavailable
from tests.doc_tables import put_row, row_of, writing
from tests.integration.collector_bench import HOPS, REPOSITORY, Bench, bench_in
from tests.integration.collector_faults import (
    OF_DISKS,
    OF_SERVERS,
    OF_THE_COLLECTOR,
    OF_THE_MODEL,
    ON_THE_WAY,
    Fault,
    Found,
    try_fault,
)
from tests.integration.random_faults import strike_at_random
from tests.small_disk import why_no_disk

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs" / "collector-faults.md"
HEAD = ("fault", "moment", "servers", "the run ended as", "exit code", "the user reads", "after --resume")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Servers of `gym env start`, with a proxy at each hop."""
    with bench_in(tmp_path_factory.mktemp("up"), HOPS, episode_seconds=8, call_seconds=3) as bench:
        bench.serve()
        yield bench


def as_told(fault: Fault, servers: str, found: Found) -> None:
    """The page's table says what was found."""
    cells = [fault.name, fault.moment, servers, found.ended, str(found.code), found.line, found.after or "-"]
    if writing():
        put_row(PAGE, HEAD, cells, keys=3)
    assert row_of(PAGE, HEAD, cells[:3]) == cells, f"{PAGE.name} does not say so: GYM_WRITE_DOCS=1 writes it"


@pytest.mark.parametrize("fault", [*ON_THE_WAY, *OF_THE_MODEL], ids=lambda fault: fault.name)
def test_a_fault_on_the_way(up: Bench, fault: Fault, request: pytest.FixtureRequest) -> None:
    try:
        found = try_fault(up.collection(str(request.node.callspec.indices["fault"])), fault)
    finally:
        up.mend()
    as_told(fault, "--no-serve", found)


@pytest.mark.parametrize(
    ("fault", "isolation"),
    [
        *((fault, isolation) for fault in OF_THE_COLLECTOR for isolation in ("process", "colocated")),
        *((fault, "process") for fault in OF_SERVERS),
        *((fault, "colocated") for fault in OF_DISKS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_fault_of_the_run_itself(tmp_path: Path, fault: Fault, isolation: str) -> None:
    if fault in OF_DISKS and (reason := why_no_disk()):
        unavailable(reason)
    with bench_in(tmp_path, ("endpoint",), isolation=isolation) as bench:
        found = try_fault(bench.collection("results"), fault)
    as_told(fault, isolation, found)


@pytest.mark.parametrize("number", range(20))
def test_faults_at_random_moments(tmp_path: Path, number: int) -> None:
    """scripts/soak.py does the same with other seeds, and more of them."""
    assert "owed" not in strike_at_random(tmp_path, f"tests-{number}").ended
