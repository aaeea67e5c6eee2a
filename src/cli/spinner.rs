//! A sign of life on long work, on a terminal alone [OPS-1].

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::output::line;

const FIRST: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(120);
const SIGNS: [char; 4] = ['|', '/', '-', '\\'];

/// What the work is doing now. Clones share the words.
#[derive(Clone, Debug)]
pub(super) struct Label(Arc<Mutex<String>>);

impl Label {
    pub(super) fn new(words: &str) -> Self {
        Self(Arc::new(Mutex::new(line(words))))
    }

    /// Changes the words.
    pub(super) fn set(&self, words: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = line(words);
    }

    /// Waits for some work and shows that it goes on.
    pub(super) async fn spin<T>(&self, work: impl Future<Output = T>) -> T {
        if !std::io::stderr().is_terminal() {
            return work.await;
        }
        let mut work = std::pin::pin!(work);
        let mut pause = FIRST;
        let mut signs = SIGNS.iter().cycle();
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    if pause == EVERY {
                        draw("\r\u{1b}[K");
                    }
                    return done;
                }
                () = tokio::time::sleep(pause) => {
                    pause = EVERY;
                    let words = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    draw(&format!("\r\u{1b}[K{} {words}", signs.next().unwrap_or(&'|')));
                }
            }
        }
    }
}

fn draw(text: &str) {
    let mut stderr = std::io::stderr();
    // A terminal that has gone is no reason to fail.
    let _drawn = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).is_ok();
}
