//! The clients that are known: where their file lies and where in it the servers stand.
//!
//! The addresses of the documents that say so are in `tests/fixtures/clients/README.md`.

use std::path::PathBuf;

/// A client whose file can be edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Claude Code, the user's own scope.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// Visual Studio Code, the user's profile.
    VsCode,
    /// Zed.
    Zed,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON, with comments and trailing commas.
    Jsonc,
    /// TOML.
    Toml,
}

/// How an entry gives a program variables of the client's own environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// By a list of names.
    Names,
    /// Not at all: the program has what the client gives every program.
    Nothing,
    /// By references in `env`.
    References,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::ClaudeCode, Self::ClaudeDesktop, Self::Codex, Self::Cursor, Self::VsCode, Self::Zed];

    /// Returns its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Zed => "zed",
        }
    }

    /// Finds a client by its name on the command line.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// Returns how its file is written.
    #[must_use]
    pub const fn syntax(self) -> Syntax {
        match self {
            Self::Codex => Syntax::Toml,
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::VsCode | Self::Zed => Syntax::Jsonc,
        }
    }

    /// Returns the member of the file's root that holds the servers.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::VsCode => "servers",
            Self::Zed => "context_servers",
        }
    }

    /// Returns the word that an entry's `type` has for a program (first) or a URL; `None` where it is left out.
    #[must_use]
    pub const fn type_words(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::ClaudeCode | Self::VsCode => Some(("stdio", "http")),
            Self::ClaudeDesktop | Self::Codex | Self::Cursor | Self::Zed => None,
        }
    }

    /// Says whether its file may name a URL instead of a program.
    #[must_use]
    pub const fn takes_urls(self) -> bool {
        match self {
            Self::ClaudeDesktop => false,
            Self::ClaudeCode | Self::Codex | Self::Cursor | Self::VsCode | Self::Zed => true,
        }
    }

    /// Returns how an entry gives a program variables of the client's own environment.
    #[must_use]
    pub const fn passing(self) -> Passing {
        match self {
            // They read `${…}` in `env` themselves.
            Self::ClaudeCode | Self::Cursor | Self::VsCode => Passing::References,
            Self::Codex => Passing::Names,
            Self::ClaudeDesktop | Self::Zed => Passing::Nothing,
        }
    }

    /// Returns where its file lies for this user; `None` without a home folder.
    #[must_use]
    pub fn location(self, env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let folder = |name: &str| env(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let home = || folder("HOME");
        let settings = || {
            if cfg!(target_os = "macos") {
                return Some(home()?.join("Library/Application Support"));
            }
            folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
        };
        Some(match self {
            Self::ClaudeCode => folder("CLAUDE_CONFIG_DIR").or_else(home)?.join(".claude.json"),
            Self::ClaudeDesktop => settings()?.join("Claude/claude_desktop_config.json"),
            Self::Codex => folder("CODEX_HOME").or_else(|| Some(home()?.join(".codex")))?.join("config.toml"),
            Self::Cursor => home()?.join(".cursor/mcp.json"),
            Self::VsCode => settings()?.join("Code/User/mcp.json"),
            // Zed keeps to the XDG folder on every system.
            Self::Zed => folder("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))?.join("zed/settings.json"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Client;

    /// [OPS-11]
    #[test]
    fn every_client_has_a_name_and_a_place() {
        let env = |name: &str| (name == "HOME").then(|| "/home/u".to_owned());
        for client in Client::ALL {
            assert_eq!(Client::from_name(client.name()), Some(client));
            assert!(client.location(&env).unwrap().starts_with("/home/u"), "{client:?}");
            assert_eq!(client.location(&|_| None), None, "{client:?}");
        }
        let env = |name: &str| Some(format!("/x/{name}"));
        assert_eq!(Client::Codex.location(&env).unwrap(), Path::new("/x/CODEX_HOME/config.toml"));
        assert_eq!(Client::ClaudeCode.location(&env).unwrap(), Path::new("/x/CLAUDE_CONFIG_DIR/.claude.json"));
        assert_eq!(Client::Zed.location(&env).unwrap(), Path::new("/x/XDG_CONFIG_HOME/zed/settings.json"));
    }
}
