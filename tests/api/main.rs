//! The main job, from outside: the real `greenroom` binary over real sockets, with a real MCP
//! server behind it and a scripted model before it. One file a subject.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is its verdict")]

/// Runs each test once with each provider's wire between server and model.
macro_rules! on_both_wires {
    ($($test:ident),+ $(,)?) => {
        mod anthropic {
            $(#[actix_web::test]
            async fn $test() {
                super::$test(greenroom::rehearsal::Wire::Anthropic).await;
            })+
        }
        mod openai {
            $(#[actix_web::test]
            async fn $test() {
                super::$test(greenroom::rehearsal::Wire::OpenAi).await;
            })+
        }
    };
}

mod actors;
mod approvals;
mod bad_input;
mod budgets;
#[path = "../../actors/core/tests/simulation/chance.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod chance;
mod chat;
mod clients;
mod commands;
mod compaction;
mod consent;
mod context;
mod crash;
mod cursors;
mod deadlines;
mod delegate;
mod dialects;
mod disk;
mod draining;
mod elicitation;
mod evaluation;
mod exclusive;
mod feedback;
mod fork;
mod gateway;
mod gateway_schemas;
mod harness;
mod lifecycle;
mod matrix;
mod messages;
mod models;
mod openapi;
mod passivation;
mod postgres;
mod preflight;
mod purge;
mod scripts;
mod servers;
mod settings;
mod sockets;
mod stage;
mod stream;
mod streams;
#[path = "../support/postgres.rs"]
mod support;
mod terminal;
mod tools;
mod tour;
mod traces;
