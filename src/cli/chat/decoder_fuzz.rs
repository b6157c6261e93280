//! Fuzz tests of what the chat reads: messages of the server, input lines and replies to prompts. No
//! input causes a panic.

use super::{
    approval_prompt::ApprovalPrompt, command::ChatCommand, elicitation_form::ElicitationForm,
    gateway_message::GatewayMessage, json_lines,
};
use crate::hostile_input;
use greenroom_core::Timestamp;
use proptest::prelude::*;
use serde::Deserialize as _;

const MESSAGES: &[&str] = &[
    r#"{"type":"chat.stream.start","requestId":"m-1","sessionId":"s","runId":"r","queued":true}"#,
    r#"{"type":"chat.stream.delta","requestId":"m-1","delta":"hi","messageId":"m","discarded":true}"#,
    r#"{"type":"chat.stream.end","requestId":"m-1","outcome":"cancelled","usage":{"inputTokens":5,"outputTokens":7,"costUSD":0.1}}"#,
    r#"{"type":"tool.result","toolCallId":"c","toolName":"t","result":{"a":1},"isError":true}"#,
    r#"{"type":"tool.approval.request","requestId":"m","toolCallId":"c","toolName":"t","args":{"n":1},"risk":"critical","approvalId":"a","deadline":"2026-09-21T14:13:20Z","cost":{"amount":1}}"#,
    r#"{"type":"preflight.checklist","requestId":"m","approvalId":"a","steps":[{"position":1,"description":"d","toolName":"t","risk":"critical","needsApproval":true}],"estimatedCost":{"inputTokens":1,"outputTokens":2,"estimatedUSD":0.5},"requiredPermissions":["p"],"warnings":["w"]}"#,
    r#"{"type":"elicitation.request","requestId":"m","approvalId":"a","toolCallId":"c","toolName":"t","server":"s","message":"m","mode":"form","requestedSchema":{"properties":{"a":{"type":"boolean","default":true}},"required":["a"]}}"#,
    r#"{"type":"error","code":"invalid_request","message":"no","field":"x"}"#,
];

const LINES: &[&str] = &[
    "/restock goods=ore n=5",
    "//text",
    "y",
    "e 2 do it otherwise",
    "s 1",
    "/no",
    r#"{"type":"chat.send","content":"hi"}"#,
    r#"{"a":1}"#,
];

const VIEWS: &[&str] = &[
    r#"{"mode":"form","message":"m","tool":"t","server":"s","schema":{"type":"object","properties":{"a":{"type":"integer","enum":[1,2]},"b":{"type":"array","items":{"type":"string"}}},"required":["b"]}}"#,
    r#"{"kind":"budget","purpose":"p","approval_id":"a","spent":1}"#,
];

proptest! {
    #[test]
    fn g11_messages_are_decoded_and_rendered(
        message in hostile_input::json(MESSAGES),
        line in hostile_input::text(LINES),
    ) {
        let Ok(message) = GatewayMessage::deserialize(&message) else { return Ok(()) };
        let prompt = match message {
            GatewayMessage::CallApprovalRequested(request) => Some(ApprovalPrompt::Call(request)),
            GatewayMessage::PreflightRequested(request) => Some(ApprovalPrompt::Plan(request)),
            GatewayMessage::ElicitationRequested(request) => {
                Some(ApprovalPrompt::Form(Box::new(ElicitationForm::new(request.into_view()))))
            }
            GatewayMessage::Start { .. }
            | GatewayMessage::Delta { .. }
            | GatewayMessage::End { .. }
            | GatewayMessage::Call { .. }
            | GatewayMessage::Result { .. }
            | GatewayMessage::Error { .. }
            | GatewayMessage::AgentEvent { .. }
            | GatewayMessage::Unknown => None,
        };
        if let Some(mut prompt) = prompt {
            prompt.render_lines();
            prompt.prompt_text(Timestamp(0));
            prompt.parse_reply(&line);
        }
    }

    #[test]
    fn g11_replies_to_prompts_are_parsed(
        view in hostile_input::json(VIEWS),
        lines in prop::collection::vec(hostile_input::text(LINES), 0..4),
    ) {
        let mut form = ElicitationForm::new(view.clone());
        let mut other = ApprovalPrompt::Other(view);
        for line in lines {
            form.render_lines();
            form.prompt_text();
            form.parse_reply(&line);
            other.render_lines();
            other.parse_reply(&line);
        }
    }

    #[test]
    fn g11_lines_are_commands_messages_or_frames(line in hostile_input::text(LINES)) {
        ChatCommand::parse(&line);
        if let Ok(frame) = json_lines::parse_line(&line) {
            prop_assert!(frame.contains_key("type") && frame.contains_key("id"));
        }
    }
}
