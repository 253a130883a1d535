//! The sender of a request, for the record.

use std::convert::Infallible;

use abide::model::Name;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The sender of a request: the name of its token, if the server requires one. The guard puts it into the request.
#[derive(Clone, Debug, Default)]
pub struct Caller(pub Option<Name>);

impl Caller {
    /// The source that is stored with a signal or an update.
    pub fn source(&self) -> String {
        match &self.0 {
            Some(token) => format!("http:{token}"),
            None => "http".to_owned(),
        }
    }

    /// The sender's identity, which separates the idempotency keys of different callers (rule 1.5).
    pub fn identity(&self) -> String {
        match &self.0 {
            Some(token) => format!("token:{token}"),
            None => "open".to_owned(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
