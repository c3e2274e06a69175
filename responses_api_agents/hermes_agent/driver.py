"""Runs one conversation of Hermes, in a sandbox, by the Python of the bundle; says what happens on standard output, as lines of JSON.

Invariant: a message is said, and flushed, as soon as it stands in Hermes' history, so that a run that is cut short has said all
that came before; the last line is the result. What Hermes prints itself goes to standard error. It imports nothing of ours, and
is told everything by its argument (settings), its standard input (the prompt) and two variables (the address, the token).
"""

import json
import os
import sys
import threading
from pathlib import Path

PASSED_ON = ("completed", "failed", "partial", "interrupted", "error", "failure_reason", "turn_exit_reason", "api_calls", "session_id")
SAID, SUMMARY = "_gym_said", "_compressed_summary"
"""Marks on messages: ours, and Hermes' for what is left of a compacted history. It sends no key with such a name to a model."""
LIMITS = ("compression_exhausted", "compaction_disabled", "guardrail")


class Speaker:
    """Says what is new in the histories of Hermes and its sub-agents."""

    def __init__(self, out):
        self._out, self._lock = out, threading.RLock()
        self._agents = []

    def say(self, event):
        data = json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace")
        with self._lock:
            self._out.write(data + b"\n")
            self._out.flush()

    def new_messages(self, agent, messages):
        with self._lock:
            if not any(known is agent for known in self._agents):
                self._agents.append(agent)
            number = next(index for index, known in enumerate(self._agents) if known is agent)
            for message in messages:
                if message.get(SAID):
                    continue
                message[SAID] = True
                if message.get(SUMMARY):
                    self.say({"type": "compaction", "agent": number})
                else:
                    said = {key: value for key, value in message.items() if not key.startswith("_")}
                    self.say({"type": "message", "agent": number, "session": str(agent.session_id), "message": said})


def main():
    settings, prompt = json.loads(sys.argv[1]), sys.stdin.buffer.read().decode("utf-8", "replace")
    speaker = Speaker(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    home = Path(os.environ["HERMES_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text(json.dumps(settings["config"]))  # JSON is YAML
    code = 1
    try:
        import run_agent
        from gateway.session_context import declare_stateless_channel

        declare_stateless_channel()  # so that sub-agents are waited for: nobody would take their word later

        def flush(self, messages, conversation_history=None):
            """In the place of Hermes' own, which would write to a database that there is none of."""
            speaker.new_messages(self, messages)

        run_agent.AIAgent._flush_messages_to_session_db = flush
        wanted = settings["agent"]["enabled_toolsets"]
        empty = [name for name in wanted if not run_agent.get_tool_definitions(enabled_toolsets=[name], quiet_mode=True)]
        if empty:  # a policy without its tools would be measured all the same
            speaker.say(
                {"type": "result", "failed": True, "terminal": True, "error": f"no tool of these toolsets works here: {', '.join(empty)}"}
            )
            os._exit(1)
        agent = run_agent.AIAgent(
            base_url=os.environ["OPENAI_BASE_URL"],
            api_key=os.environ["OPENAI_API_KEY"],
            provider="custom",
            api_mode="chat_completions",
            **settings["agent"],
            quiet_mode=True,
            skip_context_files=True,
            skip_memory=True,
            save_trajectories=False,
        )
        result = agent.run_conversation(prompt, task_id="task")
        speaker.new_messages(agent, result.get("messages") or [])
        said = {key: result.get(key) for key in PASSED_ON}
        said["limits"] = [key for key in LIMITS if result.get(key)]
        said["tokens"] = {key: result.get(f"{key}_tokens") for key in ("input", "output", "reasoning", "cache_read")}
        speaker.say({"type": "result", **said})
        code = 0
    except BaseException as error:
        speaker.say({"type": "result", "failed": True, "error": f"{type(error).__name__}: {error}"})
    os._exit(code)  # threads of Hermes may live on; what they started is ended by who started us


if __name__ == "__main__":
    main()
