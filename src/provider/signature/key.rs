//! A provider's RSA public key, read from whatever form its console hands out and parsed once.
//!
//! The `rsa` crate reads the key's structure; `aws-lc-rs` verifies (18 µs against 74 µs at 2048 bit, and it
//! covers the legacy pairings, so that one library gives every verdict). Everything is first brought to one
//! DER form, over which the fingerprint is taken: the same key has one fingerprint in every file form.

use std::fmt;

use aws_lc_rs::signature::{
    ParsedPublicKey, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rsa::pkcs1::{DecodeRsaPrivateKey as _, DecodeRsaPublicKey as _};
use rsa::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, EncodePublicKey as _};
use rsa::traits::PublicKeyParts as _;
use rsa::{PrivateKey, PublicKey};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};

use crate::provider::KeyInfo;
use crate::time::Timestamp;

/// Which hash a signature is made over; pinned by configuration or by the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// SHA-256.
    Sha256,
    /// SHA-1, for old Alipay apps only.
    Sha1,
}

/// Why bytes are not a usable public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing in the file.
    #[error("it is empty")]
    Empty,
    /// A private key where a public one belongs.
    #[error("it is a private key; the provider's public key or certificate belongs here")]
    Private,
    /// Another algorithm.
    #[error("it is a key of another kind than RSA")]
    NotRsa,
    /// A size that no provider uses and no check can trust.
    #[error("its RSA modulus is not between 1024 and 8192 bits")]
    Size,
    /// Neither PEM, DER nor base64 of a public key or certificate.
    #[error("it is neither PEM, DER nor base64 of an RSA public key or certificate")]
    Unreadable,
}

/// The one verdict a failed check gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not hold")]
pub struct SignatureDoesNotHold;

/// What a certificate says beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject, for people.
    pub subject: String,
    /// The serial as upper-case hex, two digits a byte. Compare with [`same_serial`].
    pub serial: String,
    /// End of validity; past it is reported, never a refusal.
    pub expires_at: Timestamp,
}

/// An RSA public key, ready to verify.
pub struct RsaKey {
    sha256: ParsedPublicKey,
    sha1: ParsedPublicKey,
    bits: u32,
    fingerprint: String,
    certificate: Option<Certificate>,
}

impl RsaKey {
    /// From PEM (`PUBLIC KEY`, `RSA PUBLIC KEY`, `CERTIFICATE`; of several the first), DER of these, or their
    /// bare base64 on one line or many. Byte order marks and blanks do not matter.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyError> {
        let der = to_der(bytes)?;
        if let Ok((rest, certificate)) = X509Certificate::from_der(&der) {
            if !rest.is_empty() {
                return Err(KeyError::Unreadable);
            }
            let key = public_key(certificate.public_key().raw)?;
            return Self::new(&key, Some(Certificate::of(&certificate)));
        }
        Self::new(&public_key(&der)?, None)
    }

    fn new(key: &PublicKey, certificate: Option<Certificate>) -> Result<Self, KeyError> {
        let der = key.to_public_key_der().map_err(|_| KeyError::Unreadable)?;
        let parsed = |algorithm| ParsedPublicKey::new(algorithm, der.as_bytes()).map_err(|_| KeyError::Size);
        let mut fingerprint = hex::encode(Sha256::digest(der.as_bytes()));
        fingerprint.truncate(16);
        Ok(Self {
            sha256: parsed(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY)?,
            sha1: parsed(&RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY)?,
            bits: key.n().bit_width_vartime(),
            fingerprint,
            certificate,
        })
    }

    /// Whether `signature` is this key's PKCS#1 v1.5 signature of `message`.
    pub fn verify(
        &self,
        digest: Digest,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureDoesNotHold> {
        let key = match digest {
            Digest::Sha256 => &self.sha256,
            Digest::Sha1 => &self.sha1,
        };
        key.verify_sig(message, signature)
            .map_err(|_| SignatureDoesNotHold)
    }

    /// The modulus' size. Under 2048 is for a scheme's pinned legacy mode only; each scheme decides.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The certificate it came in, if it did.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// What may be told of it, under the name `id`.
    pub fn info(&self, id: impl Into<String>) -> KeyInfo {
        let form = if self.certificate.is_some() {
            "certificate"
        } else {
            "public key"
        };
        KeyInfo {
            id: id.into(),
            kind: format!("rsa-{} {form}", self.bits),
            fingerprint: self.fingerprint.clone(),
            verifies: true,
            subject: self.certificate.as_ref().map(|c| c.subject.clone()),
            expires_at: self.certificate.as_ref().map(|c| c.expires_at),
            doubt: None,
        }
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsaKey")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        // DER puts a zero byte before a serial whose first bit is set; nobody writes it.
        let serial = certificate.raw_serial();
        let serial = serial
            .strip_prefix(&[0])
            .filter(|rest| !rest.is_empty())
            .unwrap_or(serial);
        Self {
            subject: certificate.subject().to_string(),
            serial: hex::encode_upper(serial),
            expires_at: Timestamp::from_secs(certificate.validity().not_after.timestamp()),
        }
    }
}

/// Whether two hex serials are one number: tools differ in case and in writing leading zeros.
pub fn same_serial(left: &str, right: &str) -> bool {
    left.trim_start_matches('0')
        .eq_ignore_ascii_case(right.trim_start_matches('0'))
}

/// A public key from `SubjectPublicKeyInfo` or PKCS#1 DER, or why it is none.
fn public_key(der: &[u8]) -> Result<PublicKey, KeyError> {
    if let Ok(key) = PublicKey::from_public_key_der(der).or_else(|_| PublicKey::from_pkcs1_der(der)) {
        return Ok(key);
    }
    if PrivateKey::from_pkcs8_der(der).is_ok() || PrivateKey::from_pkcs1_der(der).is_ok() {
        return Err(KeyError::Private);
    }
    match SubjectPublicKeyInfo::from_der(der) {
        Ok((_, info)) if matches!(info.parsed(), Ok(x509_parser::public_key::PublicKey::RSA(_))) => {
            Err(KeyError::Size)
        }
        Ok(_) => Err(KeyError::NotRsa),
        Err(_) => Err(KeyError::Unreadable),
    }
}

/// A key file is pasted, mailed and re-wrapped before it gets here: missing padding is forgiven.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The DER inside a key file of any form.
fn to_der(bytes: &[u8]) -> Result<Vec<u8>, KeyError> {
    // Every DER form here is a SEQUENCE, and no base64 of one begins with this byte.
    if bytes.first() == Some(&0x30) {
        return Ok(bytes.to_vec());
    }
    // Understands UTF-8 and UTF-16 marks; an editor adds them.
    let (text, _, _) = encoding_rs::UTF_8.decode(bytes);
    // An environment variable often carries line ends as two characters.
    let text = text.replace("\\n", "\n").replace("\\r", "\n");
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    let base64 = if text.contains("-----BEGIN") {
        pem_body(&text)?
    } else {
        &text
    };
    let compact: String = base64.chars().filter(|c| !c.is_whitespace()).collect();
    FORGIVING.decode(compact).map_err(|_| KeyError::Unreadable)
}

/// What stands between the marks of the first PEM block. A private block anywhere is refused: whoever put
/// both halves into one file should not have.
fn pem_body(text: &str) -> Result<&str, KeyError> {
    if text.contains("PRIVATE KEY-----") {
        return Err(KeyError::Private);
    }
    let block = text.split_once("-----BEGIN").ok_or(KeyError::Unreadable)?.1;
    let (_label, rest) = block.split_once("-----").ok_or(KeyError::Unreadable)?;
    Ok(rest.split_once("-----END").ok_or(KeyError::Unreadable)?.0)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;
    use crate::provider::signature::RsaSigner;

    const PRIVATE: &str = include_str!("../../../provider-samples/keys/alipay_private.pem");
    const PUBLIC: &str = include_str!("../../../provider-samples/keys/alipay_public.pem");
    const CERT: &str = include_str!("../../../provider-samples/keys/alipay_cert.pem");
    const SMALL_PRIVATE: &str = include_str!("../../../provider-samples/keys/alipay_rsa1_private.pem");
    const SMALL: &str = include_str!("../../../provider-samples/keys/alipay_rsa1_public.pem");

    fn der(pem: &str) -> Vec<u8> {
        to_der(pem.as_bytes()).unwrap()
    }

    fn fingerprint(bytes: &[u8]) -> String {
        RsaKey::parse(bytes).unwrap().fingerprint
    }

    #[test]
    fn one_key_has_one_fingerprint_in_every_form() {
        let want = fingerprint(PUBLIC.as_bytes());
        let spki = der(PUBLIC);
        let bare = STANDARD.encode(&spki);
        let pkcs1 = {
            use rsa::pkcs1::EncodeRsaPublicKey as _;
            public_key(&spki)
                .unwrap()
                .to_pkcs1_der()
                .unwrap()
                .as_bytes()
                .to_vec()
        };
        let rsa_pem = format!(
            "-----BEGIN RSA PUBLIC KEY-----\n{}\n-----END RSA PUBLIC KEY-----",
            STANDARD.encode(&pkcs1)
        );
        let wrapped = PUBLIC
            .lines()
            .filter(|l| !l.starts_with('-'))
            .collect::<Vec<_>>()
            .join("\r\n");
        let utf16: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain(bare.encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        for form in [
            spki.clone(),
            pkcs1,
            rsa_pem.into_bytes(),
            bare.clone().into_bytes(),
            bare.trim_end_matches('=').as_bytes().to_vec(),
            format!("\u{feff}  {PUBLIC}\n\n").into_bytes(),
            PUBLIC.replace('\n', "\\n").into_bytes(),
            wrapped.into_bytes(),
            utf16,
            CERT.as_bytes().to_vec(),
            der(CERT),
            STANDARD.encode(der(CERT)).into_bytes(),
        ] {
            assert_eq!(fingerprint(&form), want);
        }
    }

    #[test]
    fn what_is_no_public_rsa_key_is_named() {
        let refused = |bytes: &[u8]| RsaKey::parse(bytes).unwrap_err();
        assert_eq!(refused(b""), KeyError::Empty);
        assert_eq!(refused(b"\xef\xbb\xbf \n"), KeyError::Empty);
        assert_eq!(refused(PRIVATE.as_bytes()), KeyError::Private);
        assert_eq!(
            refused(format!("{PUBLIC}{PRIVATE}").as_bytes()),
            KeyError::Private
        );
        let bare: String = PRIVATE.lines().filter(|l| !l.starts_with('-')).collect();
        assert_eq!(refused(bare.as_bytes()), KeyError::Private);
        assert_eq!(refused(&STANDARD.decode(&bare).unwrap()), KeyError::Private);
        assert_eq!(refused(b"hello"), KeyError::Unreadable);
        assert_eq!(refused(b"-----BEGIN PUBLIC KEY-----\n!!\n"), KeyError::Unreadable);
        let p256 = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li\
                    /hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==";
        assert_eq!(refused(p256.as_bytes()), KeyError::NotRsa);
    }

    #[test]
    fn a_certificate_tells_serial_subject_and_expiry() {
        let key = RsaKey::parse(CERT.as_bytes()).unwrap();
        let certificate = key.certificate().unwrap();
        assert_eq!(certificate.serial, "0A1B2C3D4E5F60718293A4B5C6D7E8F901020304");
        assert!(same_serial(
            &certificate.serial,
            "a1b2c3d4e5f60718293a4b5c6d7e8f901020304"
        ));
        assert!(!same_serial(
            &certificate.serial,
            "A1B2C3D4E5F60718293A4B5C6D7E8F90102030"
        ));
        assert!(certificate.subject.contains("CN=alipay test certificate"));
        let info = key.info(certificate.serial.clone());
        assert_eq!(info.kind, "rsa-2048 certificate");
        assert_eq!(info.fingerprint.len(), 16);
        assert!(info.expires_at.unwrap() > Timestamp::parse_rfc3339("2100-01-01T00:00:00Z").unwrap());
    }

    #[test]
    fn both_sizes_and_digests_hold_and_do_not_mix() {
        for (private, public, bits) in [(PRIVATE, PUBLIC, 2048), (SMALL_PRIVATE, SMALL, 1024)] {
            let (signer, key) = (
                RsaSigner::from_pem(private).unwrap(),
                RsaKey::parse(public.as_bytes()).unwrap(),
            );
            assert_eq!(key.bits(), bits);
            for (digest, other) in [(Digest::Sha256, Digest::Sha1), (Digest::Sha1, Digest::Sha256)] {
                let signature = signer.sign(digest, b"message").unwrap();
                assert_eq!(key.verify(digest, b"message", &signature), Ok(()));
                assert_eq!(
                    key.verify(other, b"message", &signature),
                    Err(SignatureDoesNotHold)
                );
                assert_eq!(
                    key.verify(digest, b"messagf", &signature),
                    Err(SignatureDoesNotHold)
                );
                assert_eq!(
                    key.verify(digest, b"message", &signature[1..]),
                    Err(SignatureDoesNotHold)
                );
                assert_eq!(key.verify(digest, b"message", b""), Err(SignatureDoesNotHold));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(RsaKey::parse(&bytes).is_err());
        }

        #[test]
        fn a_key_with_a_flipped_bit_never_panics(bit in 0_usize..294 * 8) {
            let mut bytes = der(PUBLIC);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let same = RsaKey::parse(&bytes).is_ok_and(|key| key.fingerprint == fingerprint(PUBLIC.as_bytes()));
            prop_assert!(!same);
        }
    }
}
