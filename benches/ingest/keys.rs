//! The keys and names under which everybody in a comparison judges the same requests: the repository's
//! throw-away keys, in the forms that the programs want.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rsa::PrivateKey;
use rsa::pkcs1::EncodeRsaPrivateKey as _;
use rsa::pkcs8::{DecodePrivateKey as _, EncodePublicKey as _, LineEnding};

/// What Stripe signs with.
pub(crate) const STRIPE_SECRET: &str = "whsec_perf_0123456789abcdefghijklmnopqrstuv";
/// What WeChat Pay encrypts with.
pub(crate) const WECHAT_KEY: &str = "0123456789abcdef0123456789abcdef";
/// The id of WeChat Pay's public key.
pub(crate) const WECHAT_SERIAL: &str = "PUB_KEY_ID_0114232134912410000000000000";
/// At Alipay.
pub(crate) const ALIPAY_APP: &str = "2021000000000001";
/// At Alipay.
pub(crate) const ALIPAY_SELLER: &str = "2088000000000001";
/// At WeChat Pay.
pub(crate) const WECHAT_MCHID: &str = "1900000001";
/// At WeChat Pay.
pub(crate) const WECHAT_APPID: &str = "wx0000000000000001";

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Everything that a benchmark writes lies here, under `target/`.
pub(crate) fn scratch() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("this program's own path")?;
    // target/release/deps/ingest-…
    let target = program.ancestors().nth(3).context("not under target/")?;
    let folder = target.join("benchmark");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes the RSA key of this benchmark into `folder` as `priv.pem`, `priv1.pem`, `pub.pem` and `cert.pem`.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let samples = repository().join("provider-samples/keys");
    let private = fs::read_to_string(samples.join("wechatpay_platform_private.pem"))?;
    let key = PrivateKey::from_pkcs8_pem(&private).context("the sample key")?;
    let public = key
        .as_public_key()
        .to_public_key_pem(LineEnding::LF)
        .context("the sample key")?;
    fs::write(folder.join("priv.pem"), &private)?;
    fs::write(
        folder.join("priv1.pem"),
        key.to_pkcs1_pem(LineEnding::LF)?.as_bytes(),
    )?;
    fs::write(folder.join("pub.pem"), public)?;
    fs::copy(
        samples.join("wechatpay_platform_cert.pem"),
        folder.join("cert.pem"),
    )?;
    fs::write(folder.join("apiv3.key"), WECHAT_KEY)?;
    Ok(())
}
