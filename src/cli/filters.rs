//! What the commands that choose among events share: whose they are, and the filter as the API takes it.

use clap::Args;
use serde_json::{Map, Value};

use super::failure::Misuse;

/// From whom, and to which account.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Origin {
    /// Only from this provider
    #[arg(long)]
    provider: Option<String>,
    /// Only to this account: its name, or PROVIDER/NAME as in its notify path
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
}

impl Origin {
    /// Provider and name of the account, as far as they are given.
    pub(super) fn parts(&self) -> Result<(Option<&str>, Option<&str>), Misuse> {
        let provider = self.provider.as_deref();
        match self.account.as_deref().map(|account| account.split_once('/')) {
            None => Ok((provider, None)),
            Some(None) => Ok((provider, self.account.as_deref())),
            Some(Some((of, name))) if provider.is_none_or(|provider| provider == of) => {
                Ok((Some(of), Some(name)))
            }
            Some(Some(_)) => Err(Misuse::usage("--provider and --account name two providers")),
        }
    }
}

/// The members of a filter that are given.
pub(super) fn members<const N: usize>(members: [(&str, Option<&str>); N]) -> Map<String, Value> {
    let given = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
    given.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(provider: Option<&str>, account: Option<&str>) -> Origin {
        Origin {
            provider: provider.map(str::to_owned),
            account: account.map(str::to_owned),
        }
    }

    #[test]
    fn an_account_is_named_in_either_way() {
        for (provider, account, parts) in [
            (None, None, (None, None)),
            (Some("stripe"), None, (Some("stripe"), None)),
            (None, Some("shop"), (None, Some("shop"))),
            (None, Some("stripe/shop"), (Some("stripe"), Some("shop"))),
            (
                Some("stripe"),
                Some("stripe/shop"),
                (Some("stripe"), Some("shop")),
            ),
        ] {
            assert_eq!(origin(provider, account).parts().unwrap(), parts);
        }
        assert!(origin(Some("alipay"), Some("stripe/shop")).parts().is_err());
    }
}
