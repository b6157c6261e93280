//! Deliberate faults for tests of hosts. All of them are off by default.
//!
//! | environment variable | effect |
//! |---|---|
//! | `MARKET_EXIT_DURING=<tool>` | a call of the tool ends the process with exit code 1 instead of returning |
//! | `MARKET_HANG=<tool>` | a call of the tool never returns |
//! | `MARKET_STDERR_FLOOD=1` | about 250 KB/s of noise on standard error |
//! | `MARKET_LOG=<path>` | appends a JSON line per received call to the file, and one per answer to an elicitation |
//! | `MARKET_SPANS=<path>` | makes writing slower, and appends a JSON line to the file when it begins and when it ends |
//! | `MARKET_TEST_TOOLS=1` | lists the `test_…` tools and accepts calls to them |
//!
//! The first two act after the tool has done its work, and for a writing tool only after a write: a call
//! repeated with its idempotency key returns, so that a test can show a host's recovery. Used by `main`
//! and `server`.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rmcp::{RoleServer, model::InputResponses, schemars::JsonSchema, service::RequestContext};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{disconnect::ClientDisconnect, errors::ToolError};

/// Maximum bytes of the text that `test_huge_result` returns.
const HUGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum bytes of the text of `test_fail`.
const FAIL_BYTES_MAX: usize = 10_000;
const FLOOD_LINES: usize = 250;
const FLOOD_PAUSE: Duration = Duration::from_millis(100);
/// Additional duration of writing while spans are recorded; long enough for calls to overlap.
const SPAN_PAUSE: Duration = Duration::from_millis(40);

/// `test_huge_result`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct HugeResultArgs {
    /// Number of bytes, at most 67108864
    #[schemars(range(max = HUGE_BYTES_MAX))]
    bytes: usize,
}

/// `test_fail`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct FailArgs {
    /// Text of the error
    #[schemars(length(max = FAIL_BYTES_MAX))]
    message: String,
}

/// The enabled faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    exit_during: Option<String>,
    hang: Option<String>,
    stderr_flood: bool,
    log: Option<PathBuf>,
    spans: Option<PathBuf>,
    pub(crate) test_tools: bool,
}

impl Faults {
    pub(crate) fn from_env() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let on = |name: &str| set(name).is_some_and(|value| value != "0");
        Self {
            exit_during: set("MARKET_EXIT_DURING"),
            hang: set("MARKET_HANG"),
            log: set("MARKET_LOG").map(PathBuf::from),
            spans: set("MARKET_SPANS").map(PathBuf::from),
            stderr_flood: on("MARKET_STDERR_FLOOD"),
            test_tools: on("MARKET_TEST_TOOLS"),
        }
    }

    /// Starts the noise if it is enabled. It ends with the process or its reader.
    pub(crate) fn start_flood(&self) {
        if !self.stderr_flood {
            return;
        }
        std::thread::spawn(|| {
            let line = format!("market: noise {}\n", "~".repeat(84));
            let block = line.repeat(FLOOD_LINES);
            while io::stderr().write_all(block.as_bytes()).is_ok() {
                std::thread::sleep(FLOOD_PAUSE);
            }
        });
    }

    /// Logs a received call before it is processed, or the call's `answers` to an elicitation.
    pub(crate) fn log(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        meta: &Map<String, Value>,
        answers: Option<&InputResponses>,
    ) {
        let Some(path) = &self.log else { return };
        let mut line = json!({ "tool": tool, "arguments": arguments, "_meta": meta });
        if let Some(answers) = answers {
            line["input_responses"] = json!(answers);
        }
        append_json_line(path, &line);
    }

    /// Does `work` and records its span.
    pub(crate) async fn record_span<T>(&self, tool: &str, work: impl Future<Output = T>) -> T {
        let Some(path) = &self.spans else { return work.await };
        append_json_line(path, &json!({ "tool": tool, "is": "begun" }));
        let result = work.await;
        tokio::time::sleep(SPAN_PAUSE).await;
        append_json_line(path, &json!({ "tool": tool, "is": "ended" }));
        result
    }

    /// Exits or hangs if `tool` is the selected one. Call it after the tool's work.
    pub(crate) async fn trigger(
        &self,
        tool: &str,
        disconnect: &ClientDisconnect,
        context: &RequestContext<RoleServer>,
    ) {
        if self.exit_during.as_deref() == Some(tool) {
            std::process::exit(1);
        }
        if self.hang.as_deref() == Some(tool) {
            disconnect.wait_or_cancelled(context).await;
        }
    }
}

/// Appends a line to a file.
fn append_json_line(path: &Path, line: &Value) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
        eprintln!("market: can't write {}: {error}", path.display());
    }
}

/// Runs a test tool; `None` if `tool` is not one.
pub(crate) async fn test_tool(
    tool: &str,
    arguments: &Map<String, Value>,
    disconnect: &ClientDisconnect,
    context: &RequestContext<RoleServer>,
) -> Option<Result<Value, ToolError>> {
    let invalid = |problem: String| ToolError::InvalidArguments { tool: tool.to_owned(), problem };
    let result = match tool {
        "test_huge_result" => match HugeResultArgs::deserialize(arguments) {
            Ok(args) if args.bytes <= HUGE_BYTES_MAX => Ok(Value::String("x".repeat(args.bytes))),
            Ok(_) => Err(invalid(format!("bytes must be at most {HUGE_BYTES_MAX}"))),
            Err(error) => Err(invalid(error.to_string())),
        },
        "test_hang" => {
            disconnect.wait_or_cancelled(context).await;
            Err(ToolError::Scripted("cancelled".to_owned()))
        }
        "test_crash" => std::process::exit(1),
        "test_odd_values" => Ok(odd_values()),
        "test_noise" => noise()
            .map(|()| json!({ "noise": "written" }))
            .map_err(|error| invalid(error.to_string())),
        "test_fail" => match FailArgs::deserialize(arguments) {
            Ok(args) if args.message.len() <= FAIL_BYTES_MAX => {
                Err(ToolError::Scripted(args.message))
            }
            Ok(_) => Err(invalid(format!("message must be at most {FAIL_BYTES_MAX} bytes"))),
            Err(error) => Err(invalid(error.to_string())),
        },
        "test_request_meta" => Ok(json!({ "_meta": context.meta })),
        _ => return None,
    };
    Some(result)
}

/// Returns values that careless hosts mishandle.
fn odd_values() -> Value {
    json!({
        "nan": "NaN",
        "infinity": "-Infinity",
        "largest_u64": u64::MAX,
        "smallest_i64": i64::MIN,
        "beyond_double": 9_007_199_254_740_993_u64,
        "huge": 1e300,
        "tiny": 5e-324,
        "control": "nul \u{0} bell \u{7} escape \u{1b}[31mred\u{1b}[0m delete \u{7f}",
        "separators": "line \u{2028} paragraph \u{2029} bom \u{feff} override \u{202e}",
        "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
        "astral": "\u{1f680}",
        "empty_key": { "": null },
    })
}

/// Writes invalid lines to standard output, as a careless server does.
fn noise() -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(b"debug: this line is not JSON\n\xff\xfe\xc3\x28 not UTF-8\n")?;
    out.flush()
}
