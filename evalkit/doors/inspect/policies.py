"""evalkit's policies as models of Inspect's: `--model evalkit/knuth`. They need no key and cost nothing."""

from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from evalkit.dialogue import Reply, Request, Sampling
from evalkit.doors.inspect.chats import from_messages, from_tools, to_assistant
from evalkit.errors import UsageError
from evalkit.policy.conversation import answer
from evalkit.policy.table import check_policy, is_served, served
from evalkit.wire.tokens import input_tokens, output_tokens

_STOPS = {"length": "max_tokens"}


@modelapi(name="evalkit")
def evalkit() -> type[ModelAPI]:
    """The models `evalkit/POLICY`."""
    return PolicyModel


class PolicyModel(ModelAPI):
    """A policy that decides from the conversation alone. Its draws depend on the request's seed."""

    def __init__(self, model_name: str, config: GenerateConfig | None = None, **_: Any) -> None:
        """Raises UsageError for a name that is no policy's, or that of one that must see the instance."""
        check_policy(model_name)
        if not is_served(model_name):
            raise UsageError(f"The policy {model_name!r} sees more than the conversation, so it cannot be a model.")
        super().__init__(model_name, config=config or GenerateConfig())
        self._play = served(model_name)

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect's name for it
        tools: list[ToolInfo],
        tool_choice: ToolChoice,  # noqa: ARG002 - policies know what to call
        config: GenerateConfig,
    ) -> ModelOutput:
        """The policy's reply."""
        chat = from_messages(input)
        sampling = Sampling(
            max_tokens=config.max_tokens or Sampling().max_tokens, parallel_calls=config.parallel_tool_calls
        )
        request = Request(messages=chat, tools=from_tools(tools), sampling=sampling, seed=config.seed or 0)
        reply = answer(self.model_name, self._play, request)
        asked = input_tokens(sum(len(message.text.encode()) for message in chat))
        return _output(self.model_name, reply, asked)


def _output(name: str, reply: Reply, asked: int) -> ModelOutput:
    written = output_tokens(reply)
    return ModelOutput(
        model=name,
        choices=[ChatCompletionChoice(message=to_assistant(reply), stop_reason=_STOPS.get(reply.finish, reply.finish))],
        usage=ModelUsage(input_tokens=asked, output_tokens=written, total_tokens=asked + written),
    )
