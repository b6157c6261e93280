"""An MCP server over stdio that misbehaves, written without an SDK. The argument is its mode."""

import json
import os
import re
import signal
import subprocess
import sys

mode = sys.argv[1]
tools = ["first"]
grandchild = None
waiting = []


def send(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def send_raw(line):
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def send_text(id, text):
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


def call(id, name, arguments):
    global grandchild
    if mode == "changing":
        tools.append("second")
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        send_text(id, "done")
    elif mode == "environment":
        send_text(id, json.dumps(dict(os.environ)))
    elif mode == "invalid_json":
        head = b'{"jsonrpc": "2.0", "id": %d, "result": ' % id
        send_raw(head + b'{"content": [{"type": "text", "text": "a\xffb\\ud800c"}],'
                 b' "structuredContent": {"nan": NaN, "huge": 1e999}}}')
    elif mode == "ignored_sigterm":
        send_text(id, json.dumps([os.getpid(), grandchild.pid]))
    elif mode == "late_result":
        waiting.append(id)
    elif mode == "numbers":
        # Python would round the numbers, so the text of the request is sent back.
        arguments = re.search(r'"arguments":({[^}]*})', line).group(1)
        token = json.loads(line)["params"]["_meta"]["progressToken"]
        send({"jsonrpc": "2.0", "method": "notifications/progress",
              "params": {"progressToken": token, "progress": 0.6, "total": 1.5}})
        send_raw(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": %s}],'
                 b' "structuredContent": %s}}' % (id, json.dumps(arguments).encode(), arguments.encode()))
    elif mode == "protocol_error":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "invalid arguments"}})


if mode == "ignored_sigterm":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen(["sleep", "1000"])
if mode == "failed_start":
    print("configuration missing", file=sys.stderr)
    sys.exit(3)

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        send({"jsonrpc": "2.0", "id": id, "result": {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1"},
        }})
    elif method == "tools/list":
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": listed}})
    elif method == "tools/call":
        call(id, message["params"]["name"], message["params"].get("arguments"))
    elif method == "notifications/cancelled" and waiting:
        send_text(waiting.pop(), "completed after cancellation")
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})

while mode == "ignored_sigterm":
    signal.pause()
