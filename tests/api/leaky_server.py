"""An MCP server over stdio whose texts contain secrets. It derives them from the arguments, in which
every secret begins with PLANT-A."""

import json
import sys

pending = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def secrets(value, key="list"):
    """Yields the keys and values of all texts in `value`."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from secrets(member, name)
    elif isinstance(value, list):
        for member in value:
            yield from secrets(member, key)
    elif isinstance(value, str) and value.startswith("PLANT-A"):
        yield key, value


def planted(arguments, mark):
    """Returns the arguments as another value, as JSON in a sentence, and as assignments."""
    value = json.loads(json.dumps(arguments).replace("PLANT-A", "PLANT-" + mark))
    pairs = [(key, text.replace("PLANT-A", "PLANT-" + mark)) for key, text in secrets(arguments)]
    sentence = "failed " + json.dumps(value) + " at last; used Bearer PLANT-" + mark + "-bearer."
    equals = " ".join(key.replace(" ", "_") + "=" + text for key, text in pairs)
    colons = "\n".join(key.replace(" ", "_") + ": " + text for key, text in pairs)
    query = "https://h/p?" + "&".join(key.replace(" ", "") + "=" + text for key, text in pairs)
    return value, "\n".join([sentence, equals, colons, query])


def call(id, params):
    name, arguments = params["name"], params["arguments"]
    value, text = planted(arguments, "R")
    token = params.get("_meta", {}).get("progressToken")
    print(planted(arguments, "S")[1], file=sys.stderr, flush=True)
    if name == "fail":
        error = planted(arguments, "E")[1]
        send({"id": id, "result": {"content": [{"type": "text", "text": error}], "isError": True}})
        return
    if token is not None:
        progress = {"progressToken": token, "progress": 1, "message": planted(arguments, "P")[1]}
        send({"method": "notifications/progress", "params": progress})
    if name == "structured":
        content = [{"type": "text", "text": json.dumps(value)}]
        send({"id": id, "result": {"content": content, "structuredContent": value}})
        return
    pending["form"] = (id, text)
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    message = planted(arguments, "Q")[1]
    form = {"message": message, "requestedSchema": schema}
    send({"id": "form", "method": "elicitation/create", "params": form})


for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        send({"id": id, "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "leaky", "version": "1"},
        }})
    elif method == "tools/list":
        names = ["structured", "text", "fail"]
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        send({"id": id, "result": {"tools": tools}})
    elif method == "tools/call":
        call(id, message["params"])
    elif id in pending and "result" in message:
        call_id, text = pending.pop(id)
        send({"id": call_id, "result": {"content": [{"type": "text", "text": text}]}})
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "no such method"}})
