//! Traces exported to an OpenTelemetry collector (A4).

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
    a4_run_is_a_trace_with_a_span_per_attempt_and_wait,
    a4_run_joins_the_callers_trace_across_a_restart,
);

/// A collector that receives OTLP over HTTP and stores the requests.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Collector {
    pub(crate) fn start(&self) -> String {
        let collector = web::Data::new(self.clone());
        let handle = |collector: web::Data<Self>, body: web::Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).expect("the body is OTLP");
            collector.0.lock().unwrap().push(request);
            HttpResponse::Ok().finish()
        };
        let server = HttpServer::new(move || {
            App::new().app_data(collector.clone()).route("/v1/traces", web::post().to(handle))
        });
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        actix_web::rt::spawn(server.run());
        format!("http://{address}")
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Any> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

async fn a4_run_is_a_trace_with_a_span_per_attempt_and_wait(wire: ProviderProtocol) {
    let collector = Collector::default();
    let endpoint = collector.start();
    let setup =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER));
    let mut server =
        setup.with_top_level_config(&format!("otlp_endpoint = {endpoint:?}\n")).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan_id = frames.last().unwrap().text("plan_id").to_owned();
    server
        .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    let rest = stream.read_to_end().await;
    let run_id = single_frame(&rest, "done").text("run_id").replace('-', "");
    assert!(server.stop().await.success(), "the remaining spans are exported before the exit");

    let spans = collector.spans();
    let spans_named = |name: &str| -> Vec<&Span> {
        spans.iter().filter(|span| span.name.starts_with(name)).collect()
    };
    let [root] = spans_named("invoke_agent default")[..] else { panic!("{spans:?}") };
    assert_eq!((spans.len(), hex(&root.parent_span_id)), (5, String::new()), "{spans:?}");
    let conversation_id = attribute(root, "gen_ai.conversation.id");
    assert_eq!(conversation_id, Some(&Any::StringValue(session)));
    for span in &spans {
        assert_eq!(hex(&span.trace_id), run_id);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.name == root.name || span.parent_span_id == root.span_id, "{span:?}");
    }
    let [first, second] = spans_named("chat rehearsal")
        .try_into()
        .or_else(|_| {
            // The span is named by the model's name in the configuration.
            <[&Span; 2]>::try_from(spans_named("chat scripted"))
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
    assert_eq!(spans_named("await_approval plan").len(), 1);
    // Requests to providers and tools carry the trace context.
    let contexts: Vec<_> =
        server.rehearsal.requests().into_iter().filter_map(|request| request.traceparent).collect();
    assert_eq!(contexts, [traceparent(first), traceparent(second)]);
    let [tool] = spans_named("execute_tool market_order_create")[..] else { panic!("{spans:?}") };
    assert_eq!(server.calls()[0]["_meta"]["traceparent"], traceparent(tool));
}

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn a4_run_joins_the_callers_trace_across_a_restart(wire: ProviderProtocol) {
    let collector = Collector::default();
    let endpoint = collector.start();
    let setup =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER));
    let mut server =
        setup.with_top_level_config(&format!("otlp_endpoint = {endpoint:?}\n")).start().await;
    let session = server.create_session_at(1).await;
    let chat_request = |server: &TestServer, message: &str, header: &str| {
        let body = json!({"session_id": session, "message": message, "until": "pause"});
        let request = server.request(Method::POST, "/agent/chat/stream").json(&body);
        request.header("traceparent", header)
    };
    let frames = server.stream(chat_request(&server, "go", CALLER)).await.read_to_end().await;
    let plan_id = single_frame(&frames, "waiting_for_approval").text("plan_id").to_owned();
    // A queued message keeps its trace context, too.
    let mut queued = server.stream(chat_request(&server, "again", CALLER)).await;
    queued.read_until("message_queued").await;
    server.kill_and_restart().await;
    server
        .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    let mut subscription = server.subscribe(&session, "0").await;
    subscription.read_until("done").await;
    subscription.read_until("done").await;
    // An invalid header is ignored.
    let invalid = chat_request(&server, "again", "nonsense");
    let frames = server.stream(invalid).await.read_to_end().await;
    let run_trace_id = single_frame(&frames, "done").text("run_id").replace('-', "");
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
    assert_eq!((hex(&alone.trace_id), hex(&alone.parent_span_id)), (run_trace_id, String::new()));
    let tool = spans.iter().find(|span| span.name == "execute_tool market_order_create").unwrap();
    assert_eq!((&tool.trace_id, &tool.parent_span_id), (&run.trace_id, &run.span_id));
    // The run's span starts before the restart and ends after it.
    assert!(run.start_time_unix_nano < tool.start_time_unix_nano, "{run:?}");
    assert_eq!(server.calls()[0]["_meta"]["traceparent"], traceparent(tool));
    let contexts =
        server.rehearsal.requests().into_iter().filter_map(|request| request.traceparent);
    let trace = &CALLER[..36];
    assert_eq!(contexts.filter(|context| context.starts_with(trace)).count(), 3);
}

#[actix_web::test]
async fn a4_s8_child_run_is_a_span_of_the_delegate_call() {
    let collector = Collector::default();
    let setup = crate::delegate::setup(ProviderProtocol::Anthropic);
    let endpoint = format!("otlp_endpoint = {:?}\n", collector.start());
    let mut server = setup.with_top_level_config(&endpoint).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "ask researcher to look twice").await;
    assert!(server.stop().await.success());
    let spans = collector.spans();
    let span_named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let call = span_named("execute_tool delegate");
    let child = span_named("invoke_agent researcher");
    assert_eq!((&child.trace_id, &child.parent_span_id), (&call.trace_id, &call.span_id));
    assert_eq!(call.parent_span_id, span_named("invoke_agent default").span_id);
    assert_eq!(span_named("execute_tool get_market_prices").parent_span_id, child.span_id);
}

#[actix_web::test]
async fn a4_unreachable_collector_does_not_delay_runs() {
    let setup = TestServerBuilder::tour(ProviderProtocol::OpenAi)
        .with_top_level_config("otlp_endpoint = \"http://127.0.0.1:9\"\n");
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "What is the price of PLEX?").await;
    assert_eq!(frames.last().unwrap().kind(), "done");
    assert!(server.stop().await.success());
}
