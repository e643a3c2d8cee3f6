//! Secrets and keys: `x` in the file itself, or `x_file` with the path of a file that holds it.
//!
//! Judged here is only that there is something; whether it is a usable key is for the provider. Nothing read
//! here ever stands in a message.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::account::KeyMaterial;
use super::keys::Keys;

/// No key or certificate chain is longer.
const LONGEST: u64 = 256 * 1024;

impl Keys<'_> {
    /// A secret text, `key` or `key_file`, without the white space around it; `None` when neither is there.
    pub(super) fn secret(&mut self, key: &str) -> Option<KeyMaterial> {
        let material = self.key(key)?;
        let trimmed = material.bytes.expose_secret().trim_ascii().to_vec();
        Some(KeyMaterial {
            origin: material.origin,
            bytes: SecretSlice::from(trimmed),
        })
    }

    /// [`Self::secret`] as text.
    pub(super) fn secret_text(&mut self, key: &str) -> Option<SecretString> {
        let from = self.which(key);
        let material = self.secret(key)?;
        let text = String::from_utf8(material.bytes.expose_secret().to_vec()).ok();
        if text.is_none() {
            self.problem(&from, "is not UTF-8 text");
        }
        text.map(SecretString::from)
    }

    /// Key material, `key` or `key_file`, its bytes as they are; `None` when neither is there.
    pub(super) fn key(&mut self, key: &str) -> Option<KeyMaterial> {
        let file_key = format!("{key}_file");
        if self.is_given(key) && self.is_given(&file_key) {
            self.take_given(key);
            self.take_given(&file_key);
            self.problem(key, format!("and {file_key} are both given"));
            return None;
        }
        if self.is_given(&file_key) {
            let path = self.maybe_text(&file_key)?;
            return self.read(&self.at(&file_key), &path);
        }
        let text = self.maybe_text(key)?;
        Some(KeyMaterial {
            origin: self.at(key),
            bytes: SecretSlice::from(text.into_bytes()),
        })
    }

    /// Several secrets: a list under `key`, or `key_file` with one a line.
    pub(super) fn secrets(&mut self, key: &str) -> Vec<KeyMaterial> {
        let file_key = format!("{key}_file");
        if !self.is_given(&file_key) || self.is_given(key) {
            if self.is_given(&file_key) {
                self.take_given(&file_key);
                self.problem(key, format!("and {file_key} are both given"));
            }
            let items = self.list(key).into_iter();
            return items
                .map(|item| KeyMaterial {
                    origin: item.path,
                    bytes: SecretSlice::from(item.text.trim().as_bytes().to_vec()),
                })
                .collect();
        }
        let Some(whole) = self.key(key) else {
            return Vec::new();
        };
        let lines = whole.bytes.expose_secret().split(|byte| *byte == b'\n');
        lines
            .map(<[u8]>::trim_ascii)
            .enumerate()
            .filter(|(_, line)| !line.is_empty())
            .map(|(n, line)| KeyMaterial {
                origin: format!("{} line {}", whole.origin, n.saturating_add(1)),
                bytes: SecretSlice::from(line.to_vec()),
            })
            .collect()
    }

    /// A list of files.
    pub(super) fn files(&mut self, key: &str) -> Vec<KeyMaterial> {
        let items = self.list(key);
        items
            .into_iter()
            .filter_map(|item| self.read(&item.path, &item.text))
            .collect()
    }

    /// The file named `name`, a problem at `at` when there is nothing to be had from it.
    pub(super) fn read(&mut self, at: &str, name: &str) -> Option<KeyMaterial> {
        let path = self.resolve(name);
        match read(&path) {
            Ok(bytes) if bytes.trim_ascii().is_empty() => {
                self.problem_at(at.to_owned(), format!("{} is empty", path.display()));
                None
            }
            Ok(bytes) => Some(KeyMaterial {
                origin: path.display().to_string(),
                bytes: SecretSlice::from(bytes),
            }),
            Err(error) => {
                self.problem_at(at.to_owned(), format!("cannot read {}: {error}", path.display()));
                None
            }
        }
    }

    /// The spelling that was used.
    fn which(&self, key: &str) -> String {
        let file_key = format!("{key}_file");
        if self.is_given(&file_key) {
            file_key
        } else {
            key.to_owned()
        }
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LONGEST {
        return Err(std::io::Error::other("too long for a key"));
    }
    Ok(bytes)
}
