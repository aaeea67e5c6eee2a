//! MCP's words: versions, methods, headers, `_meta`, what servers list and what calls name.
//!
//! Not for: carrying payloads as types. Only what is routed on, checked or rewritten is read.

mod base64;
mod capability;
mod content;
mod definition;
mod features;
mod header;
mod input;
mod inventory;
mod kind;
mod level;
mod log;
mod meta;
mod method;
mod params;
mod trace;
mod version;

pub use base64::{Base64, Base64Error};
pub use capability::Capabilities;
pub use content::{Block, BlockKind, Field, LinkFacts, audio_words, blocks, text_block, well_formed_mime};
pub use definition::{Definition, DefinitionError, HeaderParam, ParamValue};
pub use features::{Feature, Features};
pub use header::{HeaderError, decode_value, encode_value, name};
pub use input::{InputKind, Unasked, is_url};
pub use inventory::{Carrier, uris};
pub use kind::{Kind, Kinds};
pub use level::Level;
pub use log::LogMessage;
pub use meta::{
    CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, MetaError, MetaParts, PROGRESS_TOKEN_KEY, RESERVED_PREFIX,
    RequestMeta, SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY, VERSION_KEY,
};
pub use method::{Content, Direction, Method, MethodSpec, Target};
pub use params::{CallParams, ParamsError};
pub use trace::{TRACE_KEYS, Trace};
pub use version::{Era, LEGACY_LATEST, ProtocolVersion, STATELESS_LATEST};
