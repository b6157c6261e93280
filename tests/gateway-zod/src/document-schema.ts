// Schemas of the gateway's messages as its founding document has them, and nothing else. A frame may
// have further members; the members of these schemas have exactly these types. A frame of another
// type is an error.

import { z } from "zod";

const risk = z.enum(["low", "medium", "high"]);
const requestId = z.string();

export const ServerMessage = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("chat.stream.start"), requestId }),
  z.looseObject({ type: z.literal("chat.stream.delta"), requestId, delta: z.string() }),
  z.looseObject({ type: z.literal("chat.stream.end"), requestId }),
  z.looseObject({
    type: z.literal("tool.call"),
    requestId,
    toolCallId: z.string(),
    toolName: z.string(),
    args: z.unknown(),
  }),
  z.looseObject({
    type: z.literal("tool.result"),
    requestId,
    toolCallId: z.string(),
    toolName: z.string(),
    result: z.unknown(),
  }),
  z.looseObject({
    type: z.literal("tool.approval.request"),
    requestId,
    toolCallId: z.string(),
    toolName: z.string(),
    args: z.unknown(),
    risk: risk.optional(),
  }),
  z.looseObject({
    type: z.literal("preflight.checklist"),
    requestId,
    steps: z.array(
      z.looseObject({
        description: z.string(),
        toolName: z.string().optional(),
        risk,
        needsApproval: z.boolean(),
      }),
    ),
    estimatedCost: z.looseObject({
      inputTokens: z.number(),
      outputTokens: z.number(),
      estimatedUSD: z.number(),
    }),
    requiredPermissions: z.array(z.string()),
    warnings: z.array(z.string()),
  }),
  z.looseObject({
    type: z.literal("error"),
    requestId: z.string().optional(),
    id: z.string().optional(),
    code: z.string(),
    message: z.string(),
  }),
]);
export type ServerMessage = z.infer<typeof ServerMessage>;
export type MessageOf<T extends ServerMessage["type"]> = Extract<ServerMessage, { type: T }>;

export type EditedStep = { description: string; toolName?: string; skip?: boolean };

/** A message of the client, without its `id`. */
export type ClientMessage =
  | { type: "chat.send"; content: string; sessionId?: string }
  | { type: "tool.approval.response"; toolCallId: string; approved: boolean; sessionApprove?: boolean }
  | { type: "preflight.approval"; requestId: string; approved: boolean; editedSteps?: EditedStep[] };
