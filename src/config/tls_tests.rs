//! Keys of TLS and of local sockets: every mistake names its key and the file [TRN-5, CFG-3].

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Diagnostics, Loaded, Severity, load};
use crate::codes::Code;
use crate::net::certs::Authority;

/// A folder of its own, removed at the end, with an authority and a certificate in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("portcullis-tls-keys-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new();
        authority.leaf(&["localhost"]).write(&folder);
        fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
        Self(folder)
    }

    fn load(&self, text: &str) -> Result<Loaded, Diagnostics> {
        let path = self.0.join("portcullis.toml");
        fs::write(&path, text).unwrap();
        load(&path, &|_| None)
    }

    /// Loads `[listen]` with these lines.
    fn listen(&self, lines: &str) -> Result<Loaded, Diagnostics> {
        self.load(&format!("[listen]\nauth = \"keys\"\n{lines}\n"))
    }

    /// Loads one server with these lines.
    fn server(&self, lines: &str) -> Result<Loaded, Diagnostics> {
        self.listen(&format!("[[mcp.servers]]\nname = \"s\"\n{lines}"))
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The one error, as key and text.
fn only(errors: &Diagnostics) -> (&str, String) {
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert_eq!(errors.0[0].severity, Severity::Error);
    (&errors.0[0].key, errors.to_string())
}

#[test]
fn a_certificate_is_tried_when_the_file_is_read() {
    let folder = Folder::new();
    let good = "tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"";
    let loaded = folder.listen(good).unwrap();
    assert_eq!(loaded.warnings, [], "paths start at the file's folder");
    assert_eq!(loaded.settings.downstream.tls.unwrap().cert, folder.0.join("cert.pem"));

    let pasted = fs::read_to_string(folder.0.join("key.pem")).unwrap();
    fs::write(folder.0.join("empty.pem"), "").unwrap();
    for (lines, key, words) in [
        ("tls_cert = \"cert.pem\"", "listen.tls_cert", "needs tls_key"),
        ("tls_key = \"key.pem\"", "listen.tls_key", "needs tls_cert"),
        ("tls_cert = \"none.pem\"\ntls_key = \"key.pem\"", "listen.tls_cert", "none.pem cannot be read"),
        ("tls_cert = \"cert.pem\"\ntls_key = \"none.pem\"", "listen.tls_key", "none.pem cannot be read"),
        ("tls_cert = \"empty.pem\"\ntls_key = \"key.pem\"", "listen.tls_cert", "empty.pem holds no certificate"),
        ("tls_cert = \"cert.pem\"\ntls_key = \"cert.pem\"", "listen.tls_key", "cert.pem holds no private key"),
        ("tls_cert = \"\"\ntls_key = \"key.pem\"", "listen.tls_cert", "must not be empty"),
    ] {
        let errors = folder.listen(lines).unwrap_err();
        let (at, text) = only(&errors);
        assert!(at == key && text.contains(words), "{text}");
    }
    let errors = folder.listen(&format!("tls_cert = \"cert.pem\"\ntls_key = '''{pasted}'''")).unwrap_err();
    let (_, text) = only(&errors);
    let secret = pasted.lines().nth(1).unwrap();
    assert!(text.contains("not what is in it") && !format!("{text}{errors:?}").contains(secret), "{text}");

    fs::set_permissions(folder.0.join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let warnings = folder.listen(good).unwrap().warnings;
    assert_eq!(
        (warnings.len(), warnings[0].severity, warnings[0].key.as_str()),
        (1, Severity::Warning, "listen.tls_key")
    );
    assert!(warnings[0].message.contains(&folder.file("key.pem")), "{}", warnings[0]);
    assert!(warnings[0].to_string().contains("chmod 600"), "{}", warnings[0]);
}

/// Clients refuse a certificate that has expired: `check` and a reload say so, and the gateway starts [CFG].
#[test]
fn an_expired_certificate_is_doubtful() {
    let folder = Folder::new();
    let old = Authority::new().expired(&["localhost"]);
    old.write(&folder.0);
    let warnings = folder.listen("tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"").unwrap().warnings;
    assert_eq!((warnings.len(), warnings[0].code, warnings[0].key.as_str()), (1, Code::Doubtful, "listen.tls_cert"));
    let said = warnings[0].to_string();
    assert!(said.contains(&folder.file("cert.pem")) && said.contains("expired at 2002-01-01T"), "{said}");
}

#[test]
fn a_local_socket_is_an_absolute_path() {
    let folder = Folder::new();
    let loaded = folder.listen("http = [\"unix:/run/p/mcp.sock\", \"127.0.0.1:7900\"]").unwrap();
    let door = &loaded.settings.downstream;
    assert_eq!(door.sockets, [Path::new("/run/p/mcp.sock")]);
    assert_eq!(door.addresses.len(), 1);
    let loaded = folder.listen("http = \"unix:/run/p/mcp.sock\"").unwrap();
    assert!(loaded.settings.downstream.addresses.is_empty());
    // Without keys a local socket is as good as loopback [AUT-1].
    assert!(folder.load("[listen]\nauth = \"none\"\nhttp = \"unix:/run/p/mcp.sock\"\n[principals.local]").is_ok());

    for (lines, key, words) in [
        ("http = \"unix:mcp.sock\"", "listen.http", "absolute path"),
        ("http = \"unix:\"", "listen.http", "absolute path"),
        ("http = \"unix:/run/\"", "listen.http", "absolute path"),
        ("http = [\"unix:/run/a\", \"unix:/run/a\"]", "listen.http[1]", "given twice"),
        ("admin = \"unix:/run/a\"", "listen.admin", "IP address alone"),
    ] {
        let errors = folder.listen(lines).unwrap_err();
        let (at, text) = only(&errors);
        assert!(at == key && text.contains(words), "{text}");
    }
    let lines = "http = \"unix:/run/p/mcp.sock\"\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"";
    let warnings = folder.listen(lines).unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].message.contains("has no effect"), "{warnings:?}");
}

/// Every word of the rule that can be judged without a connection [TRN-5].
#[test]
fn an_authority_is_that_file_or_nothing() {
    let folder = Folder::new();
    let ca = folder.file("ca.pem");
    let https = "url = \"https://h/mcp\"";
    let loaded = folder.server(&format!("{https}\ntls_ca_cert_path = \"{ca}\"")).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.gateway.servers[0].tls_ca_cert_path, Some(folder.0.join("ca.pem")));

    // What is wrong with the configuration fails it.
    for (lines, words) in [
        (format!("{https}\ntls_ca_cert_path = \"ca.pem\""), "must be an absolute path"),
        (format!("url = \"http://h/mcp\"\ntls_ca_cert_path = \"{ca}\""), "needs an https url"),
        (format!("{https}\ntls_ca_cert_path = '''-----BEGIN CERTIFICATE-----\nA'''"), "not what is in it"),
    ] {
        let errors = folder.server(&lines).unwrap_err();
        let (key, text) = only(&errors);
        assert!(key == "mcp.servers[0].tls_ca_cert_path" && text.contains(words), "{text}");
    }

    // What is wrong with the file disables that server alone, or fails the start where it is required.
    fs::write(folder.0.join("large.pem"), vec![b'x'; (1 << 20) + 1]).unwrap();
    fs::write(folder.0.join("text.pem"), "no certificate").unwrap();
    for (name, words) in [
        ("none.pem", "cannot be read"),
        ("", "is not a regular file"),
        ("large.pem", "is larger than 1048576 bytes"),
        ("text.pem", "holds no certificate"),
        ("key.pem", "holds no certificate"),
    ] {
        let lines = format!("{https}\ntls_ca_cert_path = \"{}\"", folder.file(name));
        let loaded = folder.server(&lines).unwrap();
        assert!(loaded.settings.gateway.servers.is_empty(), "{name}");
        assert_eq!(loaded.settings.disabled.len(), 1, "{name}");
        let (warning, why) = (&loaded.warnings[0], &loaded.settings.disabled[0].1);
        assert_eq!(warning.key, "mcp.servers[0].tls_ca_cert_path");
        assert!(why.contains(words) && warning.message.contains("server 's' is disabled"), "{name}: {why}");
        let errors = folder.server(&format!("{lines}\nrequired = true")).unwrap_err();
        assert!(only(&errors).1.contains("required server 's' cannot start"), "{errors}");
        assert!(folder.server(&format!("{lines}\nenabled = false")).unwrap().warnings.is_empty(), "{name}");
    }

    std::os::unix::fs::symlink(folder.0.join("ca.pem"), folder.0.join("link.pem")).unwrap();
    let linked = folder.server(&format!("{https}\ntls_ca_cert_path = \"{}\"", folder.file("link.pem"))).unwrap();
    assert_eq!(linked.settings.gateway.servers.len(), 1, "links are followed");

    let loaded = folder.server("command = \"x\"\ntls_ca_cert_path = \"nonsense\"").unwrap();
    assert!(loaded.warnings.len() == 1 && loaded.warnings[0].message.contains("is ignored"), "{:?}", loaded.warnings);
    assert_eq!(loaded.settings.gateway.servers[0].tls_ca_cert_path, None);
}
