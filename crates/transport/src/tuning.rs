// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the operating system is to treat a TCP connection.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// Longest time for which what was sent may stay unacknowledged by the other machine. It also
/// ends a connection whose other end is gone without a word.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// After so long without traffic the other machine is asked whether it is there, …
const ASK_AFTER: Duration = Duration::from_secs(10);

/// … so often, at this distance.
const ASK_COUNT: u32 = 3;
const ASK_EVERY: Duration = Duration::from_secs(3);

/// Sets what every connection of either side needs.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    // Frames are sent whole: waiting for more would only delay them.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK_COUNT)?;
    sockopt::set_tcp_user_timeout(stream, SILENCE_MAX.as_millis() as u32)?;
    if stream.peer_addr()?.ip().is_loopback() {
        // Nothing is congested within a machine, and the pacing of BBR halves the bandwidth there.
        // This one is in every kernel; where it may not be chosen, the system's choice stays.
        let _ = sockopt::set_tcp_congestion(stream, "reno");
    }
    Ok(())
}
