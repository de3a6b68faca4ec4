// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows: what is measured, and how.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_client::Remote;
use terrace_console::progress::Progress;
use terrace_core::{Backend, Key, Kv, Object, Op, Open, Persistency, Request, Result, Semantics};
use terrace_measure::check_stop;
use terrace_measure::compared::{Bar, Comparison, Samples};
use terrace_settings::Settings as StoreSettings;
use terrace_store::Store;
use terrace_transport::Endpoint;

use super::load::{Sample, Work, repeat};
use super::server::Served;
use super::silent::{DEADLINE_S, longest_s};
use super::yardstick::{Echo, files_of, iperf, pread};
use super::{About, Blocks, Row, Settings};
use crate::fast_place;
use crate::place::Scratch;

/// What can be measured, in the order of the table.
pub const ROWS: [&str; 16] = [
    "tcp-read-4m-2c",
    "tcp-write-4m-2c",
    "local-read-4m-2c",
    "local-write-4m-2c",
    "status-16c",
    "status-1c-32deep",
    "status-1c",
    "batch-create-1000",
    "kv-put-1000",
    "kv-get-1000",
    "batch-create-1000-storage",
    "batch-write-4k",
    "striped-2-write",
    "striped-2-read",
    "idle-1000",
    "unreachable",
];

const LARGE_BYTES: usize = 4 << 20;
const SMALL_BYTES: usize = 4 << 10;
const TOGETHER: usize = 1000;

/// Two directories, and the policy that most stores have.
fn tiers(directory: &Path) -> String {
    let tier = |name: &str| {
        let path = directory.with_extension(name);
        format!("[[tier]]\nname = \"{name}\"\nbackend = \"file\"\npath = \"{}\"\n", path.display())
    };
    let tiers = format!("\n{}\n{}", tier("fast"), tier("slow"));
    StoreSettings::text(Some(&tiers), "fjall", Some("lru"))
}

struct Bench<'a> {
    settings: &'a Settings,
    stop: &'a AtomicBool,
    served: Served,
    scratch: Scratch,
    echo: Echo,
    progress: Progress,
}

/// Measures the chosen rows, until `stop` is set.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<Row>> {
    let scratch = Scratch::new(&fast_place())?;
    let directory = scratch.path().join("m");
    let chosen: Vec<_> = ROWS
        .into_iter()
        .filter(|row| settings.rows.is_empty() || settings.rows.iter().any(|one| one == row))
        .collect();
    let total = (chosen.len() * settings.groups) as u64;
    let mut bench = Bench {
        settings,
        stop,
        served: Served::start(&directory, &tiers(&directory), &scratch.path().join("secret"))?,
        scratch,
        echo: Echo::start()?,
        progress: Progress::items("measuring", Some(total)),
    };
    let measured = chosen.into_iter().map(|row| {
        let row = bench.row(row)?;
        bench.progress.aside(|| eprintln!("{}", row.compared.line()));
        Ok(row)
    });
    measured.collect()
}

impl Bench<'_> {
    fn row(&mut self, row: &'static str) -> Result<Row> {
        self.progress.say(row.into());
        let (tcp, unix) = (self.served.tcp.clone(), self.served.unix.clone());
        match row {
            "tcp-read-4m-2c" => {
                let works = self.large_reads(&tcp, 2)?;
                self.transfer(row, "tcp", Bar::Ratio(1.3), works, Yardstick::Iperf)
            }
            "tcp-write-4m-2c" => {
                let works = self.large_writes(&tcp, 2)?;
                self.transfer(row, "tcp", Bar::Ratio(0.9), works, Yardstick::Iperf)
            }
            "local-read-4m-2c" => {
                let works = self.large_reads(&unix, 2)?;
                self.transfer(row, "unix", Bar::Ratio(0.9), works, Yardstick::Pread)
            }
            "local-write-4m-2c" => {
                let works = self.large_writes(&unix, 2)?;
                self.transfer(row, "unix", Bar::Ratio(0.9), works, Yardstick::Iperf)
            }
            "status-16c" => {
                let clients = self.clients(&tcp, 16)?;
                let works = self.stats(&clients)?;
                self.rate(row, Bar::AtLeast(150e3), works, 16)
            }
            "status-1c-32deep" => {
                let client = self.served.client(&tcp)?;
                let works = self.stats(&vec![client; 32])?;
                self.rate(row, Bar::AtLeast(100e3), works, 16)
            }
            "status-1c" => {
                let clients = self.clients(&tcp, 1)?;
                let works = self.stats(&clients)?;
                self.rate(row, Bar::Ratio(0.8), works, 1)
            }
            "batch-create-1000" => self.creates(row, &tcp, 0, Persistency::Process, 90e3),
            "batch-create-1000-storage" => self.creates_on_disk(row),
            "kv-put-1000" => {
                let works = self.puts(&tcp)?;
                self.plain(row, "process", Bar::AtLeast(250e3), works, "JULEA here: 10k/s")
            }
            "kv-get-1000" => {
                let works = self.gets(&tcp)?;
                self.plain(row, "process", Bar::AtLeast(500e3), works, "JULEA here: 9k/s")
            }
            "batch-write-4k" => self.batch_writes(row, &tcp),
            "striped-2-write" => self.striped(row, Way::Write),
            "striped-2-read" => self.striped(row, Way::Read),
            "idle-1000" => self.idle(row),
            "unreachable" => self.unreachable(row),
            _ => unreachable!("the command line has checked the names"),
        }
    }

    fn clients(&self, endpoint: &Endpoint, count: usize) -> Result<Vec<Remote>> {
        (0..count).map(|_| self.served.client(endpoint)).collect()
    }

    fn large_objects(&self, endpoint: &Endpoint, count: usize) -> Result<Vec<Box<dyn Object>>> {
        let mut objects = Vec::new();
        for index in 0..count {
            let key = Key::new("large", &index.to_string())?;
            let client = self.served.client(endpoint)?;
            client
                .open(&key, &Open::create())?
                .write_at(0, &[IoSlice::new(&vec![7; LARGE_BYTES])])?;
            objects.push(client.open(&key, &Open::write())?);
        }
        Ok(objects)
    }

    fn large_reads(&self, endpoint: &Endpoint, count: usize) -> Result<Vec<Work<'static>>> {
        let objects = self.large_objects(endpoint, count)?;
        Ok(objects
            .into_iter()
            .map(|object| {
                let mut buffer = vec![0; LARGE_BYTES];
                let work: Work<'static> = Box::new(move || {
                    let count = object.read_at(0, &mut [IoSliceMut::new(&mut buffer)])?;
                    assert_eq!(count, LARGE_BYTES);
                    Ok(1)
                });
                work
            })
            .collect())
    }

    fn large_writes(&self, endpoint: &Endpoint, count: usize) -> Result<Vec<Work<'static>>> {
        let objects = self.large_objects(endpoint, count)?;
        Ok(objects
            .into_iter()
            .map(|object| {
                let buffer = vec![9; LARGE_BYTES];
                let work: Work<'static> = Box::new(move || {
                    object.write_at(0, &[IoSlice::new(&buffer)])?;
                    Ok(1)
                });
                work
            })
            .collect())
    }

    fn stats(&self, clients: &[Remote]) -> Result<Vec<Work<'static>>> {
        const OBJECTS: u64 = 1000;
        let keys: Vec<Key> = (0..OBJECTS)
            .map(|index| Key::new("small", &index.to_string()))
            .collect::<Result<_>>()?;
        for key in &keys {
            clients[0].open(key, &Open::create())?;
        }
        let keys = Arc::new(keys);
        let works = clients.iter().enumerate().map(|(index, client)| {
            let (client, keys) = (client.clone(), Arc::clone(&keys));
            let mut next = index * 37;
            let work: Work<'static> = Box::new(move || {
                next += 1;
                client.stat(&keys[next % keys.len()])?;
                Ok(1)
            });
            work
        });
        Ok(works.collect())
    }

    fn puts(&self, endpoint: &Endpoint) -> Result<Vec<Work<'static>>> {
        let kv = self.served.client(endpoint)?.kv("bench");
        let mut next = 0_u64;
        Ok(vec![Box::new(move || {
            let keys: Vec<_> =
                (0..TOGETHER as u64).map(|index| (next + index).to_be_bytes()).collect();
            next += TOGETHER as u64;
            let changes: Vec<_> =
                keys.iter().map(|key| (&key[..], Some(&b"a value of a few bytes"[..]))).collect();
            kv.apply(&changes, Persistency::Process)?;
            Ok(TOGETHER as u64)
        })])
    }

    fn gets(&self, endpoint: &Endpoint) -> Result<Vec<Work<'static>>> {
        const PAIRS: u64 = 10_000;
        let kv = self.served.client(endpoint)?.kv("read");
        for start in (0..PAIRS).step_by(TOGETHER) {
            let keys: Vec<_> = (start..start + TOGETHER as u64).map(u64::to_be_bytes).collect();
            let changes: Vec<_> =
                keys.iter().map(|key| (&key[..], Some(&b"a value of a few bytes"[..]))).collect();
            kv.apply(&changes, Persistency::Process)?;
        }
        kv.get(&0_u64.to_be_bytes())?.expect("it was just put");
        let mut next = 0_u64;
        Ok(vec![Box::new(move || {
            // Not in order: a step that shares no factor with the number of pairs.
            let keys: Vec<_> = (0..TOGETHER as u64)
                .map(|index| ((next + index * 7919) % PAIRS).to_be_bytes())
                .collect();
            next += 1;
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let values = kv.get_many(&keys)?;
            assert!(values.iter().all(Option::is_some));
            Ok(TOGETHER as u64)
        })])
    }

    /// Batches of new objects, which are removed after every block.
    fn creates(
        &mut self,
        row: &'static str,
        endpoint: &Endpoint,
        bytes: usize,
        level: Persistency,
        bar: f64,
    ) -> Result<Row> {
        let client = self.served.client(endpoint)?;
        let data = vec![3; bytes];
        let semantics = Semantics { persistency: level, ..Semantics::default() };
        let made = AtomicU64::new(0);
        let keys = |start: u64| -> Result<Vec<Key>> {
            let names = (start..start + TOGETHER as u64).map(|index| format!("object-{index}"));
            names.map(|name| Key::new("batch", &name)).collect()
        };
        let mut removed = 0;
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            let work: Work<'_> = Box::new(|| {
                let start = made.fetch_add(TOGETHER as u64, Ordering::Relaxed);
                let keys = keys(start)?;
                let hint = terrace_core::Hint::default();
                let create = |key| Op::new(Request::Create { key, data: &data, hint });
                done(&client, keys.iter().map(create).collect(), &semantics)?;
                Ok(TOGETHER as u64)
            });
            self.block(&mut [work], &mut blocks, 1.0)?;
            while removed < made.load(Ordering::Relaxed) {
                let keys = keys(removed)?;
                let delete = |key| Op::new(Request::Delete { key });
                done(&client, keys.iter().map(delete).collect(), &Semantics::default())?;
                removed += TOGETHER as u64;
            }
        }
        blocks.forget_first();
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: "JULEA here: 13k/s",
                bar: Bar::AtLeast(bar),
            },
            transport: "tcp",
            level: level.word(),
        }))
    }

    fn creates_on_disk(&mut self, row: &'static str) -> Result<Row> {
        let scratch = Scratch::new(&self.settings.disk)?;
        let directory = scratch.path().join("d");
        let secret = scratch.path().join("secret");
        let on_disk = Served::start(&directory, &tiers(&directory), &secret)?;
        let before = std::mem::replace(&mut self.served, on_disk);
        let endpoint = self.served.tcp.clone();
        let measured = self.creates(row, &endpoint, SMALL_BYTES, Persistency::Storage, 20e3);
        self.served = before;
        measured
    }

    fn batch_writes(&mut self, row: &'static str, endpoint: &Endpoint) -> Result<Row> {
        // Two clients, so that one sends while the server carries out the other's.
        let works = (0..2).map(|half| {
            let client = self.served.client(endpoint)?;
            let key = Key::new("writes", "one")?;
            client.open(&key, &Open::create())?;
            let data = vec![5; SMALL_BYTES];
            let start = half * TOGETHER;
            let work: Work<'static> = Box::new(move || {
                let write = |index: usize| {
                    let offset_bytes = ((start + index) * SMALL_BYTES) as u64;
                    Op::new(Request::Write { key: &key, offset_bytes, data: &data })
                };
                done(&client, (0..TOGETHER).map(write).collect(), &Semantics::default())?;
                Ok(TOGETHER as u64)
            });
            Ok(work)
        });
        let mut works = works.collect::<Result<Vec<_>>>()?;
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            self.block(&mut works, &mut blocks, SMALL_BYTES as f64 / 1e9)?;
        }
        blocks.forget_first();
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "GB/s",
                yardstick_is: "JULEA here: 1.5 GB/s",
                bar: Bar::AtLeast(3.0),
            },
            transport: "tcp",
            level: "process",
        }))
    }

    /// Two servers over slow tiers beside one of them.
    fn striped(&mut self, row: &'static str, way: Way) -> Result<Row> {
        let scratch = Scratch::new(&fast_place())?;
        let secret = scratch.path().join("secret");
        let slow = |name: &str| {
            let directory = scratch.path().join(name);
            let path = directory.with_extension("tier");
            let settings = format!(
                "[[tier]]\nname = \"slow\"\npath = \"{}\"\n\
                 throttle = {{ bandwidth = \"200MB/s\", parallelism = 1 }}\n",
                path.display()
            );
            Served::start(&directory, &settings, &secret)
        };
        let servers = [slow("a")?, slow("b")?];
        let address = |servers: &[Served]| {
            let hosts: Vec<_> = servers.iter().map(|served| served.tcp.to_string()).collect();
            let secret = secret.display();
            format!("terrace://{}/?secret={secret}&stripe=1MiB", hosts.join(","))
        };
        let work = |servers: &[Served]| -> Result<Work<'static>> {
            let store = Store::open(&address(servers))?;
            let key = Key::new("large", &servers.len().to_string())?;
            let object = store.open(&key, &Open::create())?;
            let mut buffer = vec![6; 2 * LARGE_BYTES];
            object.write_at(0, &[IoSlice::new(&buffer)])?;
            Ok(Box::new(move || {
                match way {
                    Way::Write => object.write_at(0, &[IoSlice::new(&buffer)])?,
                    Way::Read => {
                        object.read_at(0, &mut [IoSliceMut::new(&mut buffer)])?;
                    }
                }
                Ok(1)
            }))
        };
        let (mut two, mut one) = ([work(&servers)?], [work(&servers[..1])?]);
        // Long enough for several transfers of the slow side.
        let block_ns = self.settings.block_ms.max(500) * 1_000_000;
        let gigabytes = (2 * LARGE_BYTES) as f64 / 1e9;
        let cpu_ns = || servers[0].cpu_ns() + servers[1].cpu_ns();
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            check_stop(self.stop)?;
            let server_ns = cpu_ns();
            let sample = repeat(&mut two, block_ns)?;
            blocks.server_cpu_ns += cpu_ns() - server_ns;
            blocks.client_cpu_ns += sample.cpu_ns;
            blocks.operations += sample.operations;
            blocks.samples.values.push(sample.per_second() * gigabytes);
            blocks.samples.yardsticks.push(repeat(&mut one, block_ns)?.per_second() * gigabytes);
            self.progress.advance(1);
        }
        blocks.forget_first();
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "GB/s",
                yardstick_is: "one server",
                bar: Bar::Ratio(1.8),
            },
            transport: "tcp",
            level: "process",
        }))
    }

    /// How long a verb takes to say that the server does not answer.
    fn unreachable(&mut self, row: &'static str) -> Result<Row> {
        check_stop(self.stop)?;
        let mut blocks = Blocks { samples: Samples::fixed(), ..Blocks::default() };
        blocks.samples.values.push(longest_s()?);
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "s",
                yardstick_is: "the deadline: 1 s",
                // Time to start the process comes on top.
                bar: Bar::AtMost(1.5 * DEADLINE_S),
            },
            transport: "tcp",
            level: "-",
        }))
    }

    /// Anonymous memory of a server with a thousand connections that do nothing. The server is a
    /// new one: what other rows left in its heap is theirs.
    fn idle(&mut self, row: &'static str) -> Result<Row> {
        let scratch = Scratch::new(&fast_place())?;
        let directory = scratch.path().join("i");
        let secret = scratch.path().join("secret");
        let served = Served::start(&directory, &tiers(&directory), &secret)?;
        let clients: Vec<Remote> =
            (0..TOGETHER).map(|_| served.client(&served.tcp)).collect::<Result<_>>()?;
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups {
            check_stop(self.stop)?;
            blocks.samples.values.push(served.anonymous_bytes()? as f64 / 1e6);
            self.progress.advance(1);
        }
        // They are all still served.
        for client in &clients {
            client.namespaces()?;
        }
        Ok(blocks.row(&About {
            comparison: Comparison { row, unit: "MB", yardstick_is: "-", bar: Bar::AtMost(100.0) },
            transport: "tcp",
            level: "-",
        }))
    }

    fn transfer(
        &mut self,
        row: &'static str,
        transport: &'static str,
        bar: Bar,
        mut works: Vec<Work<'static>>,
        yardstick: Yardstick,
    ) -> Result<Row> {
        let mut plain = match yardstick {
            Yardstick::Iperf => Vec::new(),
            Yardstick::Pread => {
                let files = files_of(&self.scratch.path().join("m.fast"), LARGE_BYTES)?;
                assert!(files.len() >= works.len(), "the objects are somewhere else");
                let files = files[..works.len()].iter();
                files.map(|file| pread(file, LARGE_BYTES)).collect::<Result<Vec<_>>>()?
            }
        };
        let gigabytes = LARGE_BYTES as f64 / 1e9;
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            self.block(&mut works, &mut blocks, gigabytes)?;
            let theirs = match yardstick {
                Yardstick::Iperf => iperf(2)?.map(|bytes| bytes / 1e9),
                Yardstick::Pread => {
                    let sample = repeat(&mut plain, self.settings.block_ms * 1_000_000)?;
                    Some(sample.per_second() * gigabytes)
                }
            };
            blocks.samples.yardsticks.extend(theirs);
        }
        blocks.forget_first();
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "GB/s",
                yardstick_is: match yardstick {
                    Yardstick::Iperf => "iperf3, 2 streams",
                    Yardstick::Pread => "pread of the same files",
                },
                bar,
            },
            transport,
            level: "process",
        }))
    }

    fn rate(
        &mut self,
        row: &'static str,
        bar: Bar,
        mut works: Vec<Work<'static>>,
        echoes: usize,
    ) -> Result<Row> {
        let echo = &self.echo;
        let mut plain =
            (0..echoes).map(|_| echo.round_trips()).collect::<Result<Vec<Work<'static>>>>()?;
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            self.block(&mut works, &mut blocks, 1.0)?;
            let sample = repeat(&mut plain, self.settings.block_ms * 1_000_000)?;
            blocks.samples.yardsticks.push(sample.per_second());
        }
        blocks.forget_first();
        Ok(blocks.row(&About {
            comparison: Comparison {
                row,
                unit: "operations/s",
                yardstick_is: "bare echo server, as many connections",
                bar,
            },
            transport: "tcp",
            level: "process",
        }))
    }

    fn plain(
        &mut self,
        row: &'static str,
        level: &'static str,
        bar: Bar,
        mut works: Vec<Work<'static>>,
        yardstick_is: &'static str,
    ) -> Result<Row> {
        let mut blocks = Blocks::default();
        for _ in 0..self.settings.groups + 1 {
            self.block(&mut works, &mut blocks, 1.0)?;
        }
        blocks.forget_first();
        let comparison = Comparison { row, unit: "operations/s", yardstick_is, bar };
        let about = About { comparison, transport: "tcp", level };
        Ok(blocks.row(&about))
    }

    /// One block of ours; `unit` is what an operation counts.
    fn block(&mut self, works: &mut [Work<'_>], blocks: &mut Blocks, unit: f64) -> Result<()> {
        check_stop(self.stop)?;
        let server_ns = self.served.cpu_ns();
        let sample: Sample = repeat(works, self.settings.block_ms * 1_000_000)?;
        blocks.server_cpu_ns += self.served.cpu_ns() - server_ns;
        blocks.client_cpu_ns += sample.cpu_ns;
        blocks.operations += sample.operations;
        blocks.samples.values.push(sample.per_second() * unit);
        self.progress.advance(1);
        Ok(())
    }
}

/// In which direction bytes go.
#[derive(Clone, Copy)]
enum Way {
    Write,
    Read,
}

#[derive(Clone, Copy)]
enum Yardstick {
    Iperf,
    Pread,
}

impl Blocks {
    /// The first block warms up.
    fn forget_first(&mut self) {
        self.samples.values.remove(0);
        if !self.samples.yardsticks.is_empty() {
            self.samples.yardsticks.remove(0);
        }
    }
}

/// Carries out a batch in which nothing may fail.
fn done(client: &Remote, mut batch: Vec<Op<'_>>, semantics: &Semantics) -> Result<()> {
    client.execute(&mut batch, semantics);
    for operation in batch {
        operation.outcome.expect("it was carried out")?;
    }
    Ok(())
}
