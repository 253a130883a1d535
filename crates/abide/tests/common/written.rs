//! Tables of a test's own, and the rows that its steps write into them in their own transactions.

#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use abide::sqlite::StepTransaction;
    use abide::sqlite::rusqlite::Connection;

    use crate::common::Lab;

    fn connection(lab: &Lab) -> Connection {
        let mine = Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap();
        mine.busy_timeout(abide::time::secs(10)).unwrap();
        mine
    }

    pub async fn prepare(lab: &Lab) {
        connection(lab)
            .execute_batch(
                "create table written (id integer primary key); create table counted (id integer)",
            )
            .unwrap();
    }

    /// Writes a row; each can be written once.
    pub async fn try_insert(
        mut transaction: StepTransaction,
        row: i64,
    ) -> Result<StepTransaction, abide::BoxError> {
        transaction.with(|db| db.execute("insert into written values (?1)", [row]))?;
        Ok(transaction)
    }

    pub async fn insert(transaction: StepTransaction, row: i64) -> StepTransaction {
        try_insert(transaction, row).await.unwrap()
    }

    /// Writes a row that may be there already.
    pub async fn count(mut transaction: StepTransaction, row: i64) -> StepTransaction {
        let written = transaction.with(|db| db.execute("insert into counted values (?1)", [row]));
        written.unwrap();
        transaction
    }

    async fn ids(lab: &Lab, table: &str) -> Vec<i64> {
        let mine = connection(lab);
        let sql = format!("select id from {table} order by id");
        let mut statement = mine.prepare(&sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub async fn rows(lab: &Lab) -> Vec<i64> {
        ids(lab, "written").await
    }

    pub async fn counted(lab: &Lab) -> Vec<i64> {
        ids(lab, "counted").await
    }
}

#[cfg(feature = "postgres")]
pub mod postgres {
    pub use abide::postgres::StepTransaction;
    use abide::postgres::tokio_postgres::{Client, NoTls, connect};

    use crate::common::Lab;

    async fn connection(lab: &Lab) -> Client {
        let (mine, driver) = connect(lab.url(), NoTls).await.unwrap();
        tokio::spawn(driver);
        mine
    }

    pub async fn prepare(lab: &Lab) {
        let mine = connection(lab).await;
        mine.batch_execute(
            "create table written (id bigint primary key); create table counted (id bigint)",
        )
        .await
        .unwrap();
    }

    /// Writes a row; each can be written once.
    pub async fn try_insert(
        transaction: StepTransaction,
        row: i64,
    ) -> Result<StepTransaction, abide::BoxError> {
        transaction
            .execute("insert into written values ($1)", &[&row])
            .await?;
        Ok(transaction)
    }

    pub async fn insert(transaction: StepTransaction, row: i64) -> StepTransaction {
        try_insert(transaction, row).await.unwrap()
    }

    /// Writes a row that may be there already.
    pub async fn count(transaction: StepTransaction, row: i64) -> StepTransaction {
        let insert = "insert into counted values ($1)";
        transaction.execute(insert, &[&row]).await.unwrap();
        transaction
    }

    async fn ids(lab: &Lab, table: &str) -> Vec<i64> {
        let sql = format!("select id from {table} order by id");
        let rows = connection(lab).await.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub async fn rows(lab: &Lab) -> Vec<i64> {
        ids(lab, "written").await
    }

    pub async fn counted(lab: &Lab) -> Vec<i64> {
        ids(lab, "counted").await
    }
}
