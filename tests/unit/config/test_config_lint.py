# ruff: noqa: E501
"""One mistake, one line: each case is a small overlay and the one problem that it must give."""

import shutil
import sys

import pytest

from gym.config import examine
from gym.config.licenses import license_hint
from gym.config.plan import Route

CASES = [
    # text over base.yaml, rule, key path, part of the line
    ("polcy_base_url: x", "unknown-key", "polcy_base_url", "over.yaml:2:1: error[unknown-key]: polcy_base_url"),
    ("polcy_base_url: x", "unknown-key", "polcy_base_url", "did you mean 'policy_base_url'?"),
    ("start_timeout_seconds: -1", "wrong-value", "start_timeout_seconds", "greater than 0 (-1)"),
    ("token_id_capture: {enable: true}", "unknown-key", "token_id_capture.enable", "did you mean 'enabled'?"),
    ("head_server: {port: high}", "wrong-value", "head_server.port", "is not a whole number ('high')"),
    ("auth: {token_fil: a}", "unknown-key", "auth.token_fil", "did you mean 'token_file'?"),
    ("isolation: thread", "wrong-value", "isolation", "'process' or 'colocated'"),
    ("b2: {resource_servers: {box: {entrypoint: app.py}}}", "unknown-kind", "b2.resource_servers", "did you mean 'resources_servers'?"),
    ("b2: {servers: {box: {entrypoint: app.py}}}", "unknown-kind", "b2.servers", "is not a kind of server"),
    ("box: {responses_api_agents: {actor: {}}}", "two-kinds", "box", "has two kinds (resources_servers, responses_api_agents)"),
    ("policy_model: {responses_api_models: {other: {}}}", "two-implementations", "policy_model.responses_api_models", "(echo, other)"),
    ("b2: {resources_servers: {}}", "almost-instance", "b2.resources_servers", "names no implementation"),
    ("b2: {resources_servers: [box]}", "almost-instance", "b2.resources_servers", "should be a mapping"),
    ("b2: {resources_servers: {box: 3}}", "almost-instance", "b2.resources_servers.box", "should be a mapping (3)"),
    ("box: {domain: x}", "unknown-key", "box.domain", "stands beside the kind"),
    ("'b 2': {resources_servers: {box: {}}}", "bad-name", "b 2", "letters, digits"),
    ("b2: {resources_servers: {bxo: {}}}", "unknown-implementation", "b2.resources_servers.bxo", "did you mean 'box'?"),
    ("b2: {resources_servers: {../box: {}}}", "bad-name", "b2.resources_servers.../box", "name a folder"),
    ("b2: {resources_servers: {box: {entrypoint: main.py}}}", "file-missing", "b2.resources_servers.box.entrypoint", "main.py"),
    ("box: {resources_servers: {box: {timeout_secs: 1}}}", "unknown-key", "box.resources_servers.box.timeout_secs", "did you mean 'timeout_seconds'?"),
    ("box: {resources_servers: {box: {limits: {cpus: 1}}}}", "unknown-key", "box.resources_servers.box.limits.cpus", "did you mean 'cpu'?"),
    ("box: {resources_servers: {box: {limits: 4}}}", "wrong-value", "box.resources_servers.box.limits", "is not a mapping (4)"),
    ("box: {resources_servers: {box: {timeout_seconds: soon}}}", "wrong-value", "box.resources_servers.box.timeout_seconds", "('soon')"),
    ("box: {resources_servers: {box: {port: 70000}}}", "wrong-value", "box.resources_servers.box.port", "65535 (70000)"),
    ("box: {resources_servers: {box: {sandbox_provider: sandbx}}}\nsandbox: {docker: {}}", "unknown-provider", "box.resources_servers.box.sandbox_provider", "did you mean 'sandbox'?"),
    ("sandbox: {dokcer: {}}", "unknown-provider", "sandbox.dokcer", "did you mean 'docker'?"),
    ("sandbox: {docker: {}, local: {}}", "two-providers", "sandbox", "takes one provider"),
    ("box: {resources_servers: {box: {port: 8100}}}\nhead_server: {port: 8100}", "port-taken", "box.resources_servers.box.port", "8100 is taken by 'head_server'"),
    ("box: {resources_servers: {box: {host: 'http://h'}}}", "host", "box.resources_servers.box.host", "without scheme"),
    ("box: {resources_servers: {box: {host: 127.0.0.1}}}\nuse_absolute_ip: true", "host", "box.resources_servers.box.host", "warning[host]"),
    ("box: {resources_servers: {box: {api_key: sk-123}}}", "secret-in-file", "box.resources_servers.box.api_key", "move it to env.yaml"),
    ("box: {resources_servers: {box: {url: http://h, entrypoint: app.py}}}", "wrong-value", "box.resources_servers.box.entrypoint", "beside url"),
    ("box: {resources_servers: {box: {allowed_agents: [plain]}}}", "pairing", "turn.environment_servers.turn.agent_server", "use one of: plain"),
    ("box: {resources_servers: {box: {expose_gold_to: [oracle]}}}", "gold-exposed", "turn.environment_servers.turn.agent_server", "oracle"),
    ("turn: {environment_servers: {turn: {resources_tool_transports: [mcp]}}}", "tool-transport", "turn.environment_servers.turn.resources_tool_transports", "set expose_tools_over_mcp: true on 'box'"),
    ("turn: {environment_servers: {turn: {resources_tool_transports: [direct_http]}}}", "tool-transport", "turn.environment_servers.turn.resources_tool_transports", "the agent 'actor' (actor) cannot use — leave it out; actor uses mcp"),
    ("turn: {environment_servers: {turn: {max_concurrent_episodes: 1}}}", "wrong-value", "turn.environment_servers.turn.max_concurrent_episodes", "needs queue_timeout_seconds"),
    (
        "turn: {environment_servers: {turn: {default_episode_timeout_seconds: 100}}}\nbox: {resources_servers: {box: {sandbox_config: {ttl_s: 640}}}}",
        "time-budget",
        "box.resources_servers.box.sandbox_config.ttl_s",
        "episode 100 + 3 × cleanup 180 = 640 s does not fit into ttl_s 640 s",
    ),
    ("environment_server_routes: {t: trun}", "unknown-reference", "environment_server_routes.t", "did you mean 'turn'?"),
    ("environment_server_routes: {t: box}", "wrong-kind", "environment_server_routes.t", "which is a resources server"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule", "key", "part"), CASES)
def test_one_mistake_is_one_line(project, text, rule, key, part):
    (problem,) = project.check(text).problems
    assert (problem.rule, problem.key_path) == (rule, key)
    assert part in str(problem)
    assert problem.origin is not None
    assert problem.origin.path == ("base.yaml" if "agent_server" in key else "over.yaml")
    assert "\n" not in str(problem)


def actor(field: str) -> str:
    return f"actor:\n  responses_api_agents:\n    actor:\n      {field}\n"


REFERENCES = [
    ("resources_server: {type: resources_servers, name: bxo}", "unknown-reference", "resources_server", "did you mean 'box'?"),
    (
        "resources_server: {type: resources_servers, name: turn}",
        "wrong-kind",
        "resources_server",
        "as a resources server, but it is an environment server",
    ),
    ("resources_server: {type: responses_api_models, name: policy_model}", "wrong-value", "resources_server.type", "'resources_servers'"),
    ("resources_server: {type: resource_servers, name: box}", "unknown-kind", "resources_server.type", "did you mean 'resources_servers'?"),
    ("resources_server: {type: resources_servers}", "missing-key", "resources_server.name", "is required"),
    ("judges: [{type: responses_api_models, name: policy_modle}]", "unknown-reference", "judges[0]", "did you mean 'policy_model'?"),
]


@pytest.mark.parametrize(("field", "rule", "key", "part"), REFERENCES)
def test_references(project, field, rule, key, part):
    (problem,) = project.check(actor(field)).problems
    assert (problem.rule, problem.key_path) == (rule, f"actor.responses_api_agents.actor.{key}")
    assert part in str(problem)
    assert str(problem.origin).startswith("over.yaml:5:")


def test_nested_references_of_an_open_block_are_checked_too(project):
    text = "p: {responses_api_agents: {plain: {deep: [{judge: {type: responses_api_models, name: nobody}}]}}}"
    (problem,) = project.check(text).problems
    assert problem.key_path == "p.responses_api_agents.plain.deep[0].judge"


def test_the_plan_of_a_good_config(project):
    plan = project.check(actor("judges: [{type: responses_api_models, name: policy_model}]")).plan
    assert plan.environments == {"turn": Route("turn", "box", "actor", "policy_model")}
    assert set(plan.instances["actor"].references) == {"model_server", "judges[0]"}
    assert plan.instances["box"].directory == project.root / "resources_servers" / "box"
    assert plan.instances["box"].config.timeout_seconds == 30
    assert type(plan.instances["box"].config).__name__ == "Config"


def dataset(text: str) -> str:
    return f"box:\n  resources_servers:\n    box:\n      datasets:\n      - {{{text}}}\n"


def test_a_taskset_is_routed_to_the_one_environment_that_binds_its_server(project):
    project.write("d.jsonl", "")
    plan = project.check(dataset("name: d, type: example, jsonl_fpath: d.jsonl, taskset: 'box:mini'")).plan
    assert plan.routes == {"box:mini": plan.environments["turn"]}
    assert plan.datasets[0].dataset.jsonl_fpath == project.root / "d.jsonl"
    assert project.check(dataset("name: d, type: example, jsonl_fpath: d.jsonl")).plan.routes == {"d": plan.environments["turn"]}


TWO = "turn2:\n  _copy: turn\n"


def test_a_taskset_that_two_environments_bind_needs_a_route(project):
    project.write("d.jsonl", "")
    text = TWO + dataset("name: d, type: example, jsonl_fpath: d.jsonl, taskset: t")
    (problem,) = project.check(text).problems
    assert (problem.rule, problem.hint) == ("taskset-route", "write environment_server_routes: {t: turn}")
    plan = project.check(text + "environment_server_routes: {t: turn2}\n").plan
    assert plan.routes["t"].environment == "turn2"
    assert project.check(TWO + dataset("name: d, type: example, jsonl_fpath: d.jsonl")).plan.routes == {}


def test_a_taskset_that_no_environment_binds(project):
    project.write("d.jsonl", "")
    text = "turn: null\n" + dataset("name: d, type: example, jsonl_fpath: d.jsonl, taskset: t")
    (problem,) = project.check(text).problems
    assert "goes nowhere: no environment server binds 'box'" in problem.message


def test_files_of_data_sets(project):
    (problem,) = project.check(dataset("name: d, type: example, jsonl_fpath: no.jsonl")).problems
    assert (problem.rule, problem.severity) == ("file-missing", "error")
    project.write("prepare.py", "")
    examined = project.check(dataset("name: d, type: benchmark, jsonl_fpath: no.jsonl, prepare_script: prepare.py"))
    (problem,) = examined.problems
    assert (problem.rule, problem.severity) == ("data-not-prepared", "warning")
    assert "prepare.py" in problem.hint
    assert examined.plan is not None
    (problem,) = project.check(dataset("name: d, type: benchmark, jsonl_fpath: no.jsonl")).problems
    assert "needs a prepare_script" in problem.message
    (problem,) = project.check(dataset("name: d, type: train, jsonl_fpath: base.yaml, licence: MIT")).problems
    assert "did you mean 'license'?" in str(problem)
    assert str(problem.origin).startswith("over.yaml:6:")


@pytest.mark.parametrize(
    "name", ["MIT", "apache-2.0", "Apache 2.0", "TBD", "MIT OR Apache-2.0", "MIT (code; card unspecified)", "LicenseRef-own"]
)
def test_known_licences(name):
    assert license_hint(name) is None


def test_an_unknown_licence_is_doubtful_and_no_error(project):
    project.write("d.jsonl", "")
    examined = project.check(dataset("name: d, type: train, jsonl_fpath: d.jsonl, license: Apache2.0"))
    (problem,) = examined.problems
    assert (problem.rule, problem.severity, problem.hint) == ("unknown-license", "warning", "did you mean 'Apache-2.0'?")
    assert examined.plan is not None


def test_an_instance_elsewhere_needs_no_folder(project):
    examined = project.check("far: {resources_servers: {unheard_of: {url: 'http://h:1', whatever: 1}}}")
    assert examined.problems == []
    assert examined.plan.instances["far"].remote


def test_secrets_may_stand_in_env_yaml_and_in_the_environment(project):
    project.write("env.yaml", "policy_api_key: sk-secret")
    text = 'policy_model: {responses_api_models: {echo: {api_key: "${policy_api_key}"}}}'
    assert project.check(text).problems == []
    (project.root / "env.yaml").unlink()
    assert project.check("policy_api_key: ${oc.env:K}", env={"K": "sk-secret"}).problems == []
    assert project.check("policy_api_key: EMPTY").problems == []


def test_keys_of_other_tools_in_env_yaml_are_only_doubtful(project):
    project.write("env.yaml", "hf_token: hf_abc\npolicy_base_ulr: x")
    examined = project.check("")
    assert [problem.severity for problem in examined.problems] == ["warning", "warning"]
    assert "hf_abc" not in str(examined.problems[0])
    assert examined.plan is not None


def test_rows_prepared_below_the_working_directory_do_not_hide_the_server(project, tmp_path_factory):
    here = type(project)(tmp_path_factory.mktemp("here")).root
    for folder in ("resources_servers", "responses_api_agents", "responses_api_models", "environment_servers"):
        shutil.rmtree(here / folder)
    (here / "resources_servers/box/data").mkdir(parents=True)
    examined = examine(["base.yaml"], roots=[here, project.root], env={}, cwd=here)
    assert examined.problems == []
    assert examined.plan.instances["box"].directory == project.root / "resources_servers/box"


def test_a_secret_is_not_repeated_in_the_message(project):
    (problem,) = project.check("policy_api_key: sk-very-secret").problems
    assert "sk-very" not in str(problem)
    assert all("sk-very" not in str(found) for found in project.check("policy_api_key: [sk-very-secret]").problems)


def test_a_near_miss_in_a_block_without_a_model_is_doubtful(project):
    (problem,) = project.check("p: {responses_api_agents: {plain: {resource_server: x, anything: 1}}}").problems
    assert (problem.severity, problem.hint) == ("warning", "did you mean 'resources_server'?")


def test_a_missing_policy_model_names_the_option(project):
    (problem,) = project.check("policy_model: null").problems
    assert "--model-type" in problem.hint


BROKEN = ["import nonexistent_module_x", "class Config: pass", "x = (", "raise RuntimeError('a\\nb')", ""]


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_config_module_is_a_problem_of_that_file(project, code):
    project.write("resources_servers/bad/app.py", "")
    project.write("resources_servers/bad/config.py", code)
    (problem,) = project.check("bad: {resources_servers: {bad: {x: 1}}}").problems
    assert problem.rule == "broken-implementation"
    assert problem.origin.path.endswith("resources_servers/bad/config.py")


def test_validating_imports_no_app_and_leaves_the_search_path_alone(project):
    before = list(sys.path)
    project.write("resources_servers/box/app.py", "raise RuntimeError('imported')")
    assert project.check("").problems == []
    assert sys.path == before


def test_two_projects_with_one_implementation_name_do_not_mix(project, tmp_path_factory):
    other = type(project)(tmp_path_factory.mktemp("other"))
    field = "class Config(ResourcesServerConfig):\n    only_here: int = 1\n"
    other.write("resources_servers/box/config.py", "from gym.config.schema import ResourcesServerConfig\n" + field)
    text = "b2: {resources_servers: {box: {only_here: 2}}}"
    assert other.compose(text).problems == []
    assert [problem.rule for problem in project.compose(text).problems] == ["unknown-key"]


def test_many_mistakes_are_all_reported_in_the_order_of_the_file(project):
    text = "nonsense: 1\nbox: {resources_servers: {box: {timeout_seconds: x, domian: y}}}\nhead_server: {port: z}\n" + actor("max_steps: w")
    lines = [problem.origin.line for problem in project.check(text).problems]
    assert lines == sorted(lines)
    assert len(lines) == 5
