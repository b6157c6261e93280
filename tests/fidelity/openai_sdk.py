"""Sends requests to the rehearsal with OpenAI's own SDK and prints the SDK's results as JSON.

usage: openai_sdk.py BASE_URL
"""

import json
import sys

import openai

URL = sys.argv[1] + "/v1"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("lookup", "now", "note", "plan")
]
client = openai.OpenAI(base_url=URL, api_key="any", max_retries=0, timeout=20)


def request(messages, **options):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return {"model": "gpt-test", "tools": TOOLS, "messages": messages} | options


def streamed(messages, api=client, **options):
    """The completion that the SDK accumulates from a stream."""
    usage = {"include_usage": True}
    with api.chat.completions.stream(**request(messages, stream_options=usage, **options)) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def parse_arguments(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def to_plain(completion):
    choice = completion.choices[0]
    message = choice.message
    content = []
    if getattr(message, "reasoning_content", None):
        content.append({"thinking": message.reasoning_content, "signed": False})
    if message.content:
        content.append({"text": message.content})
    if message.refusal:
        content.append({"refusal": message.refusal})
    for call in message.tool_calls or []:
        content.append({"call": call.function.name, "arguments": parse_arguments(call.function.arguments)})
    usage = completion.usage
    return {
        "content": content,
        "stop": choice.finish_reason,
        "usage": {
            "input": usage.prompt_tokens,
            "output": usage.completion_tokens,
            "cached": usage.prompt_tokens_details.cached_tokens,
        },
        "id": completion.id[:9],
        "model": completion.model,
    }


def both(messages, **options):
    """The same message as a stream and as a whole."""
    whole = client.chat.completions.create(**request(messages, **options))
    return {"streamed": to_plain(streamed(messages, **options)), "whole": to_plain(whole)}


def chunks(text, **options):
    return list(client.chat.completions.create(**request(text), stream=True, **options))


def call_deltas(text):
    """(index, fragment) of each tool call delta, not accumulated by the SDK."""
    deltas = [chunk.choices[0].delta for chunk in chunks(text)]
    return [[call.index, call.function.arguments] for delta in deltas for call in delta.tool_calls or []]


def shape(text):
    """Properties of the stream's chunks, without and with usage."""
    without, with_usage = chunks(text), chunks(text, stream_options={"include_usage": True})
    return {
        "first": without[0].choices[0].delta.model_dump(exclude_unset=True),
        "ids": len({chunk.id for chunk in without}),
        "objects": sorted({chunk.object for chunk in without}),
        "finish": [chunk.choices[0].finish_reason for chunk in without[-2:]],
        "last choices": len(with_usage[-1].choices),
        "usage before the last": any(chunk.usage for chunk in with_usage[:-1]),
        "usage without request": any(chunk.usage for chunk in without),
    }


def legacy():
    deltas = [chunk.choices[0].delta.function_call for chunk in chunks("legacy")]
    deltas = [delta for delta in deltas if delta]
    whole = client.chat.completions.create(**request("legacy")).choices[0]
    return {
        "name": deltas[0].name,
        "arguments": json.loads("".join(delta.arguments for delta in deltas)),
        "whole": json.loads(whole.message.function_call.arguments),
        "finish": whole.finish_reason,
    }


def error(messages, api=client, stream=True, **options):
    try:
        if stream:
            streamed(messages, api, **options)
        else:
            api.chat.completions.create(**request(messages, **options))
    except openai.APIStatusError as problem:
        return {
            "class": type(problem).__name__,
            "status": problem.status_code,
            "type": problem.type,
            "code": problem.code,
            "message": problem.body.get("message"),
            "retry_after": problem.response.headers.get("retry-after"),
            "request_id": bool(problem.request_id),
        }
    except openai.APIError as problem:
        return {"class": type(problem).__name__, "message": problem.message}
    except Exception as problem:  # a broken connection; the class is of the SDK's HTTP client
        return {"class": type(problem).__name__}
    return {"class": None}


def assistant_message(completion):
    calls = completion.choices[0].message.tool_calls
    return {
        "role": "assistant",
        "content": completion.choices[0].message.content,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
        ],
    }


def results(completion, texts):
    calls = completion.choices[0].message.tool_calls
    return [
        {"role": "tool", "tool_call_id": call.id, "content": text}
        for call, text in zip(calls, texts)
    ]


def conversation(texts):
    start = {"role": "user", "content": "calls 34 35"}
    first = streamed([start])
    return to_plain(streamed([start, assistant_message(first), *results(first, texts)]))


OK = ['{"name": "Tritanium"}', '{"name": "Pyerite"}', "noon"]
BAD = ['{"more": [{"id": 1}, {"id": 2}, {"id": 3}]}', "Error: no such item", "x"]
calls = streamed("calls 34 35")
retrying = client.with_options(max_retries=3)
print(
    json.dumps(
        {
            "text": both("text"),
            "shape": shape("text"),
            "wire split": to_plain(streamed("wire split")),
            "calls": both("calls 34 35"),
            "call deltas": call_deltas("calls 34 35"),
            "fixed id": calls.choices[0].message.tool_calls[0].id,
            "distinct ids": len({call.id for call in calls.choices[0].message.tool_calls}),
            "answers": conversation(OK),
            "fan out": conversation(BAD),
            "thinking": to_plain(streamed("thinking")),
            "refusal": both("refusal"),
            "max tokens": to_plain(client.chat.completions.create(**request("long", max_completion_tokens=3))),
            "forced": both("text", tool_choice={"type": "function", "function": {"name": "plan"}}),
            "malformed": "".join(fragment for _, fragment in call_deltas("malformed")),
            "legacy": legacy(),
            "retried": to_plain(streamed("rate limited twice", retrying)),
            "rate limited": error("rate limited"),
            "overloaded": error("overloaded"),
            "broken": error("broken", stream=False),
            "too long": error("too long"),
            "error inside": error("error inside"),
            "cut": error("cut once"),
            "after the cut": to_plain(streamed("cut once")),
            "stall": error("stall", client.with_options(timeout=0.5)),
            "bad key": error("text", client.with_options(api_key="bad")),
            "no result": error([{"role": "user", "content": "calls 1 2"}, assistant_message(calls), {"role": "user", "content": "?"}]),
        }
    )
)
