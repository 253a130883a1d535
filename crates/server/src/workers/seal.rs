//! The keys that seal claim tokens: random, stored in the database, shared by all of its servers.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide::Error;
use abide::model::{Json, Name};
use abide::store::Store;
use abide_kernel::Op;
use abide_kernel::model::DocumentKind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::auth::random;

/// Prefix of the names of documents that contain keys.
const PREFIX: &str = "claim-tokens-";
/// Bytes of a seal: HMAC-SHA256, truncated to 128 bits.
pub const SEAL_BYTES: usize = 16;
/// Minimum time between two reads of the keys that are caused by unknown seals.
const REREAD: Duration = Duration::from_secs(1);

/// A key.
type SealKey = [u8; 32];

/// The keys that seal claim tokens.
///
/// Servers that start on a new database at the same time may each make a key. That does no harm: all keys are kept, a
/// token that was sealed with any of them is valid, and a server that finds an unknown seal reads the keys again.
pub struct Seals {
    store: Arc<dyn Store>,
    /// In the order of their names. The first key seals new tokens.
    keys: RwLock<Arc<[SealKey]>>,
    /// The time when they were last read.
    read: Mutex<Option<Instant>>,
}

impl Seals {
    /// Makes the set of keys of a store. The keys are not read yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            keys: RwLock::new(Arc::from([])),
            read: Mutex::new(None),
        }
    }

    /// Returns a sealer with the known keys. If the database has no key yet, makes one.
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

    /// Returns a sealer with the current keys, after a seal was found that no known key made. Reads the keys at most
    /// once per second.
    pub async fn reread(&self) -> Result<Sealer, Error> {
        let mut read = self.read.lock().await;
        if read.is_none_or(|at| at.elapsed() >= REREAD) {
            self.load().await?;
            *read = Some(Instant::now());
        }
        Ok(Sealer(self.known()))
    }

    fn known(&self) -> Arc<[SealKey]> {
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
        let key: SealKey = random().map_err(no_bytes)?;
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
pub struct Sealer(Arc<[SealKey]>);

impl Sealer {
    /// Computes the seal of these bytes.
    pub fn seal(&self, bytes: &[u8]) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        if let Some(whole) = self.0.first().and_then(|key| mac(key, bytes)) {
            let whole = whole.finalize().into_bytes();
            seal.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
        }
        seal
    }

    /// `true` if one of the keys made this seal of these bytes. Compares in constant time.
    pub fn is_sealed(&self, bytes: &[u8], seal: &[u8]) -> bool {
        let made = |key: &SealKey| {
            mac(key, bytes).is_some_and(|mac| mac.verify_truncated_left(seal).is_ok())
        };
        seal.len() == SEAL_BYTES && self.0.iter().any(made)
    }
}

fn mac(key: &SealKey, bytes: &[u8]) -> Option<Hmac<Sha256>> {
    // HMAC accepts a key of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(bytes);
    Some(mac)
}

#[cfg(test)]
impl Sealer {
    /// Makes a sealer with these keys.
    pub fn of(keys: &[SealKey]) -> Self {
        Self(keys.into())
    }
}
