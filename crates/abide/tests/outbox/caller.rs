//! A caller with a connection of its own, which knows nothing of abide but a table.

use abide::postgres::tokio_postgres::{self, Client, NoTls};
use abide::sqlite::rusqlite::Connection;

use crate::common::Lab;

/// A connection of a caller.
pub enum Caller {
    Sqlite(Connection),
    Postgres(Client),
}

impl Caller {
    /// A new connection to the database of a lab, which has a table of the caller's.
    pub async fn new(lab: &Lab) -> Self {
        let mut caller = match lab.url().strip_prefix("sqlite:") {
            Some(path) => {
                let mine = Connection::open(path).unwrap();
                mine.busy_timeout(std::time::Duration::from_secs(60))
                    .unwrap();
                Self::Sqlite(mine)
            }
            None => Self::Postgres(connect(lab.url()).await),
        };
        caller
            .sql("create table if not exists orders (id integer primary key)")
            .await;
        caller
    }

    /// Runs statements.
    pub async fn try_sql(&mut self, sql: &str) -> Result<(), String> {
        match self {
            Self::Sqlite(mine) => mine.execute_batch(sql).map_err(|error| error.to_string()),
            Self::Postgres(mine) => {
                let ran = mine.batch_execute(sql).await;
                ran.map_err(|error| match error.as_db_error() {
                    Some(error) => error.message().to_owned(),
                    None => error.to_string(),
                })
            }
        }
    }

    /// Runs statements that must succeed.
    pub async fn sql(&mut self, sql: &str) {
        self.try_sql(sql).await.unwrap();
    }

    pub async fn begin(&mut self) {
        match self {
            Self::Sqlite(_) => self.sql("begin immediate").await,
            Self::Postgres(_) => self.sql("begin").await,
        }
    }

    /// Inserts a request, as a driver does: with a parameter.
    pub async fn try_insert(&mut self, request: &str) -> Result<(), String> {
        match self {
            Self::Sqlite(mine) => mine
                .execute("insert into abide_outbox (request) values (?1)", [request])
                .map(drop)
                .map_err(|error| error.to_string()),
            Self::Postgres(mine) => mine
                .execute(
                    "insert into abide.outbox (request) values ($1)",
                    &[&request],
                )
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
        }
    }

    /// Inserts a request that the database takes.
    pub async fn insert(&mut self, request: &str) {
        self.try_insert(request).await.unwrap();
    }

    /// Inserts as many starts as that in one statement, without a key.
    pub async fn insert_starts(&mut self, count: usize) {
        let request = r#"{"start":{"machine":"script","state":1}}"#;
        let sql = match self {
            Self::Sqlite(_) => format!(
                "insert into abide_outbox (request) with recursive n(i) as \
                 (select 1 union all select i + 1 from n where i < {count}) select '{request}' from n"
            ),
            Self::Postgres(_) => format!(
                "insert into abide.outbox (request) select '{request}' from generate_series(1, {count})"
            ),
        };
        self.sql(&sql).await;
    }

    /// The number that a query answers.
    pub async fn number(&mut self, sql: &str) -> i64 {
        match self {
            Self::Sqlite(mine) => mine.query_row(sql, [], |row| row.get(0)).unwrap(),
            Self::Postgres(mine) => mine.query_one(sql, &[]).await.unwrap().get(0),
        }
    }

    /// The name of a table of abide.
    pub fn table(&self, name: &str) -> String {
        match self {
            Self::Sqlite(_) => format!("abide_{name}"),
            Self::Postgres(_) => format!("abide.{name}"),
        }
    }

    /// Has the database refuse every event of that type, as a full disk or a bug of ours would.
    pub async fn poison_events(&mut self, event_type: &str) {
        let sql = match self {
            Self::Sqlite(_) => format!(
                "create trigger poison before insert on abide_events when new.event_type = '{event_type}' \
                 begin select raise(abort, 'poisoned'); end"
            ),
            Self::Postgres(_) => format!(
                "create function poison() returns trigger language plpgsql as $$ begin \
                 if new.event_type = '{event_type}' then raise exception 'poisoned'; end if; return new; end $$; \
                 create trigger poison before insert on abide.events for each row execute function poison()"
            ),
        };
        self.sql(&sql).await;
    }
}

/// A connection to PostgreSQL.
pub async fn connect(url: &str) -> Client {
    let (mine, driver) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(driver);
    mine
}
