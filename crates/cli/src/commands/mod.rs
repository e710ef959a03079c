//! One module per command.

pub(crate) mod doctor;
mod doctor_fork;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod template;
pub(crate) mod token;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use pandastack_client::Client;

use crate::{args::ServerArgs, config_file::ConfigFile};

/// A client for the server that the arguments or the configuration file name.
pub(crate) fn client(args: &ServerArgs) -> Result<Client> {
    let path = ConfigFile::path()?;
    let file = ConfigFile::read(&path)?;
    let url = args.api.clone().or_else(|| file.api_url.clone()).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let key = args.api_key.clone().or_else(|| file.key().map(str::to_owned)).with_context(|| {
        format!(
            "no access token: {} has none; start `pandastack serve` on this machine, or set PANDASTACK_API_KEY",
            path.display()
        )
    })?;
    Ok(Client::new(&url, Some(&key))?)
}

/// The metadata of a request; absent if none was given.
pub(crate) fn metadata(pairs: Vec<(String, String)>) -> Option<BTreeMap<String, String>> {
    (!pairs.is_empty()).then(|| pairs.into_iter().collect())
}
