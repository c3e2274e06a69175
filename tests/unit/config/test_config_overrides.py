import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gym.config.errors import Problem
from gym.config.overrides import Override, _read_plain, read_override

PARSER = OverridesParser.create()
WORDS = [
    "true",
    "False",
    "nUll",
    "nan",
    "inf",
    "-inf",
    "a",
    "_b-1",
    "0",
    "-7",
    "007",
    "1.5",
    "1.",
    ".5",
    "1e3",
    "1_000",
    "+3",
    "x.y",
    "http://h:80/v1",
]
PIECES = st.sampled_from([*WORDS, ".", "-", "/", ":", "@", "%", "*", "+", "$", " ", "=", ",", "'", "(", "[", "{", "\\", "${a}", "é", ""])
VALUES = st.lists(PIECES, max_size=4).map("".join)
KEY_PIECES = st.lists(st.sampled_from(["a", "b_1", "c-d", ".", "0", "01", "$x", "/", "@", "_", "é"]), max_size=5).map("".join)


def by_hydra(text: str) -> tuple[object, ...] | None:
    try:
        parsed = PARSER.parse_override(text)
    except (HydraException, ValueError):
        return None
    return parsed.type.name, parsed.key_or_group, type(parsed.value()), parsed.value(), parsed.package, parsed.is_sweep_override()


NAMES = {"change": "CHANGE", "add": "ADD", "force": "FORCE_ADD", "delete": "DEL"}


@given(st.sampled_from(["", "+", "++", "~", "+++"]), KEY_PIECES, st.sampled_from(["=", ""]), VALUES)
@example("", "a", "=", "1.50")
@example("", "a.0.b", "=", "-0")
@example("", "a", "=", "a:b")
@example("+", "a", "=", "")
@settings(max_examples=400, deadline=None)
def test_the_fast_path_says_what_hydra_says(sign, key, equal, value):
    text = f"{sign}{key}{equal}{value}"
    fast = _read_plain(text)
    if fast is None:
        return
    assert (NAMES[fast.action], fast.key, type(fast.value), fast.value, None, False) == by_hydra(text)


@pytest.mark.parametrize(
    "text", ["a=1", "a.b=x", "+a=http://h:8000/v1", "++a.b-c=true", "a=null", "a=1.25", "a=", "~a.b", "a=./d/e.jsonl", "a=Qwen/Qwen3-8B"]
)
def test_ordinary_overrides_need_no_hydra(text):
    assert _read_plain(text) is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=[1,b]", [1, "b"]),
        ("a={b: {c: 1}}", {"b": {"c": 1}}),
        ("a='x y'", "x y"),
        ('a="[1]"', "[1]"),
        ("a=1e3", 1000.0),
        ("a=${b}/c", "${b}/c"),
    ],
)
def test_the_rest_of_the_grammar(text, value):
    override = read_override(text)
    assert isinstance(override, Override)
    assert override.value == value


@pytest.mark.parametrize(
    "text", ["a=1,2", "a=choice(1,2)", "a=range(3)", "a/b=c", "a@b=c", "a=[1", "=1", "a b", "a=interval(0,1)", "a=glob(x)"]
)
def test_what_is_no_override_is_a_problem(text):
    assert isinstance(read_override(text), Problem)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a={b}:c", """if the value is text, quote it: 'a="{b}:c"'"""),
        ("+a.b=x=y", """if the value is text, quote it: '+a.b="x=y"'"""),
        ("a={b", "write key=value, "),  # a bracket that was not closed: quotes would hide it
        ('a="x', "write key=value, "),
        ("-x={b}:c", "write key=value, "),
    ],
)
def test_a_value_that_needs_quotes_is_shown_with_them(text, hint):
    problem = read_override(text)
    assert isinstance(problem, Problem)
    assert problem.hint.startswith(hint)
    assert "\n" not in str(problem)


def test_the_quotes_that_are_advised_help():
    assert read_override('a="{b}:c"').value == "{b}:c"


@pytest.mark.parametrize("text", ["policy_api_key=hunter2{x", "policy_api_key@p=hunter2", "+m.api_key=hunter2,b", "token='hunter2"])
def test_an_unreadable_override_shows_no_secret(text):
    assert "hunter2" not in str(read_override(text))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(list("ab.={}[]:,'\"\\ ~+@/$()*1-e_%|\n\tü\udcff")), max_size=12))
def test_whatever_is_written_is_an_override_or_a_problem_on_one_line(text):
    read = read_override(text)
    assert isinstance(read, Override) or str(read).isprintable()


def test_setting_an_unknown_key_needs_a_plus(project):
    (problem,) = project.check(
        "", "actor.responses_api_agents.actor.max_stepss=3", "+actor.responses_api_agents.actor.max_steps=5"
    ).problems
    assert problem.rule == "override-unknown-key"
    assert problem.hint == "did you mean '+actor.responses_api_agents.actor.max_steps'?"
    examined = project.check("", "bxo.resources_servers.box.timeout_seconds=3")
    assert "did you mean 'box.resources_servers.box.timeout_seconds'?" in str(examined.problems[0])


def test_settings_exist_although_no_file_sets_them(project):
    assert project.check("", "use_absolute_ip=true", "token_id_capture={enabled: true}").problems == []


def test_adding_a_key_that_is_set(project):
    (problem,) = project.check("", "+box.resources_servers.box.timeout_seconds=3").problems
    assert problem.rule == "override-exists"
    assert project.check("", "++box.resources_servers.box.timeout_seconds=3").plan is not None


def test_a_mapping_is_merged_and_a_list_is_replaced(project):
    examined = project.check("", "box.resources_servers.box={limits: {cpu: 4}}", "+actor.responses_api_agents.actor.judges=[]")
    assert examined.resolved["box"]["resources_servers"]["box"] == {"timeout_seconds": 30, "limits": {"cpu": 4}}


def test_an_inherited_key_may_be_set_and_deleted(project):
    text = "mine:\n  _inherit_from: box\nturn: null\n"
    path = "mine.resources_servers.box.timeout_seconds"
    assert project.check(text, f"{path}=7").resolved["mine"] == {"resources_servers": {"box": {"timeout_seconds": 7}}}
    assert project.check(text, f"~{path}").resolved["mine"] == {"resources_servers": {"box": {}}}
    assert project.check(text, f"~{path}=31").problems[0].rule == "override-delete"


def test_entries_of_lists_by_index(project):
    text = "box: {resources_servers: {box: {expose_gold_to: [a, actor]}}}"
    examined = project.check(text, "box.resources_servers.box.expose_gold_to.0=b")
    assert examined.resolved["box"]["resources_servers"]["box"]["expose_gold_to"] == ["b", "actor"]


def test_null_removes_an_instance_from_the_command_line(project):
    plan = project.check("", "turn=null", "~box").plan
    assert plan is not None
    assert set(plan.instances) == {"actor", "policy_model"}


def test_a_problem_with_a_value_from_the_command_line_says_so(project):
    (problem,) = project.check("", "box.resources_servers.box.timeout_seconds=soon").problems
    assert str(problem).startswith("command line: error[wrong-value]: box.resources_servers.box.timeout_seconds: is not a number ('soon')")
