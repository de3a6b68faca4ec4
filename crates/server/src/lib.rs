// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves a store over TCP and Unix sockets.
