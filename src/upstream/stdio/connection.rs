//! One child's conversation: requests out, lines in, and its orderly end.
//!
//! Not for: what a line means (`channel`), starting and ending the child (`child`) or the handshake (`handshake`).
//! Invariant: one task writes, whole lines only.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::exchange::{RejectKind, Reply};
use crate::net::{Frame, LineReader};
use crate::upstream::ServerSettings;
use crate::upstream::channel::Conversation;
use crate::upstream::link::Outgoing;
use crate::upstream::place::Place;
use crate::wire::jsonrpc::{one_line, trimmed};
use crate::wire::mcp::{Era, Features};

use super::child::Ending;
use super::output::Output;

/// How many requests wait to be written; when full, the next waits.
pub(super) const LINES_MAX: usize = 16;

/// A line to write.
#[derive(Debug)]
pub(super) struct Line {
    /// The request's id; it is not written once nobody waits for it.
    id: Option<u64>,
    text: Bytes,
}

/// The state of one connection, shared by its tasks and its callers: a conversation, and its child.
#[derive(Debug)]
pub(super) struct Connection {
    conversation: Arc<Conversation>,
    pub(super) output: Arc<Output>,
    /// Asks for an orderly end.
    pub(super) stop: CancellationToken,
    /// Asks for the end at once.
    pub(super) kill: CancellationToken,
    /// The child's stdout has ended.
    pub(super) read_end: CancellationToken,
    /// The child is dead.
    pub(super) dead: CancellationToken,
    /// The right to the child's process, while it lives.
    place: OnceLock<Weak<Place>>,
    lines: mpsc::Sender<Line>,
    reason: OnceLock<String>,
}

// === impl Connection ===

impl Deref for Connection {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl Connection {
    /// Makes a connection, and the queue its writer empties.
    pub(super) fn new(
        settings: Arc<ServerSettings>,
        output: Arc<Output>,
        features: Features,
    ) -> (Arc<Self>, mpsc::Receiver<Line>) {
        let (lines, queue) = mpsc::channel(LINES_MAX);
        let connection = Self {
            conversation: Arc::new(Conversation::new(settings, features)),
            output,
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            read_end: CancellationToken::new(),
            dead: CancellationToken::new(),
            place: OnceLock::new(),
            lines,
            reason: OnceLock::new(),
        };
        (Arc::new(connection), queue)
    }

    pub(super) const fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    /// Takes note of the child's place.
    pub(super) fn holds(&self, place: &Arc<Place>) {
        self.place.get_or_init(|| Arc::downgrade(place));
        if self.state.closed.is_cancelled() {
            place.leave();
        }
    }

    /// Takes no more requests; the child's place will be free.
    fn close(&self) {
        self.state.closed.cancel();
        if let Some(place) = self.place.get().and_then(Weak::upgrade) {
            place.leave();
        }
    }

    /// Sends a request and waits for what arrives first.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request at the server if it was sent.
    pub(super) async fn request(self: Arc<Self>, outgoing: Outgoing, era: Era) -> Reply {
        let waiting = match self.conversation.enter(outgoing.clone()) {
            Ok(waiting) => waiting,
            Err(reject) => return Reply::once(Err(reject)),
        };
        let id = waiting.id();
        let text = one_line(outgoing.render(id, era));
        drop(outgoing);
        if waiting.asks_first() {
            let sending = async move { self.send(id, text).await };
            return waiting.sent_by(Box::pin(sending)).reply(era).await;
        }
        self.send(id, text).await;
        waiting.reply(era).await
    }

    async fn send(&self, id: u64, text: Bytes) {
        // A closed queue means that the table is shut: the outcome is there, or about to be.
        if self.lines.send(Line { id: Some(id), text }).await.is_err() {
            self.table.finish(id, Err(self.reject(RejectKind::Upstream, "is not running").safe_to_retry()));
        }
    }

    /// Writes a notification of the gateway's own.
    pub(super) async fn notify(&self, text: &'static str) {
        if self.lines.send(Line { id: None, text: Bytes::from_static(text.as_bytes()) }).await.is_err() {
            tracing::debug!(server = %self.settings.name, "the child takes no more lines");
        }
    }

    /// Says why the connection is ended from here, where it is.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Begins the orderly end: what runs may finish, nothing new is taken.
    pub(super) fn stop(&self) {
        self.table.shut(&self.reject(RejectKind::Upstream, "is being stopped"));
        self.close();
        self.stop.cancel();
    }

    /// Fails what waits and begins the orderly end.
    pub(super) fn fail(&self, why: &str) {
        self.reason.get_or_init(|| why.to_owned());
        let reject = self.reject(RejectKind::Upstream, why);
        self.table.shut(&reject);
        self.table.fail_all(&reject);
        self.stop();
    }

    /// Takes note of the child's death. Only the first word counts.
    pub(super) fn died(&self, ending: Ending) {
        let mut words = format!("server '{}' {ending}", self.settings.name);
        if let Some(reason) = self.reason.get() {
            words = format!("{words} after it {reason}");
        }
        let tail = self.output.tail();
        if !tail.is_empty() {
            words = format!("{words}; last output: {tail}");
        }
        if !self.state.ended(words.clone()) {
            return;
        }
        tracing::info!(server = %self.settings.name, words, "child ended");
        let reject = self.reject(RejectKind::Upstream, &ending.to_string());
        self.table.shut(&reject);
        self.table.fail_all(&reject);
        self.stop();
        self.dead.cancel();
    }

    // --- writing ---

    /// Writes lines until the connection stops.
    pub(super) async fn write_loop(
        self: Arc<Self>,
        mut stdin: impl AsyncWrite + Unpin,
        mut queue: mpsc::Receiver<Line>,
    ) {
        loop {
            let line = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.control_ready() => None,
                line = queue.recv() => line,
            };
            let written = match line {
                Some(Line { id: Some(id), .. }) if !self.table.begin(id) => Ok(()),
                Some(line) => self.write(&mut stdin, line.text).await.inspect_err(|_| {
                    let reject = self.reject(RejectKind::Upstream, "closed its input");
                    line.id.map(|id| self.table.finish(id, Err(reject)));
                }),
                None => Ok(()),
            };
            let written = match written {
                Ok(()) => self.write_control(&mut stdin).await,
                failed @ Err(_) => failed,
            };
            if let Err(err) = written {
                tracing::debug!(server = %self.settings.name, %err, "cannot write to the child");
                self.reason.get_or_init(|| "closed its input".to_owned());
                break;
            }
        }
        // What was written may still be answered.
        self.stop();
        self.table.fail_unwritten(&self.reject(RejectKind::Upstream, self.reason().unwrap_or("is being stopped")));
    }

    async fn write_control(&self, stdin: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        while let Some(line) = self.next_control() {
            self.write(stdin, line).await?;
        }
        Ok(())
    }

    async fn write(&self, stdin: &mut (impl AsyncWrite + Unpin), text: Bytes) -> std::io::Result<()> {
        let mut line = text.chain(&b"\n"[..]);
        tokio::select! {
            biased;
            // The child will see the end of its input in the middle of a line.
            () = self.stop.cancelled() => Ok(()),
            written = async { stdin.write_all_buf(&mut line).await?; stdin.flush().await } => written,
        }
    }

    // --- reading ---

    /// Reads lines until stdout ends or the child is dead.
    pub(super) async fn read_loop(self: Arc<Self>, stdout: impl AsyncRead + Unpin) {
        let mut lines = LineReader::new(stdout, self.settings.max_response_bytes);
        loop {
            let frame = tokio::select! {
                biased;
                frame = lines.next() => frame,
                () = self.dead.cancelled() => break,
            };
            match frame {
                Ok(Frame::Line(line)) => self.receive(&trimmed(line)),
                Ok(Frame::TooLong(ends)) => self.too_long(&ends),
                Ok(Frame::Endless(ends)) => {
                    self.reason.get_or_init(|| "sent a line over 4 × max_response_bytes without an end".to_owned());
                    // Before its caller hears of it: nobody else may choose a child that is about to be killed.
                    self.close();
                    self.too_long(&ends);
                    self.kill.cancel();
                    break;
                }
                Ok(Frame::End) => break,
                Err(err) => {
                    tracing::debug!(server = %self.settings.name, %err, "cannot read from the child");
                    break;
                }
            }
        }
        self.read_end.cancel();
    }
    fn receive(&self, line: &Bytes) {
        if !line.is_empty() && !self.conversation.receive(line) {
            self.output.stray(line);
        }
    }
}
