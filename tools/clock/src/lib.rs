//! The `clock` tools: current time, and arithmetic with dates. The time zone database is part of the component.

mod add;
mod diff;
mod moment;
mod now;
mod relative;

use add::clock_add;
use diff::clock_diff;
use now::clock_now;

toolcell_sdk::export!(clock_now, clock_add, clock_diff);
