//! The calls of etcd's API (v3) that a store needs, to one member.

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use axum::http::uri::PathAndQuery;
use prost::Message;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// The longest answer. A page of documents is shorter, and a watch never splits a transaction.
const MAX_ANSWER: usize = 128 << 20;

/// A user and the password.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) name: String,
    pub(super) password: String,
}

/// A client of one member, which connects with its first call.
pub struct Client {
    grpc: Grpc<Channel>,
    user: Option<Credentials>,
    token: Option<AsciiMetadataValue>,
}

impl Client {
    /// Makes a client, and logs in if there is a user.
    pub(super) async fn connect(
        endpoint: &Endpoint,
        user: Option<Credentials>,
    ) -> Result<Self, Status> {
        let grpc = Grpc::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER);
        let token = None;
        let mut client = Self { grpc, user, token };
        client.log_in().await?;
        Ok(client)
    }

    /// Reads keys.
    pub async fn range(&mut self, request: RangeRequest) -> Result<RangeResponse, Status> {
        self.unary("/etcdserverpb.KV/Range", request).await
    }

    /// Does a transaction.
    pub async fn txn(&mut self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    /// Requests a lease of `ttl` seconds.
    pub async fn grant(&mut self, ttl: i64) -> Result<LeaseGrantResponse, Status> {
        let request = LeaseGrantRequest { ttl };
        self.unary("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Ends a lease.
    pub async fn revoke(&mut self, id: i64) -> Result<(), Status> {
        let request = LeaseRevokeRequest { id };
        let answer = self.unary("/etcdserverpb.Lease/LeaseRevoke", request);
        let LeaseRevokeResponse {} = answer.await?;
        Ok(())
    }

    /// Starts a lease's time anew. Returns false if there is no such lease any more.
    pub async fn keep_alive(&mut self, id: i64) -> Result<bool, Status> {
        let request = tokio_stream::once(LeaseKeepAliveRequest { id });
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let mut answers: Streaming<LeaseKeepAliveResponse> = self.stream(path, request).await?;
        let answer = answers.message().await?;
        let answer = answer.ok_or_else(|| Status::unavailable("no answer about the lease"))?;
        Ok(answer.ttl > 0)
    }

    /// Starts a watch, which lasts as long as the stream that is returned.
    pub async fn watch(
        &mut self,
        create: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let create = WatchRequest {
            create_request: Some(create),
        };
        // etcd ends a watch when the client's side of it ends.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        self.stream("/etcdserverpb.Watch/Watch", requests).await
    }

    /// Replaces the token by a new one, if there is a user.
    async fn log_in(&mut self) -> Result<(), Status> {
        let Some(Credentials { name, password }) = self.user.clone() else {
            return Ok(());
        };
        self.token = None;
        let request = AuthenticateRequest { name, password };
        let answer = self.once("/etcdserverpb.Auth/Authenticate", request);
        let AuthenticateResponse { token } = answer.await?;
        let token = token.parse();
        self.token = Some(token.map_err(|_| Status::internal("the token is not plain text"))?);
        Ok(())
    }

    /// Makes a call, and a second one with a new token if the old one has expired.
    async fn unary<M, A>(&mut self, path: &'static str, message: M) -> Result<A, Status>
    where
        M: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        if self.user.is_none() {
            return self.once(path, message).await;
        }
        match self.once(path, message.clone()).await {
            Err(status) if status.code() == Code::Unauthenticated => {
                self.log_in().await?;
                self.once(path, message).await
            }
            answer => answer,
        }
    }

    async fn once<M, A>(&mut self, path: &'static str, message: M) -> Result<A, Status>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let request = self.request(message);
        let path = PathAndQuery::from_static(path);
        let answer = self.grpc.unary(request, path, ProstCodec::default());
        Ok(answer.await?.into_inner())
    }

    async fn stream<M, A>(
        &mut self,
        path: &'static str,
        messages: impl tokio_stream::Stream<Item = M> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let request = self.request(messages);
        let path = PathAndQuery::from_static(path);
        let answers = self.grpc.streaming(request, path, ProstCodec::default());
        Ok(answers.await?.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::from_error(Box::new(error)))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let fields = request.metadata_mut();
        // A member cut off from the others refuses with this field instead of being silent.
        fields.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            fields.insert("token", token.clone());
        }
        request
    }
}
