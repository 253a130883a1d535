//! The two databases that have an outbox.

use std::future::Future;

/// A database that has an outbox: PostgreSQL or SQLite.
pub trait Outbox: sqlx::Database + sealed::Sealed {
    /// Inserts the text of a request.
    #[doc(hidden)]
    fn insert<'e, E>(
        executor: E,
        request: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send
    where
        E: sqlx::Executor<'e, Database = Self>;
}

mod sealed {
    pub trait Sealed {}
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    /// Inserts a request, and wakes the takers of the outbox when the transaction commits. It is one statement, because an
    /// executor runs one.
    const INSERT: &str = "\
with inserted as (insert into abide.outbox (request) values ($1) returning 1) \
select pg_notify('abide_outbox', '') from inserted";

    impl sealed::Sealed for sqlx::Postgres {}

    impl Outbox for sqlx::Postgres {
        async fn insert<'e, E>(executor: E, request: String) -> Result<(), sqlx::Error>
        where
            E: sqlx::Executor<'e, Database = Self>,
        {
            sqlx::query(INSERT).bind(request).execute(executor).await?;
            Ok(())
        }
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;

    /// Inserts a request. Stores that have the file open notice the commit.
    const INSERT: &str = "insert into abide_outbox (request) values (?1)";

    impl sealed::Sealed for sqlx::Sqlite {}

    impl Outbox for sqlx::Sqlite {
        async fn insert<'e, E>(executor: E, request: String) -> Result<(), sqlx::Error>
        where
            E: sqlx::Executor<'e, Database = Self>,
        {
            sqlx::query(INSERT).bind(request).execute(executor).await?;
            Ok(())
        }
    }
}
