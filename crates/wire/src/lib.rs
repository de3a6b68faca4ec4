// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network protocol as pure functions: frames, requests and answers, no sockets.
