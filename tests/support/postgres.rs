//! A private PostgreSQL server for tests, in a temporary folder. It can be started, stopped and
//! restarted; this module contains no assertions about it.
//!
//! PostgreSQL refuses to run as root. A process of root therefore runs it as `postgres` or `nobody`.
//! The server is the child of a shell, which stops it when this process ends for any reason.

// Each test binary uses only a part of this module.
#![allow(dead_code)]

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::{fs::MetadataExt as _, fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use tempfile::TempDir;

/// The server's superuser.
const USER: &str = "green";
/// The password of [`USER`], which no error or log may contain.
pub(crate) const PASSWORD: &str = "postgres-secret-0123456789";
/// Number of ports that are tried: another process may bind a free port before the server does.
const ATTEMPTS: usize = 5;
/// The log line of a server that accepts connections.
const READY: &str = "database system is ready to accept connections";
/// Runs the server until the name of a signal is read from standard input, and sends this signal to
/// the server. If standard input is closed instead, the script also deletes the files.
const SUPERVISOR_SCRIPT: &str = r#""$1/postgres" -D "$2" -p "$3" -k "" -c listen_addresses=127.0.0.1 \
    -c fsync="$4" -c max_connections=200 </dev/null & server=$!
    read -r signal; kill "-${signal:-INT}" $server; wait $server
    if [ -z "$signal" ]; then rm -rf "$2"; fi"#;

/// A PostgreSQL server, stopped on drop.
pub(crate) struct Postgres {
    // Fields are dropped in this order: the server before its files.
    process: Option<PostgresProcess>,
    port: u16,
    fsync: bool,
    databases: AtomicU32,
    folder: TempDir,
}

struct PostgresProcess(Child);

impl PostgresProcess {
    /// Sends `signal` (a name and a line feed) to the server and waits until it has ended.
    fn stop(&mut self, signal: &str) {
        if let Some(mut stdin) = self.0.stdin.take() {
            // The process may have ended already.
            drop(stdin.write_all(signal.as_bytes()));
        }
        drop(self.0.wait());
    }
}

impl Drop for PostgresProcess {
    fn drop(&mut self) {
        self.stop("INT\n");
    }
}

impl Postgres {
    /// Returns the server that all tests of this process share; each test creates its own database.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a server for one test, which may stop it.
    pub(crate) fn start() -> Self {
        Self::start_with(false)
    }

    /// Starts a server with or without `fsync`; benchmarks need it.
    pub(crate) fn start_with(fsync: bool) -> Self {
        greenroom::install_crypto();
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let secret = folder.path().join("password");
        fs::write(&secret, PASSWORD).expect("the file can be written");
        let (user, group) = server_user();
        for path in [folder.path(), &secret] {
            chown(path, Some(user), Some(group)).expect("the owner can be changed");
        }
        let initdb = command(&binaries().join("initdb"))
            .args(["-U", USER, "-E", "UTF8", "--locale=C", "--no-sync", "-A", "scram-sha-256"])
            .arg(format!("--pwfile={}", secret.display()))
            .arg("-D")
            .arg(folder.path().join("data"))
            .output()
            .expect("initdb can be started");
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let databases = AtomicU32::new(0);
        let mut server = Self { process: None, port: 0, fsync, databases, folder };
        for _ in 0..ATTEMPTS {
            let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            server.port = address.expect("there is a free port").port();
            if server.try_resume().is_ok() {
                return server;
            }
        }
        server.resume();
        server
    }

    /// Shuts the server down in order and closes its connections.
    pub(crate) fn stop(&mut self) {
        self.stop_with("INT\n");
    }

    /// Stops the server at once, as in a crash.
    pub(crate) fn crash(&mut self) {
        self.stop_with("QUIT\n");
    }

    fn stop_with(&mut self, signal: &str) {
        let mut process = self.process.take().expect("the server runs");
        process.stop(signal);
    }

    /// Starts the server again on the same port with the same data.
    pub(crate) fn resume(&mut self) {
        self.try_resume().unwrap_or_else(|log| panic!("PostgreSQL does not start: {log}"));
    }

    fn try_resume(&mut self) -> Result<(), String> {
        assert!(self.process.is_none(), "the server runs");
        let mut child = command(Path::new("/bin/sh"))
            .args(["-c", SUPERVISOR_SCRIPT, "supervisor"])
            .arg(binaries())
            .arg(self.folder.path().join("data"))
            .args([self.port.to_string().as_str(), if self.fsync { "on" } else { "off" }])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let process = PostgresProcess(child);
        let mut log = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line.contains(READY) {
                self.process = Some(process);
                // The server blocks when nothing reads its log.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(());
            }
            log.push_str(&line);
            log.push('\n');
            if line.contains("FATAL") {
                break;
            }
        }
        Err(log)
    }

    /// Creates an empty database and returns its address.
    pub(crate) async fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Relaxed));
        let mut connection = self.connect("postgres").await;
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut connection).await.expect("a database can be created");
        self.address(&name)
    }

    /// Opens a connection besides those of the store under test.
    pub(crate) async fn connect(&self, database: &str) -> PgConnection {
        PgConnection::connect(&self.address(database)).await.expect("the server answers")
    }

    fn address(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }
}

/// Builds a command that runs as the user who may own the server.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    let (user, group) = server_user();
    // Changing the user is needed, and permitted, only if this process runs as root.
    if user != own_user() {
        command.uid(user).gid(group).current_dir("/");
    }
    command.env("LC_ALL", "C").stdout(Stdio::null());
    command
}

fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |process| process.uid())
}

/// Returns the user and group ids for the server.
fn server_user() -> (u32, u32) {
    let process = fs::metadata("/proc/self").expect("there is a /proc");
    if process.uid() != 0 {
        return (process.uid(), process.gid());
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    named("postgres").or_else(|| named("nobody")).expect("a user other than root exists")
}

/// Returns the folder with the programs of the newest installed PostgreSQL.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_path = std::env::var_os("PATH");
    let in_path = in_path.iter().flat_map(std::env::split_paths).collect::<Vec<_>>();
    let has_initdb = |folder: &PathBuf| folder.join("initdb").exists();
    let folders = versions.map(|version| version.path().join("bin"));
    let mut folders: Vec<PathBuf> = folders.filter(has_initdb).collect();
    folders.sort_by_key(|folder| {
        let version = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        version.and_then(|version| version.parse::<u32>().ok())
    });
    let newest = folders.pop().or_else(|| in_path.into_iter().find(has_initdb));
    newest.expect("PostgreSQL is not installed: run scripts/test-deps.sh")
}
