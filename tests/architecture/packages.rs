//! What each direct dependency is for, and what was considered instead.
//!
//! Not for versions (Cargo.toml) and not for advisories.
//!
//! Invariants: the list and the manifest name the same packages; a package enters with its first use.

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) instead: &'static str,
}

const fn package(name: &'static str, why: &'static str, instead: &'static str) -> Package {
    Package { name, why, instead }
}

pub(crate) const PACKAGES: &[Package] = &[
    package(
        "annotate-snippets",
        "shows a configuration error in its line, as the compiler does, from byte spans",
        "miette and ariadne bring more crates; by hand gets tabs and wide characters wrong",
    ),
    package(
        "arc-swap",
        "wait-free read of the snapshot once per exchange",
        "tokio's watch and RwLock put one lock on every call",
    ),
    package(
        "aws-lc-rs",
        "SHA-256, AEAD, randomness and constant-time compare from one audited provider, TLS included",
        "ring has no release since March 2025; sha2, hmac, subtle and getrandom are four crates for the same",
    ),
    package(
        "base64",
        "session ids, sealed cursors and the header sentinel of 2026-07-28",
        "data-encoding is no smaller; by hand is a place for mistakes with padding",
    ),
    package("bytes", "shares one body between splices without a copy; hyper's own type", "Arc<[u8]> cannot be sliced"),
    package(
        "clap",
        "verbs, help and usage errors of the command line",
        "lexopt and bpaf: help text and completions for twenty verbs would be ours to write",
    ),
    package(
        "clap_complete",
        "completion scripts of five shells from clap's own definition; by clap's authors",
        "by hand: a script per shell that ages with every verb",
    ),
    package(
        "dashmap",
        "sharded maps of sessions and calls in flight, behind copy-out access only",
        "papaya replaces whole values; Mutex<HashMap> is one lock for all calls",
    ),
    package(
        "eventsource-stream",
        "assembles SSE events of several lines, behind our splitter in one file",
        "fixed by the project's owner; sse-stream has no size limit and drops comments",
    ),
    package(
        "foldhash",
        "hashes names and ids in maps with a seed of their own; what hashbrown itself uses",
        "std's SipHash costs a call 1,500 instructions more; keys of secrets stay with it",
    ),
    package("futures-core", "the Stream trait that a Reply implements", "std has no stable asynchronous iterator"),
    package(
        "futures-util",
        "combinators over streams and futures without a macro",
        "futures-lite covers less; by hand would be pinning code in many places",
    ),
    package(
        "governor",
        "the generic cell rate algorithm behind our clock and our bounded map of keys",
        "by hand: forty lines of the same arithmetic, without its users",
    ),
    package("http", "methods, status codes, header names and URIs, shared with hyper", "strings: nothing checks them"),
    package("http-body", "the Body trait that our answers implement", "hyper takes no other"),
    package("http-body-util", "byte caps and collection of bodies", "an own Body adapter for each of the same cases"),
    package(
        "hyper",
        "HTTP/1.1 and HTTP/2 downstream, with limits on headers and time",
        "axum and reqwest hide what a proxy must control; pingora is a runtime of its own",
    ),
    package("hyper-util", "hyper's adapters to tokio's sockets and timers", "an own adapter is the same forty lines"),
    package(
        "httparse",
        "reads the head of a response; hyper's own parser",
        "hyper's and hyper-util's clients cost a call 10,000 instructions more (ARCHITECTURE.md, decision 20)",
    ),
    package(
        "jsonc-parser",
        "the byte range of every member of a client's JSON with comments; our edits are splices of those ranges",
        "its own editor re-writes layout; json5 reads what no client writes; by hand: comments, escapes and depth again",
    ),
    package("memchr", "finds line ends and markers at memory speed", "a byte loop is an order of magnitude slower"),
    package(
        "rustix",
        "signals to a child's whole process group, the kernel's randomness, and a standard output of our own, without unsafe code",
        "nix is larger; libc would need unsafe blocks, which the lints forbid",
    ),
    package(
        "rustls",
        "TLS 1.2 and 1.3 on both sides, over aws-lc-rs, in net/tls alone",
        "native-tls and openssl: C code that parses what strangers send; another behaviour on each system",
    ),
    package(
        "rustls-native-certs",
        "the certificate authorities of the machine, also as SSL_CERT_FILE names them",
        "rustls-platform-verifier takes no authority of a server's own beside them",
    ),
    package(
        "rustls-pemfile",
        "certificates and keys out of PEM text, in one file, where its errors end",
        "fixed by the project's owner; it is archived, and pki-types' own reader is the way out",
    ),
    package(
        "serde",
        "derives readers of the configuration and of the fields we route on",
        "by hand: errors lose their key",
    ),
    package(
        "serde_json",
        "reads what is small and rare whole: error objects, schemas, facts of a handshake; the scanner is compared with it",
        "sonic-rs and simd-json keep bytes no better and are full of unsafe code",
    ),
    package(
        "smallvec",
        "short lists of edits and body parts without an allocation",
        "Vec: one more allocation per call",
    ),
    package("socket2", "backlog, v6-only and keep-alive on listeners", "tokio's TcpSocket cannot set all of them"),
    package(
        "strsim",
        "the nearest valid key in an error text; already below clap",
        "edit distance by hand, for no gain",
    ),
    package(
        "thiserror",
        "Display and source of error enums",
        "by hand: the same code, longer; anyhow hides the variants",
    ),
    package(
        "tokio",
        "runtime, sockets, processes, signals, timers; test-util turns its clock in tests",
        "smol: hyper and everything around it is at home on tokio",
    ),
    package(
        "tokio-rustls",
        "rustls over tokio's sockets, with the first message read apart from the handshake",
        "by hand: a state machine around partial reads and writes",
    ),
    package(
        "tokio-util",
        "CancellationToken and TaskTracker, the two halves of a drain",
        "by hand: both are easy to get subtly wrong",
    ),
    package("toml", "the configuration, with the byte span of every value", "figment and config lose the spans"),
    package(
        "toml_edit",
        "edits of TOML that keep comments and layout: our own file for `import`, Codex's for `connect`; below toml's parser",
        "toml loses comments; by range: a table's keys stand in several places",
    ),
    package("tracing", "spans and events at the seams", "log has no spans"),
    package(
        "tracing-subscriber",
        "text or JSON logs with a filter",
        "an own subscriber: field formatting and escapes of terminal codes are done there",
    ),
    package(
        "webpki-roots",
        "Mozilla's certificate authorities, for a container that has none",
        "no TLS at all there, or a step for everybody who builds an image",
    ),
    package("zeroize", "wipes secrets on drop", "a volatile write needs unsafe code; secrecy wraps this crate"),
    package(
        "proptest",
        "property tests with shrinking: names, policies, SSE chunking, splices",
        "quickcheck shrinks worse; bolero wants its own runner",
    ),
    package(
        "rcgen",
        "makes authorities, certificates and keys for tests at run time, over aws-lc-rs",
        "the openssl command differs between machines; keys in the tree are forbidden",
    ),
    package(
        "sse-stream",
        "the oracle in the differential test of the SSE decoder",
        "a second decoder by the same hand",
    ),
];
