import random
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import ConfigTypeError

from gym.config import ConfigErrors, load
from gym.config.compose import compose
from gym.config.plan import Origin
from gym.config.tree import Block, from_plain, merge, plain

HERE = Origin("here", 1, 1)
KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.none(), st.sampled_from(["x", "y", "???", "1e3", "on"]))
VALUES = st.recursive(SCALARS, lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=2)), max_leaves=8)
LAYERS = st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=4)


@given(LAYERS)
@settings(max_examples=150, deadline=None)
def test_layers_merge_as_omegaconf_merges_them(layers):
    ours = Block({}, HERE)
    for layer in layers:
        ours = merge(ours, from_plain(layer, HERE))
    try:
        theirs = OmegaConf.to_container(OmegaConf.merge({}, *layers), resolve=False)
    except ConfigTypeError:  # it refuses a list over a mapping and the reverse; ours replaces, and types are checked later
        return
    assert plain(ours) == theirs


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bases_come_first_siblings_in_order_and_a_file_counts_once(tmp_path_factory, data):
    """Any acyclic include graph: the value is that of the last file in post-order, each counted at its first visit."""
    count = data.draw(st.integers(1, 6))
    bases = {index: data.draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else [] for index in range(count)}
    folder = tmp_path_factory.mktemp("graph")
    for index, named in bases.items():
        body = {"config_paths": [f"{base}.yaml" for base in named], "who": index, f"only{index}": index}
        (folder / f"{index}.yaml").write_text(yaml.safe_dump(body))
    order: list[int] = []

    def visit(index: int) -> None:
        if index not in order:
            for base in bases[index]:
                visit(base)
            order.append(index)

    visit(count - 1)
    made = compose([f"{count - 1}.yaml"], (), roots=[folder], cwd=folder)
    assert made.problems == []
    assert [path.stem for path in made.files] == [str(index) for index in order]
    assert plain(made.root)["who"] == count - 1
    assert {key for key in plain(made.root) if key.startswith("only")} == {f"only{index}" for index in order}


def test_a_later_sibling_overrides_an_earlier_one_and_the_includer_both(project):
    project.write("one.yaml", "policy_base_url: one\npolicy_model_name: one\npolicy_api_key: ${oc.env:K,x}")
    project.write("two.yaml", "policy_base_url: two\npolicy_model_name: two")
    examined = project.compose("config_paths: [one.yaml, two.yaml]\npolicy_model_name: own")
    assert examined.resolved == {"policy_base_url": "two", "policy_model_name": "own", "policy_api_key": "x"}
    assert str(examined.origins["policy_base_url"]) == "two.yaml:1:1"
    assert [str(origin) for origin in examined.history["policy_model_name"]] == ["two.yaml:2:1", "one.yaml:2:1"]


def test_two_spellings_of_one_file_count_once(project):
    project.write("sub/one.yaml", "policy_base_url: one")
    project.write("two.yaml", "policy_base_url: two")
    (project.root / "link.yaml").symlink_to(project.root / "sub" / "one.yaml")
    examined = project.compose("config_paths: [sub/one.yaml, two.yaml, ./sub/../sub/one.yaml, link.yaml]")
    assert examined.resolved["policy_base_url"] == "two"


def test_a_circle_of_files_is_named(project):
    project.write("one.yaml", "config_paths: [two.yaml]")
    project.write("two.yaml", "config_paths: [one.yaml]")
    (problem,) = project.examine("one.yaml").problems
    assert problem.rule == "config-cycle"
    assert "one.yaml -> two.yaml -> one.yaml" in problem.message
    assert str(problem.origin) == "two.yaml:1:16"


def test_roots_are_tried_in_order(tmp_path: Path):
    cwd, extra, other = tmp_path / "cwd", tmp_path / "extra", tmp_path / "other"
    for folder, name in ((extra, "extra"), (other, "other")):
        folder.mkdir(parents=True)
        (folder / "a.yaml").write_text(f"policy_model_name: {name}")
    cwd.mkdir()
    env = {"GYM_EXTRA_ROOTS": f"../extra:{other}"}
    assert load(["a.yaml"], cwd=cwd, env=env).plan.settings.policy_model_name == "extra"
    (cwd / "a.yaml").write_text("policy_model_name: cwd")
    assert load(["a.yaml"], cwd=cwd, env=env).plan.settings.policy_model_name == "cwd"


def test_env_yaml_overrides_files_and_the_command_line_overrides_it(project):
    project.write("env.yaml", "policy_api_key: sk-really-secret\npolicy_model_name: from-env")
    examined = project.compose("policy_model_name: from-file")
    assert examined.problems == []
    assert examined.resolved == {"policy_model_name": "from-env", "policy_api_key": "sk-really-secret"}
    assert project.compose("", "policy_model_name=line").resolved["policy_model_name"] == "line"


def test_a_missing_file_is_named_with_the_nearest_one_and_nothing_else_is_reported(project):
    (problem,) = project.check("config_paths: [bsae.yaml]").problems[:1]
    examined = project.compose("config_paths: [bsae.yaml]\nnonsense: 1")
    assert [found.rule for found in examined.problems] == ["config-not-found"]
    assert "did you mean 'base.yaml'?" in str(examined.problems[0])
    assert problem.rule in {"duplicate-key", "config-not-found"}


def test_config_paths_on_the_command_line(project):
    project.write("one.yaml", "policy_model_name: one")
    assert project.examine(overrides=("+config_paths=[one.yaml]",)).resolved == {"policy_model_name": "one"}


@pytest.mark.parametrize("body", ["config_paths: one.yaml", "config_paths: [{a: b}]", "config_paths: [3]"])
def test_config_paths_of_another_shape(project, body):
    assert [problem.rule for problem in project.compose(body).problems] == ["config-paths"]


def test_model_type_is_the_lowest_layer_and_wins_over_another_implementation(project):
    project.write("responses_api_models/echo/configs/echo.yaml", "policy_model: {responses_api_models: {echo: {base_url: u, port: 1}}}")
    project.write("own.yaml", "policy_model: {responses_api_models: {echo: {port: 2}}}")
    project.write("other.yaml", "policy_model: {responses_api_models: {another: {port: 3}}}")
    raw = load(["own.yaml"], model_type="echo", roots=[project.root], cwd=project.root, env={}).plan.instances["policy_model"].raw
    assert raw == {"base_url": "u", "port": 2}
    assert project.examine("other.yaml", model_type="echo").resolved["policy_model"] == {
        "responses_api_models": {"echo": {"base_url": "u", "port": 1}}
    }
    with pytest.raises(Exception, match=r"--model-type ehco.*did you mean 'echo'"):
        project.examine("own.yaml", model_type="ehco")


def test_load_raises_with_every_problem(project):
    project.write("bad.yaml", "nonsense: 1\npolicy_base_ulr: x\nuse_absolute_ip: maybe\n")
    with pytest.raises(ConfigErrors) as caught:
        load(["bad.yaml"], roots=[project.root], cwd=project.root, env={})
    assert [problem.rule for problem in caught.value.problems] == ["unknown-key", "unknown-key", "wrong-value"]
    assert "bad.yaml:2:1: error[unknown-key]: policy_base_ulr" in str(caught.value)
    assert "did you mean 'policy_base_url'?" in str(caught.value)


YAML_FAULTS = [
    ("a: 1\na: 2\n", "duplicate-key", 2),
    ("a: [1\n", "yaml-syntax", 2),
    ("a: b: c\n", "yaml-syntax", 1),
    ("- a\n", "yaml-syntax", 1),
    ("a: !!python/object:os.system x\n", "yaml-syntax", 1),
    ("{[a]: 1}\n", "yaml-syntax", 1),
    ("a: &x {b: *x}\n", "yaml-syntax", 1),
    ("a: \t- b\n\t\t:\n", "yaml-syntax", 1),
]


@pytest.mark.parametrize(("text", "rule", "line"), YAML_FAULTS)
def test_faults_of_the_file_have_a_place(project, text, rule, line):
    problems = project.compose(text).problems
    assert rule in {problem.rule for problem in problems}, problems
    fault = next(problem for problem in problems if problem.rule == rule)
    assert fault.origin is not None
    assert (fault.origin.path, fault.origin.line) == ("alone.yaml", line)


def test_a_file_that_is_not_text(project):
    (project.root / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    assert [problem.rule for problem in project.examine("bad.yaml").problems] == ["file-unreadable"]


def test_scalars_are_read_as_omegaconf_reads_them_except_base_60(project):
    text = "v: [1e3, 1.5, 010, 0x1F, yes, ~, null, 2024-01-02, '1', 1_000, .5, -.inf, '', 3.]"
    written = "use: ${v}\n" + text
    values = project.compose(written).resolved["v"]
    assert values == OmegaConf.to_container(OmegaConf.create(text))["v"]
    assert project.compose("use: ${v}\nv: [22:04, 1:30.5]").resolved["v"] == ["22:04", "1:30.5"]


def test_keys_are_text_and_anchors_and_merge_keys_work(project):
    text = "x: ${v}\nv:\n  1: a\n  on: b\n  d: &d {p: 1, q: 2}\n  e: {<<: *d, q: 3}\n"
    assert project.compose(text).resolved["v"] == {"1": "a", "on": "b", "d": {"p": 1, "q": 2}, "e": {"p": 1, "q": 3}}


def test_aliases_of_aliases_do_not_explode(project):
    text = "a0: &a0 [x, x]\n" + "".join(f"a{index}: &a{index} [*a{index - 1}, *a{index - 1}]\n" for index in range(1, 40))
    assert {problem.rule for problem in project.compose(text).problems} >= {"yaml-syntax"}


def test_thousands_of_keys_compose_quickly(project):
    names = [f"k{random.Random(index).randrange(10**9)}" for index in range(3000)]
    text = "use: ${data}\ndata:\n" + "".join(f"  {name}: {{a: 1}}\n" for name in dict.fromkeys(names))
    assert len(project.compose(text).resolved["data"]) == len(set(names))


def test_an_env_yaml_that_leads_nowhere_is_reported(project):
    (project.root / "env.yaml").symlink_to("nowhere.yaml")
    (problem,) = project.compose("default_host: 127.0.0.1\n").problems
    assert str(problem) == "env.yaml: error[config-not-found]: is a link that leads nowhere ('nowhere.yaml') — mend or remove it"
