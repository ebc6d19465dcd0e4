"""Agents of LangGraph and of the OpenAI Agents SDK play whole episodes through the gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.dialogue import Message, ToolCall
from evalkit.seats import AgentFn
from tests.integrations.howto import follow

WHY = "needs the frameworks: python -m tests.integrations gateway"
langgraph_graph = pytest.importorskip("langgraph.graph", reason=WHY)
langchain_openai = pytest.importorskip("langchain_openai", reason=WHY)
agents = pytest.importorskip("agents", reason=WHY)
openai = pytest.importorskip("openai", reason=WHY)
httpx = pytest.importorskip("httpx", reason=WHY)

MODELS = {"main": "simulated/knuth"}


def an_instance() -> evalkit.Instance:
    return evalkit.suite("scheduling/basic", instances=["seed-0"])[0]


def as_openai(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        value["tool_call_id"] = message.call_id
    if message.calls:
        value["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return value


def tools_of(seat: evalkit.Seat) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in seat.tools
    ]


@evalkit.agent(version=1)
async def in_langgraph(seat: evalkit.Seat) -> None:
    """A graph of two nodes: the model, and what acts on its calls."""
    async with evalkit.gateway(seat) as gate, httpx.AsyncClient(timeout=None) as client:
        model = langchain_openai.ChatOpenAI(
            base_url=gate.base_url("openai_chat"),
            api_key="-",
            model="main",
            max_retries=0,
            http_async_client=client,
        )

        async def think(state: dict[str, Any]) -> dict[str, Any]:
            del state
            bound = model.bind_tools(tools_of(seat), tool_choice="required")
            return {"messages": [await bound.ainvoke([as_openai(message) for message in seat.messages])]}

        async def act(state: dict[str, Any]) -> dict[str, Any]:
            calls = state["messages"][-1].tool_calls
            acts = [ToolCall(id=call["id"], name=call["name"], arguments=json.dumps(call["args"])) for call in calls]
            await seat.act(acts)
            return {"messages": []}

        graph = langgraph_graph.StateGraph(langgraph_graph.MessagesState)
        graph.add_node("think", think)
        graph.add_node("act", act)
        graph.add_edge(langgraph_graph.START, "think")
        graph.add_edge("think", "act")
        graph.add_conditional_edges("act", lambda state: langgraph_graph.END if seat.ending else "think")
        await graph.compile().ainvoke({"messages": []}, {"recursion_limit": 1000})


@evalkit.agent(version=1)
async def in_agents_sdk(seat: evalkit.Seat) -> None:
    """The environment's tools are the SDK's; each of its tool calls is one act."""
    agents.set_tracing_disabled(True)
    one_by_one = asyncio.Lock()

    def as_tool(tool: evalkit.Tool) -> Any:
        async def invoke(context: Any, arguments: str) -> str:
            async with one_by_one:
                if seat.ending:
                    return "The episode is over."
                call_id = getattr(context, "tool_call_id", "call")
                await seat.act([ToolCall(id=call_id, name=tool.name, arguments=arguments)])
                told = [message.text for message in seat.messages if message.call_id == call_id]
                return told[-1] if told else "The period is over."

        return agents.FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=dict(tool.parameters),
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    def over(context: Any, results: Any) -> Any:
        """A run of the SDK is one chat."""
        del context, results
        return agents.ToolsToFinalOutputResult(is_final_output=bool(seat.ending or not seat.turn), final_output="")

    async with evalkit.gateway(seat) as gate:
        base_url = gate.base_url("openai_responses")
        client = openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=0)
        while not seat.ending:
            agent = agents.Agent(
                name="assistant",
                instructions=seat.messages[0].text,
                model=agents.OpenAIResponsesModel(model="main", openai_client=client),
                tools=[as_tool(tool) for tool in seat.tools],
                tool_use_behavior=over,
            )
            opening = "\n\n".join(message.text for message in seat.messages[1:])
            await agents.Runner.run(agent, opening, max_turns=50)


@pytest.mark.parametrize("code", [in_langgraph, in_agents_sdk])
def test_a_framework_s_agent_plays_an_episode(code: AgentFn) -> None:
    episode = evalkit.play(code, an_instance(), models=MODELS)
    assert episode.score is not None
    assert (episode.ending, episode.score.value) == ("stable", 1.0)


def test_the_agent_of_the_page_plays_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow("docs/agents.md", tmp_path, monkeypatch, {}) == ["stable\n"]
