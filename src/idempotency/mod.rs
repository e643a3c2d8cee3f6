//! Retry blindly, happen once: the `Idempotency-Key` header for any axum service on Postgres or SQLite.
//!
//! A request first *claims* its key in a short commit of its own, where a primary key picks one winner; the
//! winner's business write and the stored answer are one second transaction ([`once`]). So a key is never
//! finished without its effect, nor the effect there without the answer, whatever dies when. A claim whose
//! lease ran out is taken over, since an unfinished claim wrote nothing. Only a call that declares an effect
//! outside the database ([`Effect::Outside`]) can end in an unknown outcome, which waits for
//! [`Keys::reconcile`]. Knows nothing of
//! payhook.

mod claim;
mod fingerprint;
mod key;
mod keys;
mod once;
mod pace;
mod rows;

pub use claim::{Claim, Effect, Guard, KeysError, Options, Scope, Settlement, Standing, Stored, Unsettled};
pub use fingerprint::{BodyProblem, fingerprint};
pub use key::{IDEMPOTENCY_KEY, Key, KeyProblem, X_IDEMPOTENCY_KEY};
pub use keys::{Connection, Keys, Pool};
pub use once::{Answer, Call, IDEMPOTENT_REPLAYED, Refusal, Transactions, Withdrawn, once, once_in_steps};
