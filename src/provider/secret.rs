//! A shared secret as its text: what a console shows, pasted into a file, is the key, byte for byte.
//!
//! Only one line end after it is taken off. White space inside means that something else was pasted; an
//! empty secret would let anyone sign.

use secrecy::ExposeSecret as _;

use super::KeyInfo;
use super::signature::mac;
use crate::config::KeyMaterial;

/// One shared secret, never shown.
pub(super) struct Secret {
    text: secrecy::SecretSlice<u8>,
    info: KeyInfo,
}

impl Secret {
    /// Reads `material` as a secret that is called `id`; the error says what is wrong, never what was found. `doubt` says
    /// of its text why it does not look like one of the provider's.
    pub(super) fn read(
        material: &KeyMaterial,
        id: &str,
        doubt: impl FnOnce(&[u8]) -> Option<&'static str>,
    ) -> Result<Self, String> {
        let bytes = material.bytes.expose_secret();
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.is_empty() {
            return Err(format!("the secret from {} is empty", material.origin));
        }
        if !text.iter().all(u8::is_ascii_graphic) {
            return Err(format!(
                "the secret from {} holds white space or characters that no secret has",
                material.origin
            ));
        }
        let info = KeyInfo {
            id: id.to_owned(),
            kind: "hmac secret".to_owned(),
            fingerprint: mac::secret_fingerprint(text),
            verifies: true,
            subject: None,
            expires_at: None,
            doubt: doubt(text),
        };
        Ok(Self {
            text: text.to_vec().into(),
            info,
        })
    }

    /// The key's bytes, for the one call that signs.
    pub(super) fn bytes(&self) -> &[u8] {
        self.text.expose_secret()
    }

    /// What may be shown of it.
    pub(super) fn info(&self) -> &KeyInfo {
        &self.info
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret")
            .field("fingerprint", &self.info.fingerprint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Secret, String> {
        let material = KeyMaterial {
            origin: "s.key".to_owned(),
            bytes: text.to_vec().into(),
        };
        Secret::read(&material, "#1", |_| None)
    }

    #[test]
    fn one_line_end_is_no_part_of_a_secret() {
        for form in ["whsec_x", "whsec_x\n", "whsec_x\r\n"] {
            assert_eq!(read(form.as_bytes()).unwrap().bytes(), b"whsec_x");
        }
    }

    #[test]
    fn empty_and_odd_secrets_are_refused_without_being_shown() {
        for odd in ["", "\n", " ", "whsec _x", "a\n\n", "\tx", "s\u{e9}cret"] {
            let problem = read(odd.as_bytes()).unwrap_err();
            assert!(
                problem.contains("s.key") && !problem.contains("whsec"),
                "{problem}"
            );
        }
    }

    #[test]
    fn debug_output_holds_no_secret() {
        assert!(!format!("{:?}", read(b"whsec_canary").unwrap()).contains("canary"));
    }
}
