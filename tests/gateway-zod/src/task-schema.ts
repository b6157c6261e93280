// Schemas of the frames of calls in the dialect `task`, as its founding document has them: the event
// of a call before it is executed, and the event of its result. A frame may have further members; the
// members of these schemas have exactly these types.

import { z } from "zod";

const callMembers = {
  call_id: z.uuid(),
  agent_id: z.uuid(),
  agent_type: z.string().min(1),
  task_id: z.uuid(),
  tool_name: z.string().min(1),
  timestamp: z.iso.datetime(),
};

export const ToolCall = z.looseObject({
  type: z.literal("tool_call"),
  ...callMembers,
  tool_input: z.record(z.string(), z.unknown()),
  arguments_text: z.string().optional(),
});

const ToolSuccess = z.looseObject({
  type: z.literal("tool_result"),
  ...callMembers,
  success: z.literal(true),
  tool_output: z.unknown().refine((output) => output !== undefined, "a success has an output"),
  error: z.undefined().optional(),
});

const ToolFailure = z.looseObject({
  type: z.literal("tool_result"),
  ...callMembers,
  success: z.literal(false),
  error: z.string().min(1),
  tool_output: z.undefined().optional(),
});

export const ToolResult = z.discriminatedUnion("success", [ToolSuccess, ToolFailure]);

/** A frame of another type, which equals the one of the dialect `agent`. */
const OtherFrame = z.looseObject({
  type: z.string().refine((type) => type !== "tool_call" && type !== "tool_result"),
  session_id: z.uuid(),
  at: z.iso.datetime(),
});

export type ToolCall = z.infer<typeof ToolCall>;
export type ToolResult = z.infer<typeof ToolResult>;
export type OtherFrame = z.infer<typeof OtherFrame>;
export type TaskFrame =
  | { kind: "call"; frame: ToolCall }
  | { kind: "result"; frame: ToolResult }
  | { kind: "other"; frame: OtherFrame };

/** Parses a frame; throws if it violates its schema. */
export function parseTaskFrame(value: unknown): TaskFrame {
  const { type } = z.looseObject({ type: z.string() }).parse(value);
  if (type === "tool_call") return { kind: "call", frame: ToolCall.parse(value) };
  if (type === "tool_result") return { kind: "result", frame: ToolResult.parse(value) };
  return { kind: "other", frame: OtherFrame.parse(value) };
}
