//! `provider-samples` inside the binary: signed notifications of every provider, and the keys they need.
//!
//! `demo` and `send` play them, the tests judge them. A sample is a request as it was sent and what must come
//! of it; [`Sample::sent_now`] signs it for the present. The keys are everybody's: see their README.

mod expected;
pub mod sign;

use std::path::Path;
use std::time::Duration;

use include_dir::{Dir, DirEntry, include_dir};

pub use expected::{Expected, ExpectedAck};

use crate::event::{Notification, ProviderName};
use crate::provider::request_file::RequestFile;
use crate::time::Timestamp;

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/provider-samples");

/// Why a sample cannot be used; each is a fault of the repository, found by its tests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// A key is missing or cannot sign.
    #[error("a sample key is missing or cannot sign")]
    Key,
    /// A request or what must come of it cannot be read.
    #[error("a sample cannot be read")]
    Request,
}

/// One case: `provider-samples/<provider>/<case>`.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Who sends it.
    pub provider: ProviderName,
    /// The folder's name; numbered in the order in which the cases tell a story.
    pub case: String,
    /// The account it is sent to, from its path.
    pub account: String,
    /// The request as it was sent.
    pub request: RequestFile,
    /// What must come of it.
    pub expected: Expected,
}

impl Sample {
    /// The notification as it arrived then.
    pub fn as_recorded(&self) -> Notification {
        self.request.clone().arriving(self.expected.at)
    }

    /// The notification signed anew so that it arrives at `now`, as late after its sending as it did then: a
    /// stale one stays stale, a forged one forged, and what it says stays the same.
    pub fn sent_now(&self, now: Timestamp) -> Result<Notification, SampleError> {
        let late = self.expected.at.micros_since(self.expected.sent);
        let late = Duration::from_micros(u64::try_from(late).map_err(|_| SampleError::Request)?);
        let request = sign::sign(
            self.provider,
            self.request.clone(),
            now.minus(late),
            self.expected.is_genuine(),
        )?;
        Ok(request.arriving(now))
    }
}

/// Every sample, by provider, each provider's in the order of its story.
pub fn all() -> Result<Vec<Sample>, SampleError> {
    let mut samples = Vec::new();
    for provider in ProviderName::ALL {
        let Some(folder) = FILES.get_dir(provider.as_str()) else {
            continue;
        };
        let mut cases: Vec<_> = folder.dirs().collect();
        cases.sort_by_key(|case| case.path());
        for case in cases {
            samples.push(read(provider, case)?);
        }
    }
    Ok(samples)
}

/// The sample `case` of `provider`.
pub fn find(provider: ProviderName, case: &str) -> Result<Option<Sample>, SampleError> {
    let folder = FILES.get_dir(Path::new(provider.as_str()).join(case));
    folder.map(|folder| read(provider, folder)).transpose()
}

/// Writes the samples' configuration and keys into `folder`: `payhook.toml` there is ready to be loaded.
pub fn unpack(folder: &Path) -> std::io::Result<()> {
    let keys = FILES.get_dir("keys").into_iter().flat_map(Dir::files);
    for file in keys.chain(FILES.get_file("payhook.toml")) {
        let path = folder.join(file.path());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, file.contents())?;
    }
    Ok(())
}

/// Every file with its path below `provider-samples`.
pub fn files() -> Vec<(&'static Path, &'static [u8])> {
    fn of(dir: &'static Dir<'static>, into: &mut Vec<(&'static Path, &'static [u8])>) {
        for entry in dir.entries() {
            match entry {
                DirEntry::Dir(dir) => of(dir, into),
                DirEntry::File(file) => into.push((file.path(), file.contents())),
            }
        }
    }
    let mut found = Vec::new();
    of(&FILES, &mut found);
    found
}

/// A key file's bytes.
fn key(name: &str) -> Result<&'static [u8], SampleError> {
    let file = FILES
        .get_file(Path::new("keys").join(name))
        .ok_or(SampleError::Key)?;
    Ok(file.contents())
}

fn key_text(name: &str) -> Result<&'static str, SampleError> {
    std::str::from_utf8(key(name)?).map_err(|_| SampleError::Key)
}

fn read(provider: ProviderName, case: &Dir<'_>) -> Result<Sample, SampleError> {
    let file = |name: &str| case.get_file(case.path().join(name)).ok_or(SampleError::Request);
    let request = RequestFile::parse(file("request.http")?.contents()).map_err(|_| SampleError::Request)?;
    let expected =
        serde_json::from_slice(file("expected.json")?.contents()).map_err(|_| SampleError::Request)?;
    let case = case
        .path()
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or(SampleError::Request)?;
    let account = request.path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Sample {
        provider,
        case: case.to_owned(),
        account,
        request,
        expected,
    })
}
