//! As much of a client of the agent as the suite needs.

use std::sync::{Arc, Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use pandastack_agent_protocol::{
    GENERATION,
    agent_client::AgentClient,
    messages::{ExecRequest, HelloReply, HelloRequest, exec_event::Kind},
};
use tonic::transport::{Channel, Endpoint, Uri};

use super::Failure;
use crate::vm::{BoxLink, Vm};

/// A connection to the agent of a machine.
pub(super) struct Agent {
    client: AgentClient<Channel>,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) output: String,
}

impl Agent {
    pub(super) async fn of(vm: &Arc<dyn Vm>) -> Result<Self, Failure> {
        Self::over(vm.connect().await?).await
    }

    pub(super) async fn over(link: BoxLink) -> Result<Self, Failure> {
        let link = Mutex::new(Some(link));
        let connector = tower::service_fn(move |_: Uri| {
            let link = link.lock().unwrap_or_else(PoisonError::into_inner).take();
            std::future::ready(link.map(TokioIo::new).ok_or_else(|| std::io::Error::other("a link serves once")))
        });
        let channel = Endpoint::from_static("http://agent").connect_with_connector(connector).await?;
        Ok(Self { client: AgentClient::new(channel) })
    }

    pub(super) async fn hello(&mut self) -> Result<HelloReply, Failure> {
        Ok(self.client.hello(HelloRequest { generation: GENERATION }).await?.into_inner())
    }

    /// Runs a line of shell in the workspace to its end; its output and errors are taken together.
    pub(super) async fn shell(&mut self, line: &str) -> Result<Ended, Failure> {
        let request = ExecRequest { shell: line.to_owned(), ..ExecRequest::default() };
        let mut events = self.client.exec(request).await?.into_inner();
        let mut output = Vec::new();
        while let Some(event) = events.message().await? {
            match event.kind {
                Some(Kind::Stdout(bytes) | Kind::Stderr(bytes)) => output.extend(bytes),
                Some(Kind::Exited(exited)) => {
                    let output = String::from_utf8_lossy(&output).into_owned();
                    return Ok(Ended { code: exited.exit_code, output });
                }
                Some(Kind::Started(_)) | None => {}
            }
        }
        Err("the command's events ended without its end".into())
    }

    /// Runs a line of shell that must succeed; returns its output without the last line break.
    pub(super) async fn succeed(&mut self, line: &str) -> Result<String, Failure> {
        let ended = self.shell(line).await?;
        if ended.code == 0 {
            Ok(ended.output.trim_end().to_owned())
        } else {
            Err(format!("{line:?} ended with {}: {}", ended.code, ended.output).into())
        }
    }
}
