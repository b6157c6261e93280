//! End-to-end tests of the API: the real `greenroom` binary over real sockets, with a real MCP
//! server for tools and a scripted model server. Each file tests one subject.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

/// Runs each test once per provider protocol between Greenroom and the model server.
macro_rules! on_both_wires {
    ($($test:ident),+ $(,)?) => {
        mod anthropic {
            $(#[actix_web::test]
            async fn $test() {
                super::$test(greenroom::rehearsal::ProviderProtocol::Anthropic).await;
            })+
        }
        mod openai {
            $(#[actix_web::test]
            async fn $test() {
                super::$test(greenroom::rehearsal::ProviderProtocol::OpenAi).await;
            })+
        }
    };
}

mod actors;
mod approvals;
mod bad_input;
mod budgets;
mod ceilings;
mod chat;
mod commands;
mod compaction;
mod context;
mod crash;
mod critical_calls;
mod cursors;
mod deadlines;
mod delegate;
mod dialects;
mod disk;
mod document_client;
mod draining;
mod edits_and_grants;
mod elicitation;
mod evaluation;
mod examples;
mod exclusive;
mod feedback;
mod field_forms;
mod fork;
mod gateway;
mod gateway_preflight;
mod gateway_requests;
mod gateway_schemas;
mod harness;
mod hostile_tools;
mod lifecycle;
mod matrix;
mod messages;
mod models;
mod numbers;
mod openapi;
mod passivation;
mod postgres;
mod preflight;
mod purge;
mod queue;
mod redaction;
mod resources_and_prompts;
#[path = "../../actors/core/tests/simulation/rng.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod rng;
mod run_log;
mod scripted_gateway;
mod scripts;
mod settings;
mod slow_clients;
mod sockets;
mod stream;
mod streams;
#[path = "../support/postgres.rs"]
mod support;
mod task_client;
mod terminal;
mod tools;
mod tour;
mod traces;
