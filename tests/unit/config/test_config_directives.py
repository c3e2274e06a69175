import itertools

import pytest
import yaml

BOX = {"resources_servers": {"box": {"timeout_seconds": 1}}}


def bodies(examined):
    return {name: instance.raw for name, instance in examined.plan.instances.items()}


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
def test_inheritance_does_not_depend_on_the_order_of_keys(project, order):
    blocks = {
        "a": BOX,
        "b": {"_inherit_from": "a", "resources_servers": {"box": {"domain": "b"}}},
        "c": {"_inherit_from": "b", "resources_servers": {"box": {"value": "c"}}},
    }
    examined = project.compose(yaml.safe_dump({name: blocks[name] for name in order}, sort_keys=False))
    assert bodies(examined) == {"c": {"timeout_seconds": 1, "domain": "b", "value": "c"}}


def test_copy_keeps_the_source(project):
    examined = project.check("gold:\n  _copy: box\n  resources_servers: {box: {timeout_seconds: 5}}\n")
    assert examined.problems == []
    assert (bodies(examined)["box"], bodies(examined)["gold"]) == ({"timeout_seconds": 30}, {"timeout_seconds": 5})


def test_a_template_that_one_inherits_from_and_another_copies_is_not_launched(project):
    examined = project.check("one: {_inherit_from: box}\ntwo: {_copy: box}\nturn: null\n")
    assert {"one", "two"} <= set(bodies(examined))
    assert "box" not in bodies(examined)


def test_a_removed_instance_makes_no_template(project):
    examined = project.check("mine: {_inherit_from: box}\n", "mine=null")
    assert "box" in bodies(examined)


def test_null_and_merging_onto_null(project):
    project.write("off.yaml", "config_paths: [base.yaml]\nbox: null\nturn: null\n")
    assert set(project.examine("off.yaml").plan.instances) == {"actor", "policy_model"}
    project.write("on.yaml", "config_paths: [off.yaml]\nbox: {resources_servers: {box: {domain: new}}}\n")
    assert bodies(project.examine("on.yaml"))["box"] == {"domain": "new"}


def test_a_reference_to_a_template_says_who_took_its_place(project):
    (problem,) = project.check("mine: {_inherit_from: box}\n").problems
    assert problem.rule == "unknown-reference"
    assert "only a template here ('mine' inherits from it)" in problem.message


def test_a_dotted_part_may_be_inherited_and_stays_where_it_was(project):
    text = """
    other:
      resources_servers:
        box:
          limits: {_inherit_from: box.resources_servers.box.limits, cpu: 8}
    box: {resources_servers: {box: {limits: {cpu: 2, memory_mib: 7}}}}
    """
    examined = project.check(text)
    assert bodies(examined)["other"] == {"limits": {"cpu": 8, "memory_mib": 7}}
    assert bodies(examined)["box"]["limits"] == {"cpu": 2, "memory_mib": 7}


def test_one_part_of_an_instance_inherits_from_another_part(project):
    text = "box: {resources_servers: {box: {sandbox_config: {a: {x: 1}, b: {_copy: box.resources_servers.box.sandbox_config.a, y: 2}}}}}"
    assert bodies(project.check(text))["box"]["sandbox_config"]["b"] == {"x": 1, "y": 2}


def test_a_part_of_what_a_source_itself_inherits(project):
    text = """
    mid: {_copy: box, resources_servers: {box: {limits: {cpu: 3}}}}
    new: {resources_servers: {box: {_copy: mid.resources_servers.box}}}
    """
    assert bodies(project.check(text))["new"] == {"timeout_seconds": 30, "limits": {"cpu": 3}}


def test_the_value_form(project):
    text = "box: {resources_servers: {box: {expose_gold_to: [actor]}}}\nnew:\n  resources_servers:\n    box:\n"
    text += "      allowed_agents: ${copy:box.resources_servers.box.expose_gold_to}\n"
    assert bodies(project.check(text))["new"] == {"allowed_agents": ["actor"]}


@pytest.mark.parametrize("name", ["_inherit_from", "_copy"])
def test_a_circle_is_named(project, name):
    problems = project.compose(f"a: {{{name}: b}}\nb: {{{name}: c}}\nc: {{{name}: a}}\n").problems
    cycles = [problem for problem in problems if problem.rule == "inherit-cycle"]
    assert len(cycles) == 1
    assert "a -> b -> c -> a" in cycles[0].message


@pytest.mark.parametrize("text", ["a: {_copy: a}", "a: {_inherit_from: a.x, x: {}}", "a: {x: {_copy: a}}"])
def test_inheriting_from_oneself(project, text):
    assert "inherit-cycle" in {problem.rule for problem in project.compose(text).problems}


def test_a_source_that_does_not_exist_or_is_removed(project):
    (problem,) = [found for found in project.check("mine: {_inherit_from: boxx}\n").problems if found.rule == "inherit-unknown"]
    assert str(problem).startswith("over.yaml:2:8: error[inherit-unknown]: mine._inherit_from: names a block that does not exist (boxx)")
    assert "did you mean 'box'?" in problem.hint
    problems = project.check("box: null\nmine: {_inherit_from: box}\n").problems
    assert any("is removed (null)" in problem.message for problem in problems)


def test_delete_key_removes_what_is_inherited_or_below(project):
    mine = "mine: {_copy: box, resources_servers: {box: {_delete_key: timeout_seconds}}}\n"
    assert bodies(project.check(mine))["mine"] == {}
    below = "box: {resources_servers: {box: {_delete_key: 'timeout_seconds', domain: x}}}\n"
    assert bodies(project.check(below))["box"] == {"domain": "x"}
    listed = "mine: {_copy: box, resources_servers: {box: {_delete_key: [timeout_seconds]}}}\n"
    assert bodies(project.check(listed))["mine"] == {}


def test_delete_key_and_a_new_value_replace_the_whole(project):
    project.write("mid.yaml", "config_paths: [base.yaml]\nbox: {resources_servers: {box: {limits: {cpu: 2}}}}")
    project.write("top.yaml", "config_paths: [mid.yaml]\nbox: {resources_servers: {box: {_delete_key: limits, limits: {memory_mib: 3}}}}")
    assert bodies(project.examine("top.yaml"))["box"]["limits"] == {"memory_mib": 3}


def test_delete_key_swaps_an_implementation(project):
    text = "mine: {_copy: actor, responses_api_agents: {_delete_key: actor, plain: {max_steps: 1}}}\n"
    examined = project.check(text)
    assert examined.plan.instances["mine"].implementation == "plain"


def test_a_deleted_key_that_is_nowhere(project):
    (problem,) = project.check("box: {resources_servers: {box: {_delete_key: 'timeout_second'}}}\n").problems
    assert problem.rule == "directive"
    assert "did you mean 'timeout_seconds'?" in problem.hint


@pytest.mark.parametrize(
    "text", ["a: {_inherit_from: [b]}", "a: {_delete_key: {b: c}}", "_inherit_from: a", "a: {_copy: box, _inherit_from: box}"]
)
def test_misused_directives(project, text):
    assert "directive" in {problem.rule for problem in project.check(text).problems}


def test_nulling_what_does_not_exist_is_doubtful(project):
    (problem,) = project.check("bxo: null\n").problems
    assert (problem.rule, problem.severity) == ("removes-nothing", "warning")
    assert "did you mean 'box'?" in problem.hint


def test_origins_go_with_inherited_values(project):
    examined = project.check("mine:\n  _copy: box\n  resources_servers:\n    box:\n      domain: x\n")
    base = "mine.resources_servers.box"
    assert str(examined.origins[f"{base}.timeout_seconds"]) == "base.yaml:5:7"
    assert str(examined.origins[f"{base}.domain"]) == "over.yaml:6:7"
