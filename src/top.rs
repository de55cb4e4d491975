//! `cpuwarden top`: the terminal view of a running agent, or of this machine where none runs.

pub(crate) mod live;
mod local;

use std::io::IsTerminal as _;
use std::net::TcpStream;
use std::time::Duration;

use ::top::Shown;
use agent_client::{AgentClient, DEFAULT_ADDRESS};

use crate::cli::TopArgs;
use crate::exit::Failure;

/// Time in which an agent of this machine accepts a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// Shows the view until the user leaves or a signal comes; with `--once`, or if standard output is
/// not a terminal, prints one table.
///
/// # Errors
/// No agent answers at the address, or this process cannot measure by itself.
pub(crate) fn top(args: TopArgs) -> Result<(), Failure> {
    let is_once = args.once || !std::io::stdout().is_terminal();
    let runs_here = || TcpStream::connect_timeout(&DEFAULT_ADDRESS, CONNECT).is_ok();
    if args.address.is_some() || runs_here() {
        ::top::show_agent(AgentClient::new(&args.agent())?, Shown::default(), is_once)
    } else {
        local::top(args, is_once)
    }
}
