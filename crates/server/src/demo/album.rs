//! A sample: an album whose photos are resized in parallel, as a machine with children.

use abide::client::new_start;
use abide::{BoxError, Context, Job, Machine, Outcome, Status, Step, done};
use serde::{Deserialize, Serialize};

use super::work;

/// Resizes one photo. Its result is the size in kB.
pub const RESIZE: Job<u32, u32> = Job::new("resize");

/// Its code.
pub async fn resize(photo: u32) -> Result<u32, BoxError> {
    work(250 + u64::from(photo) * 130).await;
    Ok(90 + photo * 17)
}

/// An album.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Photos {
    /// The number of photos.
    pub count: u32,
}

/// The steps of an album.
#[derive(Debug, Step)]
pub enum At {
    /// Starts a child for each photo.
    Split,
    /// All photos are resized.
    Join,
}

/// The machine.
pub struct Album;

impl Machine for Album {
    const NAME: &'static str = "album";
    type Step = At;
    type State = Photos;
    type Output = String;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Split => {
                work(150).await;
                let photos = (0..ctx.state().count).map(|photo| new_start(RESIZE, photo));
                ctx.spawn(photos).then(At::Join)
            }
            At::Join => {
                work(300).await;
                let photos = ctx.children().iter();
                let mut size = 0;
                let mut resized = 0;
                for photo in photos.filter(|photo| photo.status == Status::Done) {
                    let result = photo.result.as_ref().ok_or("a photo without a size")?;
                    size += result.to::<u32>()?;
                    resized += 1;
                }
                done(format!("{resized} photos resized, {size} kB"))
            }
        }
    }
}
