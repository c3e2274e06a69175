"""When an environment server opens the record of an episode by hand: only where something may stand under its key."""

from pathlib import Path

import pytest

from gym.protocol.ids import EpisodeId
from gym.servers import rollout_capture as module
from gym.servers.base import Server
from gym.servers.context import PeerInfo, ServerContext
from gym.servers.rollout_capture import RolloutCapture, UsedKeys
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config
from tests.unit.servers.conftest import Rig


def test_the_keys_of_late_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECEIPTS", 2)
    used = UsedKeys(unsure=False)
    assert [used.use(key) for key in ("a", "a", "b", "a", "c")] == [False, True, False, True, False]
    assert [used.use(key) for key in ("a", "b")] == [True, False]  # the one that was used longest ago is forgotten
    assert UsedKeys(unsure=True).use("a")


@pytest.mark.parametrize("unsure", [False, True])
async def test_a_key_is_opened_where_it_may_have_been_used(rig: Rig, tmp_path: Path, unsure: bool) -> None:
    made: type[Server] = ScriptedModel
    server = await rig.add("model", made, Config())
    opened: list[str] = []
    open_at = server.recorder.open
    server.recorder.open = lambda key, session: (opened.append(session), open_at(key, session))
    agent = PeerInfo("agent", "responses_api_agents", "agent", "http://agent.in-process", model_server="model")
    context = ServerContext("env", "run", "", rig.credentials, rig.peers, rig.transport, tmp_path)
    used, reports = UsedKeys(unsure=unsure), list[object]()
    for session in ("s1", "s2"):
        capture = RolloutCapture(context, agent, EpisodeId(rollout_id="r1"), session, used)
        await capture.open()
        script = {"input": "go", "metadata": {"script": '[{"say": "hello"}]'}}
        assert (await rig.call("model", f"{capture.prefix}/v1/responses", script)).status == 200
        await capture.close(None)
        assert capture.report is not None
        reports.append((capture.report["gaps"], capture.report["metrics"]["num_calls"]))
    assert reports == [([], 1)] * 2
    assert opened == (["s1", "s2"] if unsure else ["s2"])
