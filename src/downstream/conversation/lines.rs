//! Messages out: a short queue, whose end the carrier writes to its client.
//!
//! Invariants: a reply's guards live until its message is written; when the queue is full, whoever has something to say
//! waits.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

/// The way to the queue. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::downstream) struct Lines {
    queue: mpsc::Sender<Line>,
    room: Option<Arc<Room>>,
}

/// The end of the queue.
pub(in crate::downstream) type Queue = mpsc::Receiver<Line>;

/// How many bytes may wait.
#[derive(Debug)]
struct Room {
    bytes: Arc<Semaphore>,
    bytes_max: u32,
}

/// One message in parts.
pub(in crate::downstream) struct Line {
    /// Its JSON text.
    pub(in crate::downstream) parts: Vec<Bytes>,
    /// Held until it is written.
    pub(in crate::downstream) guards: Vec<Box<dyn Send>>,
}

/// Makes a queue for so many messages, and its end.
pub(in crate::downstream) fn queue(messages_max: usize) -> (Lines, Queue) {
    let (queue, end) = mpsc::channel(messages_max);
    (Lines { queue, room: None }, end)
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({} parts, {} guards)", self.parts.len(), self.guards.len())
    }
}

// === impl Lines ===

impl Lines {
    /// Bounds the bytes that wait too; a message larger than the bound waits until it is alone.
    pub(in crate::downstream) fn bounded(self, bytes_max: u32) -> Self {
        let bytes = Arc::new(Semaphore::new(usize::try_from(bytes_max).unwrap_or(Semaphore::MAX_PERMITS)));
        Self { room: Some(Arc::new(Room { bytes, bytes_max })), ..self }
    }

    /// Waits for room and queues a message with what is held until it is written.
    pub(in crate::downstream) async fn say(&self, parts: Vec<Bytes>, mut guards: Vec<Box<dyn Send>>) {
        if let Some(room) = &self.room {
            guards.extend(room.take(&parts).await);
        }
        if self.queue.send(Line { parts, guards }).await.is_err() {
            tracing::debug!("an answer has nobody to go to");
        }
    }

    /// Waits until the queue has room: behind everybody who has something to say already.
    pub(in crate::downstream) async fn room(&self) {
        if let Some(room) = &self.room {
            // It is never closed.
            let _some = room.bytes.acquire().await.is_ok();
        }
        // A queue without an end takes nothing; the conversation is over then.
        let _room = self.queue.reserve().await.is_ok();
    }

    /// Gives up the right to say anything; the queue ends when the last who has it is gone.
    pub(in crate::downstream) fn close(&mut self) {
        self.queue = mpsc::channel(1).0;
        self.room = None;
    }
}

// === impl Room ===

impl Room {
    async fn take(&self, parts: &[Bytes]) -> Option<Box<dyn Send>> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_max);
        let taken = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()?;
        Some(Box::new(taken))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::queue;

    fn message(bytes: usize) -> Vec<Bytes> {
        vec![Bytes::from(vec![b'x'; bytes])]
    }

    /// [LIM-6]: what waits is bounded in number and in bytes; a larger message waits until it is alone.
    #[test]
    fn what_waits_is_bounded_in_number_and_bytes() {
        let (lines, mut end) = queue(3);
        let lines = lines.bounded(10);
        assert!(lines.say(message(4), Vec::new()).now_or_never().is_some());
        assert!(lines.say(message(6), Vec::new()).now_or_never().is_some());
        assert!(lines.say(message(1), Vec::new()).now_or_never().is_none() && lines.room().now_or_never().is_none());
        drop(end.try_recv().unwrap());
        assert!(lines.room().now_or_never().is_some());
        let mut large = Box::pin(lines.say(message(50), Vec::new()));
        assert!(large.as_mut().now_or_never().is_none());
        drop(end.try_recv().unwrap());
        assert!(large.now_or_never().is_some());
        drop(end.try_recv().unwrap());
        for _ in 0..3 {
            assert!(lines.say(message(1), Vec::new()).now_or_never().is_some());
        }
        assert!(lines.say(message(1), Vec::new()).now_or_never().is_none() && lines.room().now_or_never().is_none());
        drop(end);
        assert!(lines.say(message(50), Vec::new()).now_or_never().is_some(), "nobody waits for who has gone");
    }
}
