//! One server as a client's file describes it, whatever the file's syntax.
//!
//! Invariant: values are as they stand in the file, in that client's own dialect of `${…}`.

use std::fmt;

use crate::secret::Secret;

/// One entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its key in the file.
    pub name: String,
    /// Whether the client uses it.
    pub enabled: bool,
    /// How the server is reached.
    pub how: How,
    /// The time of one call in seconds, where the file says one.
    pub tool_timeout_secs: Option<u64>,
    /// Keys that are read and have no counterpart here.
    pub unused: Vec<String>,
}

/// How a server is reached.
#[derive(Clone)]
pub enum How {
    /// A URL.
    Http {
        /// The address.
        url: Secret<String>,
        /// Headers by name.
        headers: Vec<(String, Secret<String>)>,
    },
    /// It cannot be carried over, and why.
    Not(String),
    /// A program.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables by name.
        env: Vec<(String, Secret<String>)>,
        /// A file of further variables.
        env_file: Option<String>,
        /// Names of variables that it inherits.
        inherit_env: Vec<String>,
        /// Its working folder.
        cwd: Option<String>,
    },
}

/// Values of variables and headers, and the URL, may be secrets: only names are shown.
impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { headers, .. } => {
                let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
                f.debug_struct("Http").field("headers", &names).finish_non_exhaustive()
            }
            Self::Not(why) => f.debug_tuple("Not").field(why).finish(),
            Self::Stdio { command, args, env, .. } => {
                let names: Vec<_> = env.iter().map(|(name, _)| name).collect();
                f.debug_struct("Stdio")
                    .field("command", command)
                    .field("args", &args.len())
                    .field("env", &names)
                    .finish_non_exhaustive()
            }
        }
    }
}

/// An entry while it is read: what was found, and the first thing that is wrong.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) kind: Option<String>,
    pub(super) command: Option<String>,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, Secret<String>)>,
    pub(super) env_file: Option<String>,
    pub(super) inherit_env: Vec<String>,
    pub(super) cwd: Option<String>,
    pub(super) url: Option<Secret<String>>,
    pub(super) headers: Vec<(String, Secret<String>)>,
    pub(super) disabled: bool,
    pub(super) from_extension: bool,
    pub(super) tool_timeout_secs: Option<u64>,
    pub(super) unused: Vec<String>,
    pub(super) problem: Option<String>,
}

impl Parts {
    /// Notes a problem; the first one counts.
    pub(super) fn wrong(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// Makes the entry. `type` may be missing: a command means stdio, a URL means HTTP [CFG-6].
    pub(super) fn finish(self, name: &str) -> Entry {
        let (name, enabled) = (name.to_owned(), !self.disabled);
        let (tool_timeout_secs, unused) = (self.tool_timeout_secs, self.unused.clone());
        Entry { name, enabled, how: self.how(), tool_timeout_secs, unused }
    }

    fn how(self) -> How {
        if let Some(problem) = self.problem {
            return How::Not(problem);
        }
        if self.from_extension && self.command.is_none() && self.url.is_none() {
            return How::Not("it is an extension of the editor, without a command of its own".to_owned());
        }
        let http = match self.kind.as_deref().map(|kind| kind.to_ascii_lowercase().replace(['-', '_'], "")).as_deref() {
            Some("stdio" | "local") => false,
            // Which of both HTTP transports it is, the gateway finds out.
            Some("http" | "streamablehttp" | "remote" | "sse") => true,
            Some(_) => return How::Not("its type is none of stdio, http, sse".to_owned()),
            None => match (&self.command, &self.url) {
                (Some(_), Some(_)) => return How::Not("it has both a command and a url".to_owned()),
                (None, None) => return How::Not("it has neither a command nor a url".to_owned()),
                (_, url) => url.is_some(),
            },
        };
        match (http, self.command, self.url) {
            (true, _, Some(url)) => How::Http { url, headers: self.headers },
            (true, _, None) => How::Not("it has no url".to_owned()),
            (false, Some(command), _) => How::Stdio {
                command,
                args: self.args,
                env: self.env,
                env_file: self.env_file,
                inherit_env: self.inherit_env,
                cwd: self.cwd,
            },
            (false, None, _) => How::Not("it has no command".to_owned()),
        }
    }
}
