// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line: phases as subcommands, patterns by the parameters of IOR and mdtest.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

use crate::data::{DataPattern, Limit, Transfers};
use crate::error::{Error, Result};
use crate::items::{Action, Items, ItemsPattern};
use crate::layout::Layout;
use crate::phase::Phase;
use crate::quantity::{bytes, seconds_as_ns};
use crate::tree::Tree;

const ABOUT: &str = "\
Generates parallel load on a file system, by the parameters of IOR and mdtest.

One invocation is one phase, so that it can be metered by itself: `write`, `read`, `create`, `stat`, \
`read-files`, `remove`. All processes prepare, wait for each other, begin together, and are measured \
each from its own begin to its own end: for data from before the file is opened until it is synced \
(with -e) and closed. One JSON document on standard output says when each process began and ended \
(CLOCK_REALTIME and CLOCK_MONOTONIC_RAW in nanoseconds), what it did, and how long single operations \
took.

Only work that was done whole is counted. If anything fails in any process, nothing is printed on \
standard output, the reason is on standard error, and the exit status is not 0.";

const AFTER: &str = "\
Examples:
  Four processes write 1 GiB each to files of their own and sync them; then each reads what the next
  one wrote, and compares it:
    terrace-gen write -o /mnt/x/data -F -t 1m -b 1g -e -k --processes 4
    terrace-gen read  -o /mnt/x/data -F -t 1m -b 1g -C -R -k --processes 4

  Random writes of 4 KiB for 30 seconds, 16 at a time, in a file that is there:
    terrace-gen write -o /mnt/x/data -t 4k -b 4g -z -E -k --threads 16 --duration 30

  50000 files of 1 KiB in one directory, by four processes:
    terrace-gen create     -d /mnt/x -n 12500 -F -w 1k --processes 4
    terrace-gen stat       -d /mnt/x -n 12500 -F -N 1 --processes 4
    terrace-gen read-files -d /mnt/x -n 12500 -e 1k -N 2 --processes 4
    terrace-gen remove     -d /mnt/x -n 12500 -F --processes 4

  Two hosts, the second with two processes:
    c1$ terrace-gen write -o /mnt/x/data -F -b 1g --listen 0.0.0.0:7700 --workers 2 --processes 2 \\
            --secret-file secret
    c2$ terrace-gen write -o /mnt/x/data -F -b 1g --join c1:7700 --first-rank 2 --processes 2 \\
            --secret-file secret

  Under MPI, with the same command line for all ranks:
    mpirun -n 8 terrace-gen write -o /mnt/x/data -F -b 1g --mpi c1:7700 --secret-file secret

Latencies come from a log-linear histogram and are told at most 1/128 too large.

Exit status: 0 where all work was done, 1 where anything failed, 2 for a wrong command line.";

const NOTES: &str = "\
Sizes are bytes, or have a unit: k, m, g, t and KiB, MiB, GiB, TiB are powers of 1024, kB, MB, \
GB, TB of 1000. `terrace-gen --help` has examples.";

/// A parallel load generator.
#[derive(Debug, Parser)]
#[command(name = "terrace-gen", version, about = "Generates parallel load on a file system",
    long_about = ABOUT, after_long_help = AFTER, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    phase: PhaseArguments,
}

#[derive(Debug, Subcommand)]
enum PhaseArguments {
    /// Writes files: IOR -w
    #[command(after_help = NOTES)]
    Write(WriteArguments),
    /// Reads files that `write` has written: IOR -r
    #[command(after_help = NOTES)]
    Read(ReadArguments),
    /// Creates files and directories: mdtest -C
    #[command(after_help = NOTES)]
    Create(CreateArguments),
    /// Asks for the attributes of what `create` has created: mdtest -T
    #[command(after_help = NOTES)]
    Stat(ItemsOfKind),
    /// Opens, reads and closes files that `create` has created: mdtest -E
    #[command(after_help = NOTES)]
    ReadFiles(ReadFilesArguments),
    /// Removes what `create` has created: mdtest -r
    #[command(after_help = NOTES)]
    Remove(ItemsOfKind),
}

/// What the two phases of data have in common.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pattern")]
struct DataArguments {
    /// The file; with -F, the number of the process is added to its name
    #[arg(short = 'o', long, value_name = "FILE")]
    test_file: PathBuf,
    /// A file for each process, in place of one that all share
    #[arg(short = 'F', long)]
    file_per_process: bool,
    /// Bytes of one call
    #[arg(short = 't', long, value_name = "BYTES", default_value = "256k", value_parser = bytes)]
    transfer_size: u64,
    /// Contiguous bytes of one process: a multiple of the transfer size
    #[arg(short = 'b', long, value_name = "BYTES", default_value = "1m", value_parser = bytes)]
    block_size: u64,
    /// Segments: each holds a block of every process that shares the file
    #[arg(short = 's', long, value_name = "N", default_value_t = 1)]
    segments: u64,
    /// Transfers in random order, each still once; in a shared file over all of it
    #[arg(short = 'z', long)]
    random_offsets: bool,
    /// Of the random order and of the bytes that are written
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Past the page cache (O_DIRECT); sizes must be multiples of the device's sector
    #[arg(long)]
    direct: bool,
    /// Process R works on what falls to process R+N, so that no process reads what it wrote;
    /// without a number, N is 1
    #[arg(short = 'C', long, value_name = "N", num_args = 0..=1, default_value_t = 0,
        default_missing_value = "1")]
    reorder_tasks: u64,
    /// Do not remove the files after the phase
    #[arg(short = 'k', long)]
    keep_file: bool,
    /// Threads of each process: they share its transfers and its open file, which makes them the
    /// depth of the queue
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Each process stops after that time if it is not done before; only finished transfers count
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds_as_ns,
        conflicts_with = "duration")]
    stonewall: Option<u64>,
    /// Fixed time in place of fixed work: a process that is done begins anew
    #[arg(long, value_name = "SECONDS", value_parser = seconds_as_ns)]
    duration: Option<u64>,
}

#[derive(Args, Debug)]
struct WriteArguments {
    #[command(flatten)]
    data: DataArguments,
    /// Sync each file before it is closed, within the measured time
    #[arg(short = 'e', long, help_heading = "Pattern")]
    fsync: bool,
    /// Sync after each write, as a part of it
    #[arg(short = 'Y', long, help_heading = "Pattern")]
    fsync_per_write: bool,
    /// Write into files that are there; without this they are removed first
    #[arg(short = 'E', long, help_heading = "Pattern")]
    use_existing_file: bool,
    /// Read back and compare everything after the phase, outside the measured time
    #[arg(short = 'W', long, help_heading = "Pattern", conflicts_with_all = ["stonewall", "duration"])]
    check_write: bool,
    #[command(flatten)]
    group: GroupArguments,
}

#[derive(Args, Debug)]
struct ReadArguments {
    #[command(flatten)]
    data: DataArguments,
    /// Compare what is read with what was written, within the measured time; the seed must be that
    /// of the writing
    #[arg(short = 'R', long, help_heading = "Pattern")]
    check_read: bool,
    #[command(flatten)]
    group: GroupArguments,
}

/// What all phases of metadata have in common.
#[derive(Args, Debug)]
#[command(next_help_heading = "Pattern")]
struct ItemsArguments {
    /// Where the tree of directories is, or is made
    #[arg(short = 'd', long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Items of each process: so many files and so many directories
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    items: u64,
    /// Levels of directories below the root of the tree; made before and removed after the phases,
    /// outside the measured time
    #[arg(short = 'z', long, value_name = "LEVELS", default_value_t = 0)]
    depth: u32,
    /// Directories below each directory of the tree
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1)]
    branch: u64,
    /// Items in the directories of the lowest level alone; without this in all, evenly
    #[arg(short = 'L', long)]
    leaf_only: bool,
    /// A tree for each process, in place of one that all share
    #[arg(short = 'u', long)]
    unique_directory: bool,
    /// Process R works on the items of process R+N
    #[arg(short = 'N', long, value_name = "N", default_value_t = 0)]
    stride: u64,
    /// Threads of each process, which share its items
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Of the bytes of files
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Pattern")]
struct KindArguments {
    /// No directories
    #[arg(short = 'F', long)]
    files_only: bool,
    /// No files
    #[arg(short = 'D', long, conflicts_with = "files_only")]
    directories_only: bool,
}

#[derive(Args, Debug)]
struct ItemsOfKind {
    #[command(flatten)]
    items: ItemsArguments,
    #[command(flatten)]
    kind: KindArguments,
    #[command(flatten)]
    group: GroupArguments,
}

#[derive(Args, Debug)]
struct CreateArguments {
    #[command(flatten)]
    items: ItemsArguments,
    #[command(flatten)]
    kind: KindArguments,
    /// Bytes written to each file
    #[arg(short = 'w', long, value_name = "BYTES", default_value = "0", value_parser = bytes,
        help_heading = "Pattern")]
    write_bytes: u64,
    /// Sync each file before it is closed
    #[arg(short = 'y', long, help_heading = "Pattern")]
    sync_file: bool,
    #[command(flatten)]
    group: GroupArguments,
}

#[derive(Args, Debug)]
struct ReadFilesArguments {
    #[command(flatten)]
    items: ItemsArguments,
    /// Bytes read from each file; it must have as many
    #[arg(short = 'e', long, value_name = "BYTES", default_value = "0", value_parser = bytes,
        help_heading = "Pattern")]
    read_bytes: u64,
    /// Compare what is read with what was written; the seed must be that of the creation
    #[arg(short = 'R', long, help_heading = "Pattern")]
    check_read: bool,
    #[command(flatten)]
    group: GroupArguments,
}

/// The processes and hosts that take part.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Processes")]
pub(crate) struct GroupArguments {
    /// Processes on this host; 1, or with --listen 0, unless it is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=4096))]
    processes: Option<u64>,
    /// Coordinate processes of several hosts: wait here for those that join
    #[arg(long, value_name = "ADDRESS", requires_all = ["workers", "secret_file"])]
    listen: Option<String>,
    /// Processes that will join, beside those of --processes, which have the first ranks
    #[arg(long, value_name = "N", requires = "listen", value_parser = clap::value_parser!(u64).range(0..=4096))]
    workers: Option<u64>,
    /// Take part in what is coordinated there; all else must be given as there, but for where the
    /// files are
    #[arg(long, value_name = "ADDRESS", requires_all = ["first_rank", "secret_file"],
        conflicts_with = "listen")]
    join: Option<String>,
    /// Rank of the first process of this host, counted from 0
    #[arg(long, value_name = "RANK", requires = "join")]
    first_rank: Option<u64>,
    /// Ranks started by mpirun find each other here: rank 0 listens, the others join. Rank and size
    /// come from OMPI_COMM_WORLD_RANK and _SIZE, or PMI_RANK and PMI_SIZE
    #[arg(long, value_name = "ADDRESS", requires = "secret_file",
        conflicts_with_all = ["listen", "join", "processes"])]
    mpi: Option<String>,
    /// File with a secret that all hosts share, readable by its owner alone: a host that does not
    /// know it cannot join. What follows on the connection is neither encrypted nor signed
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Longest wait for those that join, and for the coordinator to be there
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds_as_ns)]
    wait: u64,
    /// Longest that all steps of the phase together may take
    #[arg(long, value_name = "SECONDS", default_value = "86400", value_parser = seconds_as_ns)]
    timeout: u64,
    /// This is the worker of that rank, its connection is standard input
    #[arg(long, hide = true, value_name = "RANK", requires = "of")]
    worker: Option<u64>,
    /// Of so many
    #[arg(long, hide = true, value_name = "N")]
    of: Option<u64>,
}

/// What to do: the same in every process of a run, or it is none.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    Data(DataPattern),
    Items(ItemsPattern),
}

/// The processes that take part in it, as this one knows.
#[derive(Debug)]
pub(crate) enum Role {
    Coordinator { processes: u64, remote: Option<Remote>, joining: u64 },
    Member { processes: u64, first_rank: u64, remote: Remote },
    Worker { rank: u64, processes: u64, is_remote: bool },
}

/// A meeting point of several hosts.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) address: String,
    pub(crate) secret_file: PathBuf,
}

/// The command line, understood.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) phase: &'static str,
    pub(crate) pattern: Pattern,
    /// The file, or the directory, on this host.
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
    pub(crate) wait: Duration,
    pub(crate) timeout: Duration,
}

impl Pattern {
    /// Refuses what cannot be laid out for so many processes.
    pub(crate) fn check(&self, processes: u64) -> Result<()> {
        match self {
            Self::Data(pattern) => pattern.layout.check(processes),
            Self::Items(pattern) => pattern.tree.check(),
        }
    }

    /// The part of one process.
    pub(crate) fn part(&self, path: &Path, rank: u64, processes: u64) -> Box<dyn Phase> {
        match self {
            Self::Data(pattern) => Box::new(Transfers::new(pattern.clone(), path, rank, processes)),
            Self::Items(pattern) => Box::new(Items::new(pattern.clone(), path, rank, processes)),
        }
    }
}

impl Arguments {
    /// Understands the command line, with the variables of mpirun where it asks for them.
    pub(crate) fn plan(self, variable: impl Fn(&str) -> Option<String>) -> Result<Plan> {
        let (phase, pattern, path, group) = match self.phase {
            PhaseArguments::Write(write) => {
                let pattern = DataPattern {
                    is_write: true,
                    is_synced_at_end: write.fsync,
                    is_synced_each_write: write.fsync_per_write,
                    is_checked: write.check_write,
                    is_existing_file_used: write.use_existing_file,
                    ..write.data.pattern()
                };
                ("write", Pattern::Data(pattern), write.data.test_file, write.group)
            }
            PhaseArguments::Read(read) => {
                let pattern = DataPattern { is_checked: read.check_read, ..read.data.pattern() };
                ("read", Pattern::Data(pattern), read.data.test_file, read.group)
            }
            PhaseArguments::Create(create) => {
                let pattern = ItemsPattern {
                    bytes: create.write_bytes,
                    is_synced: create.sync_file,
                    ..create.items.pattern(Action::Create, &create.kind)
                };
                ("create", Pattern::Items(pattern), create.items.directory, create.group)
            }
            PhaseArguments::Stat(stat) => {
                let pattern = stat.items.pattern(Action::Stat, &stat.kind);
                ("stat", Pattern::Items(pattern), stat.items.directory, stat.group)
            }
            PhaseArguments::ReadFiles(read) => {
                let files = KindArguments { files_only: true, directories_only: false };
                let pattern = ItemsPattern {
                    bytes: read.read_bytes,
                    is_checked: read.check_read,
                    ..read.items.pattern(Action::ReadFiles, &files)
                };
                ("read-files", Pattern::Items(pattern), read.items.directory, read.group)
            }
            PhaseArguments::Remove(remove) => {
                let pattern = remove.items.pattern(Action::Remove, &remove.kind);
                ("remove", Pattern::Items(pattern), remove.items.directory, remove.group)
            }
        };
        let plan = Plan {
            phase,
            pattern,
            path,
            wait: Duration::from_nanos(group.wait),
            timeout: Duration::from_nanos(group.timeout),
            role: group.role(variable)?,
        };
        if let Role::Coordinator { processes, joining, .. } = plan.role {
            plan.pattern.check(processes + joining)?;
        }
        Ok(plan)
    }
}

impl DataArguments {
    fn pattern(&self) -> DataPattern {
        DataPattern {
            is_write: false,
            layout: Layout {
                is_file_per_process: self.file_per_process,
                transfer_bytes: self.transfer_size,
                block_bytes: self.block_size,
                segments: self.segments,
                is_random: self.random_offsets,
                seed: self.seed,
            },
            threads: self.threads,
            reorder: self.reorder_tasks,
            is_direct: self.direct,
            is_synced_at_end: false,
            is_synced_each_write: false,
            is_checked: false,
            is_kept: self.keep_file,
            is_existing_file_used: false,
            limit: match (self.stonewall, self.duration) {
                (Some(ns), _) => Limit::Stonewall(ns),
                (None, Some(ns)) => Limit::Duration(ns),
                (None, None) => Limit::Work,
            },
        }
    }
}

impl ItemsArguments {
    fn pattern(&self, action: Action, kind: &KindArguments) -> ItemsPattern {
        ItemsPattern {
            action,
            items: self.items,
            has_files: !kind.directories_only,
            has_directories: !kind.files_only,
            tree: Tree { depth: self.depth, branches: self.branch, is_leaf_only: self.leaf_only },
            is_unique_directory: self.unique_directory,
            threads: self.threads,
            stride: self.stride,
            bytes: 0,
            is_synced: false,
            is_checked: false,
            seed: self.seed,
        }
    }
}

impl GroupArguments {
    fn role(self, variable: impl Fn(&str) -> Option<String>) -> Result<Role> {
        let is_remote = self.join.is_some() || self.mpi.is_some();
        if let (Some(rank), Some(processes)) = (self.worker, self.of) {
            return Ok(Role::Worker { rank, processes, is_remote });
        }
        let remote = |address| {
            let secret_file = self.secret_file.clone();
            let secret_file = secret_file.expect("the command line requires it with an address");
            Remote { address, secret_file }
        };
        if let Some(address) = self.mpi {
            let (rank, size) = mpi_rank(variable)?;
            let remote = remote(address);
            return Ok(match rank {
                0 => Role::Coordinator { processes: 1, remote: Some(remote), joining: size - 1 },
                _ => Role::Member { processes: 1, first_rank: rank, remote },
            });
        }
        if let (Some(address), Some(first_rank)) = (self.join, self.first_rank) {
            let processes = self.processes.unwrap_or(1).max(1);
            return Ok(Role::Member { processes, first_rank, remote: remote(address) });
        }
        let joining = self.workers.unwrap_or(0);
        let remote = self.listen.map(remote);
        let processes = self.processes.unwrap_or(u64::from(remote.is_none()));
        if processes + joining == 0 {
            return Err(Error::new("begin", "there are no processes"));
        }
        Ok(Role::Coordinator { processes, remote, joining })
    }
}

/// Rank and size as the launchers of Open MPI and of MPICH say them.
fn mpi_rank(variable: impl Fn(&str) -> Option<String>) -> Result<(u64, u64)> {
    for (rank, size) in [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]
    {
        let number = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
        if let (Some(rank), Some(size)) = (number(rank), number(size)) {
            if rank >= size {
                let reason = "the rank is not below the size";
                let error = Error::new("find the ranks", reason);
                return Err(error.with("rank", rank).with("size", size));
            }
            return Ok((rank, size));
        }
    }
    let reason = "neither OMPI_COMM_WORLD_RANK and _SIZE nor PMI_RANK and PMI_SIZE are set";
    Err(Error::new("find the ranks", reason))
}

/// The addresses that a name stands for.
pub(crate) fn resolve(address: &str) -> Result<Vec<std::net::SocketAddr>> {
    let found = address.to_socket_addrs();
    let found = found.map_err(|error| Error::system("resolve", error).with("address", address));
    found.map(Iterator::collect)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Arguments, Role};

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn ranks_come_from_either_launcher() {
        let parse = || {
            let words = ["terrace-gen", "write", "-o", "f", "--mpi", "h:1", "--secret-file", "s"];
            Arguments::parse_from(words)
        };
        for (rank_name, size_name) in
            [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]
        {
            let variable = |rank: &'static str| {
                move |name: &str| match name {
                    name if name == rank_name => Some(rank.to_owned()),
                    name if name == size_name => Some("3".to_owned()),
                    _ => None,
                }
            };
            let first = parse().plan(variable("0")).unwrap().role;
            assert!(matches!(first, Role::Coordinator { processes: 1, joining: 2, .. }));
            let last = parse().plan(variable("2")).unwrap().role;
            assert!(matches!(last, Role::Member { processes: 1, first_rank: 2, .. }));
            assert!(parse().plan(variable("3")).is_err());
        }
        assert!(parse().plan(|_| None).is_err());
    }

    #[test]
    fn blocks_of_odd_size_are_refused_before_anything_is_made() {
        let words = ["terrace-gen", "write", "-o", "f", "-t", "4k", "-b", "5k"];
        let error = Arguments::parse_from(words).plan(|_| None).unwrap_err().to_string();
        assert!(error.contains("multiple of a transfer"), "{error}");
    }
}
