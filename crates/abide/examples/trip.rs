//! A trip that is booked as a whole or not at all: steps with retries, several at once, and a saga that undoes them.
//!
//! `cargo run --example trip`

use abide::client::NotDone;
use abide::prelude::*;

const TRIP: Flow<String, String> = Flow::new("trip");

async fn book(what: &str, whereto: &str) -> Result<String, BoxError> {
    if (what, whereto) == ("car", "Atlantis") {
        return Err("there are no cars in Atlantis".into());
    }
    println!("  booked a {what} to {whereto}");
    Ok(format!("{what} to {whereto}"))
}

async fn cancel(booking: String) -> Result<(), BoxError> {
    println!("  cancelled the {booking}");
    Ok(())
}

async fn trip(wf: Workflow, whereto: String) -> Result<String, BoxError> {
    wf.saga(|saga| {
        let (wf, whereto) = (wf.clone(), whereto.clone());
        async move {
            let flight = wf.step("book flight", || book("flight", &whereto));
            let hotel = wf.step("book hotel", || book("hotel", &whereto));
            let (flight, hotel) = wf.all((flight, hotel)).await;
            let (flight, hotel) = (flight?, hotel?);
            for booking in [&flight, &hotel] {
                let undone = booking.clone();
                saga.undo(format!("cancel {booking}"), move || cancel(undone.clone()));
            }
            let car = wf
                .step("book car", || book("car", &whereto))
                .retry(Retry::exponential(millis(50)).attempts(3))
                .await?;
            Ok(format!("{flight}, {hotel}, {car}"))
        }
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?; // or "sqlite:trips.db", "postgres://…"
    let engine = abide.engine().workflow(TRIP, trip).start().await?;
    for whereto in ["Lisbon", "Atlantis"] {
        println!("{whereto}:");
        let trip = abide.start(TRIP, whereto.to_owned()).await?;
        match trip.result().await {
            Ok(booked) => println!("  done: {booked}"),
            Err(NotDone::Failed { error, .. }) => println!("  not done: {error}"),
            Err(other) => return Err(other.into()),
        }
    }
    engine.shutdown().await;
    Ok(())
}
