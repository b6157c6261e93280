"""An MCP server over stdio that misbehaves, by hand, without any SDK. The argument says how."""

import json
import os
import signal
import subprocess
import sys

how = sys.argv[1]
tools = ["first"]
grandchild = None
waiting = []


def say(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def say_raw(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def text(id, body):
    say({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": body}]}})


def call(id, name, arguments):
    global grandchild
    if how == "changing":
        tools.append("second")
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        text(id, "done")
    elif how == "environment":
        text(id, json.dumps(dict(os.environ)))
    elif how == "careless":
        head = b'{"jsonrpc": "2.0", "id": %d, "result": ' % id
        say_raw(head + b'{"content": [{"type": "text", "text": "a\xffb\\ud800c"}],'
                b' "structuredContent": {"nan": NaN, "huge": 1e999}}}')
    elif how == "stubborn":
        text(id, json.dumps([os.getpid(), grandchild.pid]))
    elif how == "late":
        waiting.append(id)
    elif how == "strange":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "not like this"}})


if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen(["sleep", "1000"])
if how == "talkative":
    print("I can't work like this", file=sys.stderr)
    sys.exit(3)

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        say({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1"},
        }})
    elif method == "tools/list":
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": listed}})
    elif method == "tools/call":
        call(id, message["params"]["name"], message["params"].get("arguments"))
    elif method == "notifications/cancelled" and waiting:
        text(waiting.pop(), "it did it all the same")
    elif id is not None:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})

while how == "stubborn":
    signal.pause()
