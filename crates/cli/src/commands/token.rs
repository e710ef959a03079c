//! `pandastack token`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pandastack_api_types::{WorkspaceName, params::CreateToken, views::Token};
use pandastack_store::Store;

use crate::{
    args::{MachineArgs, TokenCommand},
    commands,
    machine::Machine,
    output::{Output, table},
};

pub(crate) async fn run(command: TokenCommand, output: Output) -> Result<ExitCode> {
    match command {
        TokenCommand::Create { label, workspace: Some(workspace), expires_in_days, machine, .. } => {
            let token = create_here(&workspace, &label, expires_in_days, &machine).await?;
            show_secret(&token, output)?;
        }
        TokenCommand::Create { label, workspace: None, expires_in_days, server, .. } => {
            let params = CreateToken { label: Some(label), expires_in_days, ..CreateToken::default() };
            show_secret(&commands::client(&server)?.create_token(&params).await?, output)?;
        }
        TokenCommand::Ls { server } => {
            let tokens = commands::client(&server)?.list_tokens().await?;
            output.answer(&tokens, |tokens| {
                let rows = tokens.iter().map(|token| {
                    let expires = token.expires_at.clone().unwrap_or_else(|| "never".to_owned());
                    vec![token.prefix.clone(), token.label.clone(), token.created_at.clone(), expires]
                });
                table(&["PREFIX", "LABEL", "CREATED", "EXPIRES"], rows)
            })?;
        }
        TokenCommand::Revoke { prefix, server } => {
            commands::client(&server)?.revoke_token(&prefix).await?;
            output.answer(&serde_json::json!({ "revoked": prefix }), |_| format!("revoked {prefix}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_secret(token: &Token, output: Output) -> Result<()> {
    output.answer(token, |token| token.token.clone().unwrap_or_default())
}

/// Makes a token by way of the data directory: whoever can write there is the operator.
async fn create_here(workspace: &str, label: &str, days: Option<i64>, machine: &MachineArgs) -> Result<Token> {
    let machine = Machine::resolve(machine)?;
    let workspace: WorkspaceName = workspace.parse()?;
    if days.is_some_and(|days| !(1..=3650).contains(&days)) {
        bail!("--expires-in-days must be 1 to 3650");
    }
    let path = machine.data_dir.join("pandastack.db");
    if !path.is_file() {
        bail!("{} is not a server's data directory; start `pandastack serve` there once", machine.data_dir.display());
    }
    let expires = days.map(|days| jiff::Timestamp::now().as_millisecond() + days * 24 * 3600 * 1000);
    let store = Store::open(&path).await.context("the server's database")?;
    let new = store.create_token(&workspace, label, expires).await?;
    let stamp = |ms: i64| jiff::Timestamp::from_millisecond(ms).map(|time| time.to_string()).unwrap_or_default();
    Ok(Token {
        prefix: new.record.prefix.clone(),
        label: new.record.label.clone(),
        name: new.record.label.clone(),
        created_at: stamp(new.record.created_at_ms),
        expires_at: new.record.expires_at_ms.map(stamp),
        token: Some(new.secret.expose().to_owned()),
    })
}
