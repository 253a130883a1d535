//! Tokens: 256 random bits, of which the store has the SHA-256 hash.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide::{Error, Json, Name, Store, Timestamp};
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

/// How tokens begin, so that one that was lost somewhere can be told for what it is.
const PREFIX: &str = "abide_";
/// How long the tokens that were read are believed; a revoked one is out after that.
const BELIEVED: Duration = Duration::from_secs(3);

/// A token as the store knows it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: Name,
    /// What it allows.
    pub role: Role,
    /// When it was made.
    pub created_at: Timestamp,
    hash: [u8; 32],
}

/// What is written down of a token.
#[derive(Serialize, Deserialize)]
struct Written {
    role: Role,
    /// The SHA-256 hash of the token, in hexadecimal.
    sha256: String,
    created_at: Timestamp,
}

/// A token that was just made; it is never to be seen again.
#[derive(Debug)]
pub struct NewToken {
    /// What is to be sent.
    pub token: String,
    /// What it is known by.
    pub known: Known,
}

/// Makes a token under a name that no other has, and writes its hash down.
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
    let written = Written {
        role,
        sha256: hex(&known.hash),
        created_at: known.created_at,
    };
    let body = Json::of(&written).map_err(|error| mismatch(error.to_string()))?;
    keep(store, known.name.clone(), Some(body)).await?;
    Ok(NewToken { token, known })
}

/// The tokens that there are, by name.
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

/// Forgets a token; whether there was one of that name. Servers let it in for five seconds more at most.
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

/// What a token, or its absence, allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a token of that name and role.
    As(Name, Role),
    /// There are no tokens: whoever reaches this server may do everything.
    Open,
    /// There are tokens, and none came.
    Missing,
    /// That token is not known.
    Unknown,
}

/// The tokens as a server knows them: read again every few seconds, so that a request costs no statement.
pub struct Tokens {
    store: Arc<dyn Store>,
    /// Whether a token is asked for even when there is none: the last one that is revoked must not open the door.
    insists: AtomicBool,
    read: Mutex<Option<(Instant, Arc<[Known]>)>>,
    /// As they were last read, however long ago.
    last: RwLock<Option<Arc<[Known]>>>,
}

impl Tokens {
    /// Those of that store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            insists: AtomicBool::new(false),
            read: Mutex::new(None),
            last: RwLock::new(None),
        }
    }

    /// Asks for a token from now on, whether there is any or not.
    pub fn insist(&self) {
        self.insists.store(true, Ordering::Relaxed);
    }

    /// What a token allows.
    pub async fn access(&self, token: Option<&str>) -> Result<Access, Error> {
        let known = self.known().await?;
        Ok(self.judged(&known, token))
    }

    /// What a token allows, by the tokens as they were last known when the store does not answer in that time: for what must
    /// be told about a server whose store is away.
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
            Err(error) => {
                let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
                last.clone().ok_or(error)?
            }
        };
        Ok(self.judged(&known, token))
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
        // All are compared, so that the time tells nothing.
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
        // What is read now is as old as the question.
        let at = Instant::now();
        let known: Arc<[Known]> = list(&*self.store).await?.into();
        *read = Some((at, known.clone()));
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = Some(known.clone());
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
