"""Sends requests to the rehearsal with Anthropic's own SDK and prints the SDK's results as JSON.

usage: anthropic_sdk.py BASE_URL
"""

import json
import sys

import anthropic

URL = sys.argv[1]
TOOLS = [
    {"name": name, "description": name, "input_schema": {"type": "object"}}
    for name in ("lookup", "now", "note", "plan")
]
client = anthropic.Anthropic(base_url=URL, api_key="any", max_retries=0, timeout=20)


def request(messages, **options):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return {"model": "claude-test", "max_tokens": 1024, "tools": TOOLS, "messages": messages} | options


def streamed(messages, api=client, **options):
    """The message that the SDK accumulates from a stream, and the event types in order."""
    with api.messages.stream(**request(messages, **options)) as stream:
        event_types = [event.type for event in stream if event.type in WIRE_EVENTS]
        return stream.get_final_message(), event_types


WIRE_EVENTS = {
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
}


def to_plain(message):
    content = []
    for block in message.content:
        if block.type == "text":
            content.append({"text": block.text})
        elif block.type == "thinking":
            content.append({"thinking": block.thinking, "signed": bool(block.signature)})
        elif block.type == "tool_use":
            content.append({"call": block.name, "arguments": block.input})
    return {
        "content": content,
        "stop": message.stop_reason,
        "usage": {
            "input": message.usage.input_tokens,
            "output": message.usage.output_tokens,
            "cached": message.usage.cache_read_input_tokens,
        },
        "id": message.id[:4],
        "model": message.model,
    }


def both(messages, **options):
    """The same message as a stream and as a whole."""
    message, _ = streamed(messages, **options)
    whole = client.messages.create(**request(messages, **options))
    return {"streamed": to_plain(message), "whole": to_plain(whole)}


def fragments(text):
    """The text fragments of the raw stream, not accumulated by the SDK."""
    stream = client.messages.create(**request(text), stream=True)
    pieces = []
    for event in stream:
        if event.type == "content_block_delta":
            delta = event.delta
            piece = getattr(delta, "text", None)
            pieces.append(piece if piece is not None else getattr(delta, "partial_json", ""))
    return pieces


def error(messages, api=client, stream=True, **options):
    try:
        if stream:
            streamed(messages, api, **options)
        else:
            api.messages.create(**request(messages, **options))
    except anthropic.APIStatusError as problem:
        body = problem.body if isinstance(problem.body, dict) else {}
        return {
            "class": type(problem).__name__,
            "status": problem.status_code,
            "type": body.get("error", {}).get("type"),
            "message": body.get("error", {}).get("message"),
            "retry_after": problem.response.headers.get("retry-after"),
            "request_id": bool(problem.request_id),
        }
    except Exception as problem:  # a broken connection; the class is of the SDK's HTTP client
        return {"class": type(problem).__name__}
    return {"class": None}


def assistant_message(message):
    return {"role": "assistant", "content": [block.model_dump() for block in message.content]}


def results(message, texts):
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": [{"type": "text", "text": text}] if block else text,
                "is_error": failed,
            }
            for call, (text, failed, block) in zip(calls, texts)
        ],
    }


def conversation(texts):
    start = {"role": "user", "content": "calls 34 35"}
    message, _ = streamed([start])
    return to_plain(streamed([start, assistant_message(message), results(message, texts)])[0])


def thinking(tamper):
    start = {"role": "user", "content": "thinking"}
    message, _ = streamed([start])
    assistant = assistant_message(message)
    if tamper:
        assistant["content"][0]["thinking"] += "!"
    return [start, assistant, results(message, [("noon", False, False)])]


OK = [('{"name": "Tritanium"}', False, False), ('{"name": "Pyerite"}', False, True), ("noon", False, False)]
BAD = [('{"more": [{"id": 1}, {"id": 2}, {"id": 3}]}', False, True), ("no such item", True, False), ("x", False, False)]
_, events = streamed("text")
calls, _ = streamed("calls 34 35")
retrying = client.with_options(max_retries=3)
print(
    json.dumps(
        {
            "text": both("text"),
            "events": events,
            "wire split": to_plain(streamed("wire split")[0]),
            "calls": both("calls 34 35"),
            "fragments": fragments("calls 34 35"),
            "fixed id": next(b.id for b in calls.content if b.type == "tool_use"),
            "distinct ids": len({b.id for b in calls.content if b.type == "tool_use"}),
            "answers": conversation(OK),
            "fan out": conversation(BAD),
            "thinking": both("thinking"),
            "thinking sent back": to_plain(streamed(thinking(False))[0]),
            "thinking changed": error(thinking(True)),
            "refusal": both("refusal"),
            "max tokens": both("long", max_tokens=3),
            "forced": both("text", tool_choice={"type": "tool", "name": "plan"}),
            "malformed": "".join(fragments("malformed")),
            "retried": to_plain(streamed("rate limited twice", retrying)[0]),
            "rate limited": error("rate limited"),
            "overloaded": error("overloaded"),
            "broken": error("broken", stream=False),
            "too long": error("too long"),
            "error inside": error("error inside"),
            "cut": error("cut once"),
            "after the cut": to_plain(streamed("cut once")[0]),
            "stall": error("stall", client.with_options(timeout=0.5)),
            "bad key": error("text", client.with_options(api_key="bad")),
            "no result": error([{"role": "user", "content": "calls 1 2"}, assistant_message(calls), {"role": "user", "content": "?"}]),
        }
    )
)
