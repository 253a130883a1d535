//! The keys that claim tokens are sealed with: random, kept in the database, shared by all of its servers.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide::{Error, Json, Name, Store};
use abide_kernel::Op;
use abide_kernel::model::DocumentKind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::auth::random;

/// How documents with keys begin.
const PREFIX: &str = "claim-tokens-";
/// The bytes of a seal: HMAC-SHA256, cut to 128 bits.
pub const SEAL_BYTES: usize = 16;
/// How often keys are read again at most because a token was sealed with none of them.
const REREAD: Duration = Duration::from_secs(1);

/// A key.
type Key = [u8; 32];

/// The keys that claim tokens are sealed with.
///
/// Servers that start on a fresh database at the same time may each make a key. That does no harm: all of them are kept, a
/// token that was sealed with any of them is good, and who meets one that it does not know reads them again.
pub struct Seals {
    store: Arc<dyn Store>,
    /// In the order of their names; the first one seals.
    keys: RwLock<Arc<[Key]>>,
    /// When they were last read.
    read: Mutex<Option<Instant>>,
}

impl Seals {
    /// Those of that store, none of which was read yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            keys: RwLock::new(Arc::from([])),
            read: Mutex::new(None),
        }
    }

    /// What seals tokens: the keys as they are known. When there are none in the database yet, one is made.
    pub async fn sealer(&self) -> Result<Sealer, Error> {
        let known = self.known();
        if !known.is_empty() {
            return Ok(Sealer(known));
        }
        let mut read = self.read.lock().await;
        if self.known().is_empty() {
            self.load().await?;
            if self.known().is_empty() {
                self.make().await?;
                self.load().await?;
            }
            *read = Some(Instant::now());
        }
        Ok(Sealer(self.known()))
    }

    /// What checks seals, after one was met that none of the known keys has made: with the keys that there are by now.
    pub async fn reread(&self) -> Result<Sealer, Error> {
        let mut read = self.read.lock().await;
        if read.is_none_or(|at| at.elapsed() >= REREAD) {
            self.load().await?;
            *read = Some(Instant::now());
        }
        Ok(Sealer(self.known()))
    }

    fn known(&self) -> Arc<[Key]> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.clone()
    }

    async fn load(&self) -> Result<(), Error> {
        let documents = self.store.documents(DocumentKind::Secret).await?;
        let mut keys = Vec::new();
        for document in documents {
            if !document.name.as_str().starts_with(PREFIX) {
                continue;
            }
            let text: Option<String> = document.body.to().ok();
            let key = text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok());
            keys.push(key.ok_or_else(|| {
                let name = &document.name;
                Error::Broken(format!("the key {name} of claim tokens cannot be read"))
            })?);
        }
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
        Ok(())
    }

    async fn make(&self) -> Result<(), Error> {
        let no_bytes = |error| Error::Broken(format!("the system has no random bytes: {error}"));
        let key: Key = random().map_err(no_bytes)?;
        let name: [u8; 16] = random().map_err(no_bytes)?;
        let name = Name::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(name)))?;
        let body = Json::of(&URL_SAFE_NO_PAD.encode(key)).map_err(|error| Error::Mismatch {
            what: "the key of claim tokens",
            problem: error.to_string(),
        })?;
        let keep = Op::Keep(vec![(DocumentKind::Secret, name, Some(body))]);
        self.store.run(Arc::from([keep])).await?;
        Ok(())
    }
}

/// Seals tokens, and checks their seals.
#[derive(Clone)]
pub struct Sealer(Arc<[Key]>);

impl Sealer {
    /// The seal of these bytes.
    pub fn seal(&self, bytes: &[u8]) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        if let Some(whole) = self.0.first().and_then(|key| mac(key, bytes)) {
            let whole = whole.finalize().into_bytes();
            seal.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        }
        seal
    }

    /// Whether one of the keys has made that seal of these bytes, compared in constant time.
    pub fn is_sealed(&self, bytes: &[u8], seal: &[u8]) -> bool {
        let made =
            |key: &Key| mac(key, bytes).is_some_and(|mac| mac.verify_truncated_left(seal).is_ok());
        seal.len() == SEAL_BYTES && self.0.iter().any(made)
    }
}

fn mac(key: &Key, bytes: &[u8]) -> Option<Hmac<Sha256>> {
    // An HMAC takes a key of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(bytes);
    Some(mac)
}

#[cfg(test)]
impl Sealer {
    /// One with these keys.
    pub fn of(keys: &[Key]) -> Self {
        Self(keys.into())
    }
}
