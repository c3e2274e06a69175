"""An agent for tests: the tool loop as a harness would have it, on the real OpenAI client, with every call streamed."""

from typing import Any

import openai

from gym.models.dialects.histories import Options
from gym.models.dialects.to_chat import responses_to_chat
from gym.protocol.responses import Response, ResponseCreateParams, assistant_message
from gym.servers import AgentSession
from responses_api_agents.simple_agent.app import Loop, SimpleAgent


class StreamingAgent(SimpleAgent):
    """Speaks Chat Completions; its own transcript holds what it heard."""

    async def respond(self, session: AgentSession[Loop], params: ResponseCreateParams, prefix: str) -> Response:
        """Loop until no tool is called, or `max_steps` is reached."""
        assert session.episode_id is not None
        loop = session.state
        url = f"{self.context.info(self.config.model_server).url}{prefix}/v1"
        token = self.context.credentials.rollout_token(session.episode_id.capture_key)
        chat: dict[str, Any] = responses_to_chat(params.model_dump(mode="json", exclude_unset=True), Options())
        messages, response_id = chat["messages"], ""
        offered = {tool["function"]["name"] for tool in chat["tools"]}
        async with openai.AsyncOpenAI(base_url=url, api_key=token, max_retries=0, timeout=60) as client:
            for _ in range(self.config.max_steps or 8):
                async with client.chat.completions.stream(**{**chat, "model": "m", "messages": messages}) as events:
                    async for _event in events:
                        pass
                    completion = await events.get_final_completion()
                message, response_id = completion.choices[0].message, completion.id
                messages.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
                loop.output += [assistant_message(message.content)] if message.content else []
                calls = [
                    {"type": "function_call", "call_id": call.id, "name": call.function.name, "arguments": call.function.arguments}
                    for call in message.tool_calls or []
                ]
                loop.output += calls
                if not calls:
                    break
                for call in calls:
                    result = await self._call(loop, call, offered)
                    loop.output.append(result)
                    messages.append({"role": "tool", "tool_call_id": call["call_id"], "content": result["output"]})
        return Response(id=response_id, output=loop.output)
