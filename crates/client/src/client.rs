use std::time::Duration;

use pandastack_api_types::{ErrorBody, views};
use reqwest::{
    Method, RequestBuilder, Response, Url,
    header::{HeaderMap, HeaderValue, RETRY_AFTER},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{ApiFailure, ClientError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("pandastack-rust/", env!("CARGO_PKG_VERSION"));

/// A connection to a server. A clone shares its pool of connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

impl Client {
    /// A client of the server at a URL such as `http://127.0.0.1:8080` (a trailing `/v1` is accepted).
    ///
    /// # Errors
    /// If the URL or the token cannot be one.
    pub fn new(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ClientError::InvalidToken)?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        let invalid = |source| ClientError::InvalidUrl { url: url.to_owned(), source };
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(invalid)?;
        let root = url.trim_end_matches('/').trim_end_matches("/v1");
        let base = http.get(format!("{root}/")).build().map_err(invalid)?.url().clone();
        Ok(Self { http, base })
    }

    /// The server's root.
    #[must_use]
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// [`ClientError`] if it does not.
    pub async fn healthz(&self) -> Result<(), ClientError> {
        self.ignore(self.request(Method::GET, &["healthz"])).await
    }

    /// What the server is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn version(&self) -> Result<views::Version, ClientError> {
        self.json(self.request(Method::GET, &["version"])).await
    }

    /// Who the token says the caller is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn me(&self) -> Result<views::Me, ClientError> {
        self.json(self.request(Method::GET, &["v1", "me"])).await
    }

    /// A request to a path given by its segments, which are percent-encoded.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self.http.request(method, url)
    }

    pub(crate) fn with_json<T: Serialize>(&self, method: Method, segments: &[&str], body: &T) -> RequestBuilder {
        self.request(method, segments).json(body)
    }

    /// Sends a request and reads the JSON of its answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        let (url, status) = (shown(response.url()), response.status().as_u16());
        let bytes = response.bytes().await.map_err(|source| transport(url.clone(), source))?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::UnexpectedAnswer {
            url,
            status,
            source: Some(source),
        })
    }

    /// Sends a request whose answer says nothing more.
    pub(crate) async fn ignore(&self, request: RequestBuilder) -> Result<(), ClientError> {
        let response = self.send(request).await?;
        let url = shown(response.url());
        // Read to its end, so that the connection can be used again.
        response.bytes().await.map(drop).map_err(|source| transport(url, source))
    }

    /// Sends a request; an answer that is an error becomes one.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|source| {
            let url = source.url().map(shown).unwrap_or_default();
            transport(url, source)
        })?;
        if response.status().is_success() { Ok(response) } else { Err(failure(response).await) }
    }
}

async fn failure(response: Response) -> ClientError {
    let (url, status) = (shown(response.url()), response.status().as_u16());
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    match response.bytes().await {
        Err(source) => transport(url, source),
        Ok(bytes) => match serde_json::from_slice::<ErrorBody>(&bytes) {
            Ok(body) => ClientError::Api(Box::new(ApiFailure::new(status, retry_after, body))),
            Err(source) => ClientError::UnexpectedAnswer { url, status, source: Some(source) },
        },
    }
}

/// A URL for a message: its query may hold a token.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

fn transport(url: String, source: reqwest::Error) -> ClientError {
    ClientError::Transport { url, source: source.without_url() }
}
