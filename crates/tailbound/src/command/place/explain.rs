//! `tailbound place fit` and `explain`.

use super::request::{RequestArgs, flags, words};
use super::service::Service;
use super::tables::placed;
use crate::exit::{Exit, Failure};
use std::fmt::Write as _;
use tailbound_api::Explanation;
use tailbound_placement::Request;
use tailbound_report::{Paint, Table};

/// Arguments of `tailbound place fit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 the request fits; 1 the request does not fit; 2 failed.")]
pub(super) struct Fit {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    service: Service,
}

/// Arguments of `tailbound place explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 the request fits; 1 the request does not fit; 2 failed.")]
pub(super) struct Explain {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    service: Service,
}

impl Fit {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = self.request.request()?;
        let explanation = self.service.ask(|client| client.fit(&request))?;
        Ok(print(&self.service, &request, &explanation))
    }
}

impl Explain {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = self.request.request()?;
        let explanation = self.service.ask(|client| client.explain(&request))?;
        Ok(print(&self.service, &request, &explanation))
    }
}

fn print(service: &Service, request: &Request, explanation: &Explanation) -> Exit {
    service.print("place-explain", explanation, |paint| {
        if explanation.fits {
            let fits = paint.good("FITS");
            let hosts = placed(&explanation.hosts, paint);
            format!("{fits}  {}\n\n{hosts}", words(request))
        } else {
            let refused = paint.bad("DOES NOT FIT");
            format!("{refused}  {}\n{}", words(request), why(explanation, paint))
        }
    });
    Exit::holds(explanation.fits)
}

/// Returns the reason of a refusal: the rule, the port and the excess, and the flags of requests
/// that would be admitted.
pub(super) fn why(explanation: &Explanation, paint: Paint) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    if let Some(refusal) = &explanation.refusal {
        let _ = writeln!(out, "{refusal}");
    }
    if let Some(overload) = &explanation.overload {
        // Where the rule is about a port, its words are the port's.
        let names_overload = |refusal: &String| refusal.contains(&overload.message);
        if !explanation.refusal.as_ref().is_some_and(names_overload) {
            let _ = writeln!(out, "{}", overload.message);
        }
    }
    if !explanation.nearest.is_empty() {
        out.push('\n');
        let mut table = Table::new(&["would pass now", "flags"], &[1]);
        for near in &explanation.nearest {
            table.row([near.change.as_str(), &flags(&near.request)]);
        }
        out += &table.render(paint);
    }
    out
}
