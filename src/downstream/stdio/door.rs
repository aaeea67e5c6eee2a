//! A conversation on a pair of pipes, from its first line to its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::downstream::answer::Rendered;
use crate::downstream::post::Visit;
use crate::downstream::server::{Door, Downstream};
use crate::exchange::{Endpoint, Handler};
use crate::identity::Credential;
use crate::net::{Frame, LineReader};
use crate::session::{Session, StreamGuard};
use crate::wire::jsonrpc::trimmed;

use super::call::{Call, InFlight, log_access};
use super::writer::{self, Lines};

/// How many batches may be in flight; each holds up to 64 requests.
const BATCHES_MAX: usize = 16;

/// Who is at the other end of the pipes; it stays the same to the end.
#[derive(Clone, Debug)]
pub struct PipeClient {
    /// What it is known by.
    pub credential: Credential,
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

/// A conversation.
pub(super) struct Talk<H> {
    pub(super) door: Arc<Door<H>>,
    pub(super) client: PipeClient,
    pub(super) lines: Lines,
    pub(super) in_flight: InFlight,
    pub(super) session: Option<Open>,
    /// The input has ended.
    pub(super) over: CancellationToken,
    /// Bounds the batches in flight, whose requests are not in the table.
    pub(super) batches: Arc<Semaphore>,
    calls: TaskTracker,
}

/// The legacy session of the pipe.
pub(super) struct Open {
    pub(super) session: Arc<Session>,
    /// Keeps it from being idle until its client listens.
    pub(super) awake: Option<StreamGuard>,
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
        let (lines, writer) = writer::queue(output);
        let (written, broken) = (CancellationToken::new(), CancellationToken::new());
        door.tasks.spawn("stdio write", writer.run(written.clone(), broken.clone()));
        let reader = LineReader::patient(input, door.settings.body_bytes_max);
        let mut talk = Talk {
            door,
            client,
            lines,
            in_flight: InFlight::default(),
            session: None,
            over: CancellationToken::new(),
            batches: Arc::new(Semaphore::new(BATCHES_MAX)),
            calls: TaskTracker::new(),
        };
        let parted = tokio::select! {
            biased;
            () = terms.cut.cancelled() => Parted::Cut,
            () = broken.cancelled() => Parted::Broken,
            parted = talk.run(reader, terms.grace, &written) => parted,
        };
        talk.end();
        parted
    }
}

// === impl Talk ===

impl<H: Handler> Talk<H> {
    async fn run<R: AsyncRead + Unpin>(
        &mut self,
        reader: LineReader<R>,
        grace: Duration,
        written: &CancellationToken,
    ) -> Parted {
        self.read(reader).await;
        self.over.cancel();
        self.calls.close();
        // The writer ends when the last who could say something has gone.
        self.lines.close();
        let rest = async {
            self.calls.wait().await;
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
            self.lines.room().await;
            let frame = tokio::select! {
                biased;
                () = self.door.drain.started() => return,
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

    /// Says an answer that is known at once.
    pub(super) async fn say(&self, visit: &Visit<H::Caller>, rendered: Rendered) {
        log_access(self.door.settings.access, &visit.principal, visit.method, &rendered);
        self.lines.say(rendered.parts, Vec::new()).await;
    }

    /// Lets a call run beside the others.
    pub(super) fn start(&self, call: Call) {
        self.spawn(call.run(self.lines.clone(), self.door.settings.access));
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.door.tasks.spawn("stdio call", self.calls.track_future(work));
    }

    /// Ends what is still in flight.
    fn end(self) {
        self.in_flight.cancel_all();
        if let Some(open) = self.session {
            self.door.sessions.remove(&open.session);
        }
    }
}
