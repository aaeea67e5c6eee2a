//! Children of a few lines of shell, of which each dies at another byte of its answer.

use std::path::PathBuf;

use super::process::folder;
use super::{Era, quoted};

/// Answers what it must, and to a call so many bytes, which are its first argument; the answer is its second.
const SCRIPT: &str = r#"while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"method":"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{%s"content":[]}}\n' "$id" "$2" | head -c "$1"; exit 0;;
    *'"id":'*)
      if [ "$3" = legacy ]; then
        case $line in
          *'"method":"initialize"'*) r='"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"d","version":"1"}';;
          *'"method":"tools/list"'*) r='"tools":[{"name":"attack","inputSchema":{"type":"object"}}]';;
          *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"; continue;;
        esac
      else
        case $line in
          *'"method":"server/discover"'*) r='"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}';;
          *'"method":"tools/list"'*) r='"tools":[{"name":"attack","inputSchema":{"type":"object"}}]';;
          *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"; continue;;
        esac
        r="$2$r"
      fi
      printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$r";;
  esac
done
"#;

/// What stands before a stateless result.
const HEAD: &str = r#""resultType":"complete","ttlMs":0,"cacheScope":"public","#;

/// The children of one era.
pub(crate) struct Deaths {
    era: Era,
    folder: PathBuf,
}

impl Deaths {
    /// Writes the script.
    pub(crate) fn new(era: Era) -> Self {
        let folder = folder();
        std::fs::write(folder.join("dies"), SCRIPT).unwrap();
        Self { era, folder }
    }

    /// A server for each byte of the answer, the last with all of it.
    pub(crate) fn servers(&self) -> Vec<(String, String)> {
        let head = if self.era == Era::Stateless { HEAD } else { "" };
        // Ids are of one digit, where only so few requests come before.
        let length = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{{head}\"content\":[]}}}}\n").len();
        let script = self.folder.join("dies").display().to_string();
        let server = |at: usize| {
            let args =
                [script.clone(), at.to_string(), head.to_owned(), self.era.word().to_owned()].map(|arg| quoted(&arg));
            (format!("d{at}"), format!("command = \"sh\"\nargs = [{}]", args.join(", ")))
        };
        (0..=length).map(server).collect()
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}
