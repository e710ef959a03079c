use bytes::Bytes;
use futures::Stream;
use pandastack_api_types::views;
use reqwest::{Body, Method, RequestBuilder, header::CONTENT_TYPE};

use crate::{Client, ClientError};

/// Every method fails with a [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once above")]
impl Client {
    /// The content of a file, as it comes.
    pub async fn read_file(
        &self,
        id: &str,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, reqwest::Error>> + use<>, ClientError> {
        Ok(self.send(self.file_request(Method::GET, id, &[], path)).await?.bytes_stream())
    }

    /// Writes a file from bytes or a stream.
    pub async fn write_file(
        &self,
        id: &str,
        path: &str,
        content: impl Into<Body>,
    ) -> Result<views::FileWritten, ClientError> {
        let request = self.file_request(Method::PUT, id, &[], path);
        self.json(request.header(CONTENT_TYPE, "application/octet-stream").body(content)).await
    }

    /// Removes a file or a whole directory.
    pub async fn remove_file(&self, id: &str, path: &str) -> Result<(), ClientError> {
        self.ignore(self.file_request(Method::DELETE, id, &[], path)).await
    }

    /// Lists a directory.
    pub async fn list_dir(&self, id: &str, path: &str) -> Result<views::DirListing, ClientError> {
        self.json(self.file_request(Method::GET, id, &["dir"], path)).await
    }

    /// Looks at one file.
    pub async fn stat(&self, id: &str, path: &str) -> Result<views::FileEntry, ClientError> {
        self.json(self.file_request(Method::GET, id, &["stat"], path)).await
    }

    fn file_request(&self, method: Method, id: &str, below: &[&str], path: &str) -> RequestBuilder {
        let segments = [&["v1", "sandboxes", id, "fs"], below].concat();
        self.request(method, &segments).query(&[("path", path)])
    }
}
