//! A response body as server-sent events, with the id and delay that a resumption needs.
//!
//! Not for: what the events mean, or reconnecting.

use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use crate::net::ResponseBody;
use crate::wire::sse::{DecodeError, Decoder, Event, Limits};

/// How many further pieces are read to find the end of a stream of which nothing more is wanted.
const FINISH_READS: usize = 4;

/// The events of one body.
#[derive(Debug)]
pub(super) struct EventReader {
    body: ResponseBody,
    decoder: Decoder,
    limits: Limits,
    read: usize,
    place: Place,
}

/// Where a stream can be resumed.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The last event id.
    pub(super) last_id: Option<String>,
    /// How long the server wants us to wait.
    pub(super) retry: Option<Duration>,
}

/// Why there is no further event.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The stream is malformed or too large.
    #[error(transparent)]
    Stream(#[from] DecodeError),
}

impl EventReader {
    /// Begins to read a body.
    pub(super) fn new(body: ResponseBody, limits: Limits) -> Self {
        Self { body, decoder: Decoder::new(limits), limits, read: 0, place: Place::default() }
    }

    /// Begins to read a body on which more than one request's events come: one that is too large is skipped.
    pub(super) fn shared(body: ResponseBody, limits: Limits) -> Self {
        Self { decoder: Decoder::skipping(limits), ..Self::new(body, limits) }
    }

    /// Reads on in another body: the place is kept, and what was read counts on.
    pub(super) fn resume(&mut self, body: ResponseBody) {
        let left = match self.limits.stream_bytes_max {
            usize::MAX => usize::MAX,
            all => all.saturating_sub(self.read),
        };
        let limits = Limits { stream_bytes_max: left, ..self.limits };
        *self = Self { place: std::mem::take(&mut self.place), ..Self::new(body, limits) };
    }

    /// Reads no more. Where the stream ends here, its connection can be used again: that end is nearly always there
    /// already, with the last event or right behind it.
    pub(super) fn finish(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..FINISH_READS {
            if !matches!(self.body.poll_data(&mut cx), Poll::Ready(Ok(Some(_)))) {
                return;
            }
        }
    }

    /// Where to resume.
    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the next event, `None` at the end.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, ReadError> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Polls for the next event, `None` at the end.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, ReadError>> {
        loop {
            if let Some(event) = self.decoder.next_event()? {
                if let Some(id) = &event.id {
                    self.place.last_id = Some(id.clone()).filter(|id| !id.is_empty());
                }
                if let Some(retry) = event.retry_ms {
                    self.place.retry = Some(Duration::from_millis(retry));
                }
                return Poll::Ready(Ok(Some(event)));
            }
            match ready!(self.body.poll_data(cx)).map_err(|err| ReadError::Broken(err.to_string()))? {
                None => return Poll::Ready(Ok(None)),
                Some(data) => {
                    self.read = self.read.saturating_add(data.len());
                    self.decoder.push(data)?;
                }
            }
        }
    }
}
