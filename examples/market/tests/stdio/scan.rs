//! The slow tool: progress (T5) and cancellation (S6).

use serde_json::json;

use crate::harness::{LIFECYCLES, ProtocolLifecycle, TestDir};

#[test]
fn t5_scan_reports_progress_if_requested() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        let ask = json!({ "region_id": 10_000_030, "seconds": 0.05 });
        let result =
            market.call_with("scan_opportunities", ask.clone(), json!({ "progressToken": "p1" }));
        assert_eq!(result["structuredContent"]["opportunities"][0]["type_id"], 40);
        let reports = market.notifications_so_far();
        let expected: Vec<_> = (1..=10)
            .map(|step| {
                json!({
                    "progressToken": "p1",
                    "progress": f64::from(step),
                    "total": 10.0,
                    "message": format!("scanned {step} of 10 market groups"),
                })
            })
            .collect();
        let params: Vec<_> = reports.iter().map(|report| report["params"].clone()).collect();
        assert_eq!(params, expected);
        assert!(reports.iter().all(|report| report["method"] == "notifications/progress"));

        market.call("scan_opportunities", ask);
        assert_eq!(market.notifications_so_far(), [] as [serde_json::Value; 0]);
        assert_eq!(dir.records().len(), 0, "a completed scan leaves no record");
    }
}

/// The scan would take ten minutes, longer than the timeout of the harness. The record of its
/// cancellation therefore proves that it stopped early.
#[test]
fn s6_cancelled_scan_stops_and_is_recorded() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        let ask = json!({ "region_id": 10_000_002, "seconds": 600 });
        let id = market.start_call("scan_opportunities", ask, json!({ "progressToken": 7 }));
        // The scan is running: it has reported a step.
        assert_eq!(market.notification()["params"]["progressToken"], 7);
        market.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id, "reason": "the run was cancelled" },
        }));
        // The cancellation is processed in the background.
        while dir.records().is_empty() {
            market.call("get_item_info", json!({ "type_id": 34 }));
        }
        let records = dir.records();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["tool"], "scan_cancelled");
        assert_eq!(records[0]["arguments"], json!({ "region_id": 10_000_002, "seconds": 600.0 }));
    }
}

#[test]
fn scan_of_an_unknown_region_fails_at_once() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Stateless);
    let ask = json!({ "region_id": 7, "seconds": 600 });
    let (error, _) = market.call_expecting_error("scan_opportunities", ask);
    assert_eq!(error["code"], "unknown_region");
}
