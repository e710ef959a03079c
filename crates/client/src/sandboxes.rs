use futures::Stream;
use pandastack_api_types::{events::CellEvent, params, views};
use reqwest::{Method, header::ACCEPT};

use crate::{Client, ClientError, ExecEvent, events};

/// Every method fails with a [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once above")]
impl Client {
    /// Creates a sandbox; it is usable when this returns.
    pub async fn create(&self, params: &params::CreateSandbox) -> Result<views::Sandbox, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes"], params)).await
    }

    /// The sandboxes of the workspace, newest first.
    pub async fn list(&self) -> Result<Vec<views::Sandbox>, ClientError> {
        self.json(self.request(Method::GET, &["v1", "sandboxes"])).await
    }

    /// One sandbox.
    pub async fn get(&self, id: &str) -> Result<views::Sandbox, ClientError> {
        self.json(self.request(Method::GET, &["v1", "sandboxes", id])).await
    }

    /// Ends a sandbox.
    pub async fn kill(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::DELETE, &["v1", "sandboxes", id])).await
    }

    /// How long a sandbox lives.
    pub async fn lifecycle(&self, id: &str) -> Result<views::Lifecycle, ClientError> {
        self.json(self.request(Method::GET, &["v1", "sandboxes", id, "lifecycle"])).await
    }

    /// Changes how long a sandbox lives.
    pub async fn set_lifecycle(
        &self,
        id: &str,
        params: &params::PatchLifecycle,
    ) -> Result<views::Lifecycle, ClientError> {
        self.json(self.with_json(Method::PATCH, &["v1", "sandboxes", id, "lifecycle"], params)).await
    }

    /// Stops a sandbox where it stands.
    pub async fn pause(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::POST, &["v1", "sandboxes", id, "pause"])).await
    }

    /// Lets a paused sandbox go on.
    pub async fn resume(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::POST, &["v1", "sandboxes", id, "resume"])).await
    }

    /// Runs a command to its end.
    pub async fn exec(&self, id: &str, params: &params::Exec) -> Result<views::ExecResult, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "exec"], params)).await
    }

    /// Runs a command, its output as it comes. Dropping the stream kills the command.
    pub async fn exec_stream(
        &self,
        id: &str,
        params: &params::Exec,
    ) -> Result<impl Stream<Item = Result<ExecEvent, ClientError>> + use<>, ClientError> {
        let response = self.send(self.with_json(Method::POST, &["v1", "sandboxes", id, "exec", "stream"], params));
        Ok(events::exec_events(response.await?.bytes_stream()))
    }

    /// Opens a code context.
    pub async fn create_context(
        &self,
        id: &str,
        params: &params::CreateContext,
    ) -> Result<views::Context, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "repl", "sessions"], params)).await
    }

    /// The contexts of a sandbox.
    pub async fn list_contexts(&self, id: &str) -> Result<Vec<views::Context>, ClientError> {
        self.json(self.request(Method::GET, &["v1", "sandboxes", id, "repl", "sessions"])).await
    }

    /// Ends a context.
    pub async fn close_context(&self, id: &str, context: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::DELETE, &["v1", "sandboxes", id, "repl", "sessions", context])).await
    }

    /// Runs a cell to its end.
    pub async fn run_cell(
        &self,
        id: &str,
        context: &str,
        params: &params::RunCell,
    ) -> Result<views::CellResult, ClientError> {
        let segments = ["v1", "sandboxes", id, "repl", "sessions", context, "run"];
        self.json(self.with_json(Method::POST, &segments, params)).await
    }

    /// Runs a cell, its events as they come. Dropping the stream interrupts the cell, unless it has an idempotency key.
    pub async fn run_cell_stream(
        &self,
        id: &str,
        context: &str,
        params: &params::RunCell,
    ) -> Result<impl Stream<Item = Result<CellEvent, ClientError>> + use<>, ClientError> {
        let segments = ["v1", "sandboxes", id, "repl", "sessions", context, "run"];
        let request = self.with_json(Method::POST, &segments, params).header(ACCEPT, "text/event-stream");
        Ok(events::cell_events(self.send(request).await?.bytes_stream()))
    }

    /// Interrupts the cell that runs in a context.
    pub async fn interrupt_context(&self, id: &str, context: &str) -> Result<views::Interrupted, ClientError> {
        let segments = ["v1", "sandboxes", id, "repl", "sessions", context, "interrupt"];
        self.json(self.request(Method::POST, &segments)).await
    }

    /// Runs a program in a fresh interpreter.
    pub async fn run_once(&self, id: &str, params: &params::RunOnce) -> Result<views::OnceResult, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "repl"], params)).await
    }

    /// Every template and alias.
    pub async fn templates(&self) -> Result<Vec<views::Template>, ClientError> {
        self.json(self.request(Method::GET, &["v1", "templates"])).await
    }

    /// One template.
    pub async fn template(&self, name: &str) -> Result<views::Template, ClientError> {
        self.json(self.request(Method::GET, &["v1", "templates", name])).await
    }
}
