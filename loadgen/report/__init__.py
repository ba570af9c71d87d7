"""One page, complete in itself, of what was measured: `loadgen.report.page.page`."""
