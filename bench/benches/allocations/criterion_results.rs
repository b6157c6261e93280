//! What criterion has found last, read from where it keeps it.

use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A row for each benchmark, in the order of their names.
pub(crate) fn table() -> String {
    let mut rows = Vec::new();
    find(&folder(), &mut rows);
    rows.sort();
    format!("| part | of one |\n|---|---|\n{}", rows.concat())
}

/// Beside the folder of the optimised build, of which this program is a part.
fn folder() -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    let target = own.ancestors().find(|folder| folder.join("criterion").is_dir());
    target.map(|folder| folder.join("criterion")).unwrap_or_default()
}

fn find(folder: &Path, rows: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|name| name == "new") {
            rows.extend(row(&path));
        } else if path.is_dir() {
            find(&path, rows);
        }
    }
}

fn row(folder: &Path) -> Option<String> {
    let read = |name: &str| -> Option<Value> {
        serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok()
    };
    let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let things = benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let median = &estimates["median"];
    let interval = &median["confidence_interval"];
    let [middle, least, most] =
        [&median["point_estimate"], &interval["lower_bound"], &interval["upper_bound"]]
            .map(|nanoseconds| nanoseconds.as_f64().unwrap_or(f64::NAN) / things / 1e3);
    let name = benchmark["title"].as_str()?;
    Some(format!("| {name} | {middle:.2} µs ({least:.2}–{most:.2}) |\n"))
}
