import json
import subprocess
import sys

import pytest
import yaml


def test_a_valid_config(gym):
    assert gym("env", "validate", "--config", "base.yaml") == (0, "Config is valid\n", "")


def test_problems_go_to_stderr_with_exit_1(gym, project):
    project.write("bad.yaml", "config_paths: [base.yaml]\nnonsense: 1\nmore: 2\n")
    code, out, err = gym("env", "validate", "--config", "bad.yaml")
    assert (code, out) == (1, "")
    assert err.splitlines()[0].startswith("bad.yaml:2:1: error[unknown-key]: nonsense: ")
    assert err.splitlines()[-1] == "2 errors, 0 warnings"


def test_json(gym, project):
    project.write("bad.yaml", "nonsense: 1\n")
    code, out, err = gym("env", "validate", "-c", "bad.yaml", "--format", "json")
    (problem,) = json.loads(out)["problems"]
    assert (code, err, json.loads(out)["valid"]) == (1, "", False)
    assert (problem["file"], problem["line"], problem["column"], problem["rule"]) == ("bad.yaml", 1, 1, "unknown-key")
    assert json.loads(gym("env", "validate", "-c", "base.yaml", "--format", "json")[1]) == {"valid": True, "problems": []}


def test_sarif_and_github(gym, project):
    project.write("bad.yaml", "config_paths: [base.yaml]\nnonsense: '50%, a:b'\n")
    code, out, _ = gym("env", "validate", "-c", "bad.yaml", "--format", "sarif")
    (run,) = json.loads(out)["runs"]
    (result,) = run["results"]
    assert (code, result["ruleId"], result["level"]) == (1, "unknown-key", "error")
    location = result["locations"][0]["physicalLocation"]
    assert location == {"artifactLocation": {"uri": "bad.yaml"}, "region": {"startLine": 2, "startColumn": 1}}
    code, out, _ = gym("env", "validate", "-c", "bad.yaml", "--format", "github")
    assert (code, out.startswith("::error file=bad.yaml,line=2,col=1,title=unknown-key::nonsense: ")) == (1, True)
    assert "50%25, a:b" in out


def test_strict_fails_on_warnings(gym):
    assert gym("env", "validate", "-c", "base.yaml", "+nobody=null")[0] == 0
    code, out, err = gym("env", "validate", "-c", "base.yaml", "+nobody=null", "--strict")
    assert (code, out, err.splitlines()[-1]) == (1, "", "0 errors, 1 warning")
    code, out, _ = gym("env", "validate", "-c", "base.yaml", "+nobody=null", "--strict", "--format", "json")
    assert (code, json.loads(out)["valid"], json.loads(out)["problems"][0]["severity"]) == (1, False, "warning")
    assert gym("env", "validate", "-c", "base.yaml", "--strict")[0] == 0


def test_a_deprecated_config_in_use_is_a_warning(gym, project):
    old = "benchmarks/old/simple.yaml"
    project.write(old, "config_paths: [base.yaml]\n")
    manifest = project.write("benchmarks/old/simple/manifest.yaml", "# no more than this is read here\nlifecycle: deprecated\n")
    project.write("mine.yaml", f"config_paths:\n- {old}\n")
    for used, place in ((old, f"{old}:1:1"), ("mine.yaml", "mine.yaml:2:3")):
        code, out, err = gym("env", "validate", "-c", used)
        assert (code, out, err.count("\n")) == (0, "Config is valid\n", 1)
        assert err.startswith(f"{place}: warning[deprecated]: config_paths: {old} is deprecated — ")
        assert gym("env", "validate", "-c", used, "--strict")[0] == 1
    manifest.write_text("lifecycle: active\n")
    assert gym("env", "validate", "-c", "mine.yaml", "--strict")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--confg", "base.yaml"),
        ("base.yaml",),
        ("-c", "base.yaml", "--format", "xml"),
        ("-c",),
        ("-c", "base.yaml", "word"),
        ("-c", "base.yaml", "-x"),
    ],
)
def test_wrong_usage_is_exit_2(gym, arguments):
    code, out, err = gym("env", "validate", *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_a_config_without_servers_does_not_pass(gym, project):
    project.write("empty.yaml", "")
    code, out, err = gym("env", "validate", "--config", "empty.yaml")
    assert (code, out) == (1, "")
    assert err.startswith("warning[no-instances]: ")


@pytest.mark.parametrize(
    ("block", "where", "says"),
    [
        ("docker: {create: {pul: never}}", "sandbox.docker.create.pul", "did you mean 'pull'?"),
        ("docker: {exec: {concurrency: 0}}", "sandbox.docker.exec.concurrency", "greater than or equal to 1"),
        ("docker: {reach_host: 'http://here'}", "sandbox.docker.reach_host", "is not a host"),
        ("docker: {reach_hots: here}", "sandbox.docker.reach_hots", "did you mean 'reach_host'?"),
        ("local: {create: {network: bridge}}", "sandbox.local.create.network", "'none' or 'host'"),
    ],
)
def test_options_of_sandbox_providers_are_checked(gym, project, block, where, says):
    project.write("box.yaml", f"config_paths: [base.yaml]\nsandbox:\n  {block}\n")
    code, out, err = gym("env", "validate", "--config", "box.yaml")
    assert (code, out) == (1, "")
    problem, tally = err.splitlines()
    assert problem.startswith("box.yaml:3:")
    assert f"]: {where}: " in problem
    assert says in problem
    assert tally == "1 error, 0 warnings"


HARNESS = """
    from gym.harness.config import HarnessConfig

    class Config(HarnessConfig):
        "Works in the task's sandbox."
    """


@pytest.mark.parametrize(
    ("block", "spec", "where"),
    [
        ("docker: {create: {network: none}}", "{}", "sandbox.docker.create.network"),
        ("docker: {create: {network: none}}", "{network: bridge}", None),
        ("docker: {}", "{network: none}", "box.resources_servers.box.sandbox_config.network"),
        ("docker: {}", "{network: internal}", "box.resources_servers.box.sandbox_config.network"),
        ("docker: {}", "{provider_options: {network: none}}", "box.resources_servers.box.sandbox_config.provider_options.network"),
        ("docker: {create: {network: internal}}", "{}", None),
        ("docker: {reach_host: none}", "{}", "sandbox.docker.reach_host"),
        ("local: {}", "{}", "sandbox.local.create.network"),
        ("local: {unconfined: true}", "{}", None),
        ("local: {create: {network: host}}", "{}", None),
    ],
)
def test_a_sandbox_that_cannot_reach_the_model_is_told(gym, project, block, spec, where):
    project.write("responses_api_agents/worker/app.py", "")
    project.write("responses_api_agents/worker/config.py", HARNESS)
    box = f"box: {{resources_servers: {{box: {{sandbox_provider: sandbox, sandbox_config: {spec}}}}}}}\n"
    agent = "worker: {responses_api_agents: {worker: {model_server: {type: responses_api_models, name: policy_model}}}}\n"
    turn = "turn: {environment_servers: {turn: {agent_server: {type: responses_api_agents, name: worker}}}}\n"
    project.write("box.yaml", f"config_paths: [base.yaml]\nsandbox: {{{block}}}\n" + box + agent + turn)
    code, _, err = gym("env", "validate", "--config", "box.yaml")
    if where is None:
        assert (code, err) == (0, "")
        return
    problem, _ = err.splitlines()
    assert f"error[sandbox-reach]: {where}: " in problem
    assert "the agent 'worker' (worker) calls 'policy_model' from within one — " in problem
    assert problem.startswith("box.yaml:")


def test_auth_may_be_off_as_yaml_reads_it(gym, project):
    project.write("open.yaml", "config_paths: [base.yaml]\nauth: off\n")
    assert gym("env", "validate", "--config", "open.yaml") == (0, "Config is valid\n", "")


@pytest.mark.parametrize("arguments", [["--config", ""], ["--config", "base.yaml", "--model-type", ""], ["--model-type", "../x"]])
def test_an_empty_name_is_wrong_usage(gym, arguments):
    code, out, err = gym("env", "validate", *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_a_config_module_that_exits_is_a_problem(gym, project):
    project.write("resources_servers/leaves/app.py", "")
    project.write("resources_servers/leaves/config.py", "raise SystemExit(3)\n")
    project.write("leaves.yaml", "x: {resources_servers: {leaves: {}}}\n")
    code, _, err = gym("env", "validate", "--config", "leaves.yaml")
    assert code == 1
    assert "broken-implementation" in err
    assert "SystemExit: 3" in err


def test_every_sign_of_an_override_gets_through(gym):
    box = "box.resources_servers.box"
    overrides = (f"~{box}.timeout_seconds", f"+{box}.domain=d", f"++{box}.limits.cpu=2", "turn=null", "policy_model_name=m-1")
    code, out, _ = gym("env", "resolve", "--config", "base.yaml", *overrides)
    data = yaml.safe_load(out)
    assert code == 0
    assert data["box"] == {"resources_servers": {"box": {"domain": "d", "limits": {"cpu": 2}}}}
    assert "turn" not in data
    assert data["policy_model_name"] == "m-1"


def test_resolve_masks_secrets_also_where_they_were_interpolated(gym, project):
    project.write("env.yaml", "policy_api_key: sk-123456\n")
    project.write("a.yaml", "config_paths: [base.yaml]\npolicy_base_url: 'http://h/?k=${policy_api_key}'\n")
    code, out, err = gym("env", "resolve", "-c", "a.yaml")
    assert (code, err) == (0, "")
    assert "sk-123456" not in out
    assert yaml.safe_load(out)["policy_base_url"] == "http://h/?k=****"


def test_resolve_prints_what_it_can_of_a_broken_config(gym, project):
    project.write("bad.yaml", "config_paths: [base.yaml]\nnonsense: 1\n")
    code, out, err = gym("env", "resolve", "-c", "bad.yaml")
    assert code == 1
    assert yaml.safe_load(out)["nonsense"] == 1
    assert "unknown-key" in err


def test_explain(gym, project):
    project.write("a.yaml", "config_paths: [base.yaml]\nbox: {resources_servers: {box: {timeout_seconds: 5}}}\n")
    key = "box.resources_servers.box.timeout_seconds"
    code, out, _ = gym("env", "explain", key, "-c", "a.yaml", f"{key}=6")
    assert code == 0
    assert out.splitlines() == [f"{key}: 6", "  set at command line", "  over   a.yaml:2:33", "  over   base.yaml:5:7"]
    code, out, err = gym("env", "explain", "box.resources_server", "-c", "a.yaml")
    assert (code, out) == (1, "")
    assert "did you mean 'resources_servers'?" in err


def test_an_unknown_model_type_is_a_message(gym):
    code, _, err = gym("env", "validate", "-c", "base.yaml", "--model-type", "ehco")
    assert code == 1
    assert "did you mean 'echo'?" in err


def test_version_and_help(gym):
    code, out, _ = gym("--version")
    assert (code, out.startswith("gym ")) == (0, True)
    assert "validate" in gym("env", "--help")[1]


def test_an_interrupt_is_130_without_a_traceback(gym, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gym.cli.env.check_usage", interrupted)
    code, _, err = gym("env", "validate", "-c", "base.yaml")
    assert code == 130
    assert "Traceback" not in err


HEAVY = {"pydantic", "yaml", "omegaconf", "hydra", "aiohttp", "starlette", "uvicorn", "rich", "asyncio"}


@pytest.mark.parametrize(
    ("arguments", "allowed"), [(["--help"], set()), (["env", "validate", "-c", "base.yaml", "policy_model_name=m"], {"pydantic", "yaml"})]
)
def test_a_command_imports_no_more_than_it_needs(project, arguments, allowed):
    code = f"import sys; from gym.cli.main import run; code = run({arguments!r}); print(code, *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True, timeout=60, check=True)
    exit_code, *modules = done.stderr.split()
    assert exit_code == "0"
    assert {name.partition(".")[0] for name in modules} & HEAVY == allowed
