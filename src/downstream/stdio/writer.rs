//! Lines out: the one task that writes what a conversation says.
//!
//! Invariant: a line is written whole or is the last.

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::downstream::conversation::{Line, Queue};
use crate::wire::jsonrpc::one_line;

/// Short lines that wait are written together, up to so many bytes; a longer one is not copied.
const TOGETHER_MAX: usize = 64 * 1024;

/// The end of the queue.
#[derive(Debug)]
pub(super) struct Writer<W> {
    out: W,
    queue: Queue,
    buffer: Vec<u8>,
}

// === impl Writer ===

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes there what comes here.
    pub(super) const fn new(out: W, queue: Queue) -> Self {
        Self { out, queue, buffer: Vec::new() }
    }

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
