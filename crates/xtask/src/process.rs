//! Runs other programs to completion, with errors that name the command. Counts their CPU time.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

use procfs::process::Process;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

thread_local! {
    static CPU_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A program that could not be run or did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program could not be started.
    #[error("cannot start {command}")]
    Start {
        /// The command line.
        command: String,
        /// Underlying error.
        source: io::Error,
    },
    /// The program ended with a status other than 0.
    #[error("{command}: {status}{}{stderr}", if stderr.is_empty() { "" } else { ": " })]
    Failed {
        /// The command line.
        command: String,
        /// Exit status.
        status: ExitStatus,
        /// Standard error, trimmed; empty if the output was passed through.
        stderr: String,
    },
}

/// Runs a command to completion and returns its standard output.
///
/// # Errors
/// A command that cannot be started, or ends with a status other than 0.
pub fn output_of(command: &mut Command) -> Result<Vec<u8>, CommandError> {
    output_with(command, &[0])
}

/// Runs a command to completion and returns its standard output.
///
/// # Errors
/// A command that cannot be started, or ends with a status that is not among `statuses`.
pub fn output_with(command: &mut Command, statuses: &[i32]) -> Result<Vec<u8>, CommandError> {
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let output = output(command).map_err(|source| start_error(command, source))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code().is_some_and(|status| statuses.contains(&status)) {
        Ok(output.stdout)
    } else {
        Err(failed(command, output.status, &stderr))
    }
}

/// Runs a command to completion, sharing this process's output.
///
/// # Errors
/// A command that cannot be started, or ends with a status other than 0.
pub fn run(command: &mut Command) -> Result<(), CommandError> {
    let ended = command.spawn().and_then(|mut child| wait(&mut child));
    let (status, _) = ended.map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(failed(command, status, "")) }
}

/// Runs a command to completion and returns what it printed. Standard error is read only if it is
/// piped.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = thread::scope(|scope| {
        let stderr = scope.spawn(|| read_all(err));
        (read_all(out), stderr.join())
    });
    let stderr = stderr.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let (status, _) = wait(&mut child)?;
    Ok(Output { status, stdout: stdout?, stderr })
}

fn read_all(stream: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.map_or(Ok(0), |mut stream| stream.read_to_end(&mut bytes))?;
    Ok(bytes)
}

/// Waits for a program's end. Returns its status, and the CPU time of the program and of the
/// children that it waited for.
pub(crate) fn wait(child: &mut Child) -> io::Result<(ExitStatus, Duration)> {
    let pid = Pid::from_child(child);
    // Until it is reaped, its times can be read.
    retry_on_intr(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT))?;
    let cpu = cpu_time_of(child);
    CPU_TIME.set(CPU_TIME.get() + cpu);
    Ok((child.wait()?, cpu))
}

/// CPU time of all programs that this thread has waited for, and of their children.
pub(crate) fn cpu_time() -> Duration {
    CPU_TIME.get()
}

/// CPU time of a process and of the children that it waited for; 0 if unknown.
fn cpu_time_of(child: &Child) -> Duration {
    let stat = i32::try_from(child.id()).ok().and_then(|pid| Process::new(pid).ok()?.stat().ok());
    let ticks = stat.map_or(0, |stat| {
        stat.utime + stat.stime + stat.cutime.unsigned_abs() + stat.cstime.unsigned_abs()
    });
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// The command line for display, without quoting.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Formats an error with its causes in one line.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(crate) fn start_error(command: &Command, source: io::Error) -> CommandError {
    CommandError::Start { command: command_line(command), source }
}

pub(crate) fn failed(command: &Command, status: ExitStatus, stderr: &str) -> CommandError {
    CommandError::Failed {
        command: command_line(command),
        status,
        stderr: stderr.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its child uses more CPU time than a clock tick.
    fn busy() -> Command {
        let mut shell = Command::new("sh");
        let script =
            "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo a; echo b >&2";
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn cpu_time_includes_children_and_belongs_to_the_thread() {
        let least = Duration::from_millis(50);
        let before = cpu_time();
        run(busy().stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let after_run = cpu_time() - before;
        assert!(after_run >= least, "{after_run:?}");
        assert_eq!(output_of(&mut busy()).unwrap(), b"a\n");
        assert!(cpu_time() - before >= after_run + least, "{:?}", cpu_time() - before);
        assert_eq!(thread::spawn(cpu_time).join().unwrap(), Duration::ZERO);
    }

    #[test]
    fn an_error_has_the_command_and_its_standard_error() {
        let error = output_of(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("sh -c echo why") && text.ends_with("exit status: 3: why"),
            "{text}"
        );
        let error = run(&mut Command::new("/no/such/program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /no/such/program");
    }
}
