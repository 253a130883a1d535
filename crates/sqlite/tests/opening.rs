//! Opening a file: making its tables, finding them made, and saying clearly why not.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use crate::common::{Database, count, start_one};
use abide_kernel::{Error, Store};
use abide_sqlite::rusqlite::Connection;
use abide_sqlite::{Options, Sqlite};

fn refused(path: &Path) -> (bool, String) {
    match Sqlite::open(path, Options::default()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => (matches!(error, Error::Broken(_)), error.to_string()),
    }
}

fn versions(conn: &Connection) -> Vec<i64> {
    let mut statement = conn
        .prepare("select version from abide_schema order by version")
        .unwrap();
    let versions = statement.query_map([], |row| row.get(0)).unwrap();
    versions.collect::<Result<_, _>>().unwrap()
}

/// The versions that this release makes, in order.
fn known_versions() -> Vec<i64> {
    let migrations = abide_sqlite::migrations().iter();
    migrations.map(|step| i64::from(step.version)).collect()
}

#[tokio::test]
async fn a_new_file_gets_its_tables_and_is_found_again_as_it_was() {
    let database = Database::new();
    let store = database.open();
    let id = start_one(&*store).await;
    store.close().await;
    let store = database.open();
    assert_eq!(store.get(&id.into()).await.unwrap().unwrap().id, id);
    store.close().await;
    assert_eq!(versions(&database.connect()), known_versions());
}

/// The mode of a file.
#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_and_what_lies_beside_it_are_for_their_owner_alone() {
    // States and payloads were readable by everyone on the machine.
    const CHILD: &str = "ABIDE_TEST_OPENS";
    if let Some(path) = std::env::var_os(CHILD) {
        let store = Sqlite::open(&path, Options::default()).unwrap();
        start_one(&*store).await;
        for suffix in ["", "-wal", "-shm"] {
            let mut path = path.clone();
            path.push(suffix);
            assert_eq!(mode(Path::new(&path)), 0o600, "{}", path.display());
        }
        store.close().await;
        return;
    }
    let database = Database::new();
    for umask in ["000", "022", "077", "777"] {
        let path = database.path().with_file_name(format!("umask-{umask}.db"));
        let opened = Command::new("sh")
            .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "opening::a_new_file_and_what_lies_beside_it_are_for_their_owner_alone",
            ])
            .env(CHILD, &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&opened.stdout);
        assert!(text.contains("1 passed"), "umask {umask}: {opened:?}");
        assert_eq!(mode(&path), 0o600);
    }
    // One that is there is left as its owner has it.
    use std::os::unix::fs::PermissionsExt;
    let shared = database.path().with_file_name("shared.db");
    std::fs::File::create(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o660)).unwrap();
    let store = Sqlite::open(&shared, Options::default()).unwrap();
    start_one(&*store).await;
    store.close().await;
    assert_eq!(mode(&shared), 0o660);
}

#[tokio::test]
async fn a_file_with_tables_of_its_own_keeps_them() {
    let database = Database::new();
    database
        .connect()
        .execute_batch("create table orders (id integer); insert into orders values (7)")
        .unwrap();
    let store = database.open();
    start_one(&*store).await;
    store.close().await;
    let order: i64 = database
        .connect()
        .query_row("select id from orders", [], |row| row.get(0))
        .unwrap();
    assert_eq!(order, 7);
}

#[tokio::test]
async fn a_file_that_a_newer_release_has_written_to_is_refused_and_not_touched() {
    let database = Database::new();
    database.open().close().await;
    let conn = database.connect();
    conn.execute(
        "insert into abide_schema (version, name, applied_at) values (99, 'later', 0)",
        [],
    )
    .unwrap();
    let (broken, text) = refused(&database.path());
    let mut known = known_versions();
    let newest = format!("up to {}", known.last().unwrap());
    assert!(
        broken && text.contains("99") && text.contains(&newest) && text.contains("newer release"),
        "{text}"
    );
    known.push(99);
    assert_eq!(versions(&conn), known);
}

#[tokio::test]
async fn a_file_of_a_development_version_is_refused_and_not_touched() {
    let database = Database::new();
    let conn = database.connect();
    conn.execute_batch(
        "create table abide_schema (version integer primary key, name text not null, applied_at integer not null) strict;
         create table abide_instances (id integer primary key, awaits text) strict;
         insert into abide_schema (version, name, applied_at) values (1, 'instances', 0);",
    )
    .unwrap();
    for later in ["", "isolation"] {
        if !later.is_empty() {
            let insert = "insert into abide_schema (version, name, applied_at) values (2, ?1, 0)";
            conn.execute(insert, [later]).unwrap();
        }
        let before = versions(&conn);
        let (broken, text) = refused(&database.path());
        assert!(
            broken && text.contains("development version") && text.contains("use another file"),
            "{text}"
        );
        assert_eq!(versions(&conn), before);
        let error = abide_sqlite::schema_version(database.path()).unwrap_err();
        assert!(error.to_string().contains("development version"), "{error}");
    }
    assert_eq!(count(&database.path()), 0);
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_not_touched() {
    let database = Database::new();
    let text = "this is plain text, and by no means a database\n".repeat(100);
    std::fs::write(database.path(), &text).unwrap();
    let (broken, error) = refused(&database.path());
    assert!(
        broken && error.contains("not an SQLite database") && error.contains("abide.db"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(database.path()).unwrap(), text);
}

#[test]
fn a_path_where_no_file_can_be_says_why() {
    let database = Database::new();
    let dir = database.path();
    std::fs::create_dir(&dir).unwrap();
    assert!(refused(&dir).1.contains("is a directory"));
    let (_, error) = refused(&dir.join("missing").join("abide.db"));
    assert!(
        error.contains("no directory") && error.contains("create it first"),
        "{error}"
    );
    std::fs::write(dir.join("file"), "").unwrap();
    assert!(
        refused(&dir.join("file").join("abide.db"))
            .1
            .contains("no directory")
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    // Not one whose permissions forbid it: the tests may run as root.
    let (broken, error) = refused(Path::new("/proc/abide.db"));
    assert!(
        !broken && error.contains("/proc/abide.db") && error.contains("writable"),
        "{error}"
    );
}

#[test]
fn threads_that_open_a_new_file_together_all_find_its_tables_made_once() {
    for _ in 0..5 {
        let database = Database::new();
        let together = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    database.open();
                });
            }
        });
        assert_eq!(versions(&database.connect()), known_versions());
    }
}

/// The file that a process of [`processes_that_open_a_new_file_together_all_find_its_tables_made_once`] opens.
const FILE: &str = "ABIDE_TEST_FILE";

#[test]
fn processes_that_open_a_new_file_together_all_find_its_tables_made_once() {
    let database = Database::new();
    let this = std::env::current_exe().unwrap();
    let begin = || {
        let mut process = Command::new(&this);
        process
            .args(["--exact", "opening::one_of_several_processes"])
            .env(FILE, database.path());
        process.stdout(Stdio::null());
        process.spawn().unwrap()
    };
    let processes: Vec<_> = (0..4).map(|_| begin()).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(versions(&database.connect()), known_versions());
    assert_eq!(count(&database.path()), 4);
}

/// Does nothing unless the test above has started it in a process of its own.
#[tokio::test]
async fn one_of_several_processes() {
    if let Some(path) = std::env::var_os(FILE) {
        let store = Sqlite::open(path, Options::default()).unwrap();
        start_one(&*store).await;
        store.close().await;
    }
}

#[tokio::test]
async fn a_store_that_may_not_migrate_writes_nothing_to_a_file_without_its_tables() {
    let database = Database::new();
    let looking = Options {
        migrate: false,
        ..Options::default()
    };
    let refused = |path: &Path| match Sqlite::open(path, looking.clone()) {
        Err(Error::NotSetUp(text)) => text,
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => panic!("{error}"),
    };
    // A file of another program: its tables, and the way it is written, stay as they are.
    let foreign = database.path().with_file_name("foreign.db");
    let conn = Connection::open(&foreign).unwrap();
    conn.execute_batch("create table notes (text); insert into notes values ('ü')")
        .unwrap();
    drop(conn);
    let before = std::fs::read(&foreign).unwrap();
    let text = refused(&foreign);
    assert!(
        text.contains("foreign.db") && text.contains("no tables of abide"),
        "{text}"
    );
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    // One that is not there is not created.
    let missing = database.path().with_file_name("missing.db");
    assert!(Sqlite::open(&missing, looking.clone()).is_err());
    assert!(!missing.exists());
}
