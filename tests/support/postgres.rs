//! A private PostgreSQL server for tests, in a temporary folder. It knows how to start, stop and
//! restart; it judges nothing.
//!
//! PostgreSQL refuses to run as root: then it runs as `postgres` or `nobody`. The server is the child
//! of a shell that stops it when this process ends, however it ends.

// Each test binary uses some of it.
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

/// The server's superuser, and their password, which must never be seen.
const USER: &str = "green";
pub(crate) const PASSWORD: &str = "postgres-secret-0123456789";
/// Somebody else may take a free port before the server does.
const ATTEMPTS: usize = 5;
/// What the server says when it can be talked to.
const READY: &str = "database system is ready to accept connections";
/// Runs the server until it is told to stop it; or until nobody can tell it any more, and then it
/// takes the files away, too.
const SUPERVISOR_SCRIPT: &str = r#""$1/postgres" -D "$2" -p "$3" -k "" -c listen_addresses=127.0.0.1 \
    -c fsync="$4" -c max_connections=200 </dev/null & server=$!
    read -r how; kill "-${how:-INT}" $server; wait $server
    if [ -z "$how" ]; then rm -rf "$2"; fi"#;

/// A server.
pub(crate) struct Postgres {
    // Fields drop in this order: first the server, then its files.
    process: Option<PostgresProcess>,
    port: u16,
    fsync: bool,
    databases: AtomicU32,
    folder: TempDir,
}

struct PostgresProcess(Child);

impl PostgresProcess {
    /// Tells the server to end, and waits until it has.
    fn stop(&mut self, how: &str) {
        if let Some(mut stdin) = self.0.stdin.take() {
            // It may have gone by itself.
            drop(stdin.write_all(how.as_bytes()));
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
    /// One that all tests of this process share, each with a database of its own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// One of the test's own, which it may stop.
    pub(crate) fn start() -> Self {
        Self::start_with(false)
    }

    /// The same; `fsync` as in real life, for measuring.
    pub(crate) fn start_with(fsync: bool) -> Self {
        greenroom::install_crypto();
        let folder = tempfile::tempdir().expect("there is room for files");
        let secret = folder.path().join("password");
        fs::write(&secret, PASSWORD).expect("the file can be written");
        let (user, group) = server_user();
        for path in [folder.path(), &secret] {
            chown(path, Some(user), Some(group)).expect("the folder can be given away");
        }
        let made = command(&binaries().join("initdb"))
            .args(["-U", USER, "-E", "UTF8", "--locale=C", "--no-sync", "-A", "scram-sha-256"])
            .arg(format!("--pwfile={}", secret.display()))
            .arg("-D")
            .arg(folder.path().join("data"))
            .output()
            .expect("initdb can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let databases = AtomicU32::new(0);
        let mut server = Self { process: None, port: 0, fsync, databases, folder };
        for _ in 0..ATTEMPTS {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
            server.port = free.expect("there is a free port").port();
            if server.try_resume().is_ok() {
                return server;
            }
        }
        server.resume();
        server
    }

    /// Ends orderly, with connections cut.
    pub(crate) fn stop(&mut self) {
        self.end("INT\n");
    }

    /// Ends at once, as if it had crashed.
    pub(crate) fn crash(&mut self) {
        self.end("QUIT\n");
    }

    fn end(&mut self, how: &str) {
        let mut keeper = self.process.take().expect("the server runs");
        keeper.stop(how);
    }

    /// Starts it again, where it was.
    pub(crate) fn resume(&mut self) {
        self.try_resume().unwrap_or_else(|told| panic!("PostgreSQL does not start: {told}"));
    }

    fn try_resume(&mut self) -> Result<(), String> {
        assert!(self.process.is_none(), "the server runs");
        let mut child = command(Path::new("/bin/sh"))
            .args(["-c", SUPERVISOR_SCRIPT, "keeper"])
            .arg(binaries())
            .arg(self.folder.path().join("data"))
            .args([self.port.to_string().as_str(), if self.fsync { "on" } else { "off" }])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let keeper = PostgresProcess(child);
        let mut told = String::new();
        while let Some(Ok(line)) = log.next() {
            if line.contains(READY) {
                self.process = Some(keeper);
                // It goes on writing; somebody must read.
                std::thread::spawn(move || log.for_each(drop));
                return Ok(());
            }
            told.push_str(&line);
            told.push('\n');
            if line.contains("FATAL") {
                break;
            }
        }
        Err(told)
    }

    /// A new empty database; its address.
    pub(crate) async fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Relaxed));
        let mut connection = self.connect("postgres").await;
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(create).execute(&mut connection).await.expect("it can be created");
        self.address(&name)
    }

    /// A connection beside the one that is tried.
    pub(crate) async fn connect(&self, database: &str) -> PgConnection {
        PgConnection::connect(&self.address(database)).await.expect("the server answers")
    }

    fn address(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }
}

/// A program that runs as who may own the server.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    let (user, group) = server_user();
    // Known to the server as this process's own user, unless that is root.
    if user != own_user() {
        command.uid(user).gid(group).current_dir("/");
    }
    command.env("LC_ALL", "C").stdout(Stdio::null());
    command
}

fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |own| own.uid())
}

/// The user and group of the server.
fn server_user() -> (u32, u32) {
    let own = fs::metadata("/proc/self").expect("there is a /proc");
    if own.uid() != 0 {
        return (own.uid(), own.gid());
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    named("postgres").or_else(|| named("nobody")).expect("somebody but root can run PostgreSQL")
}

/// The folder of the newest PostgreSQL that is installed.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_path = std::env::var_os("PATH");
    let in_path = in_path.iter().flat_map(std::env::split_paths).collect::<Vec<_>>();
    let folders = versions.map(|version| version.path().join("bin"));
    let mut found: Vec<PathBuf> = folders.filter(|folder| folder.join("initdb").exists()).collect();
    found.sort_by_key(|folder| {
        let version = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        version.and_then(|version| version.parse::<u32>().ok())
    });
    let found =
        found.pop().or_else(|| in_path.into_iter().find(|folder| folder.join("initdb").exists()));
    found.expect("PostgreSQL is not installed: run scripts/test-deps.sh")
}
