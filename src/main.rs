//! The binary: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    portcullis::cli::run()
}
