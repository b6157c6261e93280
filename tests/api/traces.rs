//! Traces, as a collector of OpenTelemetry hears them (A4).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::single_frame,
};
use actix_web::{App, HttpResponse, HttpServer, web};
use greenroom::rehearsal::ProviderProtocol;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value as Any,
    trace::v1::Span,
};
use prost::Message as _;
use reqwest::Method;
use serde_json::json;
use std::sync::{Arc, Mutex};

on_both_wires!(
    a4_a_run_is_a_trace_with_a_span_for_each_attempt_and_each_wait,
    a4_a_run_belongs_to_the_trace_it_was_asked_for_in_also_after_a_restart,
);

/// Something that speaks OTLP over HTTP, and remembers.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Collector {
    fn start(&self) -> String {
        let heard = web::Data::new(self.clone());
        let take = |heard: web::Data<Self>, body: web::Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).expect("it is OTLP");
            heard.0.lock().unwrap().push(request);
            HttpResponse::Ok().finish()
        };
        let server = HttpServer::new(move || {
            App::new().app_data(heard.clone()).route("/v1/traces", web::post().to(take))
        });
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        actix_web::rt::spawn(server.run());
        format!("http://{address}")
    }

    fn spans(&self) -> Vec<Span> {
        let heard = self.0.lock().unwrap();
        let resources = heard.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Any> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

async fn a4_a_run_is_a_trace_with_a_span_for_each_attempt_and_each_wait(wire: ProviderProtocol) {
    let collector = Collector::default();
    let endpoint = collector.start();
    let setup =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER));
    let mut server =
        setup.with_top_level_config(&format!("otlp_endpoint = {endpoint:?}\n")).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let asked = stream.read_until("waiting_for_approval").await;
    let plan_id = asked.last().unwrap().text("plan_id").to_owned();
    server
        .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    let rest = stream.read_to_end().await;
    let run_id = single_frame(&rest, "done").text("run_id").replace('-', "");
    assert!(server.stop().await.success(), "what is left is exported before the end");

    let spans = collector.spans();
    let named = |name: &str| -> Vec<&Span> {
        spans.iter().filter(|span| span.name.starts_with(name)).collect()
    };
    let [root] = named("invoke_agent default")[..] else { panic!("{spans:?}") };
    assert_eq!((spans.len(), hex(&root.parent_span_id)), (5, String::new()), "{spans:?}");
    let of_root = attribute(root, "gen_ai.conversation.id");
    assert_eq!(of_root, Some(&Any::StringValue(session)));
    for span in &spans {
        assert_eq!(hex(&span.trace_id), run_id);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.name == root.name || span.parent_span_id == root.span_id, "{span:?}");
    }
    let [first, second] = named("chat rehearsal")
        .try_into()
        .or_else(|_| {
            // The name is that of configuration.
            <[&Span; 2]>::try_from(named("chat scripted"))
        })
        .unwrap();
    assert_eq!(
        attribute(first, "gen_ai.operation.name"),
        Some(&Any::StringValue("chat".to_owned()))
    );
    let Some(Any::IntValue(tokens)) = attribute(second, "gen_ai.usage.output_tokens") else {
        panic!("{second:?}")
    };
    assert!(*tokens > 0);
    assert_eq!(named("await_approval plan").len(), 1);
    // Providers and tools are told where they are in it.
    let told: Vec<_> =
        server.rehearsal.requests().into_iter().filter_map(|request| request.traceparent).collect();
    assert_eq!(told, [traceparent(first), traceparent(second)]);
    let [tool] = named("execute_tool market_order_create")[..] else { panic!("{spans:?}") };
    assert_eq!(server.calls()[0]["_meta"]["traceparent"], traceparent(tool));
}

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn a4_a_run_belongs_to_the_trace_it_was_asked_for_in_also_after_a_restart(
    wire: ProviderProtocol,
) {
    let collector = Collector::default();
    let endpoint = collector.start();
    let setup =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER));
    let mut server =
        setup.with_top_level_config(&format!("otlp_endpoint = {endpoint:?}\n")).start().await;
    let session = server.create_session_at(1).await;
    let say = |server: &TestServer, message: &str, header: &str| {
        let body = json!({"session_id": session, "message": message, "until": "pause"});
        let request = server.request(Method::POST, "/agent/chat/stream").json(&body);
        request.header("traceparent", header)
    };
    let asked = server.stream(say(&server, "go", CALLER)).await.read_to_end().await;
    let plan_id = single_frame(&asked, "waiting_for_approval").text("plan_id").to_owned();
    // One that waits remembers, too; and what makes no sense is no reason to refuse.
    let mut queued = server.stream(say(&server, "again", CALLER)).await;
    queued.read_until("message_queued").await;
    server.kill_and_restart().await;
    server
        .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    let mut heard = server.subscribe(&session, "0").await;
    heard.read_until("done").await;
    heard.read_until("done").await;
    let own = server.stream(say(&server, "again", "nonsense")).await.read_to_end().await;
    let own = single_frame(&own, "done").text("run_id").replace('-', "");
    assert!(server.stop().await.success());

    let spans = collector.spans();
    let mut runs: Vec<_> =
        spans.iter().filter(|span| span.name == "invoke_agent default").collect();
    runs.sort_by_key(|run| run.start_time_unix_nano);
    let [run, queued, alone] = runs[..] else { panic!("{spans:?}") };
    for run in [run, queued] {
        let parent = format!("00-{}-{}-01", hex(&run.trace_id), hex(&run.parent_span_id));
        assert_eq!(parent, CALLER, "{run:?}");
    }
    assert_eq!((hex(&alone.trace_id), hex(&alone.parent_span_id)), (own, String::new()));
    let tool = spans.iter().find(|span| span.name == "execute_tool market_order_create").unwrap();
    assert_eq!((&tool.trace_id, &tool.parent_span_id), (&run.trace_id, &run.span_id));
    // The run's span reaches over the restart.
    assert!(run.start_time_unix_nano < tool.start_time_unix_nano, "{run:?}");
    assert_eq!(server.calls()[0]["_meta"]["traceparent"], traceparent(tool));
    let told = server.rehearsal.requests().into_iter().filter_map(|request| request.traceparent);
    let of_caller = &CALLER[..36];
    assert_eq!(told.filter(|told| told.starts_with(of_caller)).count(), 3);
}

#[actix_web::test]
async fn a4_s8_what_a_child_does_is_done_in_its_parents_call() {
    let collector = Collector::default();
    let setup = crate::delegate::setup(ProviderProtocol::Anthropic);
    let endpoint = format!("otlp_endpoint = {:?}\n", collector.start());
    let mut server = setup.with_top_level_config(&endpoint).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "ask researcher to look twice").await;
    assert!(server.stop().await.success());
    let spans = collector.spans();
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let call = named("execute_tool delegate");
    let child = named("invoke_agent researcher");
    assert_eq!((&child.trace_id, &child.parent_span_id), (&call.trace_id, &call.span_id));
    assert_eq!(call.parent_span_id, named("invoke_agent default").span_id);
    assert_eq!(named("execute_tool get_market_prices").parent_span_id, child.span_id);
}

#[actix_web::test]
async fn a4_a_collector_that_is_away_delays_nobody() {
    let setup = TestServerBuilder::tour(ProviderProtocol::OpenAi)
        .with_top_level_config("otlp_endpoint = \"http://127.0.0.1:9\"\n");
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "What is the price of PLEX?").await;
    assert_eq!(frames.last().unwrap().kind(), "done");
    assert!(server.stop().await.success());
}
