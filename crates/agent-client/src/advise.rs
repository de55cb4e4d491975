//! `cpuwarden advise`: prints the advice of a running agent.

use api::AdviceReport;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use console::{Failure, output};

use crate::args::AgentArgs;
use crate::client::{AgentClient, block_on};
use crate::render::{AdviceFormat, render};

/// Options of `cpuwarden advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// Only containers of this namespace
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
    /// Only containers of this pod
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub pod: Option<String>,
    /// Output format: patch prints one strategic-merge patch per container
    #[arg(short, long, value_enum, default_value_t)]
    pub output: AdviceFormat,
    /// Options of the connection.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, or the answer is not advice.
pub fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let client = AgentClient::new(&args.agent)?;
    let mut report: AdviceReport = block_on(client.get("/api/v1/advice"))?;
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    report
        .containers
        .retain(|row| is_wanted(&args.namespace, &row.namespace) && is_wanted(&args.pod, &row.pod));
    output::show(&render(&report, args.output)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::process::Command;

    use api::ContainerReport;
    use clap::ValueEnum as _;

    use super::*;
    use crate::args::ConnectionArgs;

    /// Answers each request with the advice.
    fn serve(listener: &TcpListener, report: &AdviceReport) {
        let body = serde_json::to_string(report).unwrap();
        for stream in listener.incoming().map(Result::unwrap) {
            let request = BufReader::new(&stream).lines().map(Result::unwrap);
            request.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    }

    #[test]
    fn control_characters_in_a_pods_name_do_not_reach_the_terminal() {
        let container = ContainerReport {
            namespace: "shop".into(),
            pod: "cart\x1b[2J".into(),
            qos_change: Some("\u{9b}2J".into()),
            ..ContainerReport::default()
        };
        let report = AdviceReport { objective: 0.01, containers: vec![container] };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &report));
        let printed = Command::new(std::env::current_exe().unwrap())
            .args(["advise::tests::print_advice", "--exact", "--ignored", "--nocapture"])
            .env("AGENT", address.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.status.success() && text.contains("shop/cart\u{fffd}[2J/"), "{text:?}");
        assert!(!text.contains(['\x1b', '\u{9b}']), "{text:?}");
    }

    /// Runs in a process of its own.
    #[test]
    #[ignore = "started by another test"]
    fn print_advice() {
        let address = std::env::var("AGENT").unwrap().parse().unwrap();
        let connection = ConnectionArgs::default();
        let agent = AgentArgs { address, tls_cert: None, connection };
        let mut args =
            AdviseArgs { namespace: None, pod: None, output: AdviceFormat::Table, agent };
        for output in AdviceFormat::value_variants() {
            args.output = *output;
            advise(&args).unwrap();
        }
    }
}
