//! The file of the demo: in a directory of its own that is removed with it, or at the path that the user gives.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abide::Abide;

use crate::cli::failure::{Exit, Failure, Result};
use crate::demo::{name_of, worker};

/// The demo's file. A directory that was made for it is removed when this is dropped.
pub struct DemoFile {
    file: PathBuf,
    made: Option<PathBuf>,
}

impl DemoFile {
    /// The file that is to be kept, or one in a new directory.
    pub fn new(keep: Option<&Path>) -> Result<Self> {
        if let Some(file) = keep {
            // A store is named by text.
            if file.to_str().is_none_or(str::is_empty) {
                let text = format!("--keep {} is not a file name", file.display());
                return Err(Failure::usage(text).next("abide demo --keep demo.db"));
            }
            return Ok(Self {
                file: file.to_owned(),
                made: None,
            });
        }
        let failed = |error: &dyn std::fmt::Display| {
            let text = format!("cannot create a directory for the demo's file: {error}");
            Failure::new(Exit::Unreachable, "unavailable", text).next("abide demo --keep demo.db")
        };
        let tag = crate::auth::random::<6>().map_err(|error| failed(&error))?;
        let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        let made = std::env::temp_dir().join(format!("abide-demo-{tag}"));
        // Other users may not read it.
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(&made).map_err(|error| failed(&error))?;
        Ok(Self {
            file: made.join("demo.db"),
            made: Some(made),
        })
    }

    /// The store's connection string.
    pub fn store(&self) -> String {
        format!("sqlite:{}", self.file.display())
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// `true` if the file is kept afterwards.
    pub const fn is_kept(&self) -> bool {
        self.made.is_none()
    }

    /// Waits until the workers of an earlier demo on the file are considered dead. Returns a failure if they stay alive.
    pub async fn wait_for_others(&self, abide: &Abide) -> Result<()> {
        let pause = Duration::from_millis(100);
        let patience = worker::LEASE + Duration::from_secs(1);
        let first = name_of(1);
        let others = async {
            loop {
                let workers = abide.workers().await?;
                if !workers.iter().any(|one| one.name.as_str() == first) {
                    return Ok::<_, Failure>(());
                }
                tokio::time::sleep(pause).await;
            }
        };
        match tokio::time::timeout(patience, others).await {
            Ok(none) => none,
            Err(_) => {
                let text = format!("another demo works on {}", self.file.display());
                Err(Failure::new(Exit::Refused, "in_use", text)
                    .next("abide demo      (with a file of its own)"))
            }
        }
    }
}

impl Drop for DemoFile {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            // Files that cannot be removed are left to the system.
            let _ = std::fs::remove_dir_all(made);
        }
    }
}
