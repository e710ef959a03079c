//! The agent protocol's calls: each is handed to the module that knows how.

use std::path::PathBuf;

use pandastack_agent_protocol::{
    GENERATION,
    agent_server::Agent as Calls,
    messages::{
        ActivityReply, ActivityRequest, CellEvent, CloseContextReply, CloseContextRequest, ContextEntry,
        CreateContextRequest, ExecEvent, ExecRequest, FileChunk, FileEntry, HelloReply, HelloRequest,
        InterruptContextReply, InterruptContextRequest, ListContextsReply, ListContextsRequest, ListDirReply,
        PathRequest, PersonalizeReply, PersonalizeRequest, ReadFileRequest, RemoveReply, RunCellRequest,
        WriteFileReply, WriteFileRequest,
    },
};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    calls::{Answers, CallGuard, Calls as UnderWay, Fate},
    contexts::{CellGuard, Contexts},
    exec, files,
    identity::Identity,
    languages::Languages,
    processes,
    reaper::Reaper,
    renderer::Renderer,
    zygote::{Warmth, Zygote},
};

/// Everything the calls need.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) workspace: PathBuf,
    pub(crate) reaper: Reaper,
    pub(crate) zygote: Option<Zygote>,
    pub(crate) renderer: Renderer,
    pub(crate) languages: Languages,
    pub(crate) contexts: Contexts,
    pub(crate) identity: Identity,
    pub(crate) under_way: UnderWay,
}

impl Agent {
    fn activity_now(&self) -> Result<(), String> {
        let calls = self.under_way.under_way();
        if calls > 0 {
            return Err(format!("{calls} calls are under way"));
        }
        let mut known = self.contexts.idle_processes()?;
        match &self.zygote {
            Some(zygote) if zygote.warmth() == Warmth::Starting => return Err("the interpreter is starting".to_owned()),
            Some(zygote) => known.push(zygote.pid()),
            None => {}
        }
        let processes = processes::descendants();
        known.extend(self.renderer.family(&processes));
        match processes.iter().find(|process| !known.contains(&process.pid)) {
            Some(process) => Err(format!("process {} ({})", process.pid, process.name)),
            None => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl Calls for Agent {
    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let (warm, warm_error) = match self.zygote.as_ref().map(Zygote::warmth) {
            Some(Warmth::Ready) => (true, String::new()),
            Some(Warmth::Starting) => (false, String::new()),
            Some(Warmth::Failed(why)) => (false, why),
            None => (false, "this sandbox has no interpreter".to_owned()),
        };
        Ok(Response::new(HelloReply {
            generation: GENERATION,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            warm,
            warm_error,
            sandbox_id: self.identity.sandbox_id(),
            languages: self.languages.all(),
        }))
    }

    async fn personalize(&self, request: Request<PersonalizeRequest>) -> Result<Response<PersonalizeReply>, Status> {
        Ok(Response::new(self.identity.assume(request.get_ref(), || self.contexts.abandon())?))
    }

    async fn activity(&self, _: Request<ActivityRequest>) -> Result<Response<ActivityReply>, Status> {
        let reason = self.activity_now().err();
        Ok(Response::new(ActivityReply {
            quiescent: reason.is_none(),
            reason: reason.unwrap_or_default(),
            working: self.under_way.under_way() > 0,
        }))
    }

    type ExecStream = Answers<ExecEvent, CallGuard>;

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<Self::ExecStream>, Status> {
        let guard = self.under_way.begin();
        let receiver = exec::start(request.into_inner(), &self.workspace, &self.reaper)?;
        Ok(Response::new(Answers::new(receiver, guard)))
    }

    type ReadFileStream = Answers<FileChunk, CallGuard>;

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Result<Response<Self::ReadFileStream>, Status> {
        let guard = self.under_way.begin();
        let receiver = files::read(request.into_inner().path).await?;
        Ok(Response::new(Answers::new(receiver, guard)))
    }

    async fn write_file(
        &self,
        request: Request<Streaming<WriteFileRequest>>,
    ) -> Result<Response<WriteFileReply>, Status> {
        let _under_way = self.under_way.begin();
        Ok(Response::new(WriteFileReply { bytes: files::write(request.into_inner()).await? }))
    }

    async fn stat(&self, request: Request<PathRequest>) -> Result<Response<FileEntry>, Status> {
        let _under_way = self.under_way.begin();
        Ok(Response::new(files::stat(request.into_inner().path).await?))
    }

    async fn list_dir(&self, request: Request<PathRequest>) -> Result<Response<ListDirReply>, Status> {
        let _under_way = self.under_way.begin();
        Ok(Response::new(files::list(request.into_inner().path).await?))
    }

    async fn remove(&self, request: Request<PathRequest>) -> Result<Response<RemoveReply>, Status> {
        let _under_way = self.under_way.begin();
        files::remove(request.into_inner().path, self.workspace.clone()).await?;
        Ok(Response::new(RemoveReply {}))
    }

    async fn create_context(&self, request: Request<CreateContextRequest>) -> Result<Response<ContextEntry>, Status> {
        let _under_way = self.under_way.begin();
        Ok(Response::new(self.contexts.create(request.into_inner(), &self.workspace).await?))
    }

    async fn list_contexts(&self, _: Request<ListContextsRequest>) -> Result<Response<ListContextsReply>, Status> {
        Ok(Response::new(ListContextsReply { contexts: self.contexts.list() }))
    }

    async fn close_context(
        &self,
        request: Request<CloseContextRequest>,
    ) -> Result<Response<CloseContextReply>, Status> {
        let _under_way = self.under_way.begin();
        self.contexts.close(&request.get_ref().context_id).await?;
        Ok(Response::new(CloseContextReply {}))
    }

    type RunCellStream = Answers<CellEvent, CellGuard>;

    async fn run_cell(&self, request: Request<RunCellRequest>) -> Result<Response<Self::RunCellStream>, Status> {
        let fate = request.extensions().get::<Fate>().cloned().unwrap_or_default();
        let (receiver, guard) = self.contexts.run(request.into_inner(), fate, self.under_way.begin())?;
        Ok(Response::new(Answers::new(receiver, guard)))
    }

    async fn interrupt_context(
        &self,
        request: Request<InterruptContextRequest>,
    ) -> Result<Response<InterruptContextReply>, Status> {
        let interrupted = self.contexts.interrupt(&request.get_ref().context_id)?;
        Ok(Response::new(InterruptContextReply { interrupted }))
    }
}
