//! This process among others: who started it, and a standard output that one alone can write to.
//!
//! Not for: children (`upstream::stdio`).

use std::fs::File as StdFile;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::fs::File;

/// How often the parent is looked for.
const PARENT_PAUSE: Duration = Duration::from_millis(500);

/// Waits until the process that started this one is gone. Its pipes may outlive it in other hands, so their end does not
/// tell; the kernel's own signal for it tells of the thread that started us, which may end long before its process.
pub async fn orphaned() {
    let parent = rustix::process::getppid();
    let mut ticks = tokio::time::interval(PARENT_PAUSE);
    while rustix::process::getppid() == parent {
        ticks.tick().await;
    }
}

/// Takes the standard output away from everybody else in this process: what they write there goes to standard error.
///
/// # Errors
/// No descriptor is left.
pub fn take_stdout() -> io::Result<File> {
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from_std(StdFile::from(own)))
}
