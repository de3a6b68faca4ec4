// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a pool is, and as which user of Ceph it is used.

use std::path::PathBuf;
use std::time::Duration;

/// Where a pool is. It holds no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadosSettings {
    /// The pool.
    pub pool: String,
    /// The namespace in the pool; empty for that of objects without one.
    pub namespace: String,
    /// The user, without `client.`.
    pub user: String,
    /// The configuration of Ceph; `None` for that of the variable `CEPH_CONF`, else
    /// `/etc/ceph/ceph.conf` and the other usual places.
    pub configuration: Option<PathBuf>,
    /// The file with the user's key; `None` for that of the configuration of Ceph.
    pub keyring: Option<PathBuf>,
    /// Longest that a request takes, and the connection to the monitors.
    pub deadline: Duration,
}

impl RadosSettings {
    /// Longest that a request takes by default.
    pub const DEADLINE: Duration = Duration::from_secs(30);

    /// The user by default.
    pub const USER: &'static str = "admin";

    /// A pool of the cluster that this machine's configuration names.
    pub fn new(pool: &str) -> Self {
        Self {
            pool: pool.into(),
            namespace: String::new(),
            user: Self::USER.into(),
            configuration: None,
            keyring: None,
            deadline: Self::DEADLINE,
        }
    }

    /// Address in logs and errors.
    pub fn target(&self) -> String {
        let separator = if self.namespace.is_empty() { "" } else { "/" };
        format!("rados://{}{separator}{}", self.pool, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_the_pool_and_the_namespace() {
        let settings = RadosSettings { namespace: "one".into(), ..RadosSettings::new("pool") };
        assert_eq!(settings.target(), "rados://pool/one");
        assert_eq!(RadosSettings::new("pool").target(), "rados://pool");
    }
}
