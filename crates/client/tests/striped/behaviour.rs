// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many stores as one are a backend: the suite of all backends, with each distribution.

use terrace_client::striped::{Distribution, Map, Striped};
use terrace_testkit::behaviour_suite;

use super::cluster::{Server, over, servers, striped};

fn three(distribution: Distribution) -> (Box<Striped>, Vec<Server>) {
    let servers = servers(3);
    (Box::new(striped(&servers, distribution)), servers)
}

behaviour_suite!(single, three(Distribution::Single));
behaviour_suite!(round_robin, three(Distribution::RoundRobin { stripe_bytes: 1000 }));
behaviour_suite!(weighted, three(Distribution::Weighted { stripe_bytes: 700 }));
behaviour_suite!(
    progressive,
    three(Distribution::Progressive { head_bytes: 3, stripe_bytes: 4096 })
);
behaviour_suite!(alone, {
    let servers = servers(1);
    (Box::new(striped(&servers, Distribution::RoundRobin { stripe_bytes: 2000 })), servers)
});
behaviour_suite!(a_list, {
    let servers = servers(3);
    let map = Map::without_epochs(servers.iter().map(Server::member).collect()).expect("legal");
    (Box::new(over(map, Distribution::RoundRobin { stripe_bytes: 2000 })), servers)
});
behaviour_suite!(grown, {
    let servers = servers(3);
    let members = servers.iter().enumerate().map(|(epoch, server)| {
        let since = epoch as u64;
        terrace_client::striped::Member { since, ..server.member() }
    });
    let map = Map::new(2, members.collect()).expect("legal");
    (Box::new(over(map, Distribution::RoundRobin { stripe_bytes: 2000 })), servers)
});
