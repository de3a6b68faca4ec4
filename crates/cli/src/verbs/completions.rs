// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace completions`.

use clap::Args;
use clap_complete::Shell;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

/// Print a script that completes command lines in a shell
///
/// Where to put it: the examples show the usual places.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Verb for Completions {
    const NAME: &'static str = "completions";
    const GROUP: Group = Group::Shell;
    const EXAMPLES: &'static str = "
  terrace completions bash > ~/.local/share/bash-completion/completions/terrace
  terrace completions zsh > ~/.zfunc/_terrace
  terrace completions fish > ~/.config/fish/completions/terrace.fish";

    fn run(self, context: &Context) -> Result<()> {
        // In memory first: the generator panics when its writer fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut context.command_line(), "terrace", &mut script);
        let mut output = Output::new();
        output.bytes(&script)?;
        output.flush()
    }
}
