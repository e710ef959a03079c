//! The agent as a process, spoken to over FIFOs through the library that the server uses.

#[cfg(test)]
mod contexts;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod files;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod late;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod renderer;
#[cfg(test)]
mod timings;
