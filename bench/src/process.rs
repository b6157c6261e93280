//! Server processes: started on their own core, measured through the operating system together with
//! their child processes, and stopped.

use anyhow::{Context as _, ensure};
use nix::{
    sys::signal::{Signal, kill},
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use std::{
    collections::HashMap,
    fs,
    process::{Child, Command},
    time::Duration,
};

/// The core of the servers. The load and the provider run on [`LOAD_CORE`].
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;
/// `USER_HZ`, which is 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A started server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts `command`.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let child = command.spawn().with_context(|| format!("can't start {command:?}"))?;
        Ok(Self { child })
    }

    /// Returns the processor time of the process and its children in seconds, in steps of 10 ms.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let ticks: u64 = self.tree()?.iter().map(|process| process.ticks).sum();
        Ok(ticks as f64 / TICKS_PER_SECOND)
    }

    /// Returns the processor time of the process in seconds, to the nanosecond. Includes threads that
    /// have ended, but not child processes.
    pub(crate) fn own_cpu_seconds(&self) -> anyhow::Result<f64> {
        let clock = clock_getcpuclockid(self.id()?)?;
        let time = clock_gettime(clock)?;
        Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
    }

    /// Returns the resident memory of the process and its children in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let resident = |process: &Process| {
            let status = fs::read_to_string(format!("/proc/{}/status", process.id)).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Ok(self.tree()?.iter().filter_map(resident).sum())
    }

    /// Sends SIGTERM and waits for a successful exit.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        kill(self.id()?, Signal::SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "exited with {status}");
        Ok(())
    }

    /// Sends SIGKILL, which simulates a crash.
    pub(crate) fn kill(&mut self) {
        // The process may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn id(&self) -> anyhow::Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id())?))
    }

    fn tree(&self) -> anyhow::Result<Vec<Process>> {
        let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
        let mut tree = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            // A process may end during the scan.
            let Some(process) = Process::read(&entry.file_name().to_string_lossy()) else {
                continue;
            };
            if process.id == self.child.id() {
                tree.push(process);
            } else {
                children.entry(process.parent).or_default().push(process);
            }
        }
        ensure!(!tree.is_empty(), "the server has exited");
        let mut next = 0;
        while let Some(process) = tree.get(next) {
            let child_processes = children.remove(&process.id);
            tree.extend(child_processes.into_iter().flatten());
            next += 1;
        }
        Ok(tree)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Process {
    id: u32,
    parent: u32,
    /// Processor time of the process and of its children that have exited.
    ticks: u64,
}

impl Process {
    fn read(id: &str) -> Option<Self> {
        let id = id.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if fields.first() == Some(&"Z") {
            return None; // A zombie: it has exited, but its exit status is not collected yet.
        }
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        Some(Self { id, parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

/// Returns a command that runs `program` on one core.
pub(crate) fn on_core(core: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &core.to_string(), program]);
    command
}

/// Moves this process to one core.
pub(crate) fn move_to_core(core: usize) -> anyhow::Result<()> {
    let process_id = std::process::id().to_string();
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", &core.to_string(), &process_id]);
    let status =
        command.stdout(std::process::Stdio::null()).status().context("can't run taskset")?;
    ensure!(status.success(), "taskset failed with {status}");
    Ok(())
}

/// Returns a free port. Another program may take it before it is used.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until the port accepts connections. Fails if the server exits before.
pub(crate) async fn wait_until_listening(server: &Server, port: u16) -> anyhow::Result<()> {
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        server.tree()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
