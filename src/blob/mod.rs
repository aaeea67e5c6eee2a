//! What of answers outlives them: attachments in files, and the rest of what was cut [LIM-3, LIM-7].
//!
//! Not for: deciding what is kept (`gateway`). Invariants: whatever is kept belongs to one principal and is given to
//! nobody else; it is told with what it came from; nothing is kept without a bound in bytes and in time; no name or path
//! comes from a server.

mod image;
mod origin;
mod range;
mod settings;
mod sheet;
mod shelf;
mod store;
mod uploads;

pub use image::{Image, extension_of, mime_of};
pub use origin::Origin;
pub use range::{BLOB_SCHEME, OVERFLOW_SCHEME, OwnUri, Range, UriError};
pub use settings::BlobSettings;
pub use sheet::Sheet;
pub use shelf::{Piece, SheetId};
pub use store::{Blobs, PartBody, ReadError, ReadPart};
pub use uploads::{PutError, Stored};
