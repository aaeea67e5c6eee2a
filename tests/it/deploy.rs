//! `deploy/`: what stands in it is what the product serves [OPS-8].
//!
//! Nothing here needs a cluster, a container engine or systemd itself: files are read, their commands and configurations are
//! run with this build, and their ports, paths and keys compared with what answers.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::support::{Client, Era, folder, until, within_deadline, yaml};

/// A call may take this long after SIGTERM, and the servers then this long to end (product §9, `app`).
const STOP_SECS: i64 = 20 + 8;

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)).unwrap()
}

fn toml_of(text: &str) -> toml::Table {
    text.parse().unwrap()
}

fn portcullis(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.env("PORTCULLIS_STATE_DIR", folder().join("state"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0).is_ok();
    }
}

/// Checks a configuration as it stands, but for the folder of its secrets. It must be good, without a warning; returns how
/// many expectations it meets.
async fn check(config: &str, secrets: &str) -> u64 {
    let folder = Folder(folder());
    std::fs::write(folder.0.join("docs-token"), "t0ken").unwrap();
    let path = folder.0.join("portcullis.toml");
    std::fs::write(&path, config.replace(secrets, folder.0.to_str().unwrap())).unwrap();
    let output = portcullis(&["check", "--json", "--config", path.to_str().unwrap()]).output().await.unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"));
    assert!(output.status.success() && found[0]["problems"] == serde_json::json!([]), "{found}");
    found[0]["expectations_met"].as_u64().unwrap()
}

/// A server over HTTP, as a stand-in for the one that a configuration names.
async fn demo_server() -> (Child, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["demo-server", "--http", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = within_deadline("the server's url", lines.next_line()).await.unwrap().unwrap();
    (server, url)
}

/// The status of a GET.
async fn status(addr: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A gateway that was started as a file says.
struct Running {
    child: Child,
    mcp: SocketAddr,
    probes: Vec<SocketAddr>,
    _folder: Folder,
}

impl Running {
    /// Starts it with a manifest's arguments; ports and the places of secrets and servers are this test's own.
    async fn start(args: &[String], config: &str, secrets: &str, server: &str) -> Self {
        let folder = Folder(folder());
        std::fs::write(folder.0.join("docs-token"), "t0ken").unwrap();
        let parsed = toml_of(config);
        let url = parsed["mcp"]["servers"][0]["url"].as_str().unwrap();
        let mut config = config.replace(secrets, folder.0.to_str().unwrap()).replace(url, server);
        for key in ["http", "admin", "health"] {
            if let Some(address) = parsed["listen"].get(key).and_then(toml::Value::as_str) {
                config = config.replace(address, "127.0.0.1:0");
            }
        }
        let path = folder.0.join("portcullis.toml");
        std::fs::write(&path, config).unwrap();
        let [verb, flag, place] = args else { panic!("{args:?}") };
        assert_eq!(Path::new(place).file_name(), path.file_name());
        let log = std::fs::File::create(folder.0.join("log")).unwrap();
        let child = portcullis(&[verb, flag, path.to_str().unwrap()]).stderr(log).spawn().unwrap();
        let said = || std::fs::read_to_string(folder.0.join("log")).unwrap();
        // Where the file wants a log of JSON, the block is lines of it.
        until("the start block", || said().contains("  server ") || said().contains("\"serving\"")).await;
        let said = said();
        let line = |line: &str| serde_json::from_str::<Value>(line).ok().map(|mut line| line["fields"].take());
        let block = said.lines().filter_map(line).find(|fields| fields["message"] == "serving");
        let addresses = |word: &str, key: &str| -> Vec<SocketAddr> {
            let urls = match &block {
                Some(block) => block[key].as_str().unwrap(),
                None => said.lines().find_map(|line| line.trim().strip_prefix(word)).unwrap(),
            };
            let address =
                |url: &str| url.trim().trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
            urls.split(',').map(address).collect()
        };
        Self { child, mcp: addresses("MCP ", "mcp")[0], probes: addresses("probes ", "probes"), _folder: folder }
    }

    /// Sends SIGTERM and expects an orderly end.
    async fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended = within_deadline("the end", self.child.wait()).await.unwrap();
        assert_eq!(ended.code(), Some(0));
    }
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

fn by_name<'v>(list: &'v Value, name: &str) -> &'v Value {
    list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

fn port(address: &toml::Value) -> i64 {
    address.as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap()
}

/// [OPS-4, OPS-5, OPS-8]
#[tokio::test]
async fn the_sidecar_is_what_the_product_serves() {
    let documents = yaml::documents(&text("k8s/sidecar.yaml"));
    let [map, deployment] = documents.as_slice() else { panic!("{documents:?}") };
    assert_eq!((&map["kind"], &deployment["kind"]), (&Value::from("ConfigMap"), &Value::from("Deployment")));
    let config = map["data"]["portcullis.toml"].as_str().unwrap();
    let parsed = toml_of(config);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = by_name(&pod["initContainers"], "portcullis");

    // The paths: the mounted map is the file of the arguments, the mounted secrets are those of the configuration.
    let mount = |name: &str| by_name(&container["volumeMounts"], name)["mountPath"].as_str().unwrap().to_owned();
    let args = words(&container["args"]);
    assert_eq!(args, ["serve", "--config", &format!("{}/portcullis.toml", mount("portcullis-config"))]);
    let secrets = mount("portcullis-secrets");
    assert!(config.contains(&format!("${{file:{secrets}/")), "{config}");
    let volume = |name: &str| by_name(&pod["volumes"], name).clone();
    assert_eq!(volume("portcullis-config")["configMap"]["name"], map["metadata"]["name"]);
    assert!(volume("portcullis-secrets")["secret"]["secretName"].is_string());

    // The ports: probes go to the address that serves them on the pod, the agent to the pod's own loopback.
    let health = by_name(&container["ports"], "health")["containerPort"].as_i64().unwrap();
    assert_eq!(health, port(&parsed["listen"]["health"]));
    assert!(parsed["listen"]["health"].as_str().unwrap().starts_with("0.0.0.0:"));
    for key in ["http", "admin"] {
        assert!(parsed["listen"][key].as_str().unwrap().starts_with("127.0.0.1:"), "{key}");
    }
    let agent = by_name(&pod["containers"], "agent");
    let url = by_name(&agent["env"], "MCP_URL")["value"].as_str().unwrap();
    assert_eq!(url, format!("http://{}/mcp", parsed["listen"]["http"].as_str().unwrap()));

    // The hardening.
    assert_eq!(container["restartPolicy"], "Always", "a sidecar, not a step before the start");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["automountServiceAccountToken"], false);
    for container in [container, agent] {
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(words(&context["capabilities"]["drop"]), ["ALL"]);
        for what in ["cpu", "memory"] {
            assert!(
                !container["resources"]["limits"][what].is_null()
                    && !container["resources"]["requests"][what].is_null()
            );
        }
    }
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > STOP_SECS);

    // It is good, and it does what it says.
    assert_eq!(check(config, &secrets).await, 2);
    let (_server, server) = demo_server().await;
    // The stand-in has other tools than docs__search.
    let running = Running::start(&args, &config.replace("docs__search", "docs__echo"), &secrets, &server).await;
    assert_eq!(running.probes.len(), 2, "admin and health");
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], "health", "{probe}");
        for addr in &running.probes {
            assert_eq!(status(*addr, get["path"].as_str().unwrap()).await, 200, "{probe}");
        }
    }
    assert_eq!(status(running.probes[1], "/mcp").await, 404, "the pod's address serves the probes alone");
    let path = url.split_once("7800").unwrap().1;
    let names = Client::connect(Era::Stateless, running.mcp, path, None).await.names().await;
    assert_eq!(names, ["docs__echo"], "what the policy allows, and nothing else");
    running.stop().await;
}

/// [OPS-1, OPS-8]
#[tokio::test]
async fn the_unit_runs_what_there_is() {
    let unit = text("systemd/portcullis.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    let folder = Folder(folder());
    std::fs::write(folder.0.join("portcullis.toml"), text("systemd/portcullis.toml")).unwrap();
    let config = folder.0.join("portcullis.toml").display().to_string();
    let start = value("ExecStart").replace("/etc/portcullis/portcullis.toml", &config);
    assert_eq!(start, format!("/usr/local/bin/portcullis serve --config {config}"));
    let pre = value("ExecStartPre").replace("/etc/portcullis/portcullis.toml", &config);
    let args: Vec<&str> = pre.split(' ').skip(1).collect();
    let output = portcullis(&args).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
    let output = portcullis(&["check", "--json", "--config", &config]).output().await.unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found[0]["expectations_met"], 1, "{found}");
    assert!(value("TimeoutStopSec").parse::<i64>().unwrap() > STOP_SECS);
    // The codes for which a new start is no help are those that the binary really gives.
    assert_eq!(value("RestartPreventExitStatus"), "2 3");
    assert_eq!(portcullis(&["serve", "--nonsense"]).output().await.unwrap().status.code(), Some(2));
    assert_eq!(portcullis(&["serve", "--config", "/nowhere.toml"]).output().await.unwrap().status.code(), Some(3));
    for (key, wanted) in [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("KillMode", "mixed"),
    ] {
        assert_eq!(value(key), wanted, "{key}");
    }

    // systemd's own opinion, where it is there: no unknown key, and little exposure.
    let there = unit.replace("/usr/local/bin/portcullis", env!("CARGO_BIN_EXE_portcullis"));
    let path = folder.0.join("portcullis.service");
    std::fs::write(&path, there).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let path = path.to_str().unwrap();
    for args in [vec!["verify", path], vec!["security", "--offline=true", "--threshold=20", path]] {
        let Ok(output) = Command::new("systemd-analyze").args(&args).output().await else { return };
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // Before 250 it cannot judge a file, and in some containers it cannot start at all.
        if said.contains("unrecognized option") || said.contains("Failed to initialize manager") {
            continue;
        }
        assert!(output.status.success(), "{args:?}: {said}");
        assert!(!said.contains(path) || args[0] == "security", "{said}");
    }
}

/// [OPS-8]
#[test]
fn the_image_is_built_in_two_stages_and_runs_as_nobody() {
    let file = text("Dockerfile");
    let lines: Vec<(&str, &str)> = file
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let all = |word: &str| lines.iter().filter(|(key, _)| *key == word).map(|(_, rest)| *rest).collect::<Vec<_>>();
    let from = all("FROM");
    assert_eq!(from.len(), 2, "one stage builds, the other runs");
    assert!(from.iter().all(|image| image.contains(':') && !image.contains(":latest")), "{from:?}");
    // The stage that builds is the toolchain of the manifest.
    let manifest: toml::Table =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap().parse().unwrap();
    let rust = manifest["package"]["rust-version"].as_str().unwrap();
    assert!(from[0].starts_with(&format!("rust:{rust}-")) && from[0].ends_with(" AS build"), "{from:?}");
    assert!(all("ADD").is_empty());
    assert_eq!(all("RUN"), ["cargo build --release --locked --bin portcullis"]);
    // After the second FROM: nobody, and the binary itself as the entry.
    let run: Vec<_> = lines.iter().skip_while(|line| line.1 != from[1]).collect();
    assert!(run.contains(&&("USER", "65532:65532")), "{run:?}");
    let entry: Vec<String> = serde_json::from_str(all("ENTRYPOINT")[0]).unwrap();
    let command: Vec<String> = serde_json::from_str(all("CMD")[0]).unwrap();
    assert_eq!(entry, ["/usr/local/bin/portcullis"]);
    assert_eq!(command, ["serve", "--config", "/etc/portcullis/portcullis.toml"]);
    assert!(
        run.iter().any(|line| line.0 == "COPY"
            && line.1.starts_with("--from=build /src/target/release/portcullis /usr/local/bin/"))
    );
    // What is copied is there, and nothing of it is left out of the context.
    let ignore = text("Dockerfile.dockerignore");
    for source in all("COPY").iter().filter(|line| !line.starts_with("--from")).flat_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        words[..words.len() - 1].iter().map(|word| word.trim_start_matches("./").to_owned()).collect::<Vec<_>>()
    }) {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(&source).exists(), "{source}");
        assert!(ignore.lines().any(|line| line == format!("!{source}")), "{source}");
    }
}

/// [OPS-8]
#[tokio::test]
async fn the_compose_file_fits_its_configuration() {
    let documents = yaml::documents(&text("compose/compose.yaml"));
    let compose = &documents[0];
    let service = &compose["services"]["portcullis"];
    let config = text("compose/portcullis.toml");
    let parsed = toml_of(&config);
    let args = words(&service["command"]);
    let volume = &words(&service["volumes"])[0];
    assert_eq!(volume, &format!("./portcullis.toml:{}:ro", args[2]));
    let ports = words(&service["ports"]);
    let port = port(&parsed["listen"]["http"]);
    assert_eq!(ports, [format!("127.0.0.1:{port}:{port}")], "published on this machine alone");
    assert_eq!(service["read_only"], true);
    assert_eq!(words(&service["cap_drop"]), ["ALL"]);
    assert!(words(&service["security_opt"]).contains(&"no-new-privileges:true".to_owned()));
    assert!(!service["mem_limit"].is_null() && !service["pids_limit"].is_null());
    let grace = service["stop_grace_period"].as_str().unwrap().trim_end_matches('s').parse::<i64>().unwrap();
    assert!(grace > STOP_SECS);
    for secret in words(&service["secrets"]) {
        assert!(config.contains(&format!("${{file:/run/secrets/{secret}}}")));
        assert!(!compose["secrets"][&secret]["file"].is_null());
    }
    assert_eq!(compose["networks"]["back"]["internal"], true);
    check(&config, "/run/secrets").await;

    let (_server, server) = demo_server().await;
    let running = Running::start(&args, &config, "/run/secrets", &server).await;
    let health = words(&service["healthcheck"]["test"]);
    assert_eq!((health[0].as_str(), health[1].as_str()), ("CMD", "bash"));
    let written = parsed["listen"]["health"].as_str().unwrap().replace(':', "/");
    assert!(health[3].contains(&written), "{health:?} does not ask {written}");
    for (addr, good) in [(running.probes[1], true), (running.mcp, false)] {
        let script = health[3].replace(&written, &addr.to_string().replace(':', "/"));
        let Ok(status) = Command::new("bash").args(["-c", &script]).status().await else { break };
        assert_eq!(status.success(), good, "{script}");
    }
    running.stop().await;
}

/// Every command of the manual that needs neither an engine nor a cluster [OPS-8].
#[tokio::test]
async fn the_manual_s_commands_run() {
    let manual = text("README.md");
    let blocks: Vec<&str> = manual.split("```bash\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    let folder = Path::new(env!("CARGO_BIN_EXE_portcullis")).parent().unwrap();
    for block in blocks {
        let output = Command::new("sh")
            .args(["-euc", block])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{block}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // What is said of files is true of them.
    for name in manual.split('`').skip(1).step_by(2).filter(|name| name.starts_with("k8s/") || name.ends_with('/')) {
        let there = ["deploy", "", "tests/.."]
            .iter()
            .any(|root| Path::new(env!("CARGO_MANIFEST_DIR")).join(root).join(name).exists());
        assert!(there || name.starts_with('/'), "{name}");
    }
}
