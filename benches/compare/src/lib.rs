//! Measures every bar of tollgate in one run of one program, next to its peers
//! and the floor of the machine.
//!
//! | module | what |
//! |---|---|
//! | [`measure`] | CPU time, interleaved rounds, medians, two threads, single calls |
//! | [`floor`] | the least cost on this machine: counter, load, exchange |
//! | [`misses`] | what a cache miss costs |
//! | [`least`] | a check by id without everything that can be left out |
//! | [`peers`] | ours, governor and the tuned DashMap behind one trait |
//! | [`ids`] | random and chosen ids |
//! | [`counting`] | the allocator that counts |
//! | [`rows`] | the rows with their bars; the layouts that were tried |
//! | [`report`], [`plot`] | the table and the picture |

pub mod counting;
pub mod floor;
pub mod ids;
pub mod least;
pub mod measure;
pub mod misses;
pub mod peers;
pub mod plot;
pub mod report;
pub mod rows;
