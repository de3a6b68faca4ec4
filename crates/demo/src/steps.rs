// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What to try next: commands that work as they are printed.

use std::env;
use std::path::Path;

use super::measure::NAMESPACE;
use super::place::Place;

/// A command and what it shows.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it shows.
    pub what: String,
    /// What to type.
    pub command: String,
}

/// The commands for the store that stays, and how to change the example policy.
pub(crate) fn steps(
    place: &Place,
    example_policy: &Path,
    partdiff: &partdiff::Settings,
) -> Vec<Step> {
    let terrace = program();
    let store = quote(&place.kept_store());
    let key = format!("{NAMESPACE}/checkpoint-{:06}", partdiff.checkpoints / 2);
    let step = |what: &str, command| Step { what: what.into(), command };
    let mut steps = vec![
        step(
            "where is a checkpoint, why, and since when?",
            format!("{terrace} --store {store} explain {key}"),
        ),
        step("move it yourself", format!("{terrace} --store {store} migrate {key} --to fast")),
        step(
            "let checkpoints stay on the fast tier for a minute from now on",
            format!("{terrace} --store {store} policy set timeout=1min"),
        ),
    ];
    let source = example_policy.with_extension("c");
    if let (true, Some(folder)) = (source.is_file(), source.parent()) {
        steps.push(step(
            "edit the example policy, build it, see the difference",
            format!(
                "${{EDITOR:-vi}} {} && make -C {} && {terrace} demo --dir {}",
                quote(&source),
                quote(folder),
                quote(place.dir()),
            ),
        ));
    }
    steps
}

/// How this program is called: by its name where the shell finds it, else by its path.
fn program() -> String {
    let Ok(program) = env::current_exe() else { return "terrace".into() };
    let is_found = env::var_os("PATH").is_some_and(|path| {
        let first = env::split_paths(&path).map(|dir| dir.join("terrace")).find(|it| it.is_file());
        first.and_then(|it| it.canonicalize().ok()).is_some_and(|it| it == program)
    });
    if is_found {
        return "terrace".into();
    }
    let here = env::current_dir().ok();
    let relative = here.and_then(|here| program.strip_prefix(here).ok().map(Path::to_owned));
    quote(&relative.unwrap_or(program))
}

/// Quotes a path for the shell where that is needed.
fn quote(path: &Path) -> String {
    terrace_console::output::quote(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_the_shell_would_split_it() {
        assert_eq!(quote(Path::new("terrace-demo/store")), "terrace-demo/store");
        assert_eq!(quote(Path::new("it's here")), r"'it'\''s here'");
    }
}
