import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gym.config.interpolate import Interpolator
from gym.config.plan import Origin
from gym.config.tree import Block, from_plain, plain

HERE = Origin("here", 1, 1)
NUMBERS = {
    "one": 1,
    "text": "t",
    "flag": True,
    "none": None,
    "half": 0.5,
    "list": [1, "two"],
    "block": {"deep": {"x": "dx"}, "name": "deep"},
}
TERMS = st.sampled_from(
    [
        "${one}", "${text}", "${flag}", "${none}", "${half}", "${block.deep.x}", "${list[1]}", "${list.0}", "${block.${block.name}.x}",
        "${oc.env:SET}", "${oc.env:SET,d}", "${oc.env:UNSET,d e}", "${oc.env:UNSET,'a, b'}", "${oc.env:UNSET,${text}}", "${ text }",
        "${oc.select:one}", "${oc.decode:'[1]'}", "-", "a b", ":", "$", "\\${one}", "${.sibling}", "${..text}",
    ]
)  # fmt: skip


def resolve(data, env):
    tree = from_plain(data, HERE)
    assert isinstance(tree, Block)
    interpolator = Interpolator(tree, env)
    return plain(interpolator.resolve((), tree)), interpolator


@given(st.lists(TERMS, min_size=1, max_size=3).map("".join))
@settings(max_examples=150, deadline=None)
def test_interpolation_agrees_with_omegaconf(text):
    data = {**NUMBERS, "here": {"sibling": "s", "value": text}}
    before = os.environ.get("SET")
    os.environ["SET"] = "from env"
    try:
        theirs = OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    except Exception:
        theirs = None
    finally:
        del os.environ["SET"]
        if before is not None:
            os.environ["SET"] = before
    ours, interpolator = resolve(data, {"SET": "from env"})
    if theirs is None:
        assert interpolator.problems
    else:
        assert interpolator.problems == []
        assert ours == theirs


def test_whole_blocks_and_lists():
    data, _ = resolve({"a": "${b}", "b": {"c": "${d}", "e": [1, "${d}"]}, "d": 4, "f": "${a.e[1]}"}, {})
    assert data["a"] == {"c": 4, "e": [1, 4]}
    assert data["f"] == 4


def test_the_default_of_an_environment_variable_is_text_as_written():
    data, _ = resolve({"v": "${oc.env:NO,1.10}", "t": "${oc.env:NO,true}", "n": "${oc.env:NO,null}", "e": "${oc.env:NO,}"}, {})
    assert data == {"v": "1.10", "t": "true", "n": None, "e": ""}


def test_a_value_from_the_environment_is_not_read_again():
    data, interpolator = resolve({"a": "x${oc.env:EVIL}", "b": "${a}", "secret": "s"}, {"EVIL": "${secret}"})
    assert interpolator.problems == []
    assert data["a"] == data["b"] == "x${secret}"


@pytest.mark.parametrize("data", [{"a": "${a}"}, {"a": "${b}", "b": "x${a}"}, {"a": {"b": "${a}"}}, {"a": "${b.c}", "b": {"c": "${a}"}}])
def test_circles_end(data):
    _, interpolator = resolve(data, {})
    assert "interpolation-cycle" in {problem.rule for problem in interpolator.problems}


@pytest.mark.parametrize(
    "text", ["${", "${nope}", "${a b}", "${one.two}", "${.....x}", "${nope:1}", "x${block}", "${oc.env:}", "${oc.decode:'['}"]
)
def test_what_cannot_be_resolved_is_one_problem(text):
    _, interpolator = resolve({**NUMBERS, "v": text}, {})
    (problem,) = interpolator.problems
    assert problem.key_path == "v"


def test_a_missing_value_is_listed_once_with_the_override_that_sets_it(project):
    text = "policy_base_url: ???\npolicy_model_name: ${policy_base_url}\npolicy_api_key: x${policy_base_url}\n"
    (problem,) = project.compose(text).problems
    assert str(problem) == (
        "alone.yaml:1:1: error[missing-value]: policy_base_url: a value must be given here (???) — set it with policy_base_url=VALUE"
    )
    assert project.compose(text, "policy_base_url=u").plan.settings.policy_api_key == "xu"


def test_a_missing_environment_variable(project):
    text = "policy_base_url: ${oc.env:WHERE}\npolicy_model_name: ${policy_base_url}\n"
    (problem,) = project.compose(text).problems
    assert (problem.rule, problem.key_path) == ("missing-environment", "policy_base_url")
    assert "export WHERE=…" in problem.hint
    assert project.compose(text, env={"WHERE": "w"}).plan.settings.policy_model_name == "w"


def test_templates_may_miss_what_they_like_and_still_be_read(project):
    text = "box: {resources_servers: {box: {domain: ${oc.env:NO}, value: kept}}}\n".replace("${oc.env:NO}", '"${oc.env:NO}"')
    text += "mine:\n  _inherit_from: box\n  resources_servers:\n    box: {domain: d, verified_url: '${box.resources_servers.box.value}'}\n"
    text += "turn: null\n"
    examined = project.check(text)
    assert examined.problems == []
    assert examined.plan.instances["mine"].raw["verified_url"] == "kept"


def test_a_setting_that_is_not_set_names_its_override(project):
    (problem,) = project.compose("policy_model_name: ${policy_api_key}").problems
    assert problem.hint == "write it into env.yaml, or set it with policy_api_key=VALUE"
    problems = project.compose("policy_model: null\npolicy_base_url: ${policy_model_name}").problems
    (hint,) = [problem.hint for problem in problems if problem.rule == "interpolation"]
    assert hint == "set it with policy_model_name=VALUE, or in env.yaml"  # and not "did you mean 'policy_model'?"


def test_a_key_that_others_refer_to_is_no_unknown_key(project):
    examined = project.compose("shared: {name: m}\npolicy_model_name: ${shared.name}\n")
    assert examined.problems == []
    assert examined.plan.settings.policy_model_name == "m"
