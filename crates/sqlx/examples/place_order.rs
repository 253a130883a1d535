//! Places an order in a transaction of its own: a row of the shop, and a start that abide carries out when both commit.
//!
//! `cargo run --example place_order -- postgres://localhost/shop` or `… -- sqlite:shop.db`, on a database that `abide serve`
//! or a program with an engine has open.

use std::error::Error;

use sqlx::Connection;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .ok_or("give the url of a database")?;
    match url.starts_with("sqlite:") {
        true => on_sqlite(&url).await,
        false => on_postgres(&url).await,
    }
}

async fn on_postgres(url: &str) -> Result<(), Box<dyn Error>> {
    let mut shop = sqlx::PgConnection::connect(url).await?;
    let table = "create table if not exists shop_orders (id int primary key)";
    sqlx::query(table).execute(&mut shop).await?;

    // A request that is rolled back has no effect.
    let mut dropped = shop.begin().await?;
    abide_sqlx::start("shop", &"never")?
        .key("order:0")?
        .insert(&mut *dropped)
        .await?;
    dropped.rollback().await?;

    let mut order = shop.begin().await?;
    sqlx::query("insert into shop_orders values (42)")
        .execute(&mut *order)
        .await?;
    abide_sqlx::start("shop", &"kettle")?
        .key("order:42")?
        .insert(&mut *order)
        .await?;
    abide_sqlx::signal("order:42", "paid", &100)?
        .insert(&mut *order)
        .await?;
    abide_sqlx::publish("placed", &42)?
        .id("order:42")?
        .insert(&mut *order)
        .await?;
    order.commit().await?;
    println!("order:42 is placed");
    Ok(())
}

async fn on_sqlite(url: &str) -> Result<(), Box<dyn Error>> {
    let mut shop = sqlx::SqliteConnection::connect(url).await?;
    let table = "create table if not exists shop_orders (id int primary key)";
    sqlx::query(table).execute(&mut shop).await?;

    let mut dropped = shop.begin().await?;
    abide_sqlx::start("shop", &"never")?
        .key("order:0")?
        .insert(&mut *dropped)
        .await?;
    dropped.rollback().await?;

    let mut order = shop.begin().await?;
    sqlx::query("insert into shop_orders values (42)")
        .execute(&mut *order)
        .await?;
    abide_sqlx::start("shop", &"kettle")?
        .key("order:42")?
        .insert(&mut *order)
        .await?;
    abide_sqlx::signal("order:42", "paid", &100)?
        .insert(&mut *order)
        .await?;
    abide_sqlx::publish("placed", &42)?
        .id("order:42")?
        .insert(&mut *order)
        .await?;
    order.commit().await?;
    println!("order:42 is placed");
    Ok(())
}
