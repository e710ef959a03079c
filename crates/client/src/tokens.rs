use pandastack_api_types::{params, views};
use reqwest::Method;

use crate::{Client, ClientError};

/// Every method fails with a [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once above")]
impl Client {
    /// Makes a token; the answer is the only place where its secret appears.
    pub async fn create_token(&self, params: &params::CreateToken) -> Result<views::Token, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "me", "tokens"], params)).await
    }

    /// The tokens of the workspace, newest first.
    pub async fn list_tokens(&self) -> Result<Vec<views::Token>, ClientError> {
        let list: views::TokenList = self.json(self.request(Method::GET, &["v1", "me", "tokens"])).await?;
        Ok(list.items)
    }

    /// Ends the token whose secret starts with this prefix.
    pub async fn revoke_token(&self, prefix: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::DELETE, &["v1", "me", "tokens", prefix])).await
    }
}
