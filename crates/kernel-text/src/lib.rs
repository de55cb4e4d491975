//! Types and parsers for the kernel's text formats.
//!
//! All functions take text or bytes, and return values with the unit in the name. This crate opens
//! no file and reads no clock. A key that the kernel did not print is `None`, never zero.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod cgroup_version;
mod cpu_list;
mod cpu_place;
mod cpu_stat;
mod cpu_times;
mod error;
mod flat;
mod memory;
mod pressure;
mod quota;
mod schedstat;
mod weight;

pub use cgroup_version::CgroupVersion;
pub use cpu_list::{CpuSet, MAX_CPUS};
pub use cpu_place::CpuPlace;
pub use cpu_stat::{CpuStat, CpuacctStat, USER_HZ, USER_TICK_NS};
pub use cpu_times::CpuTimes;
pub use error::{ParseError, Result};
pub use flat::{flat_keyed, parse_i64, parse_u64};
pub use memory::{MemoryStat, NumaStat, limit_bytes};
pub use pressure::Pressure;
pub use quota::{Bandwidth, Quota};
pub use schedstat::TaskSchedstat;
pub use weight::{WeightRule, request_shares};
