"""Messages, tools and replies as Inspect has them, and back."""

import json
import re
from collections.abc import Sequence
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolChoice, ToolInfo, ToolParams

from evalkit.dialogue import Message, Reply, Request, Sampling, Tool, ToolCall
from evalkit.envs.arguments import clean, read_arguments
from evalkit.errors import UsageError
from evalkit.policy.conversation import answer
from evalkit.policy.table import check_policy, is_served, served
from evalkit.wire.tokens import input_tokens, output_tokens

_FAULT = "Error parsing the following tool call arguments:\n\n{}\n\nError details: {}"
"""Inspect's words for arguments that it cannot read: the only place where it keeps them."""
_KEPT = re.compile(r"Error parsing the following tool call arguments:\n\n(.*)\n\nError details: .*", re.DOTALL)

_FINISHES = {"max_tokens": "length", "model_length": "length"}
_CHOICES = {"required": "any"}


def to_messages(messages: Sequence[Message], period: int) -> list[ChatMessage]:
    """What the environment says in a period."""
    return [_to_message(message, {"period": period}) for message in messages]


def _to_message(message: Message, metadata: dict[str, Any]) -> ChatMessage:
    match message.role:
        case "system":
            return ChatMessageSystem(content=message.text, metadata=metadata)
        case "user":
            return ChatMessageUser(content=message.text, metadata=metadata)
        case "tool":
            return ChatMessageTool(
                content=message.text, tool_call_id=message.call_id, function=message.name, metadata=metadata
            )
        case "assistant":
            return to_assistant(Reply(text=message.text, calls=message.calls))


def to_assistant(reply: Reply) -> ChatMessageAssistant:
    """A reply as a model of Inspect's gives it."""
    calls = [_to_call(call) for call in reply.calls]
    return ChatMessageAssistant(content=reply.text, tool_calls=calls or None, source="generate")


def _to_call(call: ToolCall) -> InspectCall:
    arguments = read_arguments(call.arguments)
    if isinstance(arguments, dict) and call.arguments.strip():
        return InspectCall(id=call.id, function=call.name, arguments=arguments)
    fault = _FAULT.format(call.arguments, "they are not a JSON object, too large or too deep")
    return InspectCall(id=call.id, function=call.name, arguments={}, parse_error=fault)


def to_tools(tools: Sequence[Tool]) -> list[ToolInfo]:
    """The tools that a reply may call."""
    return [
        ToolInfo(
            name=tool.name,
            description=tool.description,
            parameters=ToolParams.model_validate({"additionalProperties": True, **tool.parameters}),
        )
        for tool in tools
    ]


def to_choice(choice: str) -> str:
    """`auto`, `required` or `none` in Inspect's words."""
    return _CHOICES.get(choice, choice)


def from_output(output: ModelOutput) -> Reply:
    """A model's reply, for the environment."""
    message, finish = output.message, output.stop_reason
    calls = tuple(_from_call(call) for call in message.tool_calls or ())
    return Reply(text=clean(message.text), calls=calls, finish=_FINISHES.get(finish, finish))


def _from_call(call: InspectCall) -> ToolCall:
    return ToolCall(id=clean(call.id), name=clean(call.function), arguments=_arguments(call))


def _arguments(call: InspectCall) -> str:
    """The text of a call's arguments: what the model wrote, as far as Inspect kept it."""
    if call.parse_error:
        kept = _KEPT.fullmatch(call.parse_error)
        return clean(kept[1] if kept else call.parse_error)
    text = json.dumps(call.arguments, ensure_ascii=False)
    return text if clean(text) == text else json.dumps(call.arguments)


def _from_message(message: ChatMessage) -> Message:
    if isinstance(message, ChatMessageAssistant):
        calls = tuple(_from_call(call) for call in message.tool_calls or ())
        return Message(role="assistant", text=message.text, calls=calls)
    if isinstance(message, ChatMessageTool):
        return Message(role="tool", text=message.text, call_id=message.tool_call_id or "", name=message.function or "")
    return Message(role="system" if isinstance(message, ChatMessageSystem) else "user", text=message.text)


def from_tools(tools: Sequence[ToolInfo]) -> tuple[Tool, ...]:
    """The tools of a request, for a policy."""
    return tuple(
        Tool(name=tool.name, description=tool.description, parameters=tool.parameters.model_dump(exclude_none=True))
        for tool in tools
    )


# evalkit's policies as models of Inspect's: `--model evalkit/knuth`. They need no key and cost nothing.

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
        chat = tuple(map(_from_message, input))
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
