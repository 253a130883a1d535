//! Light traffic: starts instances of the samples, pays most orders, and leaves some for the user.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use abide::client::{SendError, StartError};
use abide::model::Key;
use abide::store::Filter;
use abide::{Abide, Error, Graph, InstanceId, Status};
use serde_json::json;

use super::album::{Album, Photos};
use super::approval::{APPROVAL, APPROVED};
use super::checkout::{Checkout, Order, PAID};
use super::parcel::ARRIVED;

/// How often to call [`Traffic::tick`].
pub const TICK: Duration = Duration::from_millis(250);
/// Maximum number of instances that have not ended. At this number, no new one is started.
const OPEN_MAX: usize = 60;
/// Every seventh order is left for the user to pay, up to 8 at a time.
const LEFT_ORDERS: (u64, usize) = (7, 8);
/// Every third approval is left for the user, up to 4 at a time.
const LEFT_APPROVALS: (u64, usize) = (3, 4);

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sample {
    /// An order.
    Order,
    /// An approval.
    Approval,
    /// An album.
    Album,
    /// A parcel.
    Parcel,
}

impl Sample {
    const ALL: [Self; 4] = [Self::Order, Self::Approval, Self::Album, Self::Parcel];

    const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Approval => "approval",
            Self::Album => "album",
            Self::Parcel => "parcel",
        }
    }

    /// The schedule of its starts: a period in ticks, and the tick within the period.
    const fn turn(self) -> (u64, u64) {
        match self {
            Self::Order => (2, 0),
            Self::Approval => (16, 5),
            Self::Album => (12, 3),
            Self::Parcel => (16, 9),
        }
    }
}

/// An instance that has not ended, as far as is known.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its sample.
    pub sample: Sample,
    /// Its number.
    pub number: u64,
    /// `true` if it waits for the user only.
    pub left: bool,
}

impl Open {
    /// Its key.
    pub fn key(&self) -> String {
        format!("{}:{}", self.sample.name(), self.number)
    }

    /// The command with which the user can continue it, to be written after `abide --store URL`. Returns `None` if it
    /// does not wait for the user.
    pub fn deed(&self) -> Option<String> {
        let key = self.key();
        match self.sample {
            Sample::Order if self.left => Some(format!(
                "signal {key} paid {}",
                Order::number(self.number).price
            )),
            Sample::Approval if self.left => Some(format!("signal {key} approved finance")),
            _ => None,
        }
    }
}

/// The traffic.
pub struct Traffic {
    abide: Abide,
    graph: Graph,
    /// The last number of each sample.
    last: BTreeMap<Sample, u64>,
    open: BTreeMap<InstanceId, Open>,
    /// The instances that wait for the traffic, and when each gets what it waits for.
    deeds: BinaryHeap<Reverse<(Instant, InstanceId)>>,
    ticks: u64,
    began: u64,
}

impl Traffic {
    /// Continues with the instances that are open in the store.
    pub async fn over(abide: &Abide, graph: Graph) -> Result<Self, Error> {
        let mut traffic = Self {
            abide: abide.clone(),
            graph,
            last: BTreeMap::new(),
            open: BTreeMap::new(),
            deeds: BinaryHeap::new(),
            ticks: 0,
            began: 0,
        };
        for sample in Sample::ALL {
            traffic.adopt(sample).await?;
        }
        Ok(traffic)
    }

    /// Takes over the instances of a sample that an earlier demo has left.
    async fn adopt(&mut self, sample: Sample) -> Result<(), Error> {
        let prefix = format!("{}:", sample.name());
        let number = |key: &Option<Key>| -> Option<u64> {
            key.as_ref()?.as_str().strip_prefix(&prefix)?.parse().ok()
        };
        let mut filter = Filter {
            key_prefix: Some(prefix.clone()),
            ..Filter::default()
        };
        let newest = self.abide.list(&filter, None, 100).await?;
        let last = newest.items.iter().filter_map(|one| number(&one.key)).max();
        self.last.insert(sample, last.unwrap_or_default());
        for status in Status::ALL.into_iter().filter(|one| !one.is_terminal()) {
            filter.status = Some(status);
            for one in self.abide.list(&filter, None, 1_000).await?.items {
                if let Some(number) = number(&one.key) {
                    self.note(one.id, sample, number);
                }
            }
        }
        Ok(())
    }

    /// Starts the first orders at once, so that there is something to see, and one of them waits for the user.
    pub async fn begin(&mut self) -> Result<(), Error> {
        for _ in 0..LEFT_ORDERS.0 {
            self.start(Sample::Order).await?;
        }
        Ok(())
    }

    /// Sends what is due now.
    pub async fn tick(&mut self) -> Result<(), Error> {
        self.ticks += 1;
        for sample in Sample::ALL {
            let (every, at) = sample.turn();
            if self.ticks % every == at && self.open.len() < OPEN_MAX {
                self.start(sample).await?;
            }
        }
        let now = Instant::now();
        while let Some(Reverse((due, id))) = self.deeds.peek().copied() {
            if due > now {
                break;
            }
            self.deeds.pop();
            if let Some(open) = self.open.get(&id).copied() {
                self.serve(open).await?;
            }
        }
        Ok(())
    }

    /// Number of instances that were started.
    pub const fn began(&self) -> u64 {
        self.began
    }

    /// The instances that have not ended, by id.
    pub const fn open(&self) -> &BTreeMap<InstanceId, Open> {
        &self.open
    }

    /// Records that an instance has ended.
    pub fn ended(&mut self, id: InstanceId) {
        self.open.remove(&id);
    }

    async fn start(&mut self, sample: Sample) -> Result<(), Error> {
        let number = self.last.get(&sample).copied().unwrap_or_default() + 1;
        let key = format!("{}:{number}", sample.name());
        let abide = &self.abide;
        let started = match sample {
            Sample::Order => {
                let order = abide.start(Checkout, Order::number(number));
                order.key(&key).await.map(|run| run.id())
            }
            Sample::Approval => {
                let approval = abide.start(APPROVAL, 50 + part(number, 450));
                approval.key(&key).await.map(|run| run.id())
            }
            Sample::Album => {
                let count = 2 + part(number, 3);
                let album = abide.start(Album, Photos { count });
                album.key(&key).await.map(|run| run.id())
            }
            Sample::Parcel => {
                let parcel = abide.start(self.graph.clone(), json!({"parcel": number}));
                parcel.key(&key).await.map(|run| run.id())
            }
        };
        self.last.insert(sample, number);
        match started {
            Ok(id) => {
                self.began += 1;
                self.note(id, sample, number);
                Ok(())
            }
            // The key is taken; the next number is free.
            Err(StartError::Duplicate { .. }) => Ok(()),
            Err(StartError::Error(error)) => Err(error),
            Err(other) => Err(Error::Broken(other.to_string())),
        }
    }

    /// Records an open instance, and when it gets what it waits for.
    fn note(&mut self, id: InstanceId, sample: Sample, number: u64) {
        let left = match sample {
            Sample::Order => self.leaves(sample, number, LEFT_ORDERS),
            Sample::Approval => self.leaves(sample, number, LEFT_APPROVALS),
            Sample::Album | Sample::Parcel => false,
        };
        let open = Open {
            sample,
            number,
            left,
        };
        self.open.insert(id, open);
        if !left {
            let after = match sample {
                // Some get a reminder first.
                Sample::Approval => 4_000 + u64::from(part(number, 24)) * 1_000,
                _ => 700 + u64::from(part(number, 25)) * 100,
            };
            let due = Instant::now() + Duration::from_millis(after);
            self.deeds.push(Reverse((due, id)));
        }
    }

    fn leaves(&self, sample: Sample, number: u64, (every, most): (u64, usize)) -> bool {
        let left = self
            .open
            .values()
            .filter(|one| one.left && one.sample == sample);
        number.is_multiple_of(every) && left.count() < most
    }

    /// Sends an instance what it waits for.
    async fn serve(&self, open: Open) -> Result<(), Error> {
        let key = open.key();
        let sent = match open.sample {
            Sample::Order => {
                let price = Order::number(open.number).price;
                let paid = self.abide.signal(key.as_str(), PAID, &price);
                paid.dedup("the demo").await.map(|_| ())
            }
            Sample::Approval => {
                let names = ["finance", "legal", "the board", "purchasing"];
                let by = names
                    .get(part(open.number, 4) as usize)
                    .unwrap_or(&"finance");
                let approved = self.abide.signal(key.as_str(), APPROVED, &(*by).to_owned());
                approved.dedup("the demo").await.map(|_| ())
            }
            Sample::Album => Ok(()),
            Sample::Parcel => {
                let arrived = json!({"parcel": open.number, "by": "the night train"});
                let published = self.abide.publish(ARRIVED, &arrived).event_id(&key);
                return published.await.map(|_| ());
            }
        };
        match sent {
            Err(SendError::Error(error)) => Err(error),
            // The instance has ended or was cancelled.
            _ => Ok(()),
        }
    }
}

/// Returns a pseudo-random number below `most`, always the same for the same `number`.
fn part(number: u64, most: u32) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    u32::try_from(mixed % u64::from(most.max(1))).unwrap_or_default()
}
