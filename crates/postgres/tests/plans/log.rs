//! A server that logs the plan of every statement, and its log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abide_pgtest::{Server, psql};
use abide_postgres::statements;
use serde_json::Value;

/// A server that logs the plan of every statement, and its log.
pub struct PlanLog {
    pub server: Server,
    /// Length of the part of the log that was read.
    read: AtomicU64,
    /// Number of marks that were set.
    marks: AtomicU64,
}

impl PlanLog {
    pub fn start() -> Self {
        let server = Server::private(&[
            ("shared_preload_libraries", "auto_explain"),
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_format", "json"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_buffers", "on"),
            ("auto_explain.log_timing", "off"),
            ("logging_collector", "on"),
            ("log_directory", "log"),
            ("log_filename", "plans.log"),
            ("log_rotation_size", "0"),
            ("log_line_prefix", ""),
            ("log_checkpoints", "off"),
            ("autovacuum", "off"),
            ("shared_buffers", "512MB"),
            // Millions of rows are written, and no plan depends on how safely.
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("synchronous_commit", "off"),
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
        ]);
        Self {
            server,
            read: AtomicU64::new(0),
            marks: AtomicU64::new(0),
        }
    }

    /// Runs statements that insert many rows, whose own plans are not logged.
    pub fn fill(&self, url: &str, rows: &str) {
        psql(
            url,
            &format!("set auto_explain.log_min_duration = -1; {rows}"),
        );
    }

    /// Copies a database that is not in use, with its statistics. Returns the URL of the copy.
    pub fn copy(&self, url: &str) -> String {
        let copy = format!("{}_copy", name_of(url));
        let create = format!(
            "create database {copy} template {} strategy file_copy",
            name_of(url)
        );
        psql(&self.server.url("postgres"), &create);
        self.server.url(&copy)
    }

    /// Removes a database.
    pub fn remove(&self, url: &str) {
        let drop = format!("drop database {} with (force)", name_of(url));
        psql(&self.server.url("postgres"), &drop);
    }

    /// Forgets what was logged so far.
    pub fn skip(&self) {
        self.text();
    }

    /// The plans that were logged since the last time.
    pub fn read(&self) -> Vec<Plan> {
        self.text()
            .split(" plan:\n")
            .skip(1)
            .map(Plan::parse)
            .collect()
    }

    /// The log since the last time. The log is written by a process of its own: what stands before a mark in it
    /// has all come.
    fn text(&self) -> String {
        let admin = self.server.url("postgres");
        let mark = format!("mark {}", self.marks.fetch_add(1, Ordering::Relaxed));
        psql(&admin, &format!("select '{mark}'"));
        for _ in 0..1000 {
            let from = self.read.load(Ordering::Relaxed);
            let text = psql(
                &admin,
                &format!(
                    "select pg_read_file('log/plans.log', {from}, 1 << 29) \
                --{mark}"
                ),
            );
            if let Some(end) = text.find(&format!("select '{mark}'")) {
                self.read.fetch_add(end as u64, Ordering::Relaxed);
                return text;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the mark never came")
    }
}

/// The name of a database that is on a private server.
fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// The plan of a statement that was executed.
pub struct Plan {
    pub sql: String,
    tree: Value,
}

impl Plan {
    /// Reads the JSON at the beginning of a text.
    fn parse(text: &str) -> Self {
        let mut values = serde_json::Deserializer::from_str(text).into_iter();
        let tree: Value = values.next().unwrap().unwrap();
        Self {
            sql: tree["Query Text"].as_str().unwrap().to_owned(),
            tree,
        }
    }

    /// `true` if it is the plan of the statement with that name, in any form.
    pub fn is_of(&self, name: &str) -> bool {
        let of = |(known, sql): &(&str, &str)| *known == name && *sql == self.sql;
        statements::ALL.iter().any(of)
    }

    /// `true` if the planner saw that the single target of `find` is an id, and left out the look-up of its key.
    pub fn finds_by_id(&self) -> bool {
        let constant = |node: &&Value| {
            let condition = node["Index Cond"].as_str();
            condition.is_some_and(|condition| condition.starts_with("(id = ('"))
        };
        self.nodes().iter().any(constant)
    }

    /// All nodes of the tree.
    pub fn nodes(&self) -> Vec<&Value> {
        let mut nodes = vec![&self.tree["Plan"]];
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            nodes.extend(node["Plans"].as_array().into_iter().flatten());
            at += 1;
        }
        nodes
    }

    /// Number of pages that the statement touched.
    pub fn pages(&self) -> u64 {
        let kinds = ["Shared Hit Blocks", "Shared Read Blocks"];
        kinds
            .iter()
            .map(|kind| self.tree["Plan"][kind].as_u64().unwrap())
            .sum()
    }

    /// `true` if it was compiled to machine code.
    pub fn has_jit(&self) -> bool {
        self.tree.get("JIT").is_some()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.tree)
    }
}
