//! What the log says of a refusal.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::downstream::answer::log_refusal;
use crate::downstream::respond::Fault;
use crate::id::PrincipalId;
use crate::wire::json;

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// [OPS-4]: each key of a line in JSON stands once, or its reader takes one of two values.
#[test]
fn a_refusals_line_has_each_key_once() {
    let paper = Paper::default();
    let writer = paper.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    let alice = PrincipalId::new("alice");
    tracing::subscriber::with_default(subscriber, || {
        log_refusal(&Fault::SessionUnknown.into(), Some(&alice), "tools/call");
    });
    let line = paper.0.lock().unwrap().clone();
    let fields = json::members(&line).unwrap().get("fields").unwrap().unwrap();
    let fields = json::members(fields.get()).unwrap();
    let keys: Vec<_> = fields.iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
    assert_eq!(fields.get("rpc_code").unwrap().unwrap().get(), b"-32600");
    assert!(fields.get("code").unwrap().unwrap().get().starts_with(b"\"P"));
}
