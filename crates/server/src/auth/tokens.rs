//! Tokens: 256 random bits each. The store contains only their SHA-256 hashes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide::Error;
use abide::model::{Json, Name};
use abide::store::Store;
use abide::time::Timestamp;
use abide_kernel::Op;
use abide_kernel::model::DocumentKind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Role, random};

/// Prefix of tokens, so that a leaked token can be recognized.
const PREFIX: &str = "abide_";
/// How long the tokens that were read are used before they are read again. A revoked token is refused after that.
const BELIEVED: Duration = Duration::from_secs(3);
/// How long they are used while the store is unavailable, on routes that report on the server itself.
const BELIEVED_AWAY: Duration = Duration::from_secs(15 * 60);

/// A token as it is stored.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: Name,
    /// Its role.
    pub role: Role,
    /// The time when it was created.
    pub created_at: Timestamp,
    hash: [u8; 32],
}

/// The stored form of a token.
#[derive(Serialize, Deserialize)]
struct Written {
    role: Role,
    /// The SHA-256 hash of the token, in hexadecimal.
    sha256: String,
    created_at: Timestamp,
}

/// A new token. The token itself is not stored, so it cannot be shown again.
#[derive(Debug)]
pub struct NewToken {
    /// The token, to be sent with requests.
    pub token: String,
    /// Its stored form.
    pub known: Known,
}

/// Creates a token under a name that no other token has, and stores its hash.
pub async fn create(store: &dyn Store, role: Role, name: Option<&str>) -> Result<NewToken, Error> {
    let bytes = random::<32>()
        .map_err(|error| Error::Broken(format!("the system has no random bytes: {error}")))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let tokens = list(store).await?;
    let is_free = |name: &str| tokens.iter().all(|known| known.name.as_str() != name);
    let name = match name {
        Some(name) if is_free(name) => Name::new(name)?,
        Some(name) => {
            return Err(mismatch(format!(
                "there is a token {name:?} already: choose another name, or revoke that one first"
            )));
        }
        None => {
            let free = (1..)
                .map(|number| format!("{}-{number}", role.name()))
                .find(|name| is_free(name));
            Name::new(free.unwrap_or_default())?
        }
    };
    let known = Known {
        name,
        role,
        created_at: store.clock().now(),
        hash: hash(&token),
    };
    write(store, &known).await?;
    Ok(NewToken { token, known })
}

/// The name of the token from the settings.
const BOOTSTRAP: &str = "bootstrap";

/// Ensures that the token from the settings is stored, with the role `operate`. It replaces the one from earlier
/// settings, so a new token in the file revokes the old one.
pub async fn bootstrap(store: &dyn Store, token: &str) -> Result<(), Error> {
    let known = Known {
        name: Name::new(BOOTSTRAP)?,
        role: Role::Operate,
        created_at: store.clock().now(),
        hash: hash(token),
    };
    let is_it = |other: &Known| other.name == known.name && other.hash == known.hash;
    match list(store).await?.iter().any(is_it) {
        true => Ok(()),
        false => write(store, &known).await,
    }
}

/// Stores a token's role, hash and time.
async fn write(store: &dyn Store, known: &Known) -> Result<(), Error> {
    let written = Written {
        role: known.role,
        sha256: hex(&known.hash),
        created_at: known.created_at,
    };
    let body = Json::of(&written).map_err(|error| mismatch(error.to_string()))?;
    keep(store, known.name.clone(), Some(body)).await
}

/// Lists the tokens, by name.
pub async fn list(store: &dyn Store) -> Result<Vec<Known>, Error> {
    let documents = store.documents(DocumentKind::Token).await?;
    let known = |document: abide_kernel::model::Document| {
        let broken = || {
            Error::Broken(format!(
                "the token {} cannot be read: revoke it",
                document.name
            ))
        };
        let written: Written = document.body.to().map_err(|_| broken())?;
        let hash = unhex(&written.sha256).ok_or_else(broken)?;
        Ok(Known {
            name: document.name.clone(),
            role: written.role,
            created_at: written.created_at,
            hash,
        })
    };
    documents.into_iter().map(known).collect()
}

/// Deletes a token. Returns `false` if there is none of that name. Servers accept it for three more seconds at most.
pub async fn revoke(store: &dyn Store, name: &str) -> Result<bool, Error> {
    let tokens = store.documents(DocumentKind::Token).await?;
    match tokens
        .into_iter()
        .find(|document| document.name.as_str() == name)
    {
        Some(document) => keep(store, document.name, None).await.map(|()| true),
        None => Ok(false),
    }
}

async fn keep(store: &dyn Store, name: Name, body: Option<Json>) -> Result<(), Error> {
    store
        .run(Arc::from([Op::Keep(vec![(
            DocumentKind::Token,
            name,
            body,
        )])]))
        .await?;
    Ok(())
}

fn mismatch(problem: String) -> Error {
    Error::Mismatch {
        what: "the token",
        problem,
    }
}

/// The access that a token, or its absence, gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Access as a token of this name and role.
    As(Name, Role),
    /// There are no tokens: every caller may do everything.
    Open,
    /// There are tokens, and the request has none.
    Missing,
    /// The token is unknown.
    Unknown,
}

/// The tokens that a server has read. They are read again every few seconds, so a request needs no statement.
pub struct Tokens {
    store: Arc<dyn Store>,
    /// `true` if a token is required even if there is none, so that revoking the last token does not give access to
    /// everyone.
    insists: AtomicBool,
    read: Mutex<Option<Read>>,
    /// The tokens as they were last read, however long ago.
    last: RwLock<Option<Read>>,
}

/// Tokens, and when they were requested from the store.
type Read = (Instant, Arc<[Known]>);

impl Tokens {
    /// Makes the list of tokens of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            insists: AtomicBool::new(false),
            read: Mutex::new(None),
            last: RwLock::new(None),
        }
    }

    /// Requires a token from now on, even if there is none.
    pub fn insist(&self) {
        self.insists.store(true, Ordering::Relaxed);
    }

    /// Returns the access that a token gives.
    pub async fn access(&self, token: Option<&str>) -> Result<Access, Error> {
        let known = self.known().await?;
        Ok(self.judged(&known, token))
    }

    /// Returns the access that a token gives. If the store does not answer within `patience`, uses the tokens as they
    /// were last read, if that was at most 15 minutes ago. This is for routes that report on a server whose store is
    /// unavailable.
    pub async fn access_within(
        &self,
        token: Option<&str>,
        patience: Duration,
    ) -> Result<Access, Error> {
        let read = tokio::time::timeout(patience, self.known()).await;
        let read = read.unwrap_or_else(|_| {
            let late = format!("the store has not answered within {patience:?}");
            Err(Error::Unavailable(late))
        });
        let known = match read {
            Ok(known) => known,
            Err(error) => self.last_read(Instant::now()).ok_or(error)?,
        };
        Ok(self.judged(&known, token))
    }

    /// Returns the tokens as they were last read, unless that is too long ago.
    fn last_read(&self, now: Instant) -> Option<Arc<[Known]>> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        let (at, known) = last.as_ref()?;
        (now.duration_since(*at) < BELIEVED_AWAY).then(|| known.clone())
    }

    fn judged(&self, known: &[Known], token: Option<&str>) -> Access {
        if !known.is_empty() {
            self.insist();
        } else if !self.insists.load(Ordering::Relaxed) {
            return Access::Open;
        }
        let Some(token) = token else {
            return Access::Missing;
        };
        let hash = hash(token);
        let mut found = None;
        // Compares with all tokens, so that the duration reveals nothing.
        for one in known.iter() {
            let same: Choice = one.hash.ct_eq(&hash);
            if bool::from(same) {
                found = Some(Access::As(one.name.clone(), one.role));
            }
        }
        found.unwrap_or(Access::Unknown)
    }

    async fn known(&self) -> Result<Arc<[Known]>, Error> {
        let mut read = self.read.lock().await;
        if let Some((at, known)) = &*read
            && at.elapsed() < BELIEVED
        {
            return Ok(known.clone());
        }
        // The result is considered as old as the request for it.
        let at = Instant::now();
        let known: Arc<[Known]> = list(&*self.store).await?.into();
        *read = Some((at, known.clone()));
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some((at, known.clone()));
        Ok(known)
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tokens_are_believed_for_a_bounded_time_while_the_store_is_away() {
        // Without a bound, a token that was revoked elsewhere read /metrics for as long as the store was away.
        let abide = abide::Abide::open("memory:").await.unwrap();
        let store = abide.store().clone();
        let NewToken { token, .. } = create(&*store, Role::Read, None).await.unwrap();
        let tokens = Tokens::new(store.clone());
        assert!(matches!(
            tokens.access(Some(&token)).await,
            Ok(Access::As(_, Role::Read))
        ));
        store.close().await;
        // They are not fresh any more.
        *tokens.read.lock().await = None;
        assert!(tokens.access(Some(&token)).await.is_err());
        let patience = Duration::from_millis(500);
        let access = tokens.access_within(Some(&token), patience).await;
        assert!(matches!(access, Ok(Access::As(_, Role::Read))));
        let now = Instant::now();
        let almost = now + BELIEVED_AWAY - Duration::from_secs(60);
        assert!(tokens.last_read(almost).is_some());
        assert!(tokens.last_read(now + BELIEVED_AWAY).is_none());
    }
}
