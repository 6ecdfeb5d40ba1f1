//! gRPC: a real tonic client reads the refusal of a limited tonic service.

mod common;

use bytes::{Buf, BufMut};
use common::{AGENT, by_header};
use http::Uri;
use std::convert::Infallible;
use tollgate_tower::TollgateLayerBuilder;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Response, Status};
use tower::{Layer, service_fn};

/// Messages that are bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

/// Calls an echo service through the layer, once for each agent; `None` sends no id.
async fn call(layer: TollgateLayerBuilder, agents: &[Option<&str>]) -> Vec<Result<Vec<u8>, Status>> {
    let echo = service_fn(|request: http::Request<tonic::body::Body>| async {
        let handler = service_fn(|request: Request<Vec<u8>>| async { Ok(Response::new(request.into_inner())) });
        Ok::<_, Infallible>(tonic::server::Grpc::new(Raw).unary(Unary(handler), request).await)
    });
    let limited = layer.build().expect("valid").layer(echo);
    let mut client = tonic::client::Grpc::with_origin(limited, Uri::from_static("http://localhost"));
    let mut answers = Vec::new();
    for agent in agents {
        client.ready().await.expect("ready");
        let mut request = Request::new(b"hello".to_vec());
        if let Some(agent) = agent {
            request.metadata_mut().insert(AGENT, agent.parse().expect("metadata"));
        }
        let path = "/echo.Echo/Echo".parse().expect("a path");
        answers.push(client.unary(request, path, Raw).await.map(Response::into_inner));
    }
    answers
}

/// A tower service as a unary method.
struct Unary<S>(S);

impl<S> tonic::server::UnaryService<Vec<u8>> for Unary<S>
where
    S: tower::Service<Request<Vec<u8>>, Response = Response<Vec<u8>>, Error = Status>,
{
    type Response = Vec<u8>;
    type Future = S::Future;

    fn call(&mut self, request: Request<Vec<u8>>) -> S::Future {
        self.0.call(request)
    }
}

#[tokio::test]
async fn a_refusal_is_resource_exhausted_and_says_when_to_come_back() {
    let (layer, _) = by_header(&[("grpc", "1/min")]);
    let answers = call(layer, &[Some("agent-7"), Some("agent-7"), Some("agent-8"), None]).await;
    assert_eq!(answers[0].as_deref().expect("admitted"), b"hello");
    let refused = answers[1].as_ref().expect_err("refused");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "grpc has 0 of 1 left, too few for this request. Retry after 60 seconds.");
    let metadata = refused.metadata();
    assert_eq!(metadata.get("retry-after").expect("metadata"), "60");
    assert_eq!(metadata.get("ratelimit").expect("metadata"), r#""grpc";r=0;t=60"#);
    assert_eq!(answers[2].as_deref().expect("another agent"), b"hello");
    let missing = answers[3].as_ref().expect_err("no agent");
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert!(missing.message().contains("it needs the header x-agent-id"), "{missing}");
}

#[tokio::test]
async fn methods_are_routes() {
    let (layer, _) = by_header(&[("echo", "2/min"), ("others", "100/min")]);
    let layer = layer.lane("others").route("POST /echo.Echo/{method}", "echo");
    let answers = call(layer, &[Some("agent-7"); 3]).await;
    let codes: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(Status::code)).collect();
    assert_eq!(codes, [None, None, Some(Code::ResourceExhausted)]);
}
