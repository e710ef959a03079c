//! Generates the gRPC client and server stubs from a hand-written service description, so that no `protoc` is needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let service = Service::builder()
        .name("Agent")
        .package("pandastack.agent.v1")
        .method(unary("hello", "Hello", "HelloRequest", "HelloReply"))
        .method(unary("personalize", "Personalize", "PersonalizeRequest", "PersonalizeReply"))
        .method(unary("activity", "Activity", "ActivityRequest", "ActivityReply"))
        .method(server_streaming("exec", "Exec", "ExecRequest", "ExecEvent"))
        .method(server_streaming("read_file", "ReadFile", "ReadFileRequest", "FileChunk"))
        .method(client_streaming("write_file", "WriteFile", "WriteFileRequest", "WriteFileReply"))
        .method(unary("stat", "Stat", "PathRequest", "FileEntry"))
        .method(unary("list_dir", "ListDir", "PathRequest", "ListDirReply"))
        .method(unary("remove", "Remove", "PathRequest", "RemoveReply"))
        .method(unary("create_context", "CreateContext", "CreateContextRequest", "ContextEntry"))
        .method(unary("list_contexts", "ListContexts", "ListContextsRequest", "ListContextsReply"))
        .method(unary("close_context", "CloseContext", "CloseContextRequest", "CloseContextReply"))
        .method(server_streaming("run_cell", "RunCell", "RunCellRequest", "CellEvent"))
        .method(unary("interrupt_context", "InterruptContext", "InterruptContextRequest", "InterruptContextReply"))
        .build();
    Builder::new().compile(&[service]);
}

fn unary(name: &str, route: &str, input: &str, output: &str) -> Method {
    method(name, route, input, output).build()
}

fn server_streaming(name: &str, route: &str, input: &str, output: &str) -> Method {
    method(name, route, input, output).server_streaming().build()
}

fn client_streaming(name: &str, route: &str, input: &str, output: &str) -> Method {
    method(name, route, input, output).client_streaming().build()
}

fn method(name: &str, route: &str, input: &str, output: &str) -> tonic_build::manual::MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::messages::{input}"))
        .output_type(format!("crate::messages::{output}"))
        .codec_path("tonic_prost::ProstCodec")
}
