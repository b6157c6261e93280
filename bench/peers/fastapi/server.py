"""The FastAPI peer: a hand-written agent loop on the openai SDK.

Conversations are kept in memory; nothing is stored. `POST /chat {session, model, message}`.
"""

import json
import sys

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI
from pydantic import BaseModel

PORT, PROVIDER = int(sys.argv[1]), sys.argv[2]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_skill",
            "description": "Reads a skill.",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
        },
    }
]

app = FastAPI()
provider = AsyncOpenAI(base_url=PROVIDER, api_key="bench")
conversations: dict[str, list[dict]] = {}


class Chat(BaseModel):
    session: str
    model: str
    message: str


def read_skill(name: str) -> str:
    return "Tritanium sells for 4.12 ISK a unit in Jita."


def event(kind: str, **fields) -> str:
    return f"data: {json.dumps({'type': kind, **fields})}\n\n"


async def run(chat: Chat):
    messages = conversations.setdefault(chat.session, [])
    messages.append({"role": "user", "content": chat.message})
    while True:
        stream = await provider.chat.completions.create(
            model=chat.model, messages=messages, tools=TOOLS, stream=True
        )
        text, calls = "", {}
        async for chunk in stream:
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            if delta.content:
                text += delta.content
                yield event("text", text=delta.content)
            for part in delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
        if not calls:
            messages.append({"role": "assistant", "content": text})
            yield event("done")
            return
        functions = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls.values()
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": functions})
        for call in calls.values():
            yield event("tool_call_started", tool=call["name"])
            result = read_skill(**json.loads(call["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            yield event("tool_call_completed", result=result)


@app.post("/chat")
async def chat(body: Chat) -> StreamingResponse:
    return StreamingResponse(run(body), media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", access_log=False)
