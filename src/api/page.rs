//! The one shape of every list: newest first, `limit` and `cursor` in, `items` and `next_cursor` out.
//!
//! A cursor is opaque and URL-safe; inside it is the sort key of the last item given and the list it belongs
//! to. It grants nothing: the query behind it is confined to the token's merchant all the same. A parameter
//! that a list does not know is refused rather than ignored, since a filter with a typing error would
//! silently show everything.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ApiState;
use super::problem::Problem;
use crate::event::text::storable;

/// Items given when `limit` is absent.
pub const DEFAULT_LIMIT: u16 = 50;
/// The most items a page may be asked for.
pub const MAX_LIMIT: u16 = 500;

/// Query parameters read into `T`, which denies unknown fields.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<ApiState> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Problem> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Problem::validation("no parameter may hold NUL"));
        }
        Query::try_from_uri(&parts.uri)
            .map(|Query(params)| Self(params))
            .map_err(|rejection| Problem::validation(rejection.body_text()))
    }
}

/// The one segment of a path that names something, percent-decoded: `a%2Fb` is `a/b`. NUL becomes what the store
/// keeps for it.
#[derive(Debug)]
pub struct Segment(pub String);

impl FromRequestParts<ApiState> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(text)| Self(storable(&text).into_owned()))
            .map_err(|rejection| Problem::validation(rejection.body_text()))
    }
}

/// Where a page begins and how long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// At most this many items.
    pub limit: u16,
    /// The sort key after which it begins, as [`Page::new`] was given it; `None`: at the newest.
    pub after: Option<String>,
}

impl Span {
    /// Reads `limit` and `cursor` for the list called `list`.
    pub fn read(list: &str, limit: Option<u32>, cursor: Option<&str>) -> Result<Self, Problem> {
        let limit = match limit {
            None => DEFAULT_LIMIT,
            Some(asked) => u16::try_from(asked)
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| Problem::validation(format!("`limit` must be from 1 to {MAX_LIMIT}")))?,
        };
        let after = cursor
            .map(|cursor| {
                unseal(list, cursor).ok_or_else(|| Problem::validation("`cursor` is not one of this list's"))
            })
            .transpose()?;
        Ok(Self { limit, after })
    }

    /// What a query must be limited to, so that [`Page::new`] can tell whether more follow.
    pub fn rows(&self) -> i64 {
        i64::from(self.limit).saturating_add(1)
    }
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    items: Vec<T>,
    /// What the next page is asked for with; null: this is the last.
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// From at most [`Span::rows`] rows; `key` is a row's sort key, by which the next page is found.
    pub fn new(list: &str, span: &Span, mut rows: Vec<T>, key: impl FnOnce(&T) -> String) -> Self {
        let limit = usize::from(span.limit);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|last| seal(list, &key(last)));
        Self {
            items: rows,
            next_cursor,
        }
    }

    /// The same page with every item put into other words.
    pub fn map<U>(self, to: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(to).collect(),
            next_cursor: self.next_cursor,
        }
    }
}

fn seal(list: &str, key: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{list}:{key}"))
}

fn unseal(list: &str, cursor: &str) -> Option<String> {
    let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let key = text.strip_prefix(list)?.strip_prefix(':')?;
    // No key holds NUL, and Postgres takes none.
    Some(key.to_owned()).filter(|key| !key.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(limit: u16) -> Span {
        Span { limit, after: None }
    }

    #[test]
    fn a_cursor_leads_on_until_nothing_is_left() {
        let page = Page::new("events", &span(2), vec!["c", "b", "a"], |row| (*row).to_owned());
        assert_eq!(page.items, ["c", "b"]);
        let cursor = page.next_cursor.unwrap();
        assert!(
            cursor
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        );
        let next = Span::read("events", None, Some(&cursor)).unwrap();
        assert_eq!(next.after.as_deref(), Some("b"));
        let last = Page::new("events", &span(2), vec!["b", "a"], |row| (*row).to_owned());
        assert_eq!(last.next_cursor, None);
    }

    #[test]
    fn a_cursor_of_another_list_or_none_at_all_is_refused() {
        let foreign = seal("orders", "x");
        for cursor in [
            foreign.as_str(),
            "",
            "%%%",
            "AAAA",
            "ZXZlbnRz",
            &seal("events", "a\0b"),
        ] {
            assert!(Span::read("events", None, Some(cursor)).is_err(), "{cursor}");
        }
    }

    #[test]
    fn limits_are_inclusive_and_never_bent() {
        for (limit, ok) in [
            (0, false),
            (1, true),
            (500, true),
            (501, false),
            (u32::MAX, false),
        ] {
            assert_eq!(Span::read("events", Some(limit), None).is_ok(), ok, "{limit}");
        }
        assert_eq!(Span::read("events", None, None).unwrap().limit, 50);
    }
}
