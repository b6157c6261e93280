import { describe, expect, it } from "vitest";
import AMOUNTS from "../../tests/fixtures/amounts.json";
import { Problem } from "../src/api/http";
import { fromFlat, fromWebSocketFrame, toFlat } from "../src/api/frames";
import type { Actor, JsonObject } from "../src/api/types";
import { formatCountdown, truncate, formatAmount, formatDuration, formatArguments, formatMoney, formatRelative } from "../src/components/format";
import { answerErrorText } from "../src/approvals/use_answer";
import { schemaDefaults, schemaFields, isComplete, parseField } from "../src/approvals/schema_fields";
import { filterTree, buildTree } from "../src/pages/actors/actor_tree";
import { EVENTS_MAX, EventLog } from "../src/state/event_log";
import { EMPTY_FILTER, eventMatcher, toolOfEvent } from "../src/state/event_filter";
import { selectWorkflow, matchWorkflows } from "../src/pages/chat/workflows";
import { routeUrl, parseRoute } from "../src/state/route";
import { sessionMatches, mergeNewestPage } from "../src/state/session_pages";
import type { Session as Row } from "../src/api/types";
import { SessionBuilder } from "./session_builder";

describe("frames", () => {
  it("w1 have the same form from both transports", () => {
    const flat = {
      type: "done", outcome: "completed", message_id: "m", seq: 16, session_id: "s", run_id: "r", step: 2, agent_id: "s", agent_type: "default", at: "2026-01-01T00:00:00Z",
    };
    const nested = {
      type: "done", session_id: "s", plan_id: null, step_index: 2, timestamp: "2026-01-01T00:00:00Z", seq: 16, cursor: "16",
      payload: { outcome: "completed", message_id: "m", run_id: "r", agent_id: "s", agent_type: "default" },
    };
    expect(fromWebSocketFrame(nested)).toEqual(fromFlat(flat));
    const { agent_id: _, ...shown } = flat;
    expect(toFlat(fromFlat(flat))).toEqual(shown);
  });
});

describe("answers to approvals", () => {
  it("g11 name the decision that was taken first", () => {
    const text = (code: string, message: string) => answerErrorText(new Problem(409, code, message));
    expect(text("already_decided", "already approved by alice")).toBe("Already approved by alice.");
    expect(text("approval_expired", "the approval has expired")).toBe("The approval expired before the answer arrived.");
  });
});

describe("route", () => {
  it("w1 is parsed from its own URL", () => {
    expect(parseRoute(routeUrl("events", "timeline", { session: "a b&c", run: undefined }))).toEqual({ page: "events", part: "timeline", query: { session: "a b&c" } });
    expect(parseRoute("")).toEqual({ page: "chat", part: "", query: {} });
    expect(parseRoute("#/chat/%E0%A4%A")).toMatchObject({ part: "%E0%A4%A" });
  });
});

describe("session pages", () => {
  const sessionRows = (...ids: string[]) => ids.map((session_id): Row => ({ session_id, title: `About ${session_id}`, user_id: "ada", agent: "default" }) as Row);

  it("w1 replace the newest page and keep older sessions", () => {
    const known = { sessions: sessionRows("6", "5", "4", "3", "2"), next: "2" };
    expect(mergeNewestPage(known, { sessions: sessionRows("7", "6", "5"), next: "5" })).toEqual({ sessions: sessionRows("7", "6", "5", "4", "3", "2"), next: "2" });
    expect(mergeNewestPage(known, { sessions: sessionRows("9", "8"), next: "8" })).toEqual({ sessions: sessionRows("9", "8"), next: "8" });
    // Purged sessions are removed.
    expect(mergeNewestPage(known, { sessions: sessionRows("6", "4"), next: null })).toEqual({ sessions: sessionRows("6", "4"), next: null });
    expect(mergeNewestPage({ sessions: [], next: null }, { sessions: sessionRows("9", "8"), next: "8" })).toEqual({ sessions: sessionRows("9", "8"), next: "8" });
    expect(mergeNewestPage(known, { sessions: [], next: null }).sessions).toEqual([]);
  });

  it("w1 are found by title, id, user and agent", () => {
    const session = sessionRows("019a")[0]!;
    expect(["", " ABOUT ", "019a", "ada", "default", "else"].map((words) => sessionMatches(session, words))).toEqual([true, true, true, true, true, false]);
  });
});

describe("format", () => {
  it("w1 formats relative times, countdowns and durations", () => {
    expect([0, 4_000, 61_000, 7_200_000].map((ms) => formatRelative(0, ms))).toEqual(["now", "now", "1 min ago", "2 h ago"]);
    expect(formatRelative(90_000, 0)).toBe("in 1 min");
    expect([581_000, 9_000, 0, -5, 3_900_000].map(formatCountdown)).toEqual(["9:41", "0:09", "0:00", "0:00", "1 h 5 min"]);
    expect([12, 1_540, 61_000].map(formatDuration)).toEqual(["12 ms", "1.5 s", "1 min 1 s"]);
  });

  it("m6 distinguishes an unknown price from zero", () => {
    expect([formatMoney(null), formatMoney(0), formatMoney(0.004), formatMoney(2)]).toEqual(["cost unknown", "$0", "$0.0040", "$2.00"]);
  });

  it("w1 truncates long texts", () => {
    const prefix = "a".repeat(59);
    expect([truncate(`${prefix}b`, 60), truncate(`${prefix}bc`, 60), truncate(`${prefix}🎉`, 60)]).toEqual([`${prefix}b`, `${prefix}…`, `${prefix}…`]);
    // Neither surrogate pairs nor grapheme clusters are split.
    expect([truncate("ab👩‍💻cdefghi", 6), truncate("abe\u0301fgh", 4), truncate("👩‍💻 and more", 4)]).toEqual(["ab…", "ab…", "…"]);
    expect(formatArguments({ a: "x".repeat(500) }).length).toBeLessThan(50);
    expect(formatArguments([1, 2])).toBe("[1,2]");
  });
});

describe("form fields", () => {
  const schema = {
    type: "object", required: ["side"],
    properties: { side: { enum: ["buy", "sell"] }, quantity: { type: "integer", minimum: 1, maximum: 9 }, note: { type: ["string", "null"] }, tags: { type: "array" } },
  };

  it("g8 describes the constraints of a field", () => {
    const bounds = (property: JsonObject) => schemaFields({ properties: { one: property } }, {})[0]!.bounds;
    expect(bounds({ type: "string", minLength: 1, maxLength: 100 })).toBe("1 to 100 characters");
    expect(bounds({ type: "string", maxLength: 1 })).toBe("at most 1 character");
    expect(bounds({ type: "string", minLength: 8, maxLength: 8 })).toBe("8 characters");
    expect(bounds({ type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 })).toBe("more than 0, less than 1");
    expect(bounds({ type: "integer", minimum: 1 })).toBe("at least 1");
    expect(bounds({ type: "array", maxItems: 3 })).toBe("at most 3 items");
    expect(bounds({ type: "string" })).toBeNull();
  });
  it("g8 include the fields of the schema and those of the value", () => {
    const fields = schemaFields(schema, { extra: true });
    expect(fields.map((field) => [field.name, field.kind, field.required])).toEqual([
      ["side", "choice", true], ["quantity", "integer", false], ["note", "text", false], ["tags", "json", false], ["extra", "boolean", false],
    ]);
    expect(fields[1]!.bounds).toBe("1 to 9");
  });

  it("g8 accept only values of their kind", () => {
    expect(parseField("integer", "7", [])).toEqual({ value: 7 });
    for (const [kind, text] of [["integer", "1.5"], ["integer", ""], ["number", "many"], ["json", "{"]] as const) expect(parseField(kind, text, [])).toHaveProperty("error");
    expect(parseField("choice", "2", [{ value: 1, label: "one" }, { value: 2, label: "two" }])).toEqual({ value: 2 });
    for (const [kind, text] of [["email", "ann"], ["url", "example.org"], ["date", "soon"], ["datetime", ""]] as const) expect(parseField(kind, text, [])).toHaveProperty("error");
    expect(parseField("email", "ann@example.org", [])).toEqual({ value: "ann@example.org" });
    expect(parseField("datetime", "2026-01-02T03:04Z", [])).toEqual({ value: "2026-01-02T03:04:00.000Z" });
  });

  it("t1 support every field kind of an elicitation", () => {
    const elicitationSchema = {
      type: "object", required: ["agree"],
      properties: {
        agree: { type: "boolean" }, line: { type: "string", default: "once" }, mail: { type: "string", format: "email" }, born: { type: "string", format: "date" },
        hero: { type: "string", oneOf: [{ const: "h-1", title: "Ann" }, { const: "h-2", title: "Bob" }] },
        pet: { enum: ["p-1", "p-2"], enumNames: ["Cats", "Dogs"], default: "p-2" },
        fish: { type: "array", minItems: 1, maxItems: 2, items: { anyOf: [{ const: "f-1", title: "Tuna" }, { const: "f-2", title: "Trout" }] } },
        plays: { type: "array", items: { type: "string", enum: ["drums", "bass"] }, default: ["bass"] },
        either: { oneOf: [{ type: "string" }, { const: 1 }] },
      },
    };
    const fields = schemaFields(elicitationSchema, {});
    expect(Object.fromEntries(fields.map((field) => [field.name, field.kind]))).toEqual({
      agree: "boolean", line: "text", mail: "email", born: "date", hero: "choice", pet: "choice", fish: "choices", plays: "choices", either: "json",
    });
    const labels = (name: string) => fields.find((field) => field.name === name)!.choices.map((choice) => choice.label);
    expect([labels("hero"), labels("pet"), labels("fish"), labels("plays")]).toEqual([["Ann", "Bob"], ["Cats", "Dogs"], ["Tuna", "Trout"], ["drums", "bass"]]);
    expect(fields.find((field) => field.name === "fish")!.bounds).toBe("1 to 2 items");
    const initial = schemaDefaults(elicitationSchema);
    expect(initial).toEqual({ agree: false, line: "once", pet: "p-2", plays: ["bass"] });
    expect([isComplete(elicitationSchema, initial), isComplete(elicitationSchema, {})]).toEqual([true, false]);
  });
});

describe("workflows", () => {
  const workflow = (name: string, inputs: { name: string; required: boolean; default?: number }[] = []) =>
    ({ name, source: "file" as const, description: `does ${name}`, inputs: inputs.map((input) => ({ type: "integer", ...input })) });

  it("c3 are matched with name prefixes first", () => {
    const all = [workflow("order-review"), workflow("restock"), workflow("review")];
    expect(matchWorkflows(all, "/re").map((workflow) => workflow.name)).toEqual(["restock", "review", "order-review"]);
    expect(matchWorkflows(all, "/").length).toBe(3);
  });

  it("c3 start with defaults and are complete with all required inputs", () => {
    expect(selectWorkflow(workflow("a", [{ name: "n", required: false, default: 3 }]))).toMatchObject({ isComplete: true, request: { name: "a", inputs: { n: 3 } } });
    expect(selectWorkflow(workflow("b", [{ name: "n", required: true }])).isComplete).toBe(false);
  });
});

describe("event log", () => {
  it("w2 contains each event once", () => {
    const log = new EventLog();
    const { frames } = new SessionBuilder().startRun();
    log.add(frames);
    log.add([...frames].reverse());
    expect(log.frames).toEqual(frames);
  });

  it("w2 is bounded", () => {
    const log = new EventLog();
    const session = new SessionBuilder();
    for (let n = 0; n <= EVENTS_MAX; n++) session.emit("thinking");
    log.add(session.frames);
    expect(log.frames.length).toBeLessThanOrEqual(EVENTS_MAX);
    expect(log.frames.length + log.dropped).toBe(EVENTS_MAX + 1);
    expect(log.frames.at(-1)).toBe(session.frames.at(-1));
  });

  it("w2 is filtered by session, kind, tool and search text", () => {
    const session = new SessionBuilder().startRun().proposeCall("c-1", "buy");
    const types = (filter: object) => session.frames.filter(eventMatcher({ ...EMPTY_FILTER, ...filter }, toolOfEvent)).map((frame) => frame.type);
    expect(types({ session: "other" })).toEqual([]);
    expect(types({ kind: "model" })).toEqual(["thinking"]);
    expect(types({ kind: "run_started" })).toEqual(["run_started"]);
    expect(types({ tool: "buy" })).toEqual(["tool_call_started"]);
    expect(types({ words: "REHEARSAL" })).toEqual(["thinking"]);
  });
});

describe("actor tree", () => {
  const actor = (path: string, more: Partial<Actor> = {}): Actor => ({
    path, kind: "K", state: "idle", waiting: null, mailbox_depth: 0, mailbox_depth_max: 0, current_message: null, current_message_since: null,
    handled: 0, failed: 0, restarts: 0, started_at: "", last_error: null, ...more,
  });

  it("a1 places actors under their path, also under nodes without an actor", () => {
    const tree = buildTree([actor("/sessions/a"), actor("/sessions/a/steps/1", { waiting: { for_whom: "x", since: "" } }), actor("/desk")]);
    expect(tree.map((branch) => [branch.name, branch.actor !== null, branch.count, branch.waiting])).toEqual([["sessions", false, 2, 1], ["desk", true, 1, 0]]);
    const waiting = filterTree(tree, (actor) => actor.waiting !== null);
    expect(waiting).toHaveLength(1);
    expect(waiting[0]!.children[0]!.children[0]!.children[0]!.path).toBe("/sessions/a/steps/1");
  });
});

describe("amounts", () => {
  it("m2 are formatted like the server's", () => {
    expect(AMOUNTS.map(([amount, unit]) => formatAmount(Number(amount), unit!))).toEqual(AMOUNTS.map(([, , text]) => text));
  });
});
