//! Calls whose requests and answers are JSON documents.

use super::ClientError;
use super::exchange::{Call, Exchange, Target, shown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Method;

impl Exchange {
    /// Reads a document.
    pub(super) fn read<T: DeserializeOwned>(&self, target: Target) -> Result<T, ClientError> {
        self.answer(&Call::read(target))
    }

    /// Sends a question that changes nothing.
    pub(super) fn ask<B: Serialize, T: DeserializeOwned>(
        &self,
        target: Target,
        body: &B,
    ) -> Result<T, ClientError> {
        self.answer(&Call::ask(target, json(body)))
    }

    /// Changes something, once.
    pub(super) fn change<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        target: Target,
        body: Option<&B>,
    ) -> Result<T, ClientError> {
        self.answer(&Call::change(method, target, body.map(json)))
    }

    /// Sends a call and reads its answer.
    pub(super) fn answer<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ClientError> {
        let (body, replica) = self.send(call)?;
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("{error} in {}", shown(&body));
            replica.unexpected(call, &what)
        })
    }
}

/// Returns the text of a document.
pub(super) fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("documents have strings as keys and values that serialize")
}
