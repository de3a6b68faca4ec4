// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace man`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Result, from_local};
use crate::output::Output;

/// Write the manual pages
///
/// Writes terrace.1 and a page for every verb, such as terrace-put.1, into DIR, which is made if
/// it is missing. Without DIR the main page goes to standard output.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// Where to put the pages
    directory: Option<PathBuf>,
}

impl Verb for Man {
    const NAME: &'static str = "man";
    const GROUP: Group = Group::Shell;
    const EXAMPLES: &'static str = "
  terrace man | man -l -                        read the main page
  terrace man ~/.local/share/man/man1           install all pages; then: man terrace-put";

    fn run(self, context: &Context) -> Result<()> {
        let mut command = context.command_line().disable_help_subcommand(true);
        // Gives subcommands their full names, such as `terrace-kv-put`.
        command.build();
        let Some(directory) = &self.directory else {
            let mut output = Output::new();
            output.bytes(&page(&command))?;
            return output.flush();
        };
        context.check_output(&directory.join("terrace.1"))?;
        let written = fs::create_dir_all(directory).and_then(|()| write_pages(directory, &command));
        Ok(written.map_err(|error| {
            from_local("write the manual pages", error).with("path", directory.display())
        })?)
    }
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(directory: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    fs::write(directory.join(format!("{name}.1")), page(command))?;
    command.get_subcommands().try_for_each(|subcommand| write_pages(directory, subcommand))
}

fn page(command: &Command) -> Vec<u8> {
    let mut page = Vec::new();
    render(command, &mut page).expect("writing to memory does not fail");
    page
}

fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let generator = clap_mangen::Man::new(command.clone());
    generator.render_title(page)?;
    generator.render_name_section(page)?;
    generator.render_synopsis_section(page)?;
    generator.render_description_section(page)?;
    generator.render_options_section(page)?;
    if command.has_subcommands() {
        generator.render_subcommands_section(page)?;
    }
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    page.extend_from_slice(verbatim_sections(&after).as_bytes());
    Ok(())
}

/// Turns `Heading:` and the lines below it into sections whose lines stay as they are; the
/// generator's own rendering would run the lines of a table together.
fn verbatim_sections(text: &str) -> String {
    let mut roff = String::new();
    for line in text.lines() {
        match line.strip_suffix(':') {
            Some(heading) if !heading.starts_with(' ') => {
                roff.push_str(&format!(".fi\n.SH \"{}\"\n.nf\n", heading.to_uppercase()));
            }
            _ => {
                // At the start of a line a dot or a quote would be a request.
                roff.push_str("\\&");
                roff.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
                roff.push('\n');
            }
        }
    }
    roff.push_str(".fi\n");
    roff
}
