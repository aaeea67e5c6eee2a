//! Many sessions that end in every way, by chance that can be repeated: no process outlives what it belongs to, and memory comes
//! back [TRN-3, TRN-4, LIM-6].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis::runtime::Tasks;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Client, ERAS, Gateway, Piped, TestApp, folder, lives, quoted, until, within_deadline};

/// The server: a few lines of shell with a child of its own. `echo` is answered, `hold` is not.
const SCRIPT: &str = r#"sleep 3600 &
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
    *'"method":"initialize"'*) r='"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}';;
    *'"method":"tools/list"'*) r='"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"hold","inputSchema":{"type":"object"}}]';;
    *'"name":"hold"'*) continue;;
    *'"method":"tools/call"'*) r='"content":[]';;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"; continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$r"
done
"#;

/// Principals of the gateway that serves many; each has a child of its own.
const PRINCIPALS: usize = 8;
/// Sessions that go on at once.
const TOGETHER: usize = 4;
/// How long a session of the gateway for many outlives its client: longer than a client of a busy machine pauses.
const SESSION_IDLE_SECS: u64 = 5;
/// Sessions before memory is measured for the first time: by then everything has been used once.
const WARM_UP: usize = 40;

/// Chance that can be repeated (Steele and others, "Fast splittable pseudorandom number generators", 2014).
struct Chance(AtomicU64);

impl Chance {
    fn below(&self, end: u64) -> u64 {
        let mut bits = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }
}

/// Where sessions are held.
struct Soak {
    chance: Chance,
    mark: String,
    folder: PathBuf,
    tasks: Tasks,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let soak = Self {
            chance: Chance(AtomicU64::new(seed)),
            mark: format!("{}-{seed}", std::process::id()),
            folder: folder(),
            tasks: Tasks::new(),
        };
        std::fs::write(soak.folder.join("server"), SCRIPT).unwrap();
        soak
    }

    fn lines(&self) -> String {
        let script = quoted(&self.folder.join("server").display().to_string());
        format!("tool_timeout_secs = 2\ncommand = \"sh\"\nargs = [{script}]\nenv = {{ SOAK = \"{}\" }}", self.mark)
    }

    /// A gateway for many.
    async fn gateway(&self) -> Gateway {
        let (tables, names) = TestApp::servers(&[("up", self.lines())]);
        let principals: String = (0..PRINCIPALS)
            .map(|at| format!("[principals.p{at}]\nmcp_bundles = [\"all\"]\n{}", TestApp::key(&format!("p{at}"))))
            .collect();
        let rest = format!(
            "[limits]\nsession_idle_secs = {SESSION_IDLE_SECS}\n{tables}[mcp_bundles.all]\nservers = [{names}]\n{principals}"
        );
        let started = Gateway::try_start_with("keys", "127.0.0.1:0", &rest).await;
        let mut gateway = started.unwrap_or_else(|ended| panic!("{ended:?}"));
        gateway.overhear(&self.tasks);
        gateway
    }

    /// The living processes of its servers, with their children.
    fn marked(&self) -> Vec<u32> {
        let needle = format!("SOAK={}", self.mark);
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let carries = |pid: &u32| {
            let environ = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|one| one == needle.as_bytes()) && lives(*pid)
        };
        pids.filter(carries).collect()
    }

    /// A session with the gateway of many, which ends in order, in the middle of a call, or with its server.
    async fn visits(&self, gateway: &Gateway) {
        let key = format!("p{}", self.chance.below(PRINCIPALS as u64));
        let era = ERAS[usize::try_from(self.chance.below(2)).unwrap()];
        let client = Client::connect(era, gateway.addr, "/mcp", Some(&key)).await;
        for _ in 0..self.chance.below(4) {
            // It may meet a server that somebody has just killed; then it is told so.
            let answer = client.call_with("up__echo", "{}").await;
            assert!(answer.is_result() || answer.code() == -32603, "{answer:?}");
        }
        match self.chance.below(3) {
            0 => {}
            1 => drop(client.asks("1", "up__hold", r#""arguments":{}"#).await),
            _ => {
                let held = client.asks("1", "up__hold", r#""arguments":{}"#).await;
                let all = self.marked();
                if let Some(pid) = all.get(usize::try_from(self.chance.below(all.len().max(1) as u64)).unwrap()) {
                    kill(*pid);
                }
                drop(held);
            }
        }
    }

    /// A session with a gateway of its own, which ends by its client's end, by the client's death, or by its own.
    async fn pipes(&self) {
        let configuration = Piped::configuration(&[("up", self.lines())]);
        let mut client = Piped::start(&configuration, &[]);
        let era = ERAS[usize::try_from(self.chance.below(2)).unwrap()];
        let how = self.chance.below(4);
        if how > 0 {
            client.hello(era).await;
            client.call(era, "\"e\"", "up__echo", "{}").await;
            client.answer("\"e\"").await;
            client.call(era, "\"h\"", "up__hold", "{}").await;
        }
        match how {
            0 | 1 => {
                client.signal(Signal::TERM);
                client.ended().await;
            }
            2 => {
                client.abandon().await;
            }
            _ => {
                client.signal(Signal::KILL);
                client.exited().await;
            }
        }
    }

    /// Holds so many sessions, a few at a time; one in three has a gateway of its own.
    async fn sessions(&self, gateway: &Gateway, count: usize) {
        let mut left = count;
        while left > 0 {
            let some = left.min(TOGETHER);
            let sessions = (0..some).map(|_| async {
                if self.chance.below(3) == 0 { self.pipes().await } else { self.visits(gateway).await }
            });
            within_deadline("some sessions", futures_util::future::join_all(sessions)).await;
            left -= some;
        }
    }

    /// What the gateway holds once it has nothing to do, in KiB: the least of some looks.
    async fn settled(&self, gateway: &Gateway, at_most: u64) -> u64 {
        let mut least = u64::MAX;
        let looking = async {
            for _ in 0..SESSION_IDLE_SECS * 40 {
                least = least.min(resident_kib(gateway.pid()));
                if least <= at_most {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        looking.await;
        least
    }

    /// All of it: gateways that are killed among their sessions, then one that lives through as many and gives everything back.
    async fn run(&self, count: usize) {
        let mut left = count / 2;
        while left > 0 {
            let some = left.min(10 + usize::try_from(self.chance.below(20)).unwrap());
            let gateway = self.gateway().await;
            self.sessions(&gateway, some).await;
            gateway.kill().await;
            left -= some;
        }
        until("nothing outlives a killed gateway", || self.marked().is_empty()).await;

        let gateway = self.gateway().await;
        self.sessions(&gateway, WARM_UP).await;
        let base = self.settled(&gateway, 0).await;
        self.sessions(&gateway, (count - count / 2).saturating_sub(WARM_UP)).await;
        let bound = base + base / 10;
        let after = self.settled(&gateway, bound).await;
        println!("{count} sessions: {base} KiB before, {after} KiB after");
        assert!(after <= bound, "{after} KiB after {count} sessions, {base} KiB before");
        gateway.terminate();
        assert_eq!(gateway.ended().await, Some(0));
        until("nothing outlives a gateway that ends", || self.marked().is_empty()).await;
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder).is_ok();
    }
}

/// Kills a process, which may have gone.
fn kill(pid: u32) {
    let _gone = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).is_err();
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// 200 sessions.
#[tokio::test]
async fn two_hundred_sessions_leave_nothing() {
    Soak::new(1).run(200).await;
}

/// The same, longer, from another seed; `SOAK_SESSIONS` says how many where an hour is too long.
#[tokio::test]
#[ignore = "10,000 sessions take half an hour (1,659 s on 2 cores, memory + 2 %); run it before a release"]
async fn ten_thousand_sessions_leave_nothing() {
    #[expect(clippy::disallowed_methods, reason = "the test's own word, not the gateway's")]
    let sessions = std::env::var("SOAK_SESSIONS").map_or(10_000, |text| text.parse().unwrap());
    Soak::new(2).run(sessions).await;
}
