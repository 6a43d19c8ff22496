//! Several receipts as one.

use toolcell_core::Receipt;

/// What two pieces of work used together.
pub(crate) fn together(mut sum: Receipt, next: Receipt) -> Receipt {
    sum.fuel = sum.fuel.saturating_add(next.fuel);
    sum.wall_us = sum.wall_us.saturating_add(next.wall_us);
    sum.cpu_us = sum.cpu_us.saturating_add(next.cpu_us);
    sum.peak_memory = sum.peak_memory.max(next.peak_memory);
    sum.bytes_in = sum.bytes_in.saturating_add(next.bytes_in);
    sum.bytes_out = sum.bytes_out.saturating_add(next.bytes_out);
    sum.log_bytes = sum.log_bytes.saturating_add(next.log_bytes);
    sum.omitted = sum.omitted.saturating_add(next.omitted);
    sum.agent = match (sum.agent, next.agent) {
        (Some(mut sum), Some(next)) => {
            sum.add(*next);
            Some(sum)
        }
        (sum, next) => sum.or(next),
    };
    for host in next.hosts {
        sum.note_host(host);
    }
    for file in next.files {
        sum.note_file(file.path, file.write);
    }
    for denial in next.denials {
        sum.note_denial(denial);
    }
    sum
}
