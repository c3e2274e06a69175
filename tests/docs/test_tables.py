"""Tables of pages that repeat what the code says are compared with it."""

import re
from pathlib import Path

from gym.config.schema import Settings
from gym.protocol import rollouts, routes
from gym.protocol.failures import FAILURES
from gym.rollouts import collect
from gym.rollouts.files import OutputFiles

REPOSITORY = Path(__file__).resolve().parents[2]


def _table(page: str, mark: str) -> list[list[str]]:
    """The rows of the table after a mark, as cells."""
    _, found, rest = (REPOSITORY / page).read_text().partition(f"<!-- {mark}: checked by")
    assert found, f"{page} has no mark {mark!r}"
    lines = rest.splitlines()[1:]
    rows = lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows[2:]]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def test_the_failures_are_those_of_the_code() -> None:
    expected = [[f"`{kind}`", _yes(rule.retry), _yes(rule.grade), _yes(rule.reward_valid), rule.meaning] for kind, rule in FAILURES.items()]
    assert _table("docs/contract.md", "failures") == expected


def test_every_setting_is_described_and_none_that_is_not_there() -> None:
    rows = _table("docs/configuration.md", "settings")
    described = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert described == list(Settings.model_fields)
    defaults = Settings()
    for (names, default, _), _ in zip(rows, rows, strict=True):
        for name in re.findall(r"`(\w+)`", names):
            value = getattr(defaults, name)
            if isinstance(value, bool):
                assert default.strip("`") == str(value).lower(), name
            elif isinstance(value, (int, float, str)):
                assert default.strip("`") == (f"{value:g}" if isinstance(value, float) else str(value)), name


def test_the_exit_codes_are_those_of_the_code() -> None:
    codes = {0, 2, collect.EXIT_OK, collect.EXIT_ERROR, collect.EXIT_INCOMPLETE, collect.EXIT_INTERRUPTED}
    for page in ("README.md", "docs/rollouts.md"):
        told = {int(code) for code in re.findall(r"^\| (\d+) \|", (REPOSITORY / page).read_text(), re.MULTILINE)}
        assert told == codes, page


def test_every_file_of_a_run_is_described() -> None:
    page = (REPOSITORY / "docs/rollouts.md").read_text()
    files = OutputFiles(Path("try.jsonl"))
    for path in (*files.results, files.lock):
        assert f"| `{path.name}` |" in page


def test_every_key_of_the_collector_is_described() -> None:
    page = (REPOSITORY / "docs/rollouts.md").read_text()
    for value in vars(rollouts).values():
        if isinstance(value, str) and value.startswith("_ng_"):
            assert f"`{value}`" in page


def test_routes_on_the_contract_page_exist() -> None:
    page = (REPOSITORY / "docs/contract.md").read_text()
    known = {value for value in vars(routes).values() if isinstance(value, str) and value.startswith("/")}
    for route in re.findall(r"`(?:POST|GET) (/[\w/]+)`", page):
        assert route in known
    for needed in (routes.SEED_SESSION, routes.VERIFY, routes.CLOSE_SESSION, routes.AGENT_SESSIONS, routes.CLOSE_AGENT_SESSION, routes.RUN):
        assert needed in page


def test_keys_in_the_tables_of_implementations_are_all_of_their_own() -> None:
    """Each README of an implementation with a table of keys names every key that its `Config` adds, and no other."""
    from gym.config.implementations import find
    from gym.config.plan import Origin
    from gym.config.roots import search_roots
    from gym.config.schema import BASE_CONFIGS, KINDS, ServerConfig

    seen = 0
    for kind in KINDS:
        for page in sorted((REPOSITORY / kind).glob("*/README.md")):
            _, found, rest = page.read_text().partition("| key | default |")
            if not found:
                continue
            rows = [line for line in rest.split("\n\n")[0].splitlines()[2:] if line.startswith("|")]
            told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
            model = find(kind, page.parent.name, search_roots(), key_path="", origin=Origin("test"), remote=False).model
            own = set(model.model_fields) - set(BASE_CONFIGS[kind].model_fields)
            assert own <= told, f"{page}: does not say {own - told}"
            assert told <= set(model.model_fields), f"{page}: there is no {told - set(model.model_fields)}"
            assert issubclass(model, ServerConfig)
            seen += 1
    assert seen >= 3
