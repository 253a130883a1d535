//! The service as it is run: killed in the middle, and started again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use abide::prelude::*;
use orders::{Checkout, Order, PAID, Payment};

/// A service that runs, and the rest of its output.
struct Service {
    process: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Service {
    fn kill(mut self) -> Result<(), BoxError> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

/// Starts the service in a directory, and waits until it prints that it runs.
fn service(directory: &Path) -> Result<Service, BoxError> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
    command.current_dir(directory).env_remove("ABIDE_STORE");
    let mut process = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = BufReader::new(process.stdout.take().ok_or("no output")?);
    let mut first = String::new();
    stdout.read_line(&mut first)?;
    assert_eq!(first, "orders run; ctrl-c stops\n");
    Ok(Service {
        process,
        _stdout: stdout,
    })
}

#[tokio::test]
async fn an_order_outlives_the_service() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let first = service(directory.path())?;
    let file = directory.path().join("orders.db");
    let abide = Abide::open(&format!("sqlite:{}", file.display())).await?;
    let kettle = Order {
        item: "kettle".into(),
        price: 100,
    };
    let order = abide.start(Checkout, kettle).key("order:1").await?;
    while order.get().await?.map(|one| one.status) != Some(Status::AwaitingSignal) {
        tokio::time::sleep(millis(20)).await;
    }
    first.kill()?;

    abide
        .signal("order:1", PAID, &Payment { amount: 100 })
        .await?;
    let second = service(directory.path())?;
    assert_eq!(order.result().await?, "kettle shipped, 100 paid");
    second.kill()?;
    abide.close().await;
    Ok(())
}
