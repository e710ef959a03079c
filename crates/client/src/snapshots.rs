use pandastack_api_types::{params, views};
use reqwest::Method;

use crate::{Client, ClientError};

/// Every method fails with a [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once above")]
impl Client {
    /// Puts a sandbox to disk; the next request that needs it wakes it.
    pub async fn hibernate(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::POST, &["v1", "sandboxes", id, "hibernate"])).await
    }

    /// Brings a hibernated sandbox back. It does nothing to one that runs.
    pub async fn wake(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::POST, &["v1", "sandboxes", id, "wake"])).await
    }

    /// Makes copies of a running sandbox, all of the same instant; it goes on itself.
    pub async fn fork(&self, id: &str, params: &params::Fork) -> Result<views::Fork, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "fork"], params)).await
    }

    /// As [`Client::fork`], and the copies know each other, so that one of them can be promoted.
    pub async fn fork_tree(&self, id: &str, params: &params::Fork) -> Result<views::Fork, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "fork-tree"], params)).await
    }

    /// Declares a copy of a fork-tree the winner.
    pub async fn promote(&self, id: &str, params: &params::Promote) -> Result<views::Promoted, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "promote"], params)).await
    }

    /// The last `tail` events of a sandbox in their order; the server has a default.
    pub async fn events(&self, id: &str, tail: Option<u32>) -> Result<Vec<views::Event>, ClientError> {
        let request = self.request(Method::GET, &["v1", "sandboxes", id, "events"]);
        let list: views::EventList = self.json(request.query(&tail.map(|tail| [("tail", tail)]))).await?;
        Ok(list.events)
    }

    /// Takes a snapshot of a sandbox, which goes on.
    pub async fn create_snapshot(
        &self,
        id: &str,
        params: &params::CreateSnapshot,
    ) -> Result<views::Snapshot, ClientError> {
        self.json(self.with_json(Method::POST, &["v1", "sandboxes", id, "snapshots"], params)).await
    }

    /// The snapshots of the workspace, or of one of its sandboxes, newest first.
    pub async fn list_snapshots(&self, sandbox: Option<&str>) -> Result<Vec<views::Snapshot>, ClientError> {
        let request = self.request(Method::GET, &["v1", "snapshots"]);
        let list: views::SnapshotList = self.json(request.query(&sandbox.map(|id| [("sandbox_id", id)]))).await?;
        Ok(list.snapshots)
    }

    /// One snapshot.
    pub async fn get_snapshot(&self, id: &str) -> Result<views::Snapshot, ClientError> {
        self.json(self.request(Method::GET, &["v1", "snapshots", id])).await
    }

    /// Removes a snapshot.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), ClientError> {
        self.ignore(self.request(Method::DELETE, &["v1", "snapshots", id])).await
    }

    /// Removes what nothing needs from the server's disk, or only says what it would.
    pub async fn collect_garbage(&self, dry_run: bool) -> Result<views::GcReport, ClientError> {
        let params = params::CollectGarbage { dry_run: Some(dry_run) };
        self.json(self.with_json(Method::POST, &["v1", "snapshots", "gc"], &params)).await
    }

    /// What the workspace uses, and may use.
    pub async fn quotas(&self) -> Result<views::Quotas, ClientError> {
        self.json(self.request(Method::GET, &["v1", "quotas"])).await
    }
}
