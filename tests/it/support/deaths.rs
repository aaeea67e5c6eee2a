//! Servers of which each dies once, at another byte of one of its answers: children of a few lines of shell, and servers over
//! HTTP, which close a connection.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::hostile::Framing;
use super::hostile_http::Http;
use super::process::{folder, lives};
use super::{Era, quoted};

/// Answers what it must. Dies when it has written so many bytes (its first argument) of its first answer to a method (its
/// fourth), unless the file of its fifth is there; there it notes down how many there are in all, and beside it its process.
const SCRIPT: &str = r#"at=$1; head=$2; era=$3; dies=$4; died=$5
echo $$ >>"$died.pids"
says() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}; r=
  case $line in
    *'"method":"tools/call"'*) r=$head'"content":[]';;
    *'"method":"tools/list"'*) r=$head'"tools":[{"name":"attack","inputSchema":{"type":"object"}}]';;
    *'"method":"initialize"'*)
      [ "$era" = legacy ] && r='"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"d","version":"1"}';;
    *'"method":"server/discover"'*)
      [ "$era" = stateless ] && r=$head'"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}';;
    *'"id":'*) ;;
    *) continue;;
  esac
  if [ -z "$r" ]; then
    printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"
    continue
  fi
  case $line in
    *"\"method\":\"$dies\""*) if ! [ -e "$died" ]; then says "$r" | wc -c >"$died"; says "$r" | head -c "$at"; exit 0; fi;;
  esac
  says "$r"
done
"#;

/// What stands before a stateless result.
const HEAD: &str = r#""resultType":"complete","ttlMs":0,"cacheScope":"public","#;

/// The answer at which servers die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Handshake,
    List,
    Call,
}

/// Servers of one kind.
pub(crate) struct Deaths {
    framing: Framing,
    era: Era,
    at: At,
    /// The bytes after which they die.
    bytes: Vec<usize>,
    folder: PathBuf,
    http: Vec<Http>,
}

impl At {
    fn method(self, era: Era) -> &'static str {
        match (self, era) {
            (Self::Handshake, Era::Legacy) => "initialize",
            (Self::Handshake, Era::Stateless) => "server/discover",
            (Self::List, _) => "tools/list",
            (Self::Call, _) => "tools/call",
        }
    }
}

/// More bytes than there are in any of the answers.
const fn bytes(framing: Framing) -> usize {
    match framing {
        Framing::Line => 176,
        Framing::Events => 192,
        Framing::Json | Framing::Sse => 288,
    }
}

impl Deaths {
    /// Children that die at a call, one for each byte of the answer, the last with all of it.
    pub(crate) fn of_children(era: Era) -> Self {
        let head = if era == Era::Stateless { HEAD } else { "" };
        // Ids are of one digit, where only so few requests come before.
        let length = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{{head}\"content\":[]}}}}\n").len();
        Self::at(Framing::Line, era, At::Call, (0..=length).collect())
    }

    fn at(framing: Framing, era: Era, at: At, bytes: Vec<usize>) -> Self {
        let folder = folder();
        std::fs::write(folder.join("dies"), SCRIPT).unwrap();
        Self { framing, era, at, bytes, folder, http: Vec::new() }
    }

    /// One for each of every `parts` bytes of any answer, from that one on; those behind its end die with all of it. They do not
    /// die before [`Deaths::begin`].
    pub(crate) async fn start(framing: Framing, era: Era, at: At, (part, parts): (usize, usize)) -> Self {
        let mut deaths = Self::at(framing, era, at, (part..bytes(framing)).step_by(parts).collect());
        if framing != Framing::Line {
            for _ in &deaths.bytes {
                deaths.http.push(Http::start(framing, era).await);
            }
        }
        deaths.bytes.iter().for_each(|at| std::fs::write(deaths.file(*at), "").unwrap());
        deaths
    }

    fn file(&self, at: usize) -> PathBuf {
        self.folder.join(format!("died-{at}"))
    }

    /// From now on each dies, once.
    pub(crate) fn begin(&self) {
        self.bytes.iter().for_each(|at| std::fs::remove_file(self.file(*at)).unwrap());
        for (http, at) in self.http.iter().zip(&self.bytes) {
            http.dies(self.at.method(self.era), *at);
        }
    }

    /// How many are yet to die.
    pub(crate) fn left(&self) -> usize {
        if self.framing == Framing::Line {
            self.bytes.iter().filter(|at| !self.file(**at).exists()).count()
        } else {
            self.http.iter().filter(|http| http.is_to_die()).count()
        }
    }

    /// Says whether the last of them has died with all of its answer: then there was one for each byte.
    pub(crate) fn have_said_all(&self) -> bool {
        let last = *self.bytes.last().unwrap();
        let whole = match self.http.last() {
            Some(http) => http.state.cut.load(Ordering::SeqCst),
            None => std::fs::read_to_string(self.file(last)).unwrap().trim().parse().unwrap(),
        };
        0 < whole && whole <= last
    }

    /// How many of their processes live.
    pub(crate) fn living(&self) -> usize {
        let pids = self.bytes.iter().map(|at| {
            let pids = std::fs::read_to_string(self.file(*at).with_extension("pids")).unwrap_or_default();
            pids.lines().filter(|pid| lives(pid.parse().unwrap())).count()
        });
        pids.sum()
    }

    /// Their names and tables.
    pub(crate) fn servers(&self) -> Vec<(String, String)> {
        let head = if self.era == Era::Stateless { HEAD } else { "" };
        let script = self.folder.join("dies").display().to_string();
        let lines = |(place, at): (usize, &usize)| {
            let lines = match self.http.get(place) {
                Some(http) => format!("url = \"http://{}/mcp\"", http.addr),
                None => {
                    let (at, died) = (at.to_string(), self.file(*at).display().to_string());
                    let args = [&script, &at, head, self.era.word(), self.at.method(self.era), &died].map(quoted);
                    format!("command = \"sh\"\nargs = [{}]", args.join(", "))
                }
            };
            (format!("d{at}"), lines)
        };
        self.bytes.iter().enumerate().map(lines).collect()
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}
