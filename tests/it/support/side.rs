//! The client's end of HTTP+SSE (2024-11-05): one stream on which everything comes.

use std::sync::{Arc, Mutex};

use portcullis::runtime::Tasks;
use tokio::sync::watch;

use super::wire::{Head, Wire, raw, take_events};

/// An open stream; it is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Side {
    /// Where messages are posted.
    pub(crate) to: String,
    said: Arc<Said>,
    tasks: Tasks,
}

/// What has come so far.
#[derive(Debug)]
struct Said {
    messages: Mutex<Vec<String>>,
    /// How many messages there are, and whether the stream has ended.
    state: watch::Sender<(usize, bool)>,
}

/// Reads what comes from some moment on.
pub(crate) struct Reading {
    said: Arc<Said>,
    at: usize,
    /// The request whose answer is the last of it; without one no answer is in it.
    until: Option<String>,
    over: bool,
}

impl Side {
    /// Takes a stream over whose head has been read.
    pub(crate) async fn of(mut wire: Wire, head: &Head) -> Self {
        assert!(head.line.contains(" 200 "), "{head:?}");
        let mut rest = head.rest(false);
        let mut text = String::new();
        let to = loop {
            text.push_str(&String::from_utf8(wire.part(&mut rest).await.expect("no endpoint")).unwrap());
            assert!("event: endpoint\n".starts_with(text.get(..16).unwrap_or(&text)), "{text}");
            if let Some(to) = take_events(&mut text).into_iter().next() {
                break to;
            }
        };
        let (state, _) = watch::channel((0, false));
        let said = Arc::new(Said { messages: Mutex::default(), state });
        let (tasks, told) = (Tasks::new(), Arc::clone(&said));
        tasks.spawn("read a stream", async move {
            while let Some(part) = wire.part(&mut rest).await {
                text.push_str(&String::from_utf8(part).unwrap());
                let mut messages = told.messages.lock().unwrap();
                messages.extend(take_events(&mut text));
                let count = messages.len();
                drop(messages);
                told.state.send_replace((count, false));
            }
            told.state.send_modify(|state| state.1 = true);
        });
        Self { to, said, tasks }
    }

    /// Reads from here on, to the answer of a request, or without end.
    pub(crate) fn reading(&self, until: Option<String>) -> Reading {
        let at = self.said.messages.lock().unwrap().len();
        Reading { said: Arc::clone(&self.said), at, until, over: false }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Reading {
    /// Waits for the next message; `None` after the answer, or at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<String> {
        while !self.over {
            let mut state = self.said.state.subscribe();
            let at = self.at;
            let (count, _) = *state.wait_for(|(count, over)| *count > at || *over).await.ok()?;
            if count <= at {
                return None;
            }
            self.at += 1;
            let message = self.said.messages.lock().unwrap()[at].clone();
            if raw(&message, "method").is_some() {
                return Some(message);
            }
            if self.until.is_some() && raw(&message, "id") == self.until {
                self.over = true;
                return Some(message);
            }
        }
        None
    }

    /// Reads to the end.
    pub(crate) async fn all(mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }
}
