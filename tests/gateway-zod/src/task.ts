// Usage: node task.js URL TOKEN MESSAGE …
//
// A client of the dialect `task`: sends each message to a session of its own, validates every frame of
// the run's event stream, and checks that each call has exactly one result, which follows it. Prints
// one line of JSON: for each message the calls as `[agent_type, tool_name, success]`.

import assert from "node:assert/strict";
import { parseTaskFrame, type ToolCall, type ToolResult } from "./task-schema.js";

const [url = "", token = "", ...messages] = process.argv.slice(2);
const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };

async function post(path: string, body: unknown): Promise<Response> {
  const response = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  assert(response.ok, `${path}: ${response.status}`);
  return response;
}

/** Yields the JSON of each `data:` line of an event stream. */
async function* readEvents(response: Response): AsyncGenerator<unknown> {
  assert(response.body);
  let unread = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (unread + chunk).split("\n");
    unread = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("data: ")) yield JSON.parse(line.slice("data: ".length));
    }
  }
}

async function runTask(message: string) {
  const session = (await (await post("/agent/session", { autonomy_level: 1 })).json()) as { session_id: string };
  const body = { session_id: session.session_id, message };
  const calls = new Map<string, { call: ToolCall; results: ToolResult[] }>();
  let isDone = false;
  for await (const event of readEvents(await post("/agent/chat/stream?dialect=task", body))) {
    const { kind, frame } = parseTaskFrame(event);
    assert(!isDone, "nothing follows the end of the run");
    if (kind === "call") {
      assert(!calls.has(frame.call_id), "a call is sent once");
      calls.set(frame.call_id, { call: frame, results: [] });
    } else if (kind === "result") {
      const entry = calls.get(frame.call_id);
      assert(entry, "a call precedes its result");
      for (const name of ["agent_id", "agent_type", "task_id", "tool_name"] as const) {
        assert.equal(frame[name], entry.call[name], name);
      }
      entry.results.push(frame);
    } else {
      isDone = frame.type === "done";
    }
  }
  assert(isDone, "the run ends");
  const tasks = new Map<string, string>();
  return [...calls.values()].map(({ call, results }) => {
    assert.equal(results.length, 1, `one result of ${call.tool_name}`);
    // Each agent works on one task.
    assert.equal(tasks.get(call.agent_id) ?? call.task_id, call.task_id);
    tasks.set(call.agent_id, call.task_id);
    return [call.agent_type, call.tool_name, results[0]?.success];
  });
}

const runs = [];
for (const message of messages) {
  runs.push(await runTask(message));
}
console.log(JSON.stringify(runs));
