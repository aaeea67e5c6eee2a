//! Lines out: a short queue, and the one task that writes.
//!
//! Invariants: a line is written whole or is the last; a reply's guards live until its line is written; when the queue
//! is full, whoever has something to say waits.

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wire::jsonrpc::one_line;

/// How many lines wait to be written.
pub(super) const LINES_MAX: usize = 16;
/// Short lines that wait are written together, up to so many bytes; a longer one is not copied.
const TOGETHER_MAX: usize = 64 * 1024;

/// The way to the queue. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Lines(mpsc::Sender<Line>);

/// The end of the queue.
#[derive(Debug)]
pub(super) struct Writer<W> {
    out: W,
    queue: mpsc::Receiver<Line>,
    buffer: Vec<u8>,
}

/// One message in parts, without its newline.
struct Line {
    parts: Vec<Bytes>,
    guards: Vec<Box<dyn Send>>,
}

/// Makes a queue and its end.
pub(super) fn queue<W>(out: W) -> (Lines, Writer<W>) {
    let (sender, queue) = mpsc::channel(LINES_MAX);
    (Lines(sender), Writer { out, queue, buffer: Vec::new() })
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({} parts, {} guards)", self.parts.len(), self.guards.len())
    }
}

// === impl Lines ===

impl Lines {
    /// Waits for room and queues a message with what is held until it is written.
    pub(super) async fn say(&self, parts: Vec<Bytes>, guards: Vec<Box<dyn Send>>) {
        if self.0.send(Line { parts, guards }).await.is_err() {
            tracing::debug!("an answer has nobody to go to");
        }
    }

    /// Waits until the queue has room: behind everybody who has something to say already.
    pub(super) async fn room(&self) {
        // A queue without an end takes nothing; the conversation is over then.
        let _room = self.0.reserve().await.is_ok();
    }

    /// Gives up the right to say anything; the writer ends when the last who has it is gone.
    pub(super) fn close(&mut self) {
        self.0 = mpsc::channel(1).0;
    }
}

// === impl Writer ===

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes until nobody can say anything more. `written` is cancelled at the end, `broken` if the pipe takes no more.
    pub(super) async fn run(mut self, written: CancellationToken, broken: CancellationToken) {
        let _written = written.drop_guard();
        while let Some(line) = self.queue.recv().await {
            if let Err(err) = self.write(line).await {
                tracing::debug!(%err, "the client takes no more output");
                broken.cancel();
                return;
            }
        }
    }

    async fn write(&mut self, line: Line) -> std::io::Result<()> {
        let mut guards = vec![line.guards];
        self.put(line.parts).await?;
        while self.buffer.len() < TOGETHER_MAX {
            let Ok(line) = self.queue.try_recv() else { break };
            guards.push(line.guards);
            self.put(line.parts).await?;
        }
        self.out.write_all(&self.buffer).await?;
        self.buffer.clear();
        self.out.flush().await
    }

    async fn put(&mut self, parts: Vec<Bytes>) -> std::io::Result<()> {
        for part in parts {
            let part = one_line(part);
            if part.len() < TOGETHER_MAX {
                self.buffer.extend_from_slice(&part);
            } else {
                self.out.write_all(&self.buffer).await?;
                self.buffer.clear();
                self.out.write_all(&part).await?;
            }
        }
        self.buffer.push(b'\n');
        Ok(())
    }
}
