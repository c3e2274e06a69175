# ruff: noqa: E501
"""Whatever is written, the answer is a list of problems or a plan, and never an exception."""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEYS = st.sampled_from(
    [
        "box", "actor", "turn", "policy_model", "sandbox", "mine", "resources_servers", "responses_api_agents", "environment_servers", "resources_server",
        "agent_server", "model_server", "type", "name", "_inherit_from", "_copy", "_delete_key", "datasets", "port", "host", "url", "entrypoint",
        "sandbox_config", "ttl_s", "sandbox_provider", "docker", "allowed_agents", "expose_gold_to", "default_episode_timeout_seconds", "head_server",
        "environment_server_routes", "policy_api_key", "policy_base_url", "auth", "token_id_capture", "jsonl_fpath", "taskset", "limits", "config_paths",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.sampled_from(
        [
            None, True, 0, -1, 8100, 1.5, float("inf"), float("nan"), "", "???", "box", "actor", "turn", "app.py", "resources_servers", "policy_model", "benchmark",
            "${policy_base_url}", "${box}", "${.name}", "${oc.env:NO}", "${", "\\${x}", "${box.resources_servers.box.port}", "a,b", "box.resources_servers",
            "responses_api_agents", "train", "x: y", "../..", "/", "a\nb", "\x1b[31m", "é" * 300, 10**30,
        ]
    )
)  # fmt: skip
TREES = st.recursive(SCALARS, lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=4), st.lists(inner, max_size=3)), max_leaves=14)
CONFIGS = st.dictionaries(KEYS, TREES, max_size=5)
SHAPED = st.fixed_dictionaries(
    {},
    optional={
        "box": st.fixed_dictionaries({"resources_servers": st.dictionaries(st.sampled_from(["box", "plain"]), CONFIGS, max_size=2)}),
        "turn": st.fixed_dictionaries({"environment_servers": st.fixed_dictionaries({"turn": CONFIGS})}),
        "mine": st.fixed_dictionaries({"_inherit_from": KEYS, "responses_api_agents": st.fixed_dictionaries({"actor": CONFIGS})}),
        "sandbox": TREES,
        "head_server": CONFIGS,
    },
)
PATHS = st.lists(KEYS, min_size=1, max_size=4).map(".".join)
OVERRIDES = st.lists(
    st.tuples(st.sampled_from(["", "+", "++", "~"]), PATHS, SCALARS).map(lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"), max_size=3
)


@given(st.one_of(CONFIGS, SHAPED), OVERRIDES, st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_config_raises(project, config, overrides, with_base):
    text = yaml.safe_dump(config, allow_unicode=True)
    examined = project.check(text, *overrides) if with_base else project.compose(text, *overrides)
    assert examined.plan is not None or any(problem.severity == "error" for problem in examined.problems)
    for problem in examined.problems:
        line = str(problem)
        assert "\n" not in line
        assert "\x1b" not in line
        assert len(line) < 1500
