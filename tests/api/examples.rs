//! The messages of docs/examples.md produce the event sequences that the page shows (S2, E1).
//!
//! Writes the page with `GREENROOM_WRITE_EXAMPLES=1 cargo test --test api examples`.

use crate::{
    harness::TestServerBuilder,
    stream::{Frame, format_frames},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::json;
use std::{fmt::Write as _, path::Path};

struct Example {
    title: &'static str,
    autonomy_level: u8,
    message: &'static str,
    /// The subject of the sequence.
    text: &'static str,
}

const EXAMPLES: [Example; 10] = [
    Example {
        title: "Look up a price",
        autonomy_level: 1,
        message: "What is the current sell price of Tritanium in Jita?",
        text: "A read-only call runs at once at every level.",
    },
    Example {
        title: "Combine several calls",
        autonomy_level: 1,
        message: "Which ships were destroyed most in Jita last week?",
        text: "The six calls of the second step run in parallel, so their results may arrive in another order.",
    },
    Example {
        title: "Ask for a critical action",
        autonomy_level: 1,
        message: "Transfer 100M ISK to character XYZ",
        text: "Level 1 denies critical calls. The model reads the reason, and the run completes.",
    },
    Example {
        title: "Approve a write",
        autonomy_level: 1,
        message: "Buy 1000 Tritanium at market price",
        text: "The run waits at `waiting_for_approval`. Here the user approves the plan.",
    },
    Example {
        title: "Retry a failing tool",
        autonomy_level: 1,
        message: "Get production cost for Stabber",
        text: "The tool fails twice with a temporary error.",
    },
    Example {
        title: "Work in several steps",
        autonomy_level: 1,
        message: "Find profitable manufacturing opportunities in Jita",
        text: "Seven calls in four steps; parallel calls as above.",
    },
    Example {
        title: "Search",
        autonomy_level: 1,
        message: "Search for Tritanium",
        text: "A read-only call.",
    },
    Example {
        title: "Create something",
        autonomy_level: 1,
        message: "Create shopping list",
        text: "The catalog classifies the tool as a low-risk write, which level 1 allows without approval.",
    },
    Example {
        title: "Recover from an error",
        autonomy_level: 1,
        message: "Get production cost for Vexor",
        text: "All attempts fail. The model reads the error, and the run completes.",
    },
    Example {
        title: "Write at the read-only level",
        autonomy_level: 0,
        message: "Update bookmark",
        text: "Level 0 denies every write.",
    },
];

const INTRODUCTION: &str = "\
# Examples

Ten messages to the market example of `make run` and the event sequence of each. For developers of clients.

Every sequence is that of the first message to a new server with the rehearsal model, in the dialect `agent`
([protocol](protocol.md#dialect-agent)). Each line is one frame: its `type`, then some of its fields. The frames of text
(`text`) are left out. [The tour](tour.md) shows how to send such messages with `curl`. This page is
written and checked by `tests/api/examples.rs`.
";

/// Maximum characters of a message's text in a line.
const TEXT_CHARS_MAX: usize = 60;

/// Runs the example on a new server and returns its frames.
async fn run(example: &Example) -> Vec<Frame> {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(example.autonomy_level).await;
    let mut stream = server.chat(&session, example.message).await;
    let mut frames = Vec::new();
    while let Some(frame) = stream.next().await {
        if frame.kind() == "waiting_for_approval" {
            let plan_id = &frame.data["plan_id"];
            let body = json!({"session_id": session, "plan_id": plan_id});
            server.post("/agent/execute", body).await.expect_ok();
        }
        frames.push(frame);
    }
    frames
}

/// Sorts the attempts and results of parallel calls: those of a step's first call come first. The
/// calls of one step are all allowed before the first one starts.
fn sort_parallel_calls(frames: &mut [Frame]) {
    let call_ids: Vec<String> = frames
        .iter()
        .filter(|frame| frame.kind() == "tool_call_started")
        .map(|frame| frame.text("call_id").to_owned())
        .collect();
    let call_index = |frame: &Frame| call_ids.iter().position(|id| id == frame.text("call_id"));
    let can_be_parallel = |frame: &Frame| {
        !["tool_call_started", "tool_call_allowed"].contains(&frame.kind())
            && call_index(frame).is_some()
    };
    for part in frames.chunk_by_mut(|frame, next| can_be_parallel(frame) && can_be_parallel(next)) {
        part.sort_by_key(|frame| call_index(frame));
    }
}

/// Returns the line of a frame: its type and the fields that the page shows.
fn format_line(frame: &Frame) -> String {
    let data = &frame.data;
    let text = |pointer: &str| {
        data.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    let details = match frame.kind() {
        "thinking" => format!("step {}", data["iteration"]),
        "message_completed" => {
            let text = text("/text");
            let line = text.lines().next().unwrap_or_default();
            let start: String = line.chars().take(TEXT_CHARS_MAX).collect();
            let end = if start.len() < text.len() { "…" } else { "" };
            format!("{start}{end}")
        }
        "tool_call_started" => {
            format!("{} {} ({})", text("/tool"), data["arguments"], text("/risk"))
        }
        "tool_call_attempt_started" => format!("attempt {}", data["attempt"]),
        "tool_call_retrying" => format!("{}: {}", text("/tool"), text("/reason")),
        "tool_call_failed" => {
            format!("{} after {} attempts: {}", text("/tool"), data["attempts"], text("/error"))
        }
        "authorization_denied" => text("/reason"),
        "waiting_for_approval" => {
            format!("{} ({})", text("/plan/purpose"), text("/plan/max_risk_level"))
        }
        "approval_decided" => format!("approved: {}", data["steps"][0]["approved"]),
        "done" => text("/outcome"),
        _ => text("/tool"),
    };
    format!("{:<26}{details}", frame.kind()).trim_end().to_owned()
}

#[actix_web::test]
async fn s2_e1_examples_produce_the_documented_event_sequences() {
    let mut page = INTRODUCTION.to_owned();
    for (number, example) in (1..).zip(&EXAMPLES) {
        let mut frames = run(example).await;
        assert_eq!(frames.last().unwrap().kind(), "done", "{}", format_frames(&frames));
        sort_parallel_calls(&mut frames);
        let shown = frames.iter().filter(|frame| frame.kind() != "text");
        let lines: Vec<_> = shown.map(format_line).collect();
        let Example { title, autonomy_level, message, text } = example;
        write!(
            page,
            "\n## {number}. {title}\n\n> {message}\n\nAutonomy level {autonomy_level}. {text}\n\n```text\n{}\n```\n",
            lines.join("\n")
        )
        .unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples.md");
    if std::env::var_os("GREENROOM_WRITE_EXAMPLES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == documented, "docs/examples.md differs; the sequences are:\n{page}");
}
