//! A conversation on a pair of pipes, from its first line to its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::downstream::conversation::{Carrier, Talk, queue};
use crate::downstream::server::Downstream;
use crate::exchange::{Endpoint, Handler};
use crate::identity::Credential;
use crate::net::{Frame, LineReader};
use crate::wire::jsonrpc::trimmed;

use super::writer::Writer;

/// How many lines wait to be written.
pub(super) const LINES_MAX: usize = 16;

/// Who is at the other end of the pipes; it stays the same to the end.
#[derive(Clone, Debug)]
pub struct PipeClient {
    /// What it is known by.
    pub credential: Credential<'static>,
    /// What it is shown.
    pub endpoint: Endpoint,
}

/// What ends a conversation besides its input.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Ends it at once.
    pub cut: CancellationToken,
    /// How long what runs may go on, and its answers may take to be read, after the input has ended.
    pub grace: Duration,
}

/// How a conversation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// The client takes no more output.
    Broken,
    /// It was cut.
    Cut,
    /// The input has ended, and everything is answered.
    Ended,
    /// The input has ended, and the grace too.
    Late,
}

/// A conversation on pipes.
pub(super) struct Piped<H> {
    pub(super) client: PipeClient,
    pub(super) talk: Talk<H>,
}

// === impl Downstream ===

impl<H: Handler> Downstream<H> {
    /// Serves one client on a pair of pipes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves calls and the writer to the tasks they are; the input is not read on.
    pub async fn converse<R, W>(&self, client: PipeClient, input: R, output: W, terms: Terms) -> Parted
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let door = Arc::clone(self.door());
        let (lines, end) = queue(LINES_MAX);
        let (written, broken) = (CancellationToken::new(), CancellationToken::new());
        door.tasks.spawn("stdio write", Writer::new(output, end).run(written.clone(), broken.clone()));
        let reader = LineReader::patient(input, door.settings.body_bytes_max);
        let mut piped = Piped { client, talk: Talk::new(door, lines, Carrier::Pipe) };
        let parted = tokio::select! {
            biased;
            () = terms.cut.cancelled() => Parted::Cut,
            () = broken.cancelled() => Parted::Broken,
            parted = piped.run(reader, terms.grace, &written) => parted,
        };
        piped.talk.end();
        parted
    }
}

// === impl Piped ===

impl<H: Handler> Piped<H> {
    async fn run<R: AsyncRead + Unpin>(
        &mut self,
        reader: LineReader<R>,
        grace: Duration,
        written: &CancellationToken,
    ) -> Parted {
        self.read(reader).await;
        let left = self.talk.leave();
        let rest = async {
            left.await;
            written.cancelled().await;
        };
        match tokio::time::timeout(grace, rest).await {
            Ok(()) => Parted::Ended,
            Err(_) => Parted::Late,
        }
    }

    /// Reads to the end of the input, or to the begin of a drain.
    async fn read<R: AsyncRead + Unpin>(&mut self, mut reader: LineReader<R>) {
        loop {
            self.talk.lines.room().await;
            let frame = tokio::select! {
                biased;
                () = self.talk.door.drain.started() => return,
                frame = reader.next() => frame,
            };
            match frame {
                Ok(Frame::Line(line)) => self.hear(trimmed(line)).await,
                Ok(Frame::Endless(ends) | Frame::TooLong(ends)) => self.too_long(&ends).await,
                Ok(Frame::End) => return,
                Err(err) => return tracing::debug!(%err, "the client's output cannot be read"),
            }
        }
    }
}
