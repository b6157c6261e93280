//! `scan_opportunities`, the slow tool: it runs in steps, reports progress after each step, and stops
//! at once when the client cancels it, with a `scan_cancelled` record. Called by `server`.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    arguments::Scan,
    disconnect::ClientDisconnect,
    errors::ToolError,
    ledger::Ledger,
    market::{Market, percent, round_isk},
    state::Effect,
};

const SECONDS_DEFAULT: f64 = 2.0;
/// Minimum number of steps of a scan. A longer scan has one step per second.
const STEPS_MIN: f64 = 10.0;
/// Maximum number of opportunities in the result.
const FOUND_MAX: usize = 10;

/// Runs the scan. The text of a cancelled scan does not reach the client.
pub(crate) async fn scan(
    market: &Market,
    ledger: &Ledger,
    args: Scan,
    disconnect: &ClientDisconnect,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ToolError> {
    let region_id = args.region_id.get();
    market.region(region_id)?;
    let seconds = args.seconds.unwrap_or(SECONDS_DEFAULT);
    let steps = seconds.ceil().max(STEPS_MIN);
    let pause = Duration::from_secs_f64(seconds / steps);
    let token = context.meta.get_progress_token();

    let mut done = 0.0;
    while done < steps {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                ledger.record(Effect::ScanCancelled(args), None)?;
                return Err(ToolError::Scripted("the scan was cancelled".to_owned()));
            }
            () = disconnect.wait() => {
                return Err(ToolError::Scripted("the client has disconnected".to_owned()));
            }
            () = tokio::time::sleep(pause) => done += 1.0,
        }
        if let Some(token) = &token {
            report_progress(context, token.clone(), done, steps).await;
        }
    }
    find_opportunities(market, region_id)
}

async fn report_progress(
    context: &RequestContext<RoleServer>,
    token: ProgressToken,
    done: f64,
    total: f64,
) {
    let progress = ProgressNotificationParam::new(token, done)
        .with_total(total)
        .with_message(format!("scanned {done} of {total} market groups"));
    // A failure is only logged: a disconnect or a cancellation ends the scan elsewhere.
    if let Err(error) = context.peer.notify_progress(progress).await {
        eprintln!("market: can't report progress: {error}");
    }
}

/// Finds items whose lowest sell price here is below the highest buy price in another region.
fn find_opportunities(market: &Market, region_id: u32) -> Result<Value, ToolError> {
    let region = market.region(region_id)?;
    let mut found = Vec::new();
    for item in market.items() {
        let Ok(here) = market.quote(region_id, item.type_id) else { continue };
        let best = market
            .regions()
            .filter(|other| other.region_id != region_id)
            .filter_map(|other| market.quote(other.region_id, item.type_id).ok())
            .max_by(|a, b| a.highest_buy.total_cmp(&b.highest_buy));
        if let Some(best) = best {
            let profit = round_isk(best.highest_buy - here.lowest_sell);
            if profit > 0.0 {
                found.push((percent(profit, here.lowest_sell), profit, here, best));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.type_id.cmp(&b.2.type_id)));
    let opportunities: Vec<Value> = found
        .iter()
        .take(FOUND_MAX)
        .map(|(margin, profit, here, best)| {
            json!({
                "type_id": here.type_id,
                "buy_at": here.lowest_sell,
                "sell_in_region_id": best.region_id,
                "sell_at": best.highest_buy,
                "profit": profit,
                "margin_percent": margin,
            })
        })
        .collect();
    Ok(json!({
        "region_id": region.region_id,
        "region": region.name,
        "scanned": market.items().count(),
        "opportunities": opportunities,
    }))
}
