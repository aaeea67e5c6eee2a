//! Bytes that arrive in pieces, for tests of whoever reads them.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// A pipe whose peer writes pieces and closes it.
#[derive(Debug)]
pub(crate) struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    /// Cuts bytes into pieces of these lengths; the last piece is what is left.
    pub(crate) fn new(bytes: &[u8], lengths: impl IntoIterator<Item = usize>) -> Self {
        let (mut pieces, mut rest) = (VecDeque::new(), bytes);
        for length in lengths {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            pieces.push_back(piece.to_vec());
            rest = after;
        }
        pieces.push_back(rest.to_vec());
        pieces.retain(|piece| !piece.is_empty());
        Self(pieces)
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(piece) = self.0.front_mut() {
            let taken = piece.len().min(buffer.remaining());
            buffer.put_slice(&piece[..taken]);
            piece.drain(..taken);
            if piece.is_empty() {
                self.0.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}
