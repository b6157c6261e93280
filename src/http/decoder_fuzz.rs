//! Fuzz tests of the decoders of requests: bodies, queries, frames and credentials. No input causes
//! a panic, and every problem is a client error of bounded length.

use super::{
    Problem, access_control, actors, answers, approvals, audit, chat, commands, context, dashboard,
    events, export, extract, feedback, gateway, keys, messages, policy, sessions, settings,
    statistics, workflows,
    ws_frame_splitter::FrameSplitter,
    ws_frames::{self, ClientFrame},
};
use crate::{dialect::gateway::decode, hostile_input};
use actix_web::{test::TestRequest, web::Bytes};
use futures::{FutureExt as _, StreamExt as _, stream};
use greenroom_core::policy::SettingsPatch;
use proptest::prelude::*;
use serde::de::DeserializeOwned;

/// Maximum bytes of a problem document.
const PROBLEM_BYTES_MAX: usize = 4096;
/// Maximum payload of a WebSocket frame in the tests.
const FRAME_BYTES_MAX: usize = 64;

const BODIES: &[&str] = &[
    r#"{"session_id":"0198c0de-0000-7000-8000-000000000001","message":"hi","message_id":"m","on_busy":"steer","preflight":true,"workflow":{"name":"w","inputs":{"n":1}},"user_id":91,"until":"pause"}"#,
    r#"{"message":"hi","character_id":"91","region_id":10000002,"autonomy_level":2}"#,
    r#"{"agent":"default","title":"t","settings":{"autonomy_level":1,"blocked_tools":["a"],"budget_limit":{"usd":1,"period":"day"}}}"#,
    r#"{"decision":"approve","reason":"r","steps":[{"call_id":"0198c0de-0000-7000-8000-000000000001","decision":"reject","arguments":{"n":1},"reason":"x"}],"for_session":{"where":"args.n < 5"}}"#,
    r#"{"decision":"approve","steps":[{"position":1,"description":"d","toolName":"t","skip":true,"arguments":{}}]}"#,
    r#"{"decision":"raise","value":12.5}"#,
    r#"{"session_id":"0198c0de-0000-7000-8000-000000000001","plan_id":"0198c0de-0000-7000-8000-000000000002","reason":"r"}"#,
    r#"{"user_id":"ann","role":"approver","name":"n"}"#,
    r#"{"session_id":"0198c0de-0000-7000-8000-000000000001","message_id":"m","rating":5,"comment":"c"}"#,
    r#"{"tool":"t","arguments":{"n":1},"autonomy_level":0}"#,
    r#"{"at_seq":7,"run_id":"0198c0de-0000-7000-8000-000000000001","token":"0123456789abcdef"}"#,
];

const FRAMES: &[&str] = &[
    r#"{"type":"subscribe","id":7,"session_id":"0198c0de-0000-7000-8000-000000000001","after":"7.3"}"#,
    r#"{"type":"send","id":"a","session_id":"0198c0de-0000-7000-8000-000000000001","message":"hi","message_id":"m","on_busy":"queue"}"#,
    r#"{"type":"decide","plan_id":"0198c0de-0000-7000-8000-000000000001","decision":"approve","steps":[{"position":1,"skip":true}]}"#,
    r#"{"type":"cancel","run_id":"0198c0de-0000-7000-8000-000000000001"}"#,
    r#"{"type":"chat.send","id":"m-1","sessionId":"0198c0de-0000-7000-8000-000000000001","content":"hi","after":"7.3","workflow":{"name":"w"},"preflight":true,"agent":"a","autonomyLevel":2}"#,
    r#"{"type":"chat.cancel","id":"m-1","sessionId":"0198c0de-0000-7000-8000-000000000001"}"#,
    r#"{"type":"tool.approval.response","id":"a","toolCallId":"0198c0de-0000-7000-8000-000000000001","approved":true,"sessionApprove":true}"#,
    r#"{"type":"preflight.approval","id":"p","requestId":"m-1","approved":true,"editedSteps":[{"description":"buy","toolName":"buy","skip":true}]}"#,
    r#"{"type":"elicitation.response","id":"e","approvalId":"0198c0de-0000-7000-8000-000000000001","action":"accept","content":{"a":1}}"#,
];

const QUERIES: &[&str] = &[
    "after=7.3&limit=100&dialect=gateway&until=pause",
    "state=pending&session_id=0198c0de-0000-7000-8000-000000000001&kind=plan&limit=5",
    "user_id=ann&before=0198c0de-0000-7000-8000-000000000001&status=idle",
    "character_id=91&details=true&from=2026-09-21T14:13:20Z&to=x&format=jsonl&step=1&n=5",
];

const CREDENTIALS: &[&str] = &["Bearer gr_0123456789", "bearer  x", "greenroom=1.admin.ab; a=b"];

/// Masked frames with payloads of 5, 0 and 126 bytes.
const SOCKET_BYTES: &[&str] = &["\u{1}\u{5}hello", "\u{9}\u{0}\u{0}", "\u{2}\u{7e}\u{0}\u{40}abcd"];

fn check_problem(problem: &Problem) -> bool {
    problem.status.is_client_error() && problem.to_json().to_string().len() <= PROBLEM_BYTES_MAX
}

fn check<T>(result: Result<T, Problem>) -> Result<(), TestCaseError> {
    if let Err(problem) = result {
        prop_assert!(check_problem(&problem), "{:?}", problem.to_json());
    }
    Ok(())
}

fn check_body<T: DeserializeOwned>(body: &[u8]) -> Result<(), TestCaseError> {
    check(extract::parse_json::<T>(body))
}

fn check_query<T: DeserializeOwned>(query: &str) -> Result<(), TestCaseError> {
    // The query of a request consists of ASCII characters.
    let uri = format!("/?{}", query.replace(|c: char| !c.is_ascii_graphic() || c == '#', "+"));
    let Ok(uri) = uri.parse::<actix_web::http::Uri>() else { return Ok(()) };
    check(extract::parse_query::<T>(
        &TestRequest::default().uri(&uri.to_string()).to_http_request(),
    ))
}

fn check_every_body(body: &[u8]) -> Result<(), TestCaseError> {
    check_body::<chat::ChatStreamBody>(body)?;
    check_body::<chat::ChatBody>(body)?;
    check_body::<commands::CreateSessionRequest>(body)?;
    check_body::<approvals::PlanBody>(body)?;
    check_body::<dashboard::SignIn>(body)?;
    check_body::<feedback::FeedbackRequest>(body)?;
    check_body::<keys::CreateKeyRequest>(body)?;
    check_body::<policy::JudgeRequest>(body)?;
    check_body::<sessions::ForkBody>(body)?;
    check_body::<sessions::CancelBody>(body)?;
    check_body::<SettingsPatch>(body)?;
    check(
        extract::parse_json::<answers::AnswerRequest>(body)
            .and_then(answers::AnswerRequest::into_approval_answer),
    )
}

proptest! {
    #[test]
    fn x4_texts_as_bodies_yield_requests_or_bounded_problems(body in hostile_input::bytes(BODIES)) {
        check_every_body(&body)?;
    }

    #[test]
    fn x4_values_as_bodies_yield_requests_or_bounded_problems(value in hostile_input::json(BODIES)) {
        check_every_body(value.to_string().as_bytes())?;
        if let Some(workflow) = value.get("workflow") {
            check(workflows::parse_workflow(workflow.clone()))?;
        }
    }

    #[test]
    fn x4_queries_yield_parameters_or_bounded_problems(query in hostile_input::text(QUERIES)) {
        check_query::<actors::ActorsQuery>(&query)?;
        check_query::<approvals::ListApprovalsQuery>(&query)?;
        check_query::<audit::ListAuditQuery>(&query)?;
        check_query::<context::ContextQuery>(&query)?;
        check_query::<events::EventsQuery>(&query)?;
        check_query::<events::DialectQuery>(&query)?;
        check_query::<export::ExportQuery>(&query)?;
        check_query::<gateway::GatewayQuery>(&query)?;
        check_query::<messages::MessagesQuery>(&query)?;
        check_query::<policy::PolicyQuery>(&query)?;
        check_query::<sessions::ListSessionsQuery>(&query)?;
        check_query::<sessions::CloseQuery>(&query)?;
        check_query::<settings::SettingsQuery>(&query)?;
        check_query::<statistics::StatisticsQuery>(&query)?;
    }

    #[test]
    fn e2_texts_as_frames_yield_requests_or_bounded_problems(text in hostile_input::text(FRAMES)) {
        check(ClientFrame::parse(&text, ws_frames::parse_request).request)?;
        check(ClientFrame::parse(&text, |map| decode(map).map_err(Problem::from)).request)?;
    }

    #[test]
    fn e2_values_as_frames_yield_requests_or_bounded_problems(value in hostile_input::json(FRAMES)) {
        let text = value.to_string();
        check(ClientFrame::parse(&text, ws_frames::parse_request).request)?;
        let frame = ClientFrame::parse(&text, |map| decode(map).map_err(Problem::from));
        if let Err(problem) = &frame.request {
            let response = ws_frames::error(frame.id.as_ref(), problem);
            prop_assert!(response.len() <= PROBLEM_BYTES_MAX, "{}", response);
        }
        check(frame.request)?;
    }

    #[test]
    fn x1_credentials_are_parsed_or_absent(text in hostile_input::text(CREDENTIALS)) {
        if let Some(token) = access_control::parse_bearer(&text) {
            prop_assert_eq!(token.trim(), token);
        }
    }

    /// Arbitrary bytes are passed on unchanged, up to the first header that announces too much.
    #[test]
    fn x4_socket_bytes_are_passed_on_or_refused(
        parts in prop::collection::vec(hostile_input::bytes(SOCKET_BYTES), 0..4),
    ) {
        let sent = parts.concat();
        let parts = stream::iter(parts.into_iter().map(|part| Ok(Bytes::from(part))));
        let mut frames = FrameSplitter::new(parts, FRAME_BYTES_MAX);
        let mut received = Vec::new();
        // Between two frames, the splitter is pending once.
        let mut polls = 0;
        let refused = loop {
            polls += 1;
            prop_assert!(polls <= 2 * sent.len() + 16);
            match frames.next().now_or_never() {
                Some(Some(Ok(bytes))) => received.extend(bytes),
                Some(Some(Err(_))) => break true,
                Some(None) => break false,
                None => {}
            }
        };
        prop_assert!(sent.starts_with(&received));
        prop_assert!(refused || received == sent);
    }
}
