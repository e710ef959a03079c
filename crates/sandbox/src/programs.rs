//! One-shot programs: a fresh interpreter each, its source on standard input.

use pandastack_api_types::{params, views};

use crate::{
    config::ManagerConfig,
    driver::Lease,
    error::{ExecError, RunError},
    exec,
    languages::{Language, OF_PROGRAMS},
    validate,
};

/// A program with every value checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedProgram {
    language: Language,
    exec: exec::CheckedExec,
}

/// Checks a program before anything happens.
pub(crate) fn check(params: params::RunOnce, config: &ManagerConfig) -> Result<CheckedProgram, RunError> {
    let language = Language::parse(params.language, OF_PROGRAMS)?;
    let limit = validate::timeout_ms(params.timeout_ms, config.default_cell_timeout, config.max_timeout)?;
    let exec = exec::program(language.program(), validate::code(params.code)?, limit);
    Ok(CheckedProgram { language, exec })
}

/// Runs a program to its end.
pub(crate) async fn run(lease: &Lease, program: CheckedProgram) -> Result<views::OnceResult, RunError> {
    program.language.check_present(lease, OF_PROGRAMS)?;
    match exec::run(lease, program.exec).await {
        Ok(result) => Ok(views::OnceResult {
            language: program.language.name().to_owned(),
            stdout: result.stdout,
            stderr: result.stderr,
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            truncated: result.truncated,
        }),
        Err(ExecError::Invalid(error)) => Err(error.into()),
        Err(ExecError::Agent(error)) => Err(error.into()),
        Err(ExecError::TimedOut { seconds, partial }) => Err(RunError::ProgramTimedOut { seconds, partial }),
    }
}
