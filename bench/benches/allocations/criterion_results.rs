//! Reads the latest results of criterion from its output folder.

use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Returns a table with a row per benchmark, sorted by name.
pub(crate) fn table() -> String {
    let mut rows = Vec::new();
    collect_rows(&output_folder(), &mut rows);
    rows.sort();
    format!("| part | per item |\n|---|---|\n{}", rows.concat())
}

/// Returns criterion's output folder in the target folder of this program.
fn output_folder() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join("criterion").is_dir());
    target.map(|folder| folder.join("criterion")).unwrap_or_default()
}

fn collect_rows(folder: &Path, rows: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|name| name == "new") {
            rows.extend(parse_row(&path));
        } else if path.is_dir() {
            collect_rows(&path, rows);
        }
    }
}

fn parse_row(folder: &Path) -> Option<String> {
    let read = |name: &str| -> Option<Value> {
        serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok()
    };
    let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let elements = benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let median = &estimates["median"];
    let interval = &median["confidence_interval"];
    let [median, lower, upper] =
        [&median["point_estimate"], &interval["lower_bound"], &interval["upper_bound"]]
            .map(|nanoseconds| nanoseconds.as_f64().unwrap_or(f64::NAN) / elements / 1e3);
    let name = benchmark["title"].as_str()?;
    Some(format!("| {name} | {median:.2} µs ({lower:.2}–{upper:.2}) |\n"))
}
