//! Pages of lists: how many, from where, and where the next one begins.

use abide::store::Page;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::http::Problem;

/// The longest page.
pub const LIMIT_MAX: usize = 1_000;
const LIMIT: usize = 100;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub struct Listed<T: ToSchema> {
    /// The entries of this page.
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; null on the last page.
    pub next_cursor: Option<String>,
}

impl<T: ToSchema> Listed<T> {
    /// Makes the response for a page of a list of this kind.
    pub fn page<U, C: Serialize>(
        kind: &str,
        page: Page<U, C>,
        each: impl FnMut(U) -> T,
    ) -> axum::Json<Self> {
        axum::Json(Self {
            items: page.items.into_iter().map(each).collect(),
            next_cursor: page.next.and_then(|next| encode(kind, &next)),
        })
    }
}

/// The number of entries, and the position, of the page of a list of this kind that a request asks for.
pub fn asked<C: DeserializeOwned>(
    kind: &str,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Result<(usize, Option<C>), Problem> {
    Ok((limited(limit)?, decode(kind, cursor)?))
}

/// The number of entries of a page. Returns a problem if it is out of range.
fn limited(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(LIMIT) {
        0 => Err(Problem::bad_request("limit is 0: ask for 1 at least")),
        limit if limit > LIMIT_MAX => {
            let detail = format!(
                "limit is {limit}, and {LIMIT_MAX} is the most: follow next_cursor for more"
            );
            Err(Problem::bad_request(detail)
                .over("limit", LIMIT_MAX)
                .met(Some(limit)))
        }
        limit => Ok(limit),
    }
}

/// Encodes a position in a list of this kind as an opaque text.
pub fn encode(kind: &str, position: &impl Serialize) -> Option<String> {
    let position = serde_json::to_string(position).ok()?;
    Some(URL_SAFE_NO_PAD.encode(format!("{kind}:{position}")))
}

/// Decodes a position in a list of this kind.
pub fn decode<T: DeserializeOwned>(kind: &str, cursor: Option<&str>) -> Result<Option<T>, Problem> {
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    let read = || -> Option<T> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (of, position) = text.split_once(':')?;
        (of == kind).then(|| serde_json::from_str(position).ok())?
    };
    read().map(Some).ok_or_else(|| {
        Problem::bad_request("this cursor is none of this list: give the next_cursor of its last page, or leave it out to begin anew")
            .with("cursor", cursor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_by_its_own_list_alone() {
        let cursor = encode("instances", &7).unwrap();
        assert_eq!(decode::<i64>("instances", Some(&cursor)).unwrap(), Some(7));
        assert!(decode::<i64>("events", Some(&cursor)).is_err());
        assert!(decode::<i64>("instances", Some("")).is_err());
        assert!(decode::<i64>("instances", Some("ÿ")).is_err());
        assert_eq!(decode::<i64>("instances", None).unwrap(), None);
    }

    #[test]
    fn a_page_has_one_to_a_thousand() {
        assert_eq!(limited(None).unwrap(), 100);
        assert!(limited(Some(0)).is_err() && limited(Some(1_001)).is_err());
        assert_eq!(limited(Some(1_000)).unwrap(), 1_000);
    }
}
