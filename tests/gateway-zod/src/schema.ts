// Schemas of the `gateway` dialect as documented in docs/protocol.md. The schemas are strict, so
// that
// an undocumented member is an error.

import { z } from "zod";

const id = z.string().min(1).max(128);
const uuid = z.uuid();
const cursor = z.string().regex(/^\d+(\.\d+)?$/);
const deadline = z.iso.datetime().nullable();
const risk = z.enum(["low", "medium", "high"]);
const amount = z.number().int().nonnegative();
/** The position of the client after the frame. */
const withCursor = { cursor };
/** A frame that is sent again after a reconnect has no position in the stream. */
const withOptionalCursor = { cursor: cursor.optional() };

// Messages of the client.

export const ChatSend = z.strictObject({
  type: z.literal("chat.send"),
  id,
  sessionId: uuid.optional(),
  content: z.string(),
  after: cursor.optional(),
  preflight: z.boolean().optional(),
  agent: z.string().optional(),
  autonomyLevel: z.number().int().min(0).max(3).optional(),
});

export const ChatCancel = z.strictObject({
  type: z.literal("chat.cancel"),
  id: id.optional(),
  sessionId: uuid.optional(),
});

export const ToolApprovalResponse = z.strictObject({
  type: z.literal("tool.approval.response"),
  id,
  toolCallId: uuid,
  approved: z.boolean(),
  sessionApprove: z.boolean().optional(),
});

export const PreflightApproval = z.strictObject({
  type: z.literal("preflight.approval"),
  id,
  requestId: id,
  approvalId: uuid.optional(),
  approved: z.boolean(),
  editedSteps: z
    .array(
      z.strictObject({
        description: z.string(),
        toolName: z.string().optional(),
        skip: z.boolean().optional(),
      }),
    )
    .optional(),
});

export const ElicitationResponse = z.strictObject({
  type: z.literal("elicitation.response"),
  id,
  approvalId: uuid,
  action: z.enum(["accept", "decline"]),
  content: z.record(z.string(), z.unknown()).optional(),
});

export const ClientMessage = z.discriminatedUnion("type", [
  ChatSend,
  ChatCancel,
  ToolApprovalResponse,
  PreflightApproval,
  ElicitationResponse,
]);
export type ClientMessage = z.infer<typeof ClientMessage>;

// Messages of the server.

export const ChatStreamStart = z.strictObject({
  type: z.literal("chat.stream.start"),
  requestId: id,
  sessionId: uuid,
  runId: uuid,
  model: z.string(),
  queued: z.literal(true).optional(),
  ...withCursor,
});

const TextDelta = z.strictObject({
  type: z.literal("chat.stream.delta"),
  requestId: id,
  delta: z.string(),
  messageId: id,
  discarded: z.literal(true).optional(),
  ...withCursor,
});

/** A text of the server that is no part of the answer and has no position in the stream. */
const Notice = z.strictObject({
  type: z.literal("chat.stream.delta"),
  requestId: id,
  delta: z.string().regex(/^\n\[.+\]\n$/),
  notice: z.literal(true),
});

export const ChatStreamDelta = z.union([TextDelta, Notice]);

export const ChatStreamEnd = z.strictObject({
  type: z.literal("chat.stream.end"),
  requestId: id,
  outcome: z.enum(["completed", "cancelled", "failed"]),
  stopReason: z.enum(["end", "length", "refusal", "content_filter", "empty"]).optional(),
  usage: z.strictObject({
    inputTokens: amount,
    outputTokens: amount,
    totalTokens: amount,
    cachedTokens: amount,
    estimated: z.literal(true).optional(),
    costUSD: z.number().nonnegative().optional(),
  }),
  ...withCursor,
});

export const ToolCall = z.strictObject({
  type: z.literal("tool.call"),
  requestId: id,
  toolCallId: uuid,
  toolName: z.string(),
  args: z.record(z.string(), z.unknown()),
  argumentsText: z.string().optional(),
  sessionId: uuid.optional(),
  ...withCursor,
});

const ToolSuccess = z.strictObject({
  type: z.literal("tool.result"),
  requestId: id,
  toolCallId: uuid,
  toolName: z.string(),
  result: z.unknown(),
  sessionId: uuid.optional(),
  ...withCursor,
});

const ToolFailure = ToolSuccess.extend({
  isError: z.literal(true),
  result: z.strictObject({
    error: z.string(),
    reason: z.enum([
      "error",
      "invalid_arguments",
      "unknown_tool",
      "unavailable",
      "timeout",
      "crashed",
      "rejected",
      "expired",
      "cancelled",
      "outcome_unknown",
      "refused",
      "limit_exceeded",
      "authorization_denied",
    ]),
    requiredLevel: z.number().int().min(0).max(3).nullable().optional(),
  }),
});

export const ToolResult = z.union([ToolFailure, ToolSuccess]);

export const ToolApprovalRequest = z.strictObject({
  type: z.literal("tool.approval.request"),
  requestId: id,
  toolCallId: uuid,
  toolName: z.string(),
  args: z.record(z.string(), z.unknown()),
  risk,
  grantable: z.boolean(),
  approvalId: uuid,
  sessionId: uuid.optional(),
  description: z.string(),
  why: z.string(),
  cost: z.strictObject({ amount: z.number(), unit: z.string() }).optional(),
  deadline,
  ...withOptionalCursor,
});

export const PreflightChecklist = z.strictObject({
  type: z.literal("preflight.checklist"),
  requestId: id,
  steps: z.array(
    z.strictObject({
      description: z.string(),
      toolName: z.string().optional(),
      arguments: z.record(z.string(), z.unknown()).optional(),
      risk,
      position: z.number().int().positive().optional(),
      server: z.string().optional(),
      digest: z.string().regex(/^hmac-sha256:/).optional(),
      cost: z.strictObject({ amount: z.number(), unit: z.string() }).optional(),
      needsApproval: z.boolean(),
    }),
  ),
  estimatedCost: z.strictObject({
    inputTokens: amount,
    outputTokens: amount,
    estimatedUSD: z.number().nonnegative(),
    costKnown: z.boolean(),
  }),
  requiredPermissions: z.array(z.string()),
  warnings: z.array(z.string()),
  approvalId: uuid,
  deadline,
  ...withOptionalCursor,
});

const ElicitationForm = z.strictObject({
  type: z.literal("elicitation.request"),
  requestId: id,
  approvalId: uuid,
  toolCallId: uuid,
  toolName: z.string(),
  server: z.string(),
  message: z.string(),
  mode: z.literal("form"),
  requestedSchema: z.looseObject({ type: z.literal("object") }),
  deadline,
  ...withOptionalCursor,
});

const ElicitationPage = ElicitationForm.omit({ requestedSchema: true }).extend({
  mode: z.literal("url"),
  url: z.url(),
});

export const ElicitationRequest = z.union([ElicitationForm, ElicitationPage]);

/** An error. Members other than `code` and `message` are those of the problem response. */
export const ErrorMessage = z.looseObject({
  type: z.literal("error"),
  requestId: id.optional(),
  code: z.string().regex(/^[a-z_]+$/),
  message: z.string().min(1),
  ...withOptionalCursor,
});

/** A frame of the `agent` dialect. Sent only on connections with `?details=true`. */
export const AgentEvent = z.strictObject({
  type: z.literal("agent.event"),
  requestId: id,
  sessionId: uuid.optional(),
  event: z.looseObject({
    type: z.string(),
    seq: amount,
    session_id: uuid,
    run_id: uuid.nullable(),
    at: z.iso.datetime(),
  }),
  ...withCursor,
});

export const ServerMessage = z.union([
  ChatStreamStart,
  ChatStreamDelta,
  ChatStreamEnd,
  ToolCall,
  ToolResult,
  ToolApprovalRequest,
  PreflightChecklist,
  ElicitationRequest,
  ErrorMessage,
  AgentEvent,
]);
export type ServerMessage = z.infer<typeof ServerMessage>;

const schemaByType = {
  "chat.stream.start": ChatStreamStart,
  "chat.stream.delta": ChatStreamDelta,
  "chat.stream.end": ChatStreamEnd,
  "tool.call": ToolCall,
  "tool.result": ToolResult,
  "tool.approval.request": ToolApprovalRequest,
  "preflight.checklist": PreflightChecklist,
  "elicitation.request": ElicitationRequest,
  error: ErrorMessage,
  "agent.event": AgentEvent,
} as const;

/** The types of all server messages. */
export const serverTypes = Object.keys(schemaByType) as (keyof typeof schemaByType)[];

/** Parses a server message. Throws an error with the message if it does not match the schemas. */
export function parseServerMessage(value: unknown): ServerMessage {
  const type = z.looseObject({ type: z.enum(serverTypes as [keyof typeof schemaByType]) }).parse(value).type;
  const parsed = schemaByType[type].safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Error(`${z.prettifyError(parsed.error)}\nin ${JSON.stringify(value)}`);
}
