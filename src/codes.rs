//! Every error a person can meet: its stable code, what causes it, and what helps. One table [OPS-2].
//!
//! Not for: what a client reads (`downstream::respond`), or words about one case: the room that finds an error says what it
//! has seen. Invariants: a code keeps its meaning for ever; one that is no longer used is never given to another.

/// What `portcullis explain CODE` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The code, as `P204`.
    pub id: &'static str,
    /// What it is, in one line.
    pub title: &'static str,
    /// How it comes about.
    pub cause: &'static str,
    /// What to do.
    pub fix: &'static str,
}

macro_rules! codes {
    ($($code:ident = $id:literal, $title:literal, $cause:literal, $fix:literal;)*) => {
        /// The stable code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// Returns what there is to say about it.
            #[must_use]
            pub const fn page(self) -> Page {
                match self {
                    $(Self::$code => Page { id: $id, title: $title, cause: $cause, fix: $fix },)*
                }
            }
        }
    };
}

codes! {
    // P1: the configuration.
    Unreadable = "P100", "a file cannot be read",
        "The configuration, or a file that it names, is missing, is too large, is not UTF-8, or may not be read by this user.",
        "Name the file with --config, or look at its path, its owner and its mode. To look around without one: portcullis serve --demo";
    Syntax = "P101", "the file is not TOML",
        "The text breaks a rule of TOML at the place shown: a quote, a bracket or an equals sign is missing, or a key stands twice.",
        "Correct the line shown; all other mistakes are reported once the file can be read.";
    UnknownKey = "P102", "no such key",
        "The file has a key that does not exist here. Keys are strict, because a typing mistake must not change who may do what.",
        "Take the nearest key that is suggested, or look the key up in the output of: portcullis check --schema";
    Later = "P103", "not supported in this version",
        "The key or word belongs to Portcullis, but this version does not build it yet. It is refused, so that nothing is believed to protect that does not.",
        "Take it out, or use a version that has it.";
    WrongType = "P104", "a value of the wrong type",
        "The key wants another kind of value: a string, a whole number, true or false, a list or a table.",
        "Write the value as the message says.";
    BadValue = "P105", "a value that cannot be used",
        "The value has the right type, but is out of range, malformed, given twice, or none of the words that are known.",
        "Write one of the values that the message names.";
    Contradiction = "P106", "a table that is incomplete or contradicts itself",
        "Something that the table needs is missing, or two of its keys exclude each other.",
        "Add what is missing, or keep one of the keys.";
    GrantsNothing = "P107", "a name that grants nothing",
        "A bundle, a server or a tool that is named in what grants is not defined. The name grants nothing, and the gateway starts: a mistake narrows access, never widens it.",
        "Correct the name, or define what it names.";
    ProtectsNothing = "P108", "a name that would protect nothing",
        "A server or a tool that is named in what subtracts is not defined, so the line would not protect what it was meant to. The gateway does not start.",
        "Correct the name, or take the line out.";
    PolicyMissing = "P109", "a policy that cannot be used",
        "A principal names a policy that is not defined, cannot be read, or is defined both in the file and in policies/.",
        "Add [policies.NAME] to the file or policies/NAME.toml beside it, not both.";
    Secret = "P110", "a server is disabled: a secret or its authority is missing",
        "A value with ${env:NAME} or ${file:PATH} could not be filled, or the file of tls_ca_cert_path cannot be used. The server is switched off by name; with required = true the start fails.",
        "Set the variable and start again, or put the file right: a gateway that runs takes the server in by itself.";
    OpenDoor = "P111", "who may come in is not said, or is anybody",
        "auth is missing where 'local' is not the one principal of the file, or auth = \"none\" on an address that others can reach.",
        "Set auth = \"keys\" in [listen] and give each principal api_keys (portcullis key new NAME); for yourself alone, define [principals.local] only and listen on 127.0.0.1.";
    Expectation = "P112", "a policy does not do what its file expects",
        "An [[expect]] line says that a tool is visible or hidden, and the policy decides otherwise.",
        "Correct the policy, or the expectation: portcullis explain --as NAME TOOL shows what decided.";
    Doubtful = "P113", "probably not what was meant",
        "The configuration can be used, but a line in it has no effect, or another one than it seems.",
        "Read the message; take the line out if it is not needed.";

    // P2: servers.
    Starting = "P201", "a server is still starting",
        "The server has not answered its first list yet. A first start may download packages.",
        "Try again in a moment; start_timeout_secs bounds the time it may take.";
    ServerDown = "P204", "a server is down",
        "The server could not be started or reached, ended, or did not answer in time. Its own last words follow where there are any.",
        "Run its command by hand or ask its url: portcullis ls servers shows the cause. A running gateway tries again by itself.";
    Timeout = "P205", "a server did not answer in time",
        "A call took longer than tool_timeout_secs without progress, or longer than tool_max_secs in all. It was cancelled at the server.",
        "Raise tool_timeout_secs of that server, or ask for less.";
    OverLimit = "P206", "over a limit",
        "A request or an answer is larger than its limit, or there are too many at once. Nothing else is hurt by it.",
        "Ask for less, or raise the limit that the message names: max_response_bytes of the server, or a key of [limits].";
    ServerFailed = "P207", "a server failed in a call",
        "The server answered with an error, with something that is no answer, or its connection ended during the call. The call may have been done, so it is not sent again.",
        "Read the server's own words, and look whether the call had an effect before you repeat it.";

    // P3: refusals.
    NotGranted = "P301", "the server is not granted",
        "No bundle of the principal has the server, or one of its bundles excludes it. Deny wins.",
        "Name the server in a bundle of the principal, or take it out of exclude, at the line that explain shows.";
    NotAllowed = "P302", "allowed_tools does not name the tool",
        "The policy has a list of allowed tools, and no pattern in it matches the shown name or the full name.",
        "Add the tool's name to allowed_tools at the line that explain shows.";
    Excluded = "P303", "the policy excludes the tool",
        "A pattern of excluded_tools matches, or deny_all_tools is set. This wins over allowed_tools.",
        "Take the pattern out of excluded_tools, or deny_all_tools out of the policy, at the line that explain shows.";
    UnknownTool = "P304", "no tool of that name",
        "No server that is up has a tool of that name. A client reads the same words for a tool that is hidden from it.",
        "portcullis ls tools shows the names; portcullis names shows how a server's own name was changed.";
    BadRequest = "P305", "a request that cannot be read",
        "Headers, params, a cursor or arguments are malformed or disagree.",
        "Correct the request; the log has the details.";
    Unauthenticated = "P306", "no valid key",
        "The request carries no API key, or one that no principal has.",
        "Send Authorization: Bearer KEY (for portcullis call --url: set PORTCULLIS_API_KEY). portcullis key new NAME makes a key.";
    Draining = "P307", "the gateway is stopping",
        "It was asked to end: running calls finish, new ones are refused.",
        "Send the request to another gateway, or again after the restart.";
    RateLimited = "P308", "too many requests in a time",
        "A rate is used up: of the principal's requests, or of its calls to one server or tool. It fills again by itself.",
        "Wait for as long as the refusal says, or raise the rate: [limits.rates], rate of the server, or rate of the policy.";
    TooManyCalls = "P309", "too many calls under way",
        "The principal, the server or the tool has as many calls under way as it may, and as many wait already as may wait; or a call has waited too long for its turn.",
        "Try again when some have ended, or raise [limits.concurrency], max_concurrent_calls of the server or policy, or max_queued_calls.";
    NotFound = "P310", "no such path, method, session or stream",
        "The path is no endpoint of the gateway, nothing that the principal is granted has such a method, or the session or stream has ended.",
        "Use /mcp, /mcp/SERVER or, where http_sse is on, /sse. A client whose session has ended begins a new one; a method is there once a server that offers it is granted.";

    // P4: names and definitions of tools.
    Clash = "P401", "two tools have the same shown name",
        "Two different tools came to one name, so both are hidden: a call must never reach the other one.",
        "Rename one of them at its server.";
    Differs = "P402", "one name, two definitions",
        "A server lists one name more than once with different definitions, so that it is not known what a call would do. All are hidden.",
        "Correct the server's list.";
    HeaderAnnotation = "P403", "invalid header annotations",
        "A tool of an HTTP server has x-mcp-header annotations that break the specification's rules, so the tool is left out.",
        "Correct the tool's inputSchema at the server.";
    NoInputSchema = "P404", "a tool without an inputSchema",
        "The server lists a tool without an inputSchema that is an object. It is shown with an empty one.",
        "Correct the server's list.";
    NoMatch = "P405", "a pattern that matches no known tool",
        "Every server has listed its tools, and a pattern of a policy matches none of them: most likely a typing mistake. In excluded_tools it then protects nothing.",
        "Compare the pattern with: portcullis names";
    Renamed = "P406", "a tool is shown under another name",
        "The server's own name has characters that clients do not take, is longer than name_budget, is empty, or looks like a changed one. The shown name carries a hash instead and never depends on other tools.",
        "Use the shown name in calls; policies may use the full name as well. A name of A-Za-z0-9_- within the budget is shown as it is.";

    // P5: start and stop.
    Bind = "P501", "an address cannot be listened on",
        "Another process has the port or the socket, the address is not of this machine, the port needs more rights, or the folder of a socket is not there.",
        "End the other process, make the folder, or set another address in [listen].";
    Machine = "P502", "the operating system refuses",
        "It gives no threads, no random bytes, no signals or no file.",
        "Look at the limits of the user or container (ulimit -a).";
    Log = "P503", "the log cannot be started",
        "The level or the form of the log cannot be used, or this process has a log already.",
        "Correct [log].";
    ServerUnusable = "P504", "a server's settings cannot be used",
        "No connection can be made with them, which was found only when it was built.",
        "Correct the server's table at the message's word.";
    Demo = "P505", "the demo did not start",
        "Its built-in server could not be started as a child of this program.",
        "Start the program from a path that it may execute.";
    CutOff = "P506", "stopped before everything had finished",
        "Calls were still running when the time to finish them ended, or a second signal came.",
        "Nothing, if that was meant: the calls were cancelled at their servers.";
    State = "P507", "nothing can be kept on disk",
        "The state folder is not known, cannot be made or written to, is open to others, or another gateway writes to it. The gateway runs without it.",
        "Set [state] dir to a folder of your own that is not there yet, or chmod 700 the one that is.";

    // P6: the command line.
    Usage = "P600", "arguments that make no sense",
        "The command line has a verb, an option or a value that does not exist, or one is missing.",
        "Read the message; portcullis VERB --help shows the arguments and examples.";
    UnknownPrincipal = "P601", "no such principal",
        "--as names a principal that the configuration does not have. Without --as it is the only one, or 'local'.",
        "portcullis ls principals shows them.";
    BadArgument = "P602", "an argument that cannot be given to the tool",
        "An argument of call is not key=value or key:=JSON, stands twice, or is not of the type that the tool's inputSchema names.",
        "Write key=value for a string, key:=JSON for anything else: items:='[1, 2]'.";
    Unreachable = "P603", "no gateway answers",
        "Nothing listens at the address, the connection broke, or what answered is no Portcullis.",
        "Start it with portcullis serve, or name its address with --url.";
    NotReady = "P604", "the gateway is not ready",
        "A required server has not answered its first list yet, or the gateway is stopping.",
        "Wait, or look at its log for the server that it waits for.";
    AsksBack = "P605", "the tool asks for more input",
        "The server wants to ask a person or a model during the call. The command line cannot answer.",
        "Call the tool from a client that can answer.";
    ToolError = "P606", "the tool reports an error",
        "The call reached the tool, and the tool itself says that it failed.",
        "Read its words above; they come from the tool, unless they say that the gateway has left something out.";
    Interrupted = "P607", "interrupted",
        "A signal came before the answer. A running call was cancelled at its server.",
        "Run it again.";
    UnknownServer = "P608", "no such server",
        "The command names a server that the configuration does not have, or that is switched off there.",
        "portcullis ls servers shows them.";
    ClientFile = "P609", "a client's file cannot be taken over or changed",
        "The file of an MCP client is missing, cannot be read or written, or holds what cannot be carried over; or one of its servers cannot be reached.",
        "Read the message: nothing is changed unless all goes well. --dry-run shows what would be done.";
}

// === impl Code ===

impl Code {
    /// Returns the code as it is printed, `P204`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.page().id
    }

    /// Finds a code by what is printed; case does not matter.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|code| code.id().eq_ignore_ascii_case(text)).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Code;

    /// [OPS-2]
    #[test]
    fn every_code_has_an_id_of_its_own_and_a_whole_page() {
        let ids: HashSet<_> = Code::ALL.iter().map(|code| code.id()).collect();
        assert_eq!(ids.len(), Code::ALL.len());
        assert!(Code::ALL.windows(2).all(|pair| pair[0].id() < pair[1].id()), "in order");
        for code in Code::ALL {
            let page = code.page();
            let digits = page.id.strip_prefix('P').unwrap();
            assert!(digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{}", page.id);
            assert!(!page.title.is_empty() && !page.title.ends_with('.'), "{}", page.id);
            for text in [page.cause, page.fix] {
                assert!(text.len() > 10 && !text.contains('\n'), "{}: {text}", page.id);
            }
            assert_eq!(Code::find(page.id), Some(*code));
        }
        assert_eq!(Code::find("p204"), Some(Code::ServerDown));
        assert_eq!(Code::find("P999"), None);
    }

    /// Every code is given to something: the table has no page that nobody can be sent to.
    #[test]
    fn every_code_is_used() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut source = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("codes.rs") && !path.to_string_lossy().ends_with("tests.rs") {
                    source.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let used = |code: &Code| {
            let name = format!("Code::{code:?}");
            source.split(&name).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        let unused: Vec<_> = Code::ALL.iter().filter(|code| !used(code)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
