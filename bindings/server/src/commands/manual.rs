//! `tollgate completions` and `tollgate man`, from the declarations of the arguments.

use super::print_line;
use crate::error::StartError;
use clap::CommandFactory as _;
use clap_complete::Shell;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), StartError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Arguments::command(), "tollgate", &mut script);
        print_line(String::from_utf8_lossy(&script).trim_end());
        Ok(())
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Man {
    /// The command
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

impl Man {
    pub(super) fn run(self) -> Result<(), StartError> {
        let mut program = super::Arguments::command();
        // Gives the commands their names: tollgate-serve.
        program.build();
        let command = match &self.command {
            None => &program,
            Some(name) => program.find_subcommand(name).ok_or_else(|| {
                let names = program.get_subcommands().map(clap::Command::get_name).collect::<Vec<_>>().join(", ");
                StartError::new(format!("there is no command {name:?}; the commands are {names}"))
            })?,
        };
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command.clone())
            .source(concat!("tollgate ", env!("CARGO_PKG_VERSION")))
            .render(&mut page);
        rendered.map_err(|error| StartError::new(format!("cannot write the page: {error}")))?;
        print_line(String::from_utf8_lossy(&page).trim_end());
        Ok(())
    }
}
