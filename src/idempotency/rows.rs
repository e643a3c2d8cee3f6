//! The statements on `idempotency_keys`, one text for both databases but for the clock, and how its rows read.

use sqlx::Row;

use super::claim::{Guard, KeysError, Stored, Unsettled};

const POSTGRES_NOW: &str = "clock_timestamp()";
const SQLITE_NOW: &str = "cast(unixepoch('subsec') * 1000000 as integer)";

/// A statement for either database: `now()` stands for its clock, `{$9}` for a span of `$9` microseconds, and
/// `{span a - b span}` for the microseconds between two times.
macro_rules! sql {
    ($name:ident, $text:literal) => {
        pub(super) static $name: std::sync::LazyLock<[String; 2]> =
            std::sync::LazyLock::new(|| [postgres($text), sqlite($text)]);
    };
}

fn postgres(text: &str) -> String {
    text.replace("{$", "interval '1 microsecond' * {$")
        .replace("{span ", "(extract(epoch from ")
        .replace(" span}", ") * 1000000)::bigint")
        .replace(['{', '}'], "")
        .replace("now()", POSTGRES_NOW)
}

fn sqlite(text: &str) -> String {
    text.replace("{span ", "(")
        .replace(" span}", ")")
        .replace(['{', '}'], "")
        .replace("now()", SQLITE_NOW)
}

sql!(
    INSERT,
    "insert into idempotency_keys
        (id, key_hash, merchant, method, path, fingerprint, effect, state, owner, lease_until, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, 'running', $8, now() + {$9}, now(), now() + {$10})
     on conflict do nothing"
);
// What may be taken over: an answer that has expired, or a claim that wrote nothing and whose lease ran out.
sql!(
    TAKE_OVER,
    "update idempotency_keys
        set key_hash = $2, merchant = $3, method = $4, path = $5, fingerprint = $6, effect = $7, state = 'running',
            owner = $8, lease_until = now() + {$9}, created_at = now(), expires_at = now() + {$10},
            status = null, headers = null, body = null
      where id = $1
        and (state = 'finished' and expires_at <= now()
             or state = 'running' and effect = 'none' and lease_until <= now() and fingerprint = $6)"
);
sql!(
    READ,
    "select fingerprint, effect, state, {span lease_until - now() span} as left_us, expires_at <= now() as expired,
            status, headers, body
       from idempotency_keys where id = $1"
);
sql!(
    COMPLETE,
    "update idempotency_keys set state = 'finished', status = $3, headers = $4, body = $5, expires_at = now() + {$6}
      where id = $1 and owner = $2 and state = 'running'"
);
sql!(
    RELEASE,
    "delete from idempotency_keys where id = $1 and owner = $2 and state = 'running'"
);
sql!(
    UNSETTLED,
    "select id, owner, merchant, method, path, fingerprint, key_hash from idempotency_keys
      where state = 'running' and effect = 'outside' and lease_until <= now() order by created_at limit $1"
);
sql!(
    PURGE,
    "delete from idempotency_keys where id in
        (select id from idempotency_keys
          where expires_at <= now() and (state = 'finished' or effect = 'none' and lease_until <= now()) limit $1)"
);
// A claim that wrote nothing and whose lease ran out runs no more: its process died.
sql!(
    STANDING,
    "select cast(coalesce(max(case when effect = 'outside' or lease_until > now() then {span now() - created_at span} end), 0)
                as bigint) as oldest,
            cast(coalesce(sum(case when effect = 'outside' and lease_until <= now() then 1 else 0 end), 0) as bigint)
                as unknown
       from idempotency_keys where state = 'running'"
);

/// One row as read.
pub(super) struct Known {
    pub(super) fingerprint: Vec<u8>,
    pub(super) finished: bool,
    pub(super) outside: bool,
    pub(super) expired: bool,
    pub(super) left_us: i64,
    pub(super) stored: Option<Stored>,
}

pub(super) fn read_row<'r, R>(row: &'r R) -> Result<Known, KeysError>
where
    R: Row,
    &'static str: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    bool: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    i32: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let finished = row.try_get::<String, _>("state")? == "finished";
    let stored = match row.try_get::<Option<i32>, _>("status")? {
        Some(status) if finished => {
            let headers: Option<String> = row.try_get("headers")?;
            Some(Stored {
                status: u16::try_from(status).map_err(|_| KeysError::Corrupt("status"))?,
                headers: serde_json::from_str(headers.as_deref().unwrap_or("[]"))
                    .map_err(|_| KeysError::Corrupt("headers"))?,
                body: row.try_get::<Option<Vec<u8>>, _>("body")?.unwrap_or_default(),
            })
        }
        _ => None,
    };
    Ok(Known {
        fingerprint: row.try_get("fingerprint")?,
        finished,
        outside: row.try_get::<String, _>("effect")? == "outside",
        expired: row.try_get("expired")?,
        left_us: row.try_get("left_us")?,
        stored,
    })
}

pub(super) fn unsettled_row<'r, R>(row: &'r R) -> Result<(Guard, Unsettled), KeysError>
where
    R: Row,
    &'static str: sqlx::ColumnIndex<R>,
    String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let guard = Guard {
        id: row.try_get("id")?,
        owner: row.try_get("owner")?,
    };
    let unsettled = Unsettled {
        merchant: row.try_get("merchant")?,
        method: row.try_get("method")?,
        path: row.try_get("path")?,
        fingerprint: row.try_get("fingerprint")?,
        key_hash: row.try_get("key_hash")?,
    };
    Ok((guard, unsettled))
}
