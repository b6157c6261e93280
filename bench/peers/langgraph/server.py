"""The LangGraph peer: its graph of a model and tools, behind FastAPI.

Conversations are kept by its in-memory checkpointer; nothing is stored.
`POST /chat {session, model, message}`.
"""

import json
import sys
from functools import cache

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

PORT, PROVIDER = int(sys.argv[1]), sys.argv[2]

app = FastAPI()
saver = InMemorySaver()


class Chat(BaseModel):
    session: str
    model: str
    message: str


def read_skill(name: str) -> str:
    """Reads a skill."""
    return "Tritanium sells for 4.12 ISK a unit in Jita."


@cache
def build_graph(model: str):
    chat_model = ChatOpenAI(model=model, base_url=PROVIDER, api_key="bench", streaming=True)
    chat_model = chat_model.bind_tools([read_skill])

    async def step(state: MessagesState):
        return {"messages": [await chat_model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("step", step)
    graph.add_node("tools", ToolNode([read_skill]))
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", tools_condition)
    graph.add_edge("tools", "step")
    return graph.compile(checkpointer=saver)


def event(kind: str, **fields) -> str:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n"


async def run(chat: Chat):
    stream = build_graph(chat.model).astream(
        {"messages": [{"role": "user", "content": chat.message}]},
        {"configurable": {"thread_id": chat.session}},
        stream_mode="messages",
    )
    async for message, _ in stream:
        if isinstance(message, AIMessageChunk) and message.content:
            yield event("text", text=message.content)
        elif isinstance(message, ToolMessage):
            yield event("tool_call_completed", result=message.content)
    yield event("done")


@app.post("/chat")
async def chat(body: Chat) -> StreamingResponse:
    return StreamingResponse(run(body), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False)
