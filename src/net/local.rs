//! Local sockets: a file that only its owner may connect to, gone when nobody listens [AUT-1].
//!
//! Invariants: at no moment may another user connect; a socket that somebody listens on, and a file that is none, are
//! never taken away.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::listen::BACKLOG;

/// What the owner may do, and nobody else.
const MODE: u32 = 0o600;

/// A bound local socket.
#[derive(Debug)]
pub(super) struct LocalListener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and number of the file, so that no other of the same name is taken away.
    file: (u64, u64),
}

impl LocalListener {
    /// Binds; needs a runtime.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        clear(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no folder {}", folder.display())));
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Before it listens nobody can connect, so that the mode is in place in time.
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        let facts = fs::symlink_metadata(path)?;
        let socket = UnixListener::from_std(socket.into())?;
        Ok(Self { socket, path: path.to_owned(), file: (facts.dev(), facts.ino()) })
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.socket.accept().await?.0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|facts| (facts.dev(), facts.ino()) == self.file);
        if ours && let Err(err) = fs::remove_file(&self.path) {
            tracing::warn!(%err, path = %self.path.display(), "the local socket cannot be removed");
        }
    }
}

/// Takes away a socket that nobody listens on.
fn clear(path: &Path) -> io::Result<()> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(err) => return Err(err),
    };
    if !facts.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of that name that is no socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Whoever listens may be too busy to accept: that is an answer too, and nothing to wait for.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(err) if err.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(err) if err.kind() != io::ErrorKind::WouldBlock => Err(err),
        Ok(()) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::super::scratch::Scratch;
    use super::LocalListener;

    #[tokio::test]
    async fn the_file_is_the_owners_alone_and_goes_with_the_listener() {
        let folder = Scratch::new();
        let path = folder.join("a.sock");
        let listener = LocalListener::bind(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let err = LocalListener::bind(&path).unwrap_err();
        assert_eq!(err.kind(), std::io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
    }

    /// A listener that does not accept is one.
    #[tokio::test]
    async fn a_full_queue_is_not_waited_for() {
        let folder = Scratch::new();
        let path = folder.join("c.sock");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            let full = client.connect(&SockAddr::unix(&path).unwrap()).is_err();
            waiting.push(client);
            if full {
                break;
            }
        }
        let err = LocalListener::bind(&path).unwrap_err();
        assert_eq!(err.kind(), std::io::ErrorKind::AddrInUse, "{err}");
    }

    #[tokio::test]
    async fn only_what_nobody_listens_on_is_replaced() {
        let folder = Scratch::new();
        let path = folder.join("b.sock");
        // A standard listener leaves its file behind, as a process does that was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = LocalListener::bind(&path).unwrap();
        // One that has been replaced behind our back is not ours to remove.
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).unwrap();

        let nowhere = LocalListener::bind(&folder.join("none/b.sock")).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"), "{nowhere}");
        fs::write(&path, "precious").unwrap();
        assert!(LocalListener::bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
