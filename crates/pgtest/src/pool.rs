//! Databases that tests use one after the other, because a new one with a schema costs far more than emptying one.
//!
//! A database is taken by locking its file in the pool's directory. The kernel drops the lock when the process ends, in
//! whatever way, so a test that fails or is killed returns its database too.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::psql;

/// Names the directory of the pool. Set by `abide-pgtest` for the command that it runs.
pub const POOL_VARIABLE: &str = "ABIDE_TEST_POSTGRES_POOL";

/// Ends what an earlier test left behind: its connections, then all rows of the schema, then the values of its sequences.
/// Truncating an empty table costs as much as truncating a full one, so empty tables are left out.
const EMPTY: &str = "\
do $$ \
declare filled text; \
begin \
    perform pg_terminate_backend(pid, 10000) from pg_stat_activity \
        where datname = current_database() and pid <> pg_backend_pid(); \
    select string_agg(oid::regclass::text, ', ') into filled from pg_class \
        where relnamespace = 'abide'::regnamespace and relkind = 'r' \
        and relname <> 'schema_version' and pg_relation_size(oid) > 0; \
    if filled is not null then execute 'truncate ' || filled; end if; \
    perform setval(seqrelid::regclass, seqstart, false) from pg_sequence \
        where pg_sequence_last_value(seqrelid) is not null; \
end $$; ";

/// A text that changes when a test changes more than rows: tables, indexes, triggers, functions, rights, settings or the
/// version of the schema.
const FINGERPRINT: &str = "\
select md5(string_agg(line, ';' order by line)) from ( \
    select (oid, relname, relkind, relnatts, relchecks, relhastriggers, relrowsecurity, relacl, reloptions)::text \
        from pg_class where oid >= 16384 \
    union all select (attrelid, attname, atttypid, attnotnull, atthasdef, attacl)::text \
        from pg_attribute where attrelid >= 16384 and attnum > 0 \
    union all select (indexrelid, indisvalid)::text from pg_index where indexrelid >= 16384 \
    union all select (oid, tgname, tgenabled)::text from pg_trigger \
    union all select (oid, proname, proacl)::text from pg_proc where oid >= 16384 \
    union all select (oid, nspname, nspacl)::text from pg_namespace where nspname !~ '^pg_t' \
    union all select (oid, extname)::text from pg_extension \
    union all select version::text from abide.schema_version version \
    union all select setconfig::text from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase \
        where datname = current_database()) as every (line)";

/// The databases that this process has taken; locked until it ends.
static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Makes the directory of a pool below a directory that its server removes.
pub fn make_directory(of_server: &Path) -> io::Result<PathBuf> {
    let directory = of_server.join("pool");
    fs::create_dir(&directory)?;
    // The server's user removes it in the end, and need not be the user of the tests.
    fs::set_permissions(&directory, Permissions::from_mode(0o777))?;
    Ok(directory)
}

/// Takes a database of the pool for the rest of this process, and returns its name. `url` gives the URL of a database, and
/// `schema` is the script that makes its tables.
pub fn take(
    directory: &Path,
    admin_url: &str,
    url: impl Fn(&str) -> String,
    schema: &str,
) -> String {
    let (name, mut file) = (0_u32..)
        .find_map(|number| Some((format!("abide_pool_{number}"), lock(directory, number)?)))
        .unwrap_or_else(|| unreachable!("there are always more numbers"));
    let mut expected = String::new();
    let read = file.read_to_string(&mut expected);
    read.unwrap_or_else(|error| panic!("cannot read the file of {name}: {error}"));
    let is_as_it_was =
        |expected: &str| psql(&url(&name), &format!("{EMPTY}{FINGERPRINT}")) == expected;
    if expected.is_empty() || !is_as_it_was(&expected) {
        psql(
            admin_url,
            &format!("drop database if exists {name} with (force)"),
        );
        psql(admin_url, &format!("create database {name}"));
        psql(&url(&name), schema);
        let fingerprint = psql(&url(&name), FINGERPRINT);
        let written = file
            .rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(fingerprint.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write the file of {name}: {error}"));
    }
    if let Ok(mut taken) = TAKEN.lock() {
        taken.push(file);
    }
    name
}

/// Locks the file of the database with that number; `None` while another test uses it.
fn lock(directory: &Path, number: u32) -> Option<File> {
    let path = directory.join(number.to_string());
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path);
    let file = opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => panic!("cannot lock {}: {error}", path.display()),
    }
}
