// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores as applications meet them: made, opened, owned, attached to, and in bad health.

mod behaviour;
mod broken;
mod clients;
mod closes;
mod cluster;
mod configuration;
mod foreign;
mod init;
mod later;
mod leases;
mod life;
mod listed;
mod names;
mod removed;
mod said_gone;
mod same;
mod scene;
mod served;
mod stopped;
mod watched;
